"""Differences between variants in nats per token, with simultaneous intervals, and what they decide."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np

from orchestrator.analysis.effects import Comparison, Effect, Interval, Noise, Obstacle, further_seeds
from orchestrator.analysis.looks import LEVEL_OF_ERROR
from orchestrator.analysis.noise import (
    CAUTION,
    Array,
    Correlation,
    Deviation,
    Errors,
    Losses,
    borrowed_text,
    correlation_of_contrasts,
    deviations,
    half_width,
    interaction_variance,
    missed_by_waves,
    satterthwaite,
    t_beyond,
    text_correlation,
    text_variance,
)

BASELINE = ""  # its name among groups: no variant can have it
MARGIN = 0.005
"""A share of perplexity: an effect that is surely smaller counts as none."""


def contrasts(
    groups: Mapping[str, Losses],
    coefficients: Mapping[str, Mapping[str, float]],
    level: float = 1 - LEVEL_OF_ERROR,
    margin: float = 0.0,
    barred: Mapping[str, Obstacle] | None = None,
    waiting: int = 0,
) -> Comparison:
    """Contrasts of the mean losses of `groups`, all at once; `coefficients` gives the weights of each by group.

    The intervals of contrasts that can get a verdict cover together with probability `level`, which Šidák's inequality
    shares out (1967, "Rectangular confidence regions for the means of multivariate normal distributions", JASA 62),
    however the contrasts go together. Verdicts step down (Holm 1979, "A simple sequentially rejective multiple test
    procedure", Scandinavian Journal of Statistics 6); if only a later step decides a contrast, its interval ends at
    zero (Strassburger and Bretz 2008, "Compatible simultaneous lower confidence bounds for the Holm procedure",
    Statistics in Medicine 27). *Raises* or *lowers*: it lies on one side of zero; *equivalent*: within the `margin`, a
    share of perplexity (two one-sided tests; Schuirmann 1987). Contrasts without a verdict take no share, equal ones
    one, `waiting` further ones, whose trials are to come, one each: no early verdict is lost to their number.

    The seeds' degrees of freedom are Satterthwaite's, no more than all seeds together have. No interval is narrower
    than a lone comparison's from the deviations of its own groups (after Welch 1938, Biometrika 29), paired if the
    others are: a group of twenty times the others' noise erred in 10 to 15% without it. Few seeds overstate
    Satterthwaite's degrees, of which it has half, at least what the fewest seeds have: all of them erred in 5 to 9%. Of
    three groups or more no interval is narrower than by the noise of each alone, or by all without what they borrow.

    Groups equal in every seed that both have are one: their weights are added. A contrast gets no interval if a group
    has one seed, its groups are all equal, or no seed differs. `barred` get no verdict, and why, even with an interval.
    """
    same, barred = first_of_equals(groups), barred or {}
    effects: dict[str, Effect] = {}
    judged: dict[str, dict[str, float]] = {}
    first: dict[str, str] = {}  # of each contrast the first that equals it: a copy is no second witness of the noise
    for name, weights in coefficients.items():
        merged = _merged(weights, same)
        nats = sum(weight * float(groups[group].nats.mean()) for group, weight in merged.items())
        if not merged:
            effects[name] = Effect(nats, obstacle=Obstacle("equal in every seed"))
        elif any(groups[group].nats.size < 2 for group in weights):
            effects[name] = Effect(nats, obstacle=barred.get(name, Obstacle("one seed")))
        else:
            effects[name] = Effect(nats, obstacle=barred.get(name, Obstacle("seeds do not differ")))  # see below
            first[name] = next((other for other, already in judged.items() if already == merged), name)
            judged.setdefault(first[name], merged)
    weighed = {group: groups[group] for group in dict.fromkeys(g for weights in judged.values() for g in weights)}
    measured = deviations(weighed)
    if measured is None:
        return Comparison(effects, None, 0, waiting, level, margin)
    judged = {name: weights for name, weights in judged.items() if any(measured[g].used for g in weights)}
    first = {name: alike for name, alike in first.items() if alike in judged}
    every = {name: measured[alike] for name, alike in same.items() if alike in measured}
    blocks = _along_the_text(judged, weighed)
    noise = Noise(
        every, correlation_of_contrasts(weighed, judged), text_correlation([*blocks.values()]) if blocks else None
    )
    estimates = _estimates(effects, judged, weighed, noise, blocks)
    names = list(dict.fromkeys(alike for name, alike in first.items() if name not in barred))
    errors = Errors.of(level, len(names) + waiting)
    decided, last = _step_down(estimates, names, level, waiting)
    on_this_text = {name: replace(each, text=None, seen=None) for name, each in estimates.items()}
    here, _ = _step_down(on_this_text, names, level, waiting)
    for name, alike in first.items():
        is_barred, estimate = name in barred, estimates[alike]
        effect = estimate.effect(errors, barred.get(name), decided_on_this_text=alike in here and not is_barred)
        effects[name] = effect if is_barred else _with_verdict(effect, estimate, alike in decided, last, margin)
    return Comparison(effects, noise, len(names), waiting, level, margin)


def compare(
    baseline: Losses,
    variants: Mapping[str, Losses],
    level: float = 1 - LEVEL_OF_ERROR,
    margin: float = MARGIN,
    barred: Mapping[str, Obstacle] | None = None,
    waiting: int = 0,
) -> Comparison:
    """The effect of each variant on the baseline's loss: `contrasts` of one variant and the baseline."""
    weights = {name: {name: 1.0, BASELINE: -1.0} for name in variants}
    return contrasts({BASELINE: baseline, **variants}, weights, level, margin, barred, waiting)


def first_of_equals(groups: Mapping[str, Losses]) -> dict[str, str]:
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


def _merged(weights: Mapping[str, float], same: Mapping[str, str]) -> dict[str, float]:
    """A contrast's weights, those of equal groups added; none if they cancel."""
    merged: dict[str, float] = {}
    for group, weight in weights.items():
        merged[same[group]] = merged.get(same[group], 0.0) + weight
    return {group: weight for group, weight in merged.items() if abs(weight) > 1e-12}


@dataclass(frozen=True)
class _Estimate:
    """A contrast's value with what its interval rests on: variances with their degrees of freedom.

    `seen` is the text's as the waves see it, `text` with what they miss; `own` borrows nothing, `singly` is each
    group's.
    """

    nats: float
    seeds: tuple[float, float]
    own: tuple[float, float]
    lone: tuple[float, float]
    text: tuple[float, float] | None
    seen: tuple[float, float] | None
    singly: tuple[tuple[float, float], ...]
    single_seed_share: float
    groups: tuple[tuple[float, Deviation, int], ...]

    def half_width(self, errors: Errors) -> float:
        """Half the width of its interval, no less than by what the waves see, or than one of many groups makes it.

        A larger variance of the text alone could lessen it, because its degrees of freedom hide the few of the seeds.
        """
        many, texts = len(self.singly) > 2, (self.text, self.seen)
        of_seeds = (self.seeds, self.own) if many else (self.seeds,)
        widths = [float(half_width(seeds, self.lone, text, errors)) for seeds in of_seeds for text in texts]
        for variance, degrees in self.singly if many else ():
            widths.append(float(t_beyond(errors.alone / 2, degrees)) * math.sqrt(variance))
        return max(widths)

    def effect(self, errors: Errors, obstacle: Obstacle | None, *, decided_on_this_text: bool) -> Effect:
        """The effect with its interval, and no verdict yet."""
        half = self.half_width(errors)
        return Effect(
            nats=self.nats,
            interval=Interval(self.nats - half, self.nats + half),
            obstacle=obstacle,
            decided_on_this_text=decided_on_this_text,
            seed_error=math.sqrt(self.seeds[0]),
            text_error=None if self.text is None else math.sqrt(self.text[0]),
        )


def _along_the_text(judged: Mapping[str, Mapping[str, float]], groups: Mapping[str, Losses]) -> dict[str, Array]:
    """The contrasts in each block of the text; empty if a group has no losses by token."""
    means_B = {name: losses.blocks.mean(axis=0) for name, losses in groups.items() if losses.blocks is not None}
    if len(means_B) < len(groups):
        return {}
    return {name: np.sum([w * means_B[group] for group, w in each.items()], axis=0) for name, each in judged.items()}


def _estimates(
    effects: Mapping[str, Effect],
    judged: Mapping[str, Mapping[str, float]],
    groups: Mapping[str, Losses],
    noise: Noise,
    along: Mapping[str, Array],
) -> dict[str, _Estimate]:
    """What the interval of each contrast rests on; `along` has the contrasts in each block of the text."""
    scales = [sum(weight**2 for weight in weights.values()) for weights in judged.values()]
    kinds = ["\n".join(sorted({groups[group].kind for group in weights})) for weights in judged.values()]
    missed = missed_by_waves(noise.text_correlation or 0.0)
    variances = [text_variance(along_B) for along_B in along.values()]
    texts = dict(zip(along, borrowed_text(variances, scales, kinds) if along else (), strict=True))
    blocks = {name: losses.blocks for name, losses in groups.items()} if along else {}
    of_single = {name: interaction_variance(each) for name, each in blocks.items() if each is not None}
    paired = noise.correlation.used if noise.correlation else 0.0
    every_degree = sum(losses.nats.size - 1 for losses in groups.values())
    estimates = {}
    for name, weights in judged.items():
        sizes = {group: groups[group].nats.size for group in weights}
        fewest = min(sizes.values()) - 1.0
        deviation = {group: noise.deviations[group] for group in weights}
        borrowed = {group: (each.used, each.degrees_of_freedom) for group, each in deviation.items()}
        alone = {group: (each.own, sizes[group] - 1.0) for group, each in deviation.items()}
        variance, degrees = _seed_variance(weights, groups, noise.correlation, borrowed)
        lone, lone_degrees = _seed_variance(weights, groups, noise.correlation, alone)
        seen = texts.get(name)
        single = sum(weight**2 * of_single[group] for group, weight in weights.items() if seen)
        estimates[name] = _Estimate(
            nats=effects[name].nats,
            seeds=(variance, min(degrees, every_degree)),
            own=(lone, max(lone_degrees / CAUTION, fewest)),
            lone=(lone, max(lone_degrees / 2, fewest)),
            text=seen and (missed * seen[0], seen[1]),
            seen=seen,
            single_seed_share=min(1.0, single / seen[0]) if seen and seen[0] else 0.0,
            singly=tuple(
                ((1 - paired) * (weight * deviation[group].own) ** 2 / sizes[group], sizes[group] - 1.0)
                for group, weight in weights.items()
            ),
            groups=tuple((weight, deviation[group], sizes[group]) for group, weight in weights.items()),
        )
    return estimates


def _step_down(
    estimates: Mapping[str, _Estimate], names: Sequence[str], level: float, waiting: int
) -> tuple[set[str], Errors]:
    """The contrasts that differ from zero, and the errors that were left to the others (Holm 1979).

    Those decided need no share of the level any more: the others are judged again as if they were alone.
    """
    decided: set[str] = set()
    while True:
        rest = [name for name in names if name not in decided]
        errors = Errors.of(level, len(rest) + waiting)
        further = {name for name in rest if abs(estimates[name].nats) > estimates[name].half_width(errors)}
        if not further:
            return decided, errors
        decided |= further


def _with_verdict(effect: Effect, estimate: _Estimate, decided: bool, errors: Errors, margin: float) -> Effect:
    """The verdict; the interval of a contrast that a later step decides ends at zero (Strassburger and Bretz 2008)."""
    assert effect.interval is not None
    low, high = effect.interval
    none = math.log1p(margin)
    if decided and estimate.nats > 0:
        return replace(effect, verdict="raises", interval=Interval(max(low, 0.0), high))
    if decided:
        return replace(effect, verdict="lowers", interval=Interval(low, min(high, 0.0)))
    if -none < low and high < none:
        return replace(effect, verdict="equivalent")
    text = (0.0, 1.0) if estimate.text is None else (math.sqrt(estimate.text[0]), estimate.text[1])
    further = further_seeds(estimate.nats, estimate.groups, (*text, estimate.single_seed_share), errors, none)
    further = replace(further, seeds_suffice=further.seeds_suffice or effect.decided_on_this_text)
    return replace(effect, verdict="not decided", further=further)


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
