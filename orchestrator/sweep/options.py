"""Which options of a search's choices still lack trials, where the sweep file asks for a least number of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from lm.spec import TrainSpec
from orchestrator.sweep.space import Change, Choice, Dimension
from orchestrator.sweep.walk import LEFT_OUT, Places, every

Options = Mapping[str, str]
"""For each of several choices the name of an option; a choice that another's option rules out is not there."""


def combinations(base: TrainSpec, space: Places, choices: Mapping[str, int]) -> list[Options]:
    """Every combination of these choices' options that some spec can have, all else being as the base has it."""

    def points(key: str, dimension: Dimension) -> Sequence[Any]:
        return list(dimension.options) if key in choices and isinstance(dimension, Choice | Change) else [LEFT_OUT]

    return [walked.values for walked in every(base, space, points) if walked.spec is not None] if choices else []


def lacking(combined: Sequence[Options], least: Mapping[str, int], tried: Sequence[Mapping[str, Any]]) -> Options:
    """The options that the next trial must have; none where every option has its least number of trials.

    The combination that lacks the most trials, of equals the one whose options had the fewest, then the first:
    a function of the values of the trials so far, so that a search that was killed goes on the same.
    """
    counts = Counter((key, values[key]) for values in tried for key in least if key in values)

    def missing(options: Options) -> int:
        return sum(max(0, least[key] - counts[key, option]) for key, option in options.items())

    def rank(options: Options) -> tuple[int, int]:
        return missing(options), -sum(counts[item] for item in options.items())

    if not combined:
        return {}
    best = max(combined, key=rank)
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
