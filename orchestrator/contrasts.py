"""Linear contrasts of variants' mean losses (main effects, interactions), with simultaneous intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from scipy import stats

from orchestrator.statistics import NO_NOISE, ONE_SEED, Array, Interval, Pool, pool
from orchestrator.wording import listed

NO_DIFFERENCE = "the variants are equal in every seed"


@dataclass(frozen=True)
class Contrast:
    """A weighted sum of mean losses in nats per token, None where a variant is missing; `reason` as in `Effect`."""

    nats: float | None
    interval: Interval | None
    reason: str | None


@dataclass(frozen=True)
class Contrasts:
    """Every contrast, and what the intervals rest on: None where no contrast has one."""

    found: dict[str, Contrast]
    noise: Pool | None
    intervals: int


def contrasts(
    groups: Mapping[str, Array], coefficients: Mapping[str, Mapping[str, float]], level: float = 0.95
) -> Contrasts:
    """Contrasts of the means of `groups` (losses in nats per token, one a seed), all at once.

    `coefficients` gives each contrast's weights by group. The intervals cover all true contrasts together with
    probability `level` or more, if losses are independent and normal with one variance, which is pooled over the
    groups that the contrasts weigh (Montgomery, "Design and Analysis of Experiments", 8th edition, section 3.5).
    Bonferroni's bound (Dunn 1961, "Multiple comparisons among means", JASA 56) serves contrasts that share groups in
    any way, by a formula; that of Scheffé covers every thinkable contrast, and is wider for the few that a design asks.

    Groups that are equal in every seed are one measurement, so their weights are added. A contrast gets no interval
    where a group is missing or has one seed, where its groups are all equal, or where no seed differs from another.
    """
    first: dict[tuple[float, ...], str] = {}
    same = {name: first.setdefault(tuple(losses.tolist()), name) for name, losses in groups.items()}
    found: dict[str, Contrast] = {}
    judged: dict[str, dict[str, float]] = {}
    for name, weights in coefficients.items():
        if missing := [group for group in weights if group not in groups]:
            found[name] = Contrast(None, None, f"{listed(missing)} not complete")
            continue
        merged: dict[str, float] = {}
        for group, weight in weights.items():
            merged[same[group]] = merged.get(same[group], 0.0) + weight
        alone = any(groups[group].size < 2 for group in weights)
        moved = any(abs(weight) > 1e-12 for weight in merged.values())
        found[name] = Contrast(
            _weighed(groups, merged), None, ONE_SEED if alone else NO_NOISE if moved else NO_DIFFERENCE
        )
        if moved and not alone:
            judged[name] = merged
    weighed = dict.fromkeys(group for weights in judged.values() for group in weights)
    noise = pool([groups[group] for group in weighed]) if judged else None
    if noise is not None:
        critical = float(stats.t.ppf(1 - (1 - level) / (2 * len(judged)), noise.degrees_of_freedom))
        for name, weights in judged.items():
            nats = _weighed(groups, weights)
            spread = math.sqrt(sum(weight**2 / groups[group].size for group, weight in weights.items()))
            reach = critical * noise.deviation * spread
            found[name] = Contrast(nats, Interval(nats - reach, nats + reach), None)
    return Contrasts(found, noise, len(judged) if noise else 0)


def _weighed(groups: Mapping[str, Array], weights: Mapping[str, float]) -> float:
    return sum(weight * float(groups[group].mean()) for group, weight in weights.items())
