"""Values drawn from a search space, each put into the spec that those before it made."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from lm.spec import TrainSpec
from lm.yaml_text import Place
from orchestrator.sweep.override import ABSENT, override, value_at
from orchestrator.sweep.space import (
    Change,
    Dimension,
    Integer,
    LogUniform,
    OneOf,
    Range,
    dimensions_of,
    fits,
    same_value,
)

Places = Mapping[str, Dimension | Sequence[Range]]
"""A space: a single dimension or several ranges at each dotted path, a change under a name of its own."""
Draw = Callable[[str, Dimension, TrainSpec], Any]
"""Gives a dimension a value, by its key and the spec so far: a number, the name of an option, or LEFT_OUT."""
Options = Mapping[str, str]
"""The name of an option for each of several choices; a choice that another option rules out is left out."""
LEFT_OUT: Final = object()
"""In place of a value: the trial keeps what it has there, and nothing is recorded."""


@dataclass(frozen=True)
class Drawn:
    """Values, and the dimension that each was drawn from; `reason` says why no spec can have them together."""

    last_spec: TrainSpec
    values: dict[str, Any] = field(default_factory=dict)
    dimensions: dict[str, Dimension] = field(default_factory=dict)
    pending: dict[str, Any] = field(default_factory=dict)
    """Changes that did not fit `last_spec`; values that come later may mend them."""
    reason: str | None = None

    @property
    def spec(self) -> TrainSpec | None:
        """The spec that the values make; None if no spec can have them together."""
        return self.last_spec if self.reason is None else None

    def and_then(self, key: str, dimension: Dimension, value: Any) -> Drawn:
        """These values and one more."""
        pending = self.pending | changes_of(key, dimension, value)
        spec, problems = override(self.last_spec, pending)
        values, dimensions = self.values | {key: value}, self.dimensions | {key: dimension}
        return Drawn(spec, values, dimensions, pending if problems else {}, "; ".join(map(str, problems)) or None)


def draw_all(base: TrainSpec, space: Places, draw: Draw) -> Drawn:
    """Draw values in the space's order, each put into the spec that the ones before made.

    A dimension is drawn only if its conditions hold in that spec and its place exists there; of several ranges
    at most one holds. Values that no spec can have alone may be mended by later ones.
    """
    return next(every(base, space, lambda *arguments: [draw(*arguments)]))


def every(
    base: TrainSpec, space: Places, points: Callable[[str, Dimension, TrainSpec], Iterable[Any]]
) -> Iterator[Drawn]:
    """What every combination of these points gives, the last dimension changing fastest."""

    def extended(each_drawn: Iterator[Drawn], key: str) -> Iterator[Drawn]:
        for drawn in each_drawn:
            searched = [d for d in dimensions_of(space[key]) if _is_searched(drawn, space, key, d)]
            for dimension in searched[:1]:
                for value in points(key, dimension, drawn.last_spec):
                    yield drawn if value is LEFT_OUT else drawn.and_then(key, dimension, value)
            if not searched:
                yield drawn

    each_drawn = iter([Drawn(base)])
    for key in space:
        each_drawn = extended(each_drawn, key)
    return each_drawn


def _is_searched(drawn: Drawn, space: Places, key: str, dimension: Dimension) -> bool:
    """Whether a dimension's place exists and its conditions hold; these name options, or values of the spec."""

    def holds(path: str, value: object) -> bool:
        is_option = isinstance(space.get(path), OneOf) and drawn.values.get(path) == value
        return is_option or value_at(drawn.last_spec, path) == value

    exists = isinstance(dimension, Change) or value_at(drawn.last_spec, key) is not ABSENT
    return exists and all(holds(path, value) for path, value in dimension.when.items())


def changes_of(key: str, dimension: Dimension, value: Any) -> dict[str, Any]:
    """What a value changes in a spec, by dotted path; the value of a choice or change is the name of an option."""
    option = dimension.options[value] if isinstance(dimension, OneOf) else value
    return dict(option) if isinstance(dimension, Change) else {key: option}


def as_drawn(dimension: Dimension, value: Any) -> Any:
    """A value of a sweep file in the form in which values are drawn: the name of an option, an int or a float.

    What is no number stays as it is, and fits no range.
    """
    if isinstance(dimension, OneOf):
        name = "null" if value is None else str(value)
        if isinstance(dimension.among, dict):
            return name.lower() if isinstance(value, bool) and name not in dimension.options else name
        return next((same for same, option in dimension.options.items() if same_value(option, value)), name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return int(value) if isinstance(dimension, Integer) else float(value)


def value_of(dimension: Dimension, x: float) -> Any:
    """The value at a coordinate in [0, 1); every whole number and every option has an equal share of the interval.

    A whole number on a log scale has the share from half a unit below to half a unit above.
    """
    match dimension:
        case OneOf():
            names = list(dimension.options)
            return names[int(x * len(names))]
        case Integer(low=low, high=high, log=True):
            start, end = math.log(low - 0.5), math.log(high + 0.5)
            return min(high, max(low, round(math.exp(start + x * (end - start)))))
        case Integer(low=low, high=high):
            return low + int(x * (high - low + 1))
        case _:
            scale, back = (math.log, math.exp) if isinstance(dimension, LogUniform) else (float, float)
            start, end = scale(dimension.low), scale(dimension.high)
            return min(dimension.high, max(dimension.low, back(start + x * (end - start))))


def points_of(dimension: Dimension, points: int) -> Sequence[Any]:
    """All names of a choice, all whole numbers, or this many points from low to high, on the dimension's scale."""
    match dimension:
        case OneOf():
            return list(dimension.options)
        case Integer():
            return range(dimension.low, dimension.high + 1)  # no list: there may be 2^63
        case _:
            scale, back = (math.log, math.exp) if isinstance(dimension, LogUniform) else (float, float)
            low, high = scale(dimension.low), scale(dimension.high)
            inner = [back(low + (high - low) * i / (points - 1)) for i in range(1, points - 1)]
            return [dimension.low, *inner, dimension.high]


def start_values(base: TrainSpec, space: Places, start: Mapping[str, Any], *, rest_of_base: bool) -> dict[str, Any]:
    """A start's values as they are drawn; with `rest_of_base` also those of the spec that a dimension can give."""
    values = {key: as_drawn(dimensions_of(space[key])[0], value) for key, value in start.items() if key in space}
    if not rest_of_base:
        return values

    def draw(key: str, dimension: Dimension, spec: TrainSpec) -> Any:
        if key in values and fits(dimension, values[key]):
            return values[key]
        if isinstance(dimension, OneOf):
            options = dimension.options
            return next((o for o in options if override(spec, changes_of(key, dimension, o)) == (spec, [])), LEFT_OUT)
        value = value_at(spec, key)
        return as_drawn(dimension, value) if fits(dimension, value) else LEFT_OUT

    return draw_all(base, space, draw).values


def combinations(base: TrainSpec, space: Places, choices: Mapping[str, int]) -> list[Options]:
    """Every combination of these choices' options that a spec can have if everything else is as in the base."""

    def points(key: str, dimension: Dimension, _: TrainSpec) -> Sequence[Any]:
        return list(dimension.options) if key in choices and isinstance(dimension, OneOf) else [LEFT_OUT]

    return [drawn.values for drawn in every(base, space, points) if drawn.spec is not None] if choices else []


def paths_of(key: str, place: Dimension | Sequence[Range]) -> set[str]:
    """The dotted paths of a spec that a place of the space may change."""
    return {
        path
        for dimension in dimensions_of(place)
        for point in ends_of(dimension).values()
        for path in changes_of(key, dimension, point)
    }


def ends_of(dimension: Dimension) -> dict[Place, Any]:
    """Both ends of a range, or the names of all options, by their place in the file."""
    if not isinstance(dimension, OneOf):
        return {("low",): dimension.low, ("high",): dimension.high}
    places: Iterable[str | int] = dimension.among if isinstance(dimension.among, dict) else itertools.count()
    return {("among", place): option for place, option in zip(places, dimension.options, strict=False)}


def lacking(combined: Sequence[Options], least: Mapping[str, int], tried: Sequence[Mapping[str, Any]]) -> Options:
    """The options that the next trial must have; none if every option has its least number of trials.

    The combination that lacks the most trials; of several, the one whose options had the fewest; then the first. Only
    the values of the trials so far decide, so that a search that was killed goes on the same.
    """
    counts = Counter((key, values[key]) for values in tried for key in least if key in values)

    def rank(options: Options) -> tuple[int, int]:
        missing = sum(max(0, least[key] - counts[key, option]) for key, option in options.items())
        return missing, -sum(counts[item] for item in options.items())

    best: Options = max(combined, key=rank) if combined else {}
    chosen = dict(best)
    while chosen and counts[last := next(reversed(chosen.items()))] >= least[last[0]]:
        del chosen[last[0]]  # it has enough, and nothing after it depends on it
    return chosen
