"""Every combination of a space, conditions kept: only what holds is enumerated."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from orchestrator.search.task import SearchTask
from orchestrator.sweep.searches import Change, Choice, Integer, LogUniform, Searched


def grid(task: SearchTask, points: int) -> Iterator[dict[str, Any]]:
    """The values of every combination, the last dimension changing fastest; those that no spec can have included."""
    places: list[int] = []  # which point of every dimension that holds, in order
    while True:
        sizes: list[int] = []

        def draw(key: str, dimension: Searched, sizes: list[int] = sizes) -> Any:
            values = points_of(dimension, points)
            sizes.append(len(values))
            if len(places) < len(sizes):
                places.append(0)
            return values[places[len(sizes) - 1]]

        yield task.walk(draw).values
        while places and places[-1] == sizes[len(places) - 1] - 1:
            places.pop()
        if not places:
            return
        places[-1] += 1


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
