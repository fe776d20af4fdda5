"""Differences between variants in nats per token, with simultaneous intervals, and what they decide."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations

import numpy as np

from orchestrator.analysis.effects import Comparison, Effect, Interval, Noise, Obstacle
from orchestrator.analysis.noise import (
    Correlation,
    Deviation,
    Errors,
    Losses,
    correlation,
    deviations,
    interaction_variance,
    satterthwaite,
    squared_seed_half_width,
    squared_text_half_width,
    text_variance,
)
from orchestrator.analysis.power import further_seeds

LEVEL_OF_ERROR = 0.05
"""How often any of a page's intervals may miss: its verdicts' family-wise error."""
BASELINE = ""
"""The baseline's name among groups: no variant can have it."""
MARGIN = 0.005
"""A share of perplexity: an effect that is surely smaller counts as none."""


def contrasts(
    groups: Mapping[str, Losses],
    coefficients: Mapping[str, Mapping[str, float]],
    level: float = 1 - LEVEL_OF_ERROR,
    margin: float = 0.0,
    barred: Mapping[str, Obstacle] | None = None,
) -> Comparison:
    """Contrasts of the mean losses of `groups`, all at once; `coefficients` gives the weights of each by group.

    The verdict reads the interval and nothing else: *hurts* or *helps* if it excludes zero, *equivalent* if it lies
    within the `margin`, a share of perplexity (two one-sided tests; Schuirmann 1987, "A comparison of the two
    one-sided tests procedure and the power approach", at a level stricter than his). So all verdicts are right together
    with probability `level`.

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
    if a group has one seed, its groups are all equal, or no seed differs from another. `barred` are those that have an
    interval and get no verdict, and why.
    """
    same = _first_of_equals(groups)
    effects: dict[str, Effect] = {}
    judged: dict[str, dict[str, float]] = {}
    for name, weights in coefficients.items():
        effects[name], merged = _without_interval(groups, weights, same)
        if merged:
            judged[name] = merged
    weighed = {group: groups[group] for group in dict.fromkeys(g for weights in judged.values() for g in weights)}
    measured = deviations({name: losses.nats for name, losses in weighed.items()})
    if measured is None:
        return Comparison(effects, None, 0, level, margin)
    every = {name: measured[alike] for name, alike in same.items() if alike in measured}
    has_text = all(losses.blocks is not None for losses in weighed.values())
    noise = Noise(every, _correlation(weighed, measured, judged), has_text)
    errors = Errors.of(level, len(judged))
    for name, weights in judged.items():
        effect = _with_interval(effects[name].nats or 0.0, weights, weighed, noise, errors)
        obstacle = (barred or {}).get(name)
        effects[name] = (
            _with_verdict(effect, weights, weighed, noise, errors, margin)
            if obstacle is None
            else replace(effect, obstacle=obstacle)
        )
    return Comparison(effects, noise, len(judged), level, margin)


def compare(
    baseline: Losses,
    variants: Mapping[str, Losses],
    level: float = 1 - LEVEL_OF_ERROR,
    margin: float = MARGIN,
    barred: Mapping[str, Obstacle] | None = None,
) -> Comparison:
    """The effect of each variant on the baseline's loss: `contrasts` of one variant and the baseline."""
    weights = {name: {name: 1.0, BASELINE: -1.0} for name in variants}
    return contrasts({BASELINE: baseline, **variants}, weights, level, margin, barred)


def perplexity_change(baseline_nats: float, nats: float) -> float:
    """The difference in perplexity that a difference in loss makes at the baseline's loss; inf where it overflows."""
    with np.errstate(over="ignore"):
        return float(np.exp(baseline_nats) * np.expm1(nats))


def perplexity_ratio(nats: float) -> float:
    """The ratio of perplexities, variant to baseline, of a difference in loss; inf where it overflows."""
    with np.errstate(over="ignore"):
        return float(np.exp(nats))


def _correlation(
    groups: Mapping[str, Losses], measured: Mapping[str, Deviation], judged: Mapping[str, Mapping[str, float]]
) -> Correlation | None:
    """How seeds go together over all groups; used is what surely holds in every contrast by itself.

    Some groups may go together for a reason of their own, such as a stage that they share, and others not at all.
    """
    every = correlation(groups, measured)
    if every is None or every.used == 0.0:
        return every
    single = [correlation({group: groups[group] for group in weights}, measured) for weights in judged.values()]
    return Correlation(every.estimate, min(every.used, *(each.used if each else 0.0 for each in single)))


def _first_of_equals(groups: Mapping[str, Losses]) -> dict[str, str]:
    """Of each group the first that equals it, which may be the group itself."""
    same: dict[str, str] = {}
    for name, losses in groups.items():
        equals = (other for other, first in same.items() if other == first and _are_alike(losses, groups[other]))
        same[name] = next(equals, name)
    return same


def _are_alike(one: Losses, other: Losses) -> bool:
    """Whether two groups have the same losses in every seed that both have, and one has all seeds of the other."""
    of_one, of_other = (dict(zip(group.seeds, group.nats.tolist(), strict=True)) for group in (one, other))
    shared = of_one.keys() & of_other.keys()
    return len(shared) == min(len(of_one), len(of_other)) and all(of_one[seed] == of_other[seed] for seed in shared)


def _without_interval(
    groups: Mapping[str, Losses], weights: Mapping[str, float], same: Mapping[str, str]
) -> tuple[Effect, dict[str, float]]:
    """A contrast's estimate, and its weights with equal groups merged; no weights if it can have no interval."""
    merged: dict[str, float] = {}
    for group, weight in weights.items():
        merged[same[group]] = merged.get(same[group], 0.0) + weight
    merged = {group: weight for group, weight in merged.items() if abs(weight) > 1e-12}
    nats = sum(weight * float(groups[group].nats.mean()) for group, weight in merged.items())
    if not merged:
        return Effect(nats, obstacle=Obstacle("equal in every seed")), {}
    if any(groups[group].nats.size < 2 for group in weights):
        return Effect(nats, obstacle=Obstacle("one seed")), {}
    return Effect(nats, obstacle=Obstacle("seeds do not differ")), merged


def _with_interval(
    nats: float, weights: Mapping[str, float], groups: Mapping[str, Losses], noise: Noise, errors: Errors
) -> Effect:
    deviation = {group: noise.deviations[group] for group in weights}
    sizes = {group: groups[group].nats.size for group in weights}
    borrowed = {group: (each.used, each.degrees_of_freedom) for group, each in deviation.items()}
    lone = {group: (each.own, sizes[group] - 1.0) for group, each in deviation.items()}
    of_seeds, degrees = _seed_variance(weights, groups, noise.correlation, borrowed)
    of_lone, lone_degrees = _seed_variance(weights, groups, noise.correlation, lone)
    every_degree = sum(losses.nats.size - 1 for losses in groups.values())
    squared = squared_seed_half_width(
        (of_seeds, min(degrees, every_degree)), (of_lone, max(lone_degrees / 2, min(sizes.values()) - 1)), errors
    )
    text, single = None, 0.0
    blocks = [(weight, each) for group, weight in weights.items() if (each := groups[group].blocks) is not None]
    if noise.has_text:
        text = text_variance(np.sum([weight * blocks_SB.mean(axis=0) for weight, blocks_SB in blocks], axis=0))
        single = sum(weight**2 * interaction_variance(blocks_SB) for weight, blocks_SB in blocks)
        squared += squared_text_half_width(text, errors)
    half_width = math.sqrt(squared)
    return Effect(
        nats,
        Interval(nats - half_width, nats + half_width),
        seed_error=math.sqrt(of_seeds),
        text_error=None if text is None else math.sqrt(text),
        single_seed_share=min(1.0, single / text) if text else 0.0,
    )


def _with_verdict(
    effect: Effect,
    weights: Mapping[str, float],
    groups: Mapping[str, Losses],
    noise: Noise,
    errors: Errors,
    margin: float,
) -> Effect:
    assert effect.interval is not None and effect.nats is not None
    low, high = effect.interval
    none = math.log1p(margin)
    if low > 0 or high < 0 or (-none < low and high < none):
        return replace(effect, verdict="hurts" if low > 0 else "helps" if high < 0 else "equivalent")
    parts = [(weight, noise.deviations[group], groups[group].nats.size) for group, weight in weights.items()]
    text = effect.text_error or 0.0, effect.single_seed_share
    return replace(effect, verdict="not decided", further=further_seeds(effect.nats, parts, text, errors, none))


def _seed_variance(
    weights: Mapping[str, float],
    groups: Mapping[str, Losses],
    pairing: Correlation | None,
    measured: Mapping[str, tuple[float, float]],
) -> tuple[float, float]:
    """A contrast's variance by seeds and its degrees of freedom, from each group's deviation and degrees of freedom.

    Seeds that go together lessen the variance of a difference.
    """
    parts = [
        (weight**2 * measured[group][0] ** 2 / groups[group].nats.size, measured[group][1])
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
        product = weights[one] * measured[one][0] * weights[other] * measured[other][0]
        variance += together * product * shared
    return variance, degrees
