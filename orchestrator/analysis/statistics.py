"""Differences between variants in nats per token, with simultaneous intervals, and what they decide."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Literal, NamedTuple

import numpy as np
from scipy import special

from orchestrator.analysis.noise import (
    Correlation,
    Deviation,
    Errors,
    Losses,
    correlation,
    deviations,
    interaction_variance,
    satterthwaite,
    squared_seed_reach,
    squared_text_reach,
    text_variance,
)
from orchestrator.analysis.power import Further, further_seeds
from orchestrator.words import listed

Verdict = Literal["hurts", "helps", "equivalent", "not decided", "no verdict"]
DECIDED: tuple[Verdict, ...] = ("hurts", "helps", "equivalent")

LEVEL_OF_ERROR = 0.05
"""How often any of a page's intervals may miss: its verdicts' family-wise error."""
MARGIN = 0.005
"""A share of perplexity: an effect that is surely smaller counts as none."""

ONE_SEED = "one seed: the seed noise is unknown"
NO_NOISE = "the seeds do not differ, so the seed noise cannot be estimated"
IDENTICAL = "equal to the baseline in every seed"
NO_DIFFERENCE = "the variants are equal in every seed"


class Interval(NamedTuple):
    """Both ends of an interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Contrast:
    """A weighted sum of mean losses in nats per token, None where a variant is missing.

    Without an interval `reason` says why. The standard errors are those of seeds, from averaged deviations also where
    a lone comparison decides the interval, and of the text, None where losses by token are not at hand;
    `of_single_seeds` is the share of its variance that more seeds lessen. `further` is what would decide it, None where
    it is decided or has no interval.
    """

    nats: float | None
    interval: Interval | None
    reason: str | None
    seed_error: float | None = None
    text_error: float | None = None
    of_single_seeds: float = 0.0
    further: Further | None = None


@dataclass(frozen=True)
class Noise:
    """What intervals rest on: the groups' seed deviations, how seeds go together, whether the text's noise counts."""

    deviations: Mapping[str, Deviation]
    correlation: Correlation | None
    has_text: bool


@dataclass(frozen=True)
class Contrasts:
    """Every contrast, and the noise behind the intervals, None where there are none; `level` is of all together."""

    found: dict[str, Contrast]
    noise: Noise | None
    intervals: int
    level: float


@dataclass(frozen=True)
class Effect:
    """What a change does to the loss: `nats` is the variant's mean minus the baseline's, in nats per token.

    Without an interval `reason` says why, and there is `no verdict`. `further` is what would decide one `not decided`.
    """

    nats: float
    interval: Interval | None
    verdict: Verdict
    reason: str | None
    seed_error: float | None = None
    text_error: float | None = None
    further: Further | None = None


@dataclass(frozen=True)
class Comparison:
    """Every variant's effect, the noise behind the intervals, None where there are none, and how many there are."""

    baseline_nats: float
    effects: dict[str, Effect]
    noise: Noise | None
    intervals: int
    level: float
    margin: float


def contrasts(
    groups: Mapping[str, Losses],
    coefficients: Mapping[str, Mapping[str, float]],
    level: float = 1 - LEVEL_OF_ERROR,
    margin: float = 0.0,
) -> Contrasts:
    """Contrasts of the mean losses of `groups`, all at once; `coefficients` gives each one's weights by group.

    A contrast is decided where its interval excludes zero or lies within the `margin`, a share of perplexity.

    The intervals cover all true contrasts together with probability `level`. Each adds the two noises of its groups
    (`analysis.noise`) in quadrature, each times its own t (Zou and Donner 2008, "Construction of confidence limits
    about effect measures: a general approach", Statistics in Medicine 27): one t for both, with the degrees of freedom
    of their sum, erred in 8% of simulated sweeps where few seeds happen to lie close. The seeds' degrees of freedom
    are Satterthwaite's, no more than all seeds together have. No interval takes the seeds' noise as less than a lone
    comparison would from the deviations of its own groups (after Welch 1938, Biometrika 29), paired where the others
    are: a group of twenty times the others' noise erred in 10 to 15% without it. Few seeds overstate Satterthwaite's
    degrees of freedom, so that it has half of them, at least what the fewest seeds have (of two groups of n seeds that
    is n - 1): all of them erred in 5 to 9%. The level is shared out by Šidák's inequality (1967,
    "Rectangular confidence regions for the means of multivariate normal distributions", JASA 62), which holds however
    the contrasts go together, by a common baseline or a common text. One step, not Holm's several: so intervals and
    verdicts are the same statement. Neither bootstrap nor sign-flip tests are offered: at three seeds the percentile
    bootstrap covers 74% instead of 95%, and at five no sign-flip test reaches 5%.

    Groups equal in every seed that both have are one measurement: their weights are added. A contrast gets no interval
    where a group is missing or has one seed, its groups are all equal, or no seed differs from another.
    """
    same: dict[str, str] = {}
    for name, losses in groups.items():
        alike = (other for other, first in same.items() if other == first and _are_alike(losses, groups[other]))
        same[name] = next(alike, name)
    found: dict[str, Contrast] = {}
    judged: dict[str, dict[str, float]] = {}
    for name, weights in coefficients.items():
        if missing := [group for group in weights if group not in groups]:
            found[name] = Contrast(None, None, f"{listed(missing)} not complete")
            continue
        merged: dict[str, float] = {}
        for group, weight in weights.items():
            merged[same[group]] = merged.get(same[group], 0.0) + weight
        merged = {group: weight for group, weight in merged.items() if abs(weight) > 1e-12}
        alone = any(groups[group].nats.size < 2 for group in weights)
        nats = sum(weight * float(groups[group].nats.mean()) for group, weight in merged.items())
        found[name] = Contrast(nats, None, NO_DIFFERENCE if not merged else ONE_SEED if alone else NO_NOISE)
        if merged and not alone:
            judged[name] = merged
    weighed = {group: groups[group] for group in dict.fromkeys(g for weights in judged.values() for g in weights)}
    known = deviations({name: losses.nats for name, losses in weighed.items()})
    if known is None:
        return Contrasts(found, None, 0, level)
    every = {name: known[alike] for name, alike in same.items() if alike in known}
    has_text = all(losses.blocks is not None for losses in weighed.values())
    noise = Noise(every, _together(weighed, known, judged), has_text)
    errors = Errors.of(level, len(judged))
    for name, weights in judged.items():
        contrast = _judged(float(found[name].nats or 0.0), weights, weighed, noise, errors)
        if _verdict(contrast.interval, margin) == "not decided":
            parts = [(weight, noise.deviations[group], weighed[group].nats.size) for group, weight in weights.items()]
            text = contrast.text_error or 0.0, contrast.of_single_seeds
            further = further_seeds(contrast.nats or 0.0, parts, text, errors, math.log1p(margin))
            contrast = replace(contrast, further=further)
        found[name] = contrast
    return Contrasts(found, noise, len(judged), level)


def compare(
    baseline: Losses, variants: Mapping[str, Losses], level: float = 1 - LEVEL_OF_ERROR, margin: float = MARGIN
) -> Comparison:
    """Compare each variant's losses with the baseline's, all at once; the intervals are those of `contrasts`.

    The verdict reads the interval and nothing else, so all verdicts of a comparison are right together with
    probability `level`: *hurts* or *helps* where it excludes zero, *equivalent* where it lies within the margin, a
    share of perplexity (two one-sided tests; Schuirmann 1987, "A comparison of the two one-sided tests procedure and
    the power approach", at a level stricter than his).
    """
    names = {name: f"variant {name}" for name in variants}  # no variant's name can be the baseline's here
    groups = {"": baseline} | {names[name]: losses for name, losses in variants.items()}
    result = contrasts(groups, {name: {names[name]: 1.0, "": -1.0} for name in variants}, level, margin)
    effects = {}
    for name, contrast in result.found.items():
        assert contrast.nats is not None, "no group is missing"
        verdict = _verdict(contrast.interval, margin)
        reason = IDENTICAL if contrast.reason == NO_DIFFERENCE else contrast.reason
        effects[name] = Effect(
            contrast.nats,
            contrast.interval,
            verdict,
            reason,
            contrast.seed_error,
            contrast.text_error,
            contrast.further,
        )
    return Comparison(float(baseline.nats.mean()), effects, result.noise, result.intervals, level, margin)


def rate_interval(count: int, of: int, level: float = 1 - LEVEL_OF_ERROR) -> Interval:
    """The exact interval for a rate of which `count` of `of` were seen (Clopper and Pearson 1934, Biometrika 26)."""
    error = (1 - level) / 2
    low = float(special.betaincinv(count, of - count + 1, error)) if count else 0.0
    high = float(special.betaincinv(count + 1, of - count, 1 - error)) if count < of else 1.0
    return Interval(low, high)


def perplexity_change(baseline_nats: float, nats: float) -> float:
    """The difference in perplexity that a difference in loss makes at the baseline's loss; inf where it overflows."""
    with np.errstate(over="ignore"):
        return float(np.exp(baseline_nats) * np.expm1(nats))


def perplexity_ratio(nats: float) -> float:
    """The ratio of perplexities, variant to baseline, of a difference in loss; inf where it overflows."""
    with np.errstate(over="ignore"):
        return float(np.exp(nats))


def _together(
    groups: Mapping[str, Losses], known: Mapping[str, Deviation], judged: Mapping[str, Mapping[str, float]]
) -> Correlation | None:
    """How seeds go together over all groups; used is what surely holds in every contrast by itself.

    Some groups may go together for a reason of their own, such as a stage that they share, and others not at all.
    """
    every = correlation(groups, known)
    if every is None or every.used == 0.0:
        return every
    own = [correlation({group: groups[group] for group in weights}, known) for weights in judged.values()]
    return Correlation(every.estimate, min(every.used, *(found.used if found else 0.0 for found in own)))


def _are_alike(one: Losses, other: Losses) -> bool:
    """Whether two groups have the same losses in every seed that both have, and one has all seeds of the other."""
    of_one, of_other = (dict(zip(group.seeds, group.nats.tolist(), strict=True)) for group in (one, other))
    shared = of_one.keys() & of_other.keys()
    return len(shared) == min(len(of_one), len(of_other)) and all(of_one[seed] == of_other[seed] for seed in shared)


def _judged(
    nats: float, weights: Mapping[str, float], groups: Mapping[str, Losses], noise: Noise, errors: Errors
) -> Contrast:
    """A contrast's interval."""
    known = {group: noise.deviations[group] for group in weights}
    sizes = {group: groups[group].nats.size for group in weights}
    used = {group: (one.used, one.degrees_of_freedom) for group, one in known.items()}
    own = {group: (one.own, sizes[group] - 1.0) for group, one in known.items()}
    of_seeds, degrees = _of_seeds(weights, groups, noise.correlation, used)
    alone, degrees_alone = _of_seeds(weights, groups, noise.correlation, own)
    every_degree = sum(losses.nats.size - 1 for losses in groups.values())
    squared_reach = squared_seed_reach(
        (of_seeds, min(degrees, every_degree)), (alone, max(degrees_alone / 2, min(sizes.values()) - 1)), errors
    )
    text, single = None, 0.0
    blocks = [(weight, found) for group, weight in weights.items() if (found := groups[group].blocks) is not None]
    if noise.has_text:
        text = text_variance(np.sum([weight * blocks_SB.mean(axis=0) for weight, blocks_SB in blocks], axis=0))
        single = sum(weight**2 * interaction_variance(blocks_SB) for weight, blocks_SB in blocks)
        squared_reach += squared_text_reach(text, errors)
    reach = math.sqrt(squared_reach)
    seed_error, text_error = math.sqrt(of_seeds), None if text is None else math.sqrt(text)
    share = min(1.0, single / text) if text else 0.0
    return Contrast(nats, Interval(nats - reach, nats + reach), None, seed_error, text_error, share)


def _of_seeds(
    weights: Mapping[str, float],
    groups: Mapping[str, Losses],
    pairing: Correlation | None,
    known: Mapping[str, tuple[float, float]],
) -> tuple[float, float]:
    """A contrast's variance by seeds and its degrees of freedom, from each group's deviation and degrees of freedom.

    Seeds that go together lessen the variance of a difference.
    """
    parts = [
        (weight**2 * known[group][0] ** 2 / groups[group].nats.size, known[group][1])
        for group, weight in weights.items()
    ]
    variance = sum(part for part, _ in parts)
    if variance == 0.0:
        return 0.0, min(degrees for _, degrees in parts)
    degrees = satterthwaite(parts)
    together = pairing.used if pairing else 0.0
    for one, other in permutations(weights, 2) if together else ():
        common = set(groups[one].seeds) & set(groups[other].seeds)
        shared = len(common) / (groups[one].nats.size * groups[other].nats.size)
        product = weights[one] * known[one][0] * weights[other] * known[other][0]
        variance += together * product * shared
    return variance, degrees


def _verdict(interval: Interval | None, margin: float) -> Verdict:
    if interval is None:
        return "no verdict"
    if interval.low > 0:
        return "hurts"
    if interval.high < 0:
        return "helps"
    inside = -math.log1p(margin) < interval.low and interval.high < math.log1p(margin)
    return "equivalent" if inside else "not decided"
