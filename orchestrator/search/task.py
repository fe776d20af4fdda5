"""What is searched for one variant, and how values become a training spec. Free of Optuna and torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lm.spec import TrainSpec, trial_key
from orchestrator.sweep.searches import Objective, PopulationBased, Search, Searching
from orchestrator.sweep.space import Dimension, Range, fits
from orchestrator.sweep.walk import LEFT_OUT, Draw, Options, Walked, combinations, lacking, start_values, walk
from orchestrator.words import value_in_words

_ELSEWHERE = {"trials", "training_hours", "variants", "start_rest", "min_trials_per_option"}
"""What of a search its explanation leaves out, or has in another form."""


@dataclass(frozen=True)
class SearchTask:
    """One variant's search. `base` has the training seed; `fixed` names what of the space is not searched for it."""

    variant: str
    base: TrainSpec
    searching: Searching
    fixed: tuple[str, ...] = field(default=())

    @property
    def space(self) -> dict[str, Dimension | tuple[Range, ...]]:
        """What is searched, in the order in which it is applied; of several ranges of one path at most one holds."""
        return {key: dimension for key, dimension in self.searching.space.items() if key not in self.fixed}

    @property
    def population(self) -> int:
        """How many trials a generation has; 0 where values stay as they are in training."""
        scheduler = self.searching.scheduler
        return scheduler.population if isinstance(scheduler, PopulationBased) else 0

    @property
    def generations(self) -> list[int]:
        """How many epochs each generation of a population trains; none where there is no population."""
        scheduler = self.searching.scheduler
        if not isinstance(scheduler, PopulationBased):
            return []
        most, each = self.base.epochs, scheduler.interval_epochs
        return [min(each, most - begun) for begun in range(0, most, each)]

    @property
    def trials(self) -> int | None:
        """How many are asked in all; None where hours or a grid say."""
        return self.population * len(self.generations) if self.population else self.searching.trials

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """What is made small."""
        return self.searching.objectives if isinstance(self.searching, Search) else ("validation",)

    @property
    def min_trials_per_option(self) -> dict[str, int]:
        """The least number of trials for each option, of the choices that are searched for this variant."""
        return {key: least for key, least in self.searching.min_trials_per_option.items() if key in self.space}

    def option_combinations(self) -> list[Options]:
        """The combinations of options of which each option gets its least number of trials."""
        return combinations(self.base, self.space, self.min_trials_per_option)

    def lacking(self, combined: Sequence[Options], tried: Sequence[Mapping[str, Any]]) -> Options:
        """The options that the next trial must have, after these values."""
        return lacking(combined, self.min_trials_per_option, tried)

    def starts(self) -> list[dict[str, Any]]:
        """The starting points, of choices the names of their options, without what is not searched for this variant."""
        space, rest_of_base = self.space, self.searching.start_rest == "base"
        return [start_values(self.base, space, start, rest_of_base=rest_of_base) for start in self.searching.start]

    def explain(self, fingerprint: str) -> dict[str, Any]:
        """All that decides what the search does, but its length, readable; the variant's name does not."""
        searching = self.searching.model_dump(mode="json", exclude=_ELSEWHERE)
        places = {key: searching["space"][key] for key in self.space}
        # A list: the order counts.
        space = [{"key": k} | (place if isinstance(place, dict) else {"ranges": place}) for k, place in places.items()]
        base = {"key": trial_key(self.base, fingerprint), "spec": self.base.model_dump(mode="json")}
        least = {"min_trials_per_option": self.min_trials_per_option} if self.min_trials_per_option else {}
        decides = {"space": space, "start": self.starts(), "objectives": list(self.objectives), "base": base}
        return searching | decides | least

    def key(self, fingerprint: str) -> str:
        """16 hexadecimal digits that name the search. Raising its trials or hours leaves them: it goes on."""
        decides = self.explain(fingerprint)
        decides["base"] = decides["base"]["key"]
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:16]

    def walk(self, draw: Draw) -> Walked:
        """Draw values in the space's order."""
        return walk(self.base, self.space, draw)

    def spec(self, values: Mapping[str, Any]) -> tuple[TrainSpec | None, str | None]:
        """The spec with these values; where there is none, why."""
        walked = self.walk(lambda key, *_: values[key])
        return walked.spec, walked.reason

    def wrong_value(self, values: Mapping[str, Any]) -> str | None:
        """Why these cannot be the values of a trial; None where they can: each in what is searched, none missing."""
        wrong: list[str] = []

        def draw(key: str, dimension: Dimension, _: TrainSpec) -> Any:
            if key in values and fits(dimension, values[key]):
                return values[key]
            wrong.append(f"values.{key}: {'out of its range' if key in values else 'missing'}")
            return LEFT_OUT

        walked = self.walk(draw)
        wrong += [f"values.{key}: not searched with the others" for key in values if key not in walked.values]
        return wrong[0] if wrong else None

    def drawn(self, values: Mapping[str, Any]) -> dict[str, Dimension]:
        """From which dimension each of a trial's values was drawn."""
        return self.walk(lambda key, *_: values[key]).drawn

    def in_words(self, values: Mapping[str, Any]) -> str:
        """What a trial's values are: `head mixture; dropout.weight 0.31`."""
        return "; ".join(
            f"{key} {value if isinstance(value, str) else value_in_words(value)}" for key, value in values.items()
        )
