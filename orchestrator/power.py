"""How small a difference so many seeds can show."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special, stats
from scipy.optimize import brentq

from orchestrator.statistics import critical_value


def power(nats: float, deviation: float, baseline_seeds: int, variant_seeds: Sequence[int], level: float) -> float:
    """The probability that a true difference of `nats` in the first variant gets a verdict.

    `deviation` is the seeds' standard deviation, in nats per token, one for all variants; `variant_seeds` how many
    seeds each compared variant has, at least two. The verdict is that of `statistics.compare`: a noncentral t beyond
    Dunnett's critical value, here by quadrature over the pooled deviation (scipy's noncentral t gives NaN in places).
    """
    degrees = baseline_seeds - 1 + sum(seeds - 1 for seeds in variant_seeds)
    critical = critical_value(baseline_seeds, tuple(sorted(variant_seeds)), degrees, level)
    shift = nats / (deviation * math.sqrt(1 / baseline_seeds + 1 / variant_seeds[0]))
    quantile, weight = np.polynomial.legendre.leggauss(96)
    reach = critical * np.sqrt(stats.chi2.ppf((quantile + 1) / 2, degrees) / degrees)
    return float(weight @ (special.ndtr(shift - reach) + special.ndtr(-shift - reach))) / 2


def smallest_detectable(
    deviation: float, baseline_seeds: int, variant_seeds: Sequence[int], level: float = 0.95, wanted: float = 0.8
) -> float | None:
    """The true difference, nats per token, that gets a verdict with probability `wanted`.

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
