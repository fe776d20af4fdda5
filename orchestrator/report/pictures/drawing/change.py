"""Axes for a change of perplexity: they are linear in nats, which add, and labelled in per cent, which people read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from orchestrator.words import signed, significant

NEVER_CUT = 0.05
"""A change of so many nats is shown however small the others are."""
_LINEAR = 0.6
_RATIOS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.33, 0.5, 0.75, 0.9, 1, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100)
_IMMENSE = tuple(10.0**power for size in (3, 4, 6, 9, 14, 20, 40, 80, 160, 300) for power in (-size, size))
# In nats, with neighbours so near that a fifth of a range has one that is not crowded against zero.
_ALL_ROUNDS = [
    *(math.log1p(sign * digit * 10.0**power) for sign in (-1, 1) for power in range(-6, 0) for digit in (1, 2, 3, 5)),
    *(math.log(ratio) for ratio in _RATIOS + _IMMENSE),
]


def per_cent(nats: float) -> float:
    """The change of perplexity in per cent that a difference in loss makes; infinite where it overflows."""
    return 100 * math.expm1(nats) if nats < 700 else math.inf


def in_words(nats: float) -> str:
    """`+12.3%`: three significant digits, or all before the point."""
    value = per_cent(nats)
    text = significant(value, 3) if abs(value) >= 1 else signed(value)
    return f"{'+' * (value >= 1)}{text}%"


def range_of(values: Iterable[float], *, at_least: float = 0.01) -> tuple[float, float]:
    """The range, nats, that an axis shows: 0, `at_least` so much on both sides, and the values but far outliers.

    Far is more than ten times the median size, or three times the upper quartile's: such values would flatten the
    others. Values that are not finite are left out.
    """
    finite = np.array([value for value in values if math.isfinite(value)])
    if not len(finite):
        return -at_least, at_least
    sizes = np.abs(finite)
    far = max(NEVER_CUT, at_least, min(10 * float(np.median(sizes)), 3 * float(np.quantile(sizes, 0.75))))
    far = 1.5 * float(np.max(sizes, where=sizes <= far, initial=0.0))  # what lies just beyond is worth its room
    shown = finite[sizes <= max(far, at_least)]
    return min(float(shown.min(initial=0.0)), -at_least), max(float(shown.max(initial=0.0)), at_least)


def ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Nats whose changes in per cent are round numbers: zero, and about so many in all, none too near another.

    A side of zero has one wherever it is a fifth of the range or more: bars need a scale.
    """
    gap = 0.9 * (high - low) / most
    kept = [0.0]
    for value in sorted(_rounds(low, high, most, gap), key=abs):
        if low <= value <= high and all(abs(value - other) >= gap for other in kept):
            kept.append(value)
    for end in (low, high):
        if abs(end) >= (high - low) / 5 and not any(value * end > 0 for value in kept):
            kept.append(max((value for value in _ALL_ROUNDS if 0 < value / end <= 1), key=abs))
    return sorted(kept)


def _rounds(low: float, high: float, most: int, gap: float) -> list[float]:
    if per_cent(high) - per_cent(low) > 100 * _LINEAR:
        return [math.log(ratio) for ratio in _RATIOS + _IMMENSE]
    for parts in range(most + 1, 0, -1):
        percents = MaxNLocator(nbins=parts, steps=[1, 2, 2.5, 5, 10]).tick_values(per_cent(low), per_cent(high))
        inside = [math.log1p(value / 100) for value in percents if per_cent(low) <= value <= per_cent(high)]
        if all(after - before >= gap for before, after in pairwise(inside)):
            break
    return inside


def dress(axis: Axis, shown: tuple[float, float], most: int = 7) -> None:
    """Per cent along an axis in nats."""
    axis.set_major_locator(FixedLocator(ticks(*shown, most)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda nats, _: f"{_short(per_cent(nats))}%"))


def _short(value: float) -> str:
    exact = f"{value:.0e}".replace("e+0", "e").replace("e+", "e") if value >= 5e4 else f"{round(value, 6) + 0.0:,.6g}"
    text = exact.replace("-", "\u2212")
    return f"+{text}" if value > 1e-9 else text


def arrow(axes: Axes, tail: Sequence[float], head: Sequence[float], colour: str) -> None:
    """An open arrow: what it stands for lies further that way."""
    style = {"arrowstyle": "->", "color": colour, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (head[0], head[1]), (tail[0], tail[1]), arrowprops=style, zorder=4)
