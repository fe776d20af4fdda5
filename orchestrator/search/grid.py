"""Every combination of a space, conditions kept: only what holds is enumerated."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from orchestrator.search.task import SearchTask
from orchestrator.sweep.space import Change, Choice, Integer, LogUniform, Searched
from orchestrator.sweep.walk import every


def grid(task: SearchTask, points: int) -> Iterator[dict[str, Any]]:
    """The values of every combination, the last dimension changing fastest; those that no spec can have included."""
    walks = every(task.base, task.space, lambda _, dimension: points_of(dimension, points))
    return (walked.values for walked in walks)


def points_of(dimension: Searched, points: int) -> list[Any]:
    """All names of a choice, all whole numbers, or so many points from low to high, on the dimension's scale."""
    match dimension:
        case Choice() | Change():
            return list(dimension.options)
        case Integer():
            return list(range(dimension.low, dimension.high + 1))
        case LogUniform():
            low, high = math.log(dimension.low), math.log(dimension.high)
            inner = [math.exp(low + (high - low) * i / (points - 1)) for i in range(1, points - 1)]
        case _:
            inner = [dimension.low + (dimension.high - dimension.low) * i / (points - 1) for i in range(1, points - 1)]
    return [dimension.low, *inner, dimension.high]
