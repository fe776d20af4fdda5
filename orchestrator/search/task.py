"""What is searched for one variant: its space, points in it, and the training spec of a point. Free of Optuna."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from lm.spec import TrainSpec, trial_key
from orchestrator.errors import CannotStartError
from orchestrator.sweep.draws import Draw, Drawn, draw_all, every, points_of, start_values
from orchestrator.sweep.searches import GridSampler, Objective, PopulationBased, Search, Searching
from orchestrator.sweep.space import Dimension, Range
from orchestrator.words import value_in_words

_MOST_POINTS = 10_000
_NOT_EXPLAINED = {"trials", "training_hours", "variants", "repeats", "start_rest", "min_trials_per_option"}
"""What of a search its explanation leaves out, or has in another form."""


@dataclass(frozen=True)
class SearchTask:
    """One variant's search. `base` has the training seed; `fixed` names what of the space is not searched for it.

    `seed` is the one of the table that takes its values, None if all do. `built_on` are the variants of the table that
    are changes of what is found, with what they change.
    """

    variant: str
    base: TrainSpec
    searching: Searching
    fixed: tuple[str, ...] = field(default=())
    seed: int | None = None
    built_on: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants of the table that wait for it."""
        return self.variant, *self.built_on

    @property
    def title(self) -> str:
        """How it is called: its variant, and the seed of the table that it is for."""
        return self.variant if self.seed is None else f"{self.variant} for seed {self.seed}"

    @property
    def space(self) -> dict[str, Dimension | tuple[Range, ...]]:
        """What is searched, in the order of its application; of several ranges of one path at most one holds."""
        return {key: dimension for key, dimension in self.searching.space.items() if key not in self.fixed}

    @property
    def population(self) -> int:
        """The number of trials in a generation; 0 for a search whose values do not change in training."""
        scheduler = self.searching.scheduler
        return scheduler.population if isinstance(scheduler, PopulationBased) else 0

    @property
    def generations(self) -> list[int]:
        """The epochs that each generation of a population trains; empty without a population."""
        scheduler = self.searching.scheduler
        if not isinstance(scheduler, PopulationBased):
            return []
        most, each = self.base.epochs, scheduler.interval_epochs
        return [min(each, most - begun) for begun in range(0, most, each)]

    @cached_property
    def trials(self) -> int | None:
        """The number of trials in all; None if hours decide. CannotStartError for a grid too large to be counted."""
        if self.population:
            return self.population * len(self.generations)
        sampler, most, starts = self.searching.sampler, self.searching.trials, len(self.searching.start)
        if not isinstance(sampler, GridSampler):
            return most
        wanted = _MOST_POINTS + 1 if most is None else max(0, most - starts)
        size = sum(1 for _ in islice(self.grid(sampler.points), wanted))
        if most is None and size > _MOST_POINTS:
            raise CannotStartError(
                f"search.sampler: the grid has more than {_MOST_POINTS:,} points; write 'trials:' or fewer 'points'"
            )
        return starts + size if most is None else min(starts + size, most)

    @property
    def training_hours(self) -> float | None:
        """The hours of training after which no trial is asked for; None if their number alone decides."""
        return self.searching.training_hours if isinstance(self.searching, Search) else None

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """What is minimized."""
        return self.searching.objectives if isinstance(self.searching, Search) else ("validation",)

    @property
    def min_trials_per_option(self) -> dict[str, int]:
        """The least number of trials for each option, of the choices that are searched for this variant."""
        return {key: least for key, least in self.searching.min_trials_per_option.items() if key in self.space}

    def starts(self) -> list[dict[str, Any]]:
        """The starting points, of choices the names of their options, without what is not searched for this variant."""
        space, rest_of_base = self.space, self.searching.start_rest == "base"
        return [start_values(self.base, space, start, rest_of_base=rest_of_base) for start in self.searching.start]

    def explain(self, fingerprint: str) -> dict[str, Any]:
        """All that decides what the search does, except its length, readable; the variant's name does not."""
        searching = self.searching.model_dump(mode="json", exclude=_NOT_EXPLAINED)
        places = {key: searching["space"][key] for key in self.space}
        # A list: the order counts.
        space = [{"key": k} | (place if isinstance(place, dict) else {"ranges": place}) for k, place in places.items()]
        base = {"key": trial_key(self.base, fingerprint), "spec": self.base.model_dump(mode="json")}
        least = {"min_trials_per_option": self.min_trials_per_option} if self.min_trials_per_option else {}
        decides = {"space": space, "start": self.starts(), "objectives": list(self.objectives), "base": base}
        return searching | decides | least

    def key(self, fingerprint: str) -> str:
        """16 hexadecimal digits that name the search. More trials or hours do not change them: it goes on."""
        decides = self.explain(fingerprint)
        decides["base"] = decides["base"]["key"]
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:16]

    def draw_all(self, draw: Draw) -> Drawn:
        """Draw values in the space's order."""
        return draw_all(self.base, self.space, draw)

    def drawn(self, values: Mapping[str, Any]) -> Drawn:
        """A trial's values: their dimensions, and the spec that they make or the reason why there is none."""
        return self.draw_all(lambda key, *_: values[key])

    def in_words(self, values: Mapping[str, Any]) -> str:
        """A trial's values: `head mixture; dropout.weight 0.31`."""
        return "; ".join(f"{key} {value_in_words(value)}" for key, value in values.items())

    def random_point(self, number: int) -> dict[str, float]:
        """A uniform coordinate in [0, 1) for each dimension, a function of the sampler seed and the trial number."""
        generator = np.random.default_rng([self.searching.sampler_seed, number])
        return dict(zip(self.space, generator.random(len(self.space)).tolist(), strict=True))

    def sobol_point(self, number: int) -> dict[str, float]:
        """The trial's point of a Sobol sequence (Owen 1998) that the sampler's seed scrambles."""
        from scipy.stats.qmc import Sobol  # most of a second to import, and few searches need it

        sequence = Sobol(len(self.space), scramble=True, seed=self.searching.sampler_seed)
        if number:
            sequence.fast_forward(number)
        return dict(zip(self.space, sequence.random(1)[0].tolist(), strict=True))

    def grid(self, points: int) -> Iterator[dict[str, Any]]:
        """The values of every combination, the last dimension changing fastest; also those that no spec can have."""
        return (w.values for w in every(self.base, self.space, lambda _, dimension, __: points_of(dimension, points)))
