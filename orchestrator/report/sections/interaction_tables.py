"""The contrasts that a design is made for, as rows of plain, unrounded values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from orchestrator.analysis.comparable import Obstacle, obstacles
from orchestrator.analysis.comparison import losses_on_test
from orchestrator.analysis.outcomes import Outcome
from orchestrator.analysis.statistics import LEVEL_OF_ERROR, Contrast, Contrasts, Interval, contrasts, perplexity_ratio
from orchestrator.sweep.designs import Ablation, Factors

Kind = Literal["alone", "main effect", "interaction"]
MORE, LESS = "costs more together", "costs less together"
_NOTHING: Factors = frozenset()


@dataclass(frozen=True)
class Estimand:
    """What a contrast estimates: its name, and the weights of the variants by what they take away.

    That of one factor is named as the variant without it: that *no AR/TAR* helps, nobody reads as that AR/TAR does.
    `aliases` are the effects of one or two factors that the design cannot tell from it.
    """

    name: str
    kind: Kind
    weights: Mapping[Factors, float]
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class InteractionRow:
    """An estimand with its contrast, in nats per token and as ratios of perplexities."""

    estimand: Estimand
    contrast: Contrast
    ratio: float | None
    interval_in_ratio: Interval | None
    verdict: str


@dataclass(frozen=True)
class Interactions:
    """All rows, and what their intervals rest on."""

    rows: tuple[InteractionRow, ...]
    judged: Contrasts


def estimands(ablation: Ablation) -> list[Estimand]:
    """The contrasts of a design; each is a cost of taking away, or how much that cost grows with others away.

    A main effect is the mean loss without a factor less that with it, over all variants of the design. An interaction
    is the cost of a factor where another (in `both`: all others) is away, less its cost where that is there.
    """
    factors = ablation.factors
    every = frozenset(factors)
    match ablation.design:
        case "none" | "leave_one_out":
            return []
        case "pairs":
            return [_pair(one, other) for one, other in itertools.combinations(factors, 2)]
        case "add_one_in" | "both":
            alone = [Estimand(f"no {f}", "alone", {every: 1.0, every - {f}: -1.0}) for f in factors]
            if ablation.design == "add_one_in":
                return alone
            if len(factors) == 2:
                return [*alone, _pair(*factors)]
            return [*alone, *(_with_the_rest(factor, every) for factor in factors)]
        case "factorial" | "half" | "quarter" | "eighth":
            return list(_orthogonal(ablation))


def interaction_table(
    outcomes: Mapping[str, tuple[Outcome, ...]], ablation: Ablation, baseline: str, looks: int = 1
) -> Interactions:
    """A row for every contrast of the design; one that weighs variants that may not be compared has no verdict.

    It has no numbers either, unless they differ in their budget alone. If the baseline did not train, there is no
    verdict at all. With several `looks` each may err as often as its share of 5%, as in `compare_variants`.
    """
    asked = estimands(ablation)
    weights = {
        f"{estimand.kind} {estimand.name}": {
            ablation.variant(away) or baseline: weight for away, weight in estimand.weights.items()
        }
        for estimand in asked
    }
    why = {name: _obstacle(outcomes, list(weighed), baseline) for name, weighed in weights.items()}
    sound = {name: weights[name] for name, obstacle in why.items() if obstacle is None or not obstacle.bars_interval}
    needed = {variant for weighed in sound.values() for variant in weighed}
    groups = {variant: losses_on_test(group) for variant, group in outcomes.items() if variant in needed}
    result = contrasts(groups, sound, 1 - LEVEL_OF_ERROR / looks)
    found = {name: _with_reason(result.found.get(name), obstacle) for name, obstacle in why.items()}
    rows = tuple(_row(one, contrast) for one, contrast in zip(asked, found.values(), strict=True))
    return Interactions(rows, replace(result, found=found))


def _obstacle(outcomes: Mapping[str, tuple[Outcome, ...]], weighed: Sequence[str], baseline: str) -> Obstacle | None:
    """The gravest reason why a contrast has no verdict."""
    failed = [obstacle for obstacle in obstacles(outcomes, [baseline]) if obstacle.kind == "did not train"]
    found = [*obstacles(outcomes, weighed), *failed]
    return min(found, key=lambda obstacle: not obstacle.bars_interval, default=None)


def _with_reason(contrast: Contrast | None, obstacle: Obstacle | None) -> Contrast:
    """A contrast with the reason why it has no verdict; one without numbers if it was not estimated."""
    known = contrast or Contrast(None, None, None)
    return known if obstacle is None else replace(known, reason=known.reason or obstacle.in_words())


def effect_name(factors: Factors, ablation: Ablation) -> str:
    """Factors as an effect is written: `A × B`."""
    return " × ".join(sorted(factors, key=ablation.factors.index))


def _row(estimand: Estimand, contrast: Contrast) -> InteractionRow:
    ends = contrast.interval
    above, below = ("hurts", "helps") if estimand.kind != "interaction" else (MORE, LESS)
    verdict = "no verdict"
    if ends is not None and contrast.reason is None:
        verdict = above if ends.low > 0 else below if ends.high < 0 else "not decided"
    ratio = None if contrast.nats is None else perplexity_ratio(contrast.nats)
    ratios = None if ends is None else Interval(perplexity_ratio(ends.low), perplexity_ratio(ends.high))
    return InteractionRow(estimand, contrast, ratio, ratios, verdict)


def _pair(one: str, other: str) -> Estimand:
    both = frozenset([one, other])
    weights = {both: 1.0, frozenset([one]): -1.0, frozenset([other]): -1.0, _NOTHING: 1.0}
    return Estimand(f"{one} × {other}", "interaction", weights)


def _with_the_rest(factor: str, every: Factors) -> Estimand:
    one = frozenset([factor])
    weights = {every: 1.0, every - one: -1.0, one: -1.0, _NOTHING: 1.0}
    return Estimand(f"{factor} × the rest", "interaction", weights)


def _orthogonal(ablation: Ablation) -> Iterator[Estimand]:
    """Main effects, then two-way interactions, each once; those that are aliases of one told before are left out."""
    cells = (_NOTHING, *ablation.removals)
    told: set[Factors] = set()
    effects = (frozenset(some) for n in (1, 2) for some in itertools.combinations(ablation.factors, n))
    for effect in effects:
        if effect not in told:
            short = [alias for alias in ablation.aliases(effect) if len(alias) <= 2]
            told.update(short)
            # +1 where an even number of the effect's factors is away, -1 elsewhere (Montgomery, section 6.4).
            scale = -2 / len(cells) if len(effect) == 1 else 4 / len(cells)
            weights = {away: scale * (-1) ** len(away & effect) for away in cells}
            names = tuple(effect_name(alias, ablation) for alias in short)
            name = effect_name(effect, ablation)
            if len(effect) == 1:
                yield Estimand(f"no {name}", "main effect", weights, names)
            else:
                yield Estimand(name, "interaction", weights, names)
