"""How searched values become a training spec: a space is walked in its order, each value applied to the spec so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from lm.spec import TrainSpec
from orchestrator.sweep.override import has, override, value_at
from orchestrator.sweep.space import Change, Choice, Dimension, Integer, Range, dimensions_of, fits

Places = Mapping[str, Dimension | Sequence[Range]]
"""A space: a single dimension or several ranges at each dotted path, a change under a name of its own."""
Draw = Callable[[str, Dimension, TrainSpec], Any]
"""Gives a dimension a value, by its key and the spec so far: a number, the name of an option, or LEFT_OUT."""
Options = Mapping[str, str]
"""The name of an option for each of several choices; a choice that another option rules out is left out."""

LEFT_OUT: Final = object()
"""In place of a value: the trial keeps what it has there, and nothing is recorded."""


@dataclass(frozen=True)
class Walked:
    """Values, and the dimension that each was drawn from; `reason` says why no spec can have them together."""

    last_spec: TrainSpec
    values: dict[str, Any] = field(default_factory=dict)
    drawn: dict[str, Dimension] = field(default_factory=dict)
    pending: dict[str, Any] = field(default_factory=dict)
    """Changes that did not fit `last_spec`; values that come later may mend them."""
    reason: str | None = None

    @property
    def spec(self) -> TrainSpec | None:
        """The spec that the values make; None if no spec can have them together."""
        return self.last_spec if self.reason is None else None

    def and_then(self, key: str, dimension: Dimension, value: Any) -> Walked:
        """These values and one more."""
        pending = self.pending | changes_of(key, dimension, value)
        spec, problems = override(self.last_spec, pending)
        values, drawn = self.values | {key: value}, self.drawn | {key: dimension}
        if not problems:
            return Walked(spec, values, drawn)
        reason = "; ".join(f"{'.'.join(map(str, problem.place))}: {problem.text}" for problem in problems)
        return Walked(self.last_spec, values, drawn, pending, reason)


def walk(base: TrainSpec, space: Places, draw: Draw) -> Walked:
    """Draw values in the space's order, each put into the spec that the ones before made.

    A dimension is drawn only if its conditions hold in that spec and its place exists there; of several ranges
    at most one holds. Values that no spec can have alone may be mended by later ones.
    """
    return next(_walks(base, space, lambda key, dimension, spec: [draw(key, dimension, spec)]))


def every(base: TrainSpec, space: Places, points: Callable[[str, Dimension], Sequence[Any]]) -> Iterator[Walked]:
    """The walk of every combination of these points, the last dimension changing fastest."""
    return _walks(base, space, lambda key, dimension, _: points(key, dimension))


def _walks(
    base: TrainSpec, space: Places, points: Callable[[str, Dimension, TrainSpec], Iterable[Any]]
) -> Iterator[Walked]:
    def extended(walks: Iterator[Walked], key: str) -> Iterator[Walked]:
        for walked in walks:
            searched = [d for d in dimensions_of(space[key]) if _is_searched(walked, space, key, d)]
            for dimension in searched[:1]:
                for value in points(key, dimension, walked.last_spec):
                    yield walked if value is LEFT_OUT else walked.and_then(key, dimension, value)
            if not searched:
                yield walked

    walks = iter([Walked(base)])
    for key in space:
        walks = extended(walks, key)
    return walks


def _is_searched(walked: Walked, space: Places, key: str, dimension: Dimension) -> bool:
    """Whether a dimension's place exists and its conditions hold; these name options, or values of the spec."""

    def holds(path: str, value: object) -> bool:
        is_option = isinstance(space.get(path), Choice | Change) and walked.values.get(path) == value
        return is_option or (has(walked.last_spec, path) and value_at(walked.last_spec, path) == value)

    exists = isinstance(dimension, Change) or has(walked.last_spec, key)
    return exists and all(holds(path, value) for path, value in dimension.when.items())


def changes_of(key: str, dimension: Dimension, value: Any) -> dict[str, Any]:
    """What a value changes in a spec, by dotted path; the value of a choice or change is the name of an option."""
    if isinstance(dimension, Change):
        return dimension.options[value]
    return {key: dimension.options[value] if isinstance(dimension, Choice) else value}


def as_drawn(dimension: Dimension, value: Any) -> Any:
    """A value of a sweep file in the form in which values are drawn: the name of an option, an int or a float."""
    if isinstance(dimension, Choice | Change):
        return "null" if value is None else str(value)
    return int(value) if isinstance(dimension, Integer) else float(value)


def start_values(base: TrainSpec, space: Places, start: Mapping[str, Any], *, rest_of_base: bool) -> dict[str, Any]:
    """A starting point's values as they are drawn, without what the space does not have.

    With `rest_of_base`, values that it leaves out are those of the spec so far, if the dimension can give them.
    """
    values = {key: as_drawn(dimensions_of(space[key])[0], value) for key, value in start.items() if key in space}
    if not rest_of_base:
        return values

    def draw(key: str, dimension: Dimension, spec: TrainSpec) -> Any:
        if key in values and fits(dimension, values[key]):
            return values[key]
        if isinstance(dimension, Choice | Change):
            options = dimension.options
            return next((o for o in options if override(spec, changes_of(key, dimension, o)) == (spec, [])), LEFT_OUT)
        value = value_at(spec, key)
        return as_drawn(dimension, value) if fits(dimension, value) else LEFT_OUT

    return walk(base, space, draw).values


def combinations(base: TrainSpec, space: Places, choices: Mapping[str, int]) -> list[Options]:
    """Every combination of these choices' options that a spec can have if everything else is as in the base."""

    def points(key: str, dimension: Dimension) -> Sequence[Any]:
        return list(dimension.options) if key in choices and isinstance(dimension, Choice | Change) else [LEFT_OUT]

    return [walked.values for walked in every(base, space, points) if walked.spec is not None] if choices else []


def lacking(combined: Sequence[Options], least: Mapping[str, int], tried: Sequence[Mapping[str, Any]]) -> Options:
    """The options that the next trial must have; none if every option has its least number of trials.

    The combination that lacks the most trials; of several, the one whose options had the fewest; then the first. This
    depends on the values of the trials so far alone, so that a search that was killed goes on the same.
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


def trials_needed(combined: Sequence[Options], least: Mapping[str, int], starts: Sequence[Mapping[str, Any]]) -> int:
    """How many trials it takes until every option has its least number, the starts included."""
    tried = [*starts]
    while options := lacking(combined, least, tried):
        tried.append(options)
    return len(tried)
