"""Points of a search space: those of a grid, random ones, and ones that fill the space evenly. Free of Optuna."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from orchestrator.search.task import SearchTask
from orchestrator.sweep.space import Change, Choice, Dimension, Integer, LogUniform
from orchestrator.sweep.walk import Draw, every


def drawing(task: SearchTask, point: Sequence[float]) -> Draw:
    """Gives every dimension the value at its coordinate; those of dimensions that do not hold are left unused."""
    places = {key: place for place, key in enumerate(task.space)}
    return lambda key, dimension, _: value_of(dimension, point[places[key]])


def random_point(task: SearchTask, number: int) -> list[float]:
    """Each coordinate uniform, a function of the sampler's seed and the trial's number alone."""
    generator = np.random.default_rng([task.searching.sampler_seed, number])
    return [float(x) for x in generator.random(len(task.space))]


def sobol_point(task: SearchTask, number: int) -> list[float]:
    """The trial's point of a scrambled Sobol sequence (Owen 1998), the scrambling drawn by the sampler's seed."""
    from scipy.stats.qmc import Sobol  # most of a second to import, and few searches need it

    sequence = Sobol(len(task.space), scramble=True, seed=task.searching.sampler_seed)
    if number:
        sequence.fast_forward(number)
    return [float(x) for x in sequence.random(1)[0]]


def value_of(dimension: Dimension, x: float) -> Any:
    """The value at a coordinate in [0, 1); a whole number or option has a share of it that is as long as any other's.

    A whole number on a log scale has the share from half a unit below to half a unit above.
    """
    match dimension:
        case Choice() | Change():
            names = list(dimension.options)
            return names[int(x * len(names))]
        case Integer(low=low, high=high, log=True):
            start, end = math.log(low - 0.5), math.log(high + 0.5)
            return min(high, max(low, round(math.exp(start + x * (end - start)))))
        case Integer(low=low, high=high):
            return low + int(x * (high - low + 1))
        case LogUniform(low=low, high=high):
            start, end = math.log(low), math.log(high)
            return min(high, max(low, math.exp(start + x * (end - start))))
        case _:
            return min(dimension.high, dimension.low + x * (dimension.high - dimension.low))


def grid(task: SearchTask, points: int) -> Iterator[dict[str, Any]]:
    """The values of every combination, the last dimension changing fastest; those that no spec can have included."""
    walks = every(task.base, task.space, lambda _, dimension: points_of(dimension, points))
    return (walked.values for walked in walks)


def points_of(dimension: Dimension, points: int) -> list[Any]:
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
