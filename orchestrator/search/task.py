"""What is searched for one variant, and how values become a training spec. Free of Optuna and torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lm.spec import TrainSpec, trial_key
from orchestrator.sweep.override import has, override, value_at
from orchestrator.sweep.searches import Change, Choice, Integer, Objective, PopulationBased, Search, Searched, Searching
from orchestrator.values import value_in_words

Draw = Callable[[str, Searched], Any]
"""Gives a dimension, by its dotted key, a value: a number, or the name of a choice's option."""


class Walked(NamedTuple):
    """Values and the spec they make; where no spec can have them together, None and why."""

    values: dict[str, Any]
    spec: TrainSpec | None
    reason: str | None


@dataclass(frozen=True)
class SearchTask:
    """One variant's search. `base` has the training seed; `fixed` names what of the space is not searched for it."""

    variant: str
    base: TrainSpec
    searching: Searching
    fixed: tuple[str, ...] = field(default=())

    @property
    def space(self) -> dict[str, Searched]:
        """What is searched, in the order in which it is applied."""
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

    def starts(self) -> list[dict[str, Any]]:
        """The starting points, of choices the names of their options, without what is not searched for this variant."""
        space = self.space
        return [
            {key: _as_drawn(space[key], value) for key, value in start.items() if key in space}
            for start in self.searching.start
        ]

    def explain(self, fingerprint: str) -> dict[str, Any]:
        """All that decides the course of the search but its length, readable; the variant's name does not."""
        searching = self.searching.model_dump(mode="json", exclude={"trials", "training_hours", "variants"})
        space = [{"key": key} | searching["space"][key] for key in self.space]  # a list: the order counts
        base = {"key": trial_key(self.base, fingerprint), "spec": self.base.model_dump(mode="json")}
        return searching | {"space": space, "start": self.starts(), "objectives": list(self.objectives), "base": base}

    def key(self, fingerprint: str) -> str:
        """16 hexadecimal digits that name the search. Raising its trials or hours leaves them: it goes on."""
        decides = self.explain(fingerprint)
        decides["base"] = decides["base"]["key"]
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:16]

    def walk(self, draw: Draw) -> Walked:
        """Draw values in the space's order, each put into the spec that the ones before made.

        A dimension is drawn only where its conditions hold in that spec and its place exists there. Values that
        no spec can have alone may be mended by later ones.
        """
        spec, values = self.base, dict[str, Any]()
        pending: dict[str, Any] = {}
        problems: list[str] = []
        for key, dimension in self.space.items():
            here = isinstance(dimension, Change) or has(spec, key)
            if not here or not all(_holds(spec, path, value) for path, value in dimension.when.items()):
                continue
            values[key] = draw(key, dimension)
            pending |= _changes(key, dimension, values[key])
            changed, wrong = override(spec, pending)
            problems = [f"{'.'.join(map(str, problem.path))}: {problem.text}" for problem in wrong]
            if not wrong:
                spec, pending = changed, {}
        return Walked(values, None if problems else spec, "; ".join(problems) or None)

    def spec(self, values: Mapping[str, Any]) -> tuple[TrainSpec | None, str | None]:
        """The spec with these values; where there is none, why."""
        walked = self.walk(lambda key, _: values[key])
        return walked.spec, walked.reason

    def in_words(self, values: Mapping[str, Any]) -> str:
        """What a trial's values are: `head mixture; dropout.weight 0.31`."""
        return "; ".join(
            f"{key} {value if isinstance(value, str) else value_in_words(value)}" for key, value in values.items()
        )


def _changes(key: str, dimension: Searched, value: Any) -> dict[str, Any]:
    match dimension:
        case Change():
            return dimension.options[value]
        case Choice():
            return {key: dimension.options[value]}
        case _:
            return {key: value}


def _as_drawn(dimension: Searched, value: Any) -> Any:
    match dimension:
        case Choice() | Change():
            return "null" if value is None else str(value)
        case Integer():
            return int(value)
        case _:
            return float(value)


def _holds(spec: TrainSpec, path: str, value: object) -> bool:
    return has(spec, path) and value_at(spec, path) == value
