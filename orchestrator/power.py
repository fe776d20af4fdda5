"""How small a difference so many seeds can show, and how many more seeds would decide one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special
from scipy.optimize import brentq

from orchestrator.noise import BLOCKS, BORROWED, Deviation, satterthwaite, t_beyond

WANTED = 0.8
"""The power that is asked for: the usual one (Cohen 1988, "Statistical Power Analysis", section 2.4)."""
MOST_FURTHER = 100
"""More seeds than this are not counted."""


@dataclass(frozen=True)
class Further:
    """How many more seeds, of variant and baseline alike, would decide; None for more than `MOST_FURTHER`.

    `text_is_short` where no number of seeds would, since another test text could turn the difference.
    """

    seeds: int | None
    text_is_short: bool


def further_seeds(
    nats: float, pair: Sequence[tuple[Deviation, int]], text: tuple[float, float], error: float, margin_nats: float
) -> Further:
    """The fewest further seeds after which a verdict comes with probability `WANTED`, were the estimates the truth.

    `pair` is the variant's and the baseline's deviation and number of seeds; `text` the text's standard error, and the
    share of its variance that belongs to single seeds; `error` what the comparison may err.
    A verdict is an interval that excludes zero or lies within the margin. The difference is taken as normal, and the
    seeds' noise as independent, so that pairing, where there is any, needs fewer. That the text is too short is said
    only where it is so at the lower limit of its noise (95%), which is not known well.
    """
    more_M = np.append(np.arange(1.0, MOST_FURTHER + 1), 1e9)
    parts = [(known.used**2 / (n + more_M), known.degrees_of_freedom + more_M) for known, n in pair]
    seeds_M = sum(variance_M for variance_M, _ in parts)
    degrees_M = seeds_M**2 / sum(variance_M**2 / degrees_M for variance_M, degrees_M in parts)
    text_error, share = text
    fewest = min(n for _, n in pair)

    def enough_M(whole: float) -> NDArray[np.bool_]:
        """Whether so many seeds are enough, if the text's variance is `whole` times what it is estimated to be."""
        text_M = text_error**2 * (max(0.0, whole - share) + share * fewest / (fewest + more_M))
        spread_M = np.sqrt(seeds_M + text_M)
        reaches = (t_beyond(error / 2, degrees_M) ** 2 * seeds_M, t_beyond(error / 2, BLOCKS - 1) ** 2 * text_M)
        reach_M = np.sqrt(sum(reaches))
        room_M = np.maximum(0.0, margin_nats - reach_M)
        outside_M = special.ndtr((nats - reach_M) / spread_M) + special.ndtr((-nats - reach_M) / spread_M)
        inside_M = special.ndtr((room_M - nats) / spread_M) - special.ndtr((-room_M - nats) / spread_M)
        return np.asarray((outside_M + inside_M >= WANTED) | (margin_nats >= 2 * reach_M))

    lower_limit = (BLOCKS - 1) / (2 * float(special.gammaincinv((BLOCKS - 1) / 2, 0.95)))
    if not enough_M(lower_limit)[-1]:
        return Further(None, text_is_short=True)
    first = next((int(more) for more, enough in zip(more_M[:-1], enough_M(1.0), strict=False) if enough), None)
    return Further(first, text_is_short=False)


def power(nats: float, deviation: float, baseline_seeds: int, variant_seeds: Sequence[int], level: float) -> float:
    """The probability that a true difference of `nats` in the first variant is told from zero.

    `deviation` is the seeds' standard deviation, in nats per token, one for all variants; `variant_seeds` how many
    seeds each compared variant has, at least two. A noncentral t beyond the critical value of `statistics.compare`,
    by quadrature over the estimated deviation (scipy's noncentral t gives NaN in places). The text's noise is left
    out, which no number of seeds lessens.
    """
    every = [variant_seeds[0], baseline_seeds, *variant_seeds[1:]]
    total = sum(seeds - 1 for seeds in every)
    judged, estimated = [], []
    for seeds in every[:2]:
        own, others = seeds - 1, total - (seeds - 1)
        borrowed = BORROWED * others / (BORROWED + others)
        judged.append((1 / seeds, own + borrowed))
        # Where all are equally noisy, what is borrowed is known better than the interval takes it to be.
        estimated.append((1 / seeds, (own + borrowed) ** 2 / (own + borrowed**2 / others)))
    error = 1 - level ** (1 / len(variant_seeds))
    critical = float(t_beyond(error / 2, min(satterthwaite(judged), total)))
    degrees = min(satterthwaite(estimated), total)
    shift = nats / (deviation * math.sqrt(1 / baseline_seeds + 1 / variant_seeds[0]))
    quantile, weight = np.polynomial.legendre.leggauss(96)
    reach = critical * np.sqrt(2 * special.gammaincinv(degrees / 2, (quantile + 1) / 2) / degrees)
    return float(weight @ (special.ndtr(shift - reach) + special.ndtr(-shift - reach))) / 2


def smallest_detectable(
    deviation: float, baseline_seeds: int, variant_seeds: Sequence[int], level: float = 0.95, wanted: float = WANTED
) -> float | None:
    """The true difference, nats per token, that is told from zero with probability `wanted`.

    None with fewer than two seeds. Of variants with unlike numbers of seeds, that of the first.
    """
    if min(baseline_seeds, *variant_seeds, 2) < 2 or not variant_seeds:
        return None
    if deviation == 0.0:
        return 0.0
    unit = deviation * math.sqrt(1 / baseline_seeds + 1 / variant_seeds[0])

    def excess(units: float) -> float:
        return power(units * unit, deviation, baseline_seeds, variant_seeds, level) - wanted

    return unit * float(brentq(excess, 0.0, 1000.0))
