"""How searched values become a training spec: a space is walked in its order, each value applied to the spec so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from lm.spec import TrainSpec
from orchestrator.sweep.override import has, override, value_at
from orchestrator.sweep.space import Change, Choice, Dimension, Integer, Range, dimensions_of, fits

Places = Mapping[str, Dimension | Sequence[Range]]
"""A space: a single dimension or several ranges at each dotted path, a change under a name of its own."""
Draw = Callable[[str, Dimension, TrainSpec], Any]
"""Gives a dimension a value, by its key and the spec so far: a number, the name of an option, or LEFT_OUT."""

LEFT_OUT: Final = object()
"""In place of a value: the trial keeps what it has there, and nothing is recorded."""


class Walked(NamedTuple):
    """Values and the spec they make; where no spec can have them together, None and why; what each was drawn from."""

    values: dict[str, Any]
    spec: TrainSpec | None
    reason: str | None
    drawn: dict[str, Dimension]


def walk(base: TrainSpec, space: Places, draw: Draw) -> Walked:
    """Draw values in the space's order, each put into the spec that the ones before made.

    A dimension is drawn only where its conditions hold in that spec and its place exists there; of several ranges
    at most one holds. Values that no spec can have alone may be mended by later ones.
    """
    spec, values, drawn = base, dict[str, Any](), dict[str, Dimension]()
    pending: dict[str, Any] = {}
    problems: list[str] = []
    for key, place in space.items():
        dimension = next((one for one in dimensions_of(place) if _is_searched(key, one, spec, space, values)), None)
        if dimension is None or (value := draw(key, dimension, spec)) is LEFT_OUT:
            continue
        values[key], drawn[key] = value, dimension
        pending |= changes_of(key, dimension, value)
        changed, wrong = override(spec, pending)
        problems = [f"{'.'.join(map(str, problem.path))}: {problem.text}" for problem in wrong]
        if not wrong:
            spec, pending = changed, {}
    return Walked(values, None if problems else spec, "; ".join(problems) or None, drawn)


def every(base: TrainSpec, space: Places, points: Callable[[str, Dimension], Sequence[Any]]) -> Iterator[Walked]:
    """The walk of every combination of these points, the last dimension changing fastest; only what holds counts."""
    places: list[int] = []  # which point of every dimension that holds, in order
    while True:
        sizes: list[int] = []

        def draw(key: str, dimension: Dimension, _: TrainSpec, sizes: list[int] = sizes) -> Any:
            values = points(key, dimension)
            sizes.append(len(values))
            if len(places) < len(sizes):
                places.append(0)
            return values[places[len(sizes) - 1]]

        yield walk(base, space, draw)
        while places and places[-1] == sizes[len(places) - 1] - 1:
            places.pop()
        if not places:
            return
        places[-1] += 1


def changes_of(key: str, dimension: Dimension, value: Any) -> dict[str, Any]:
    """What a value, of a choice the name of an option, changes in a spec, by dotted path."""
    match dimension:
        case Change():
            return dimension.options[value]
        case Choice():
            return {key: dimension.options[value]}
        case _:
            return {key: value}


def as_drawn(dimension: Dimension, value: Any) -> Any:
    """A value as a sweep file writes it, in the form in which it is drawn."""
    match dimension:
        case Choice() | Change():
            return "null" if value is None else str(value)
        case Integer():
            return int(value)
        case _:
            return float(value)


def start_values(base: TrainSpec, space: Places, start: Mapping[str, Any], *, rest_of_base: bool) -> dict[str, Any]:
    """A starting point's values as they are drawn, without what the space does not have.

    With `rest_of_base` what it leaves out is as the trial has it there, where that is among what is searched.
    """
    values = {key: as_drawn(dimensions_of(space[key])[0], value) for key, value in start.items() if key in space}
    if not rest_of_base:
        return values

    def draw(key: str, dimension: Dimension, spec: TrainSpec) -> Any:
        if key in values and fits(dimension, values[key]):
            return values[key]
        return _as_it_is(key, dimension, spec)

    return walk(base, space, draw).values


def _as_it_is(key: str, dimension: Dimension, spec: TrainSpec) -> Any:
    """The value that leaves the spec as it is; LEFT_OUT where the dimension has none."""
    if isinstance(dimension, Choice | Change):
        same = (name for name in dimension.options if override(spec, changes_of(key, dimension, name)) == (spec, []))
        return next(same, LEFT_OUT)
    value = value_at(spec, key)
    return as_drawn(dimension, value) if fits(dimension, value) else LEFT_OUT


def _is_searched(key: str, dimension: Dimension, spec: TrainSpec, space: Places, values: Mapping[str, Any]) -> bool:
    if not isinstance(dimension, Change) and not has(spec, key):
        return False
    return all(_holds(spec, space, values, path, value) for path, value in dimension.when.items())


def _holds(spec: TrainSpec, space: Places, values: Mapping[str, Any], path: str, value: object) -> bool:
    if isinstance(space.get(path), Choice | Change) and values.get(path) == value:
        return True
    return has(spec, path) and value_at(spec, path) == value
