"""Many variants against one baseline: differences in nats per token with simultaneous intervals, and verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats
from scipy.optimize import brentq

Array = NDArray[np.float64]
Verdict = Literal["hurts", "helps", "not decided"]

ONE_SEED = "one seed: the seed noise is unknown"
NO_NOISE = "the seeds do not differ, so the seed noise cannot be estimated"
IDENTICAL = "equal to the baseline in every seed"


@dataclass(frozen=True)
class Interval:
    """Both ends of an interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Effect:
    """What a change does to the loss: `nats` is the variant's mean minus the baseline's, in nats per token.

    Without an interval `reason` says why, and the verdict is `not decided`.
    """

    nats: float
    interval: Interval | None
    verdict: Verdict
    reason: str | None


@dataclass(frozen=True)
class Noise:
    """What the intervals rest on: one seed deviation (nats per token) for all compared variants, and how well known.

    `baseline` and `own` are the deviations that were pooled. `alike` is the probability that deviations which are
    one in truth are estimated to differ as much as these.
    """

    deviation: float
    baseline: float
    own: Mapping[str, float]
    alike: float
    degrees_of_freedom: int
    critical: float
    level: float

    @property
    def one_fits_all(self) -> bool:
        """Whether the estimated deviations differ no more than chance explains."""
        return self.alike >= 1 - self.level


@dataclass(frozen=True)
class Pool:
    """One deviation (nats per token) for several groups; `alike` as in `Noise`."""

    deviation: float
    degrees_of_freedom: int
    alike: float


@dataclass(frozen=True)
class Comparison:
    """Every variant's effect, and the noise behind the intervals; None where no variant has one."""

    baseline_nats: float
    effects: dict[str, Effect]
    noise: Noise | None
    level: float


def compare(baseline: Array, variants: Mapping[str, Array], level: float = 0.95) -> Comparison:
    """Compare each variant's losses (nats per token, one a seed) with the baseline's, all at once.

    The intervals cover all true differences together with probability `level` (Dunnett 1955, "A multiple comparison
    procedure for comparing several treatments with a control", JASA 50), if losses of different seeds are
    independent and normal with one variance, which is pooled over the compared variants. Sizes may differ. A variant
    gets no interval with fewer than two seeds on either side, or where no seed differs from another; one that equals
    the baseline in every seed is left out of the pooled variance, to which it would add nothing new.

    Whether the variances are one is tested (Bartlett 1937, "Properties of sufficiency and statistical tests", Proc.
    Royal Society A 160), since a few noisy variants widen the intervals of all others and get too narrow ones
    themselves. A ratio of deviations would not do: with two seeds each, one of ten true equals is nearly always
    estimated at less than a third of the pooled figure.
    """
    compared = {
        name: losses
        for name, losses in variants.items()
        if min(losses.size, baseline.size) >= 2 and not np.array_equal(losses, baseline)
    }
    noise = _noise(baseline, compared, level) if compared else None
    effects = {name: _effect(baseline, losses, noise) for name, losses in variants.items()}
    has_intervals = any(effect.interval for effect in effects.values())
    return Comparison(float(baseline.mean()), effects, noise if has_intervals else None, level)


def perplexity_change(baseline_nats: float, nats: float) -> float:
    """The difference in perplexity that a difference in loss makes at the baseline's loss; inf where it overflows."""
    with np.errstate(over="ignore"):
        return float(np.exp(baseline_nats) * np.expm1(nats))


def perplexity_ratio(nats: float) -> float:
    """The ratio of perplexities, variant to baseline, of a difference in loss; inf where it overflows."""
    with np.errstate(over="ignore"):
        return float(np.exp(nats))


@cache
def critical_value(baseline_seeds: int, variant_seeds: tuple[int, ...], degrees_of_freedom: int, level: float) -> float:
    """Two-sided critical value of Dunnett's test: the `level` quantile of the largest |t| under no differences.

    Quadrature over the two things that the t's share, the baseline's mean and the pooled deviation (Dunnett 1955,
    equation 3). `scipy.stats.dunnett` finds the same value by random sampling to about three digits; here the same
    data must give the same bytes.
    """
    loading = 1 / np.sqrt(1 + baseline_seeds / np.asarray(variant_seeds, dtype=np.float64))[:, None, None]
    own = np.sqrt(1 - loading**2)
    shared, shared_weight = np.polynomial.hermite_e.hermegauss(96)
    quantile, scale_weight = np.polynomial.legendre.leggauss(96)
    scale = np.sqrt(stats.chi2.ppf((quantile + 1) / 2, degrees_of_freedom) / degrees_of_freedom)

    def excess(critical: float) -> float:
        centre, reach = loading * shared[None, :, None], critical * scale[None, None, :]
        inside = special.ndtr((centre + reach) / own) - special.ndtr((centre - reach) / own)
        return float(shared_weight @ inside.prod(axis=0) @ scale_weight) / (2 * math.sqrt(2 * math.pi)) - level

    return float(brentq(excess, 0.0, 1000.0, xtol=1e-9))


def pool(groups: Sequence[Array]) -> Pool | None:
    """The one deviation of groups of losses, each of two seeds or more; None where no seed differs from another."""
    degrees = sum(group.size - 1 for group in groups)
    squares = sum(float(((group - group.mean()) ** 2).sum()) for group in groups)
    deviation = math.sqrt(squares / degrees)
    # Rounding alone leaves a deviation of some 1e-16 of the value where all seeds agree.
    if deviation <= 1e-12 * max(float(np.abs(group).max()) for group in groups):
        return None
    if len(groups) == 1:
        return Pool(deviation, degrees, 1.0)
    with np.errstate(divide="ignore"):  # a variant without any noise beside noisy ones
        return Pool(deviation, degrees, float(stats.bartlett(*groups).pvalue))


def _noise(baseline: Array, variants: Mapping[str, Array], level: float) -> Noise | None:
    pooled = pool([baseline, *variants.values()])
    if pooled is None:
        return None
    own = {name: float(losses.std(ddof=1)) for name, losses in variants.items()}
    sizes = tuple(sorted(losses.size for losses in variants.values()))
    degrees = pooled.degrees_of_freedom
    critical = critical_value(baseline.size, sizes, degrees, level)
    return Noise(pooled.deviation, float(baseline.std(ddof=1)), own, pooled.alike, degrees, critical, level)


def _effect(baseline: Array, losses: Array, noise: Noise | None) -> Effect:
    nats = float(losses.mean() - baseline.mean())
    if np.array_equal(losses, baseline):
        return Effect(0.0, None, "not decided", IDENTICAL)
    if min(losses.size, baseline.size) < 2:
        return Effect(nats, None, "not decided", ONE_SEED)
    if noise is None:
        return Effect(nats, None, "not decided", NO_NOISE)
    reach = noise.critical * noise.deviation * math.sqrt(1 / losses.size + 1 / baseline.size)
    interval = Interval(nats - reach, nats + reach)
    verdict: Verdict = "hurts" if interval.low > 0 else "helps" if interval.high < 0 else "not decided"
    return Effect(nats, interval, verdict, None)
