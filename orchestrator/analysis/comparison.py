"""What became of the trials as a comparison: every variant's test losses against the baseline's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from lm.record import opened
from orchestrator.analysis import statistics
from orchestrator.analysis.comparable import OTHER_BUDGET, is_adaptive, obstacles
from orchestrator.analysis.noise import Array, Losses
from orchestrator.analysis.outcomes import Outcome
from orchestrator.analysis.statistics import LEVEL_OF_ERROR, MARGIN, Comparison


def compare_variants(
    outcomes: Mapping[str, tuple[Outcome, ...]], baseline: str, looks: int = 1, margin: float = MARGIN
) -> Comparison | None:
    """Test losses of every variant that may be compared against the baseline's; None if nothing may be.

    Where the seeds were planned with several `looks`, each look may err as often as its equal share of 5% (Bonferroni),
    so that all of them together err no more often than one look would.

    `obstacles` says who may be compared. A variant of another budget has an interval and no verdict.
    """
    if obstacles(outcomes, [baseline]):
        return None
    why = {variant: obstacles(outcomes, [variant, baseline]) for variant in outcomes if variant != baseline}
    whole = {
        variant: losses_on_test(outcomes[variant])
        for variant, found in why.items()
        if not any(obstacle.bars_interval for obstacle in found)
    }
    result = statistics.compare(losses_on_test(outcomes[baseline]), whole, 1 - LEVEL_OF_ERROR / looks, margin)
    barred = {
        name: replace(effect, verdict="no verdict", reason=OTHER_BUDGET, further=None)
        for name, effect in result.effects.items()
        if why[name] and effect.reason is None
    }
    return replace(result, effects={**result.effects, **barred})


def losses_on_test(group: Sequence[Outcome]) -> Losses:
    """The test losses of the complete seeds; without blocks of the text where a seed has no losses by token."""
    complete = [outcome for outcome in group if outcome.final]
    blocks = [outcome.losses.blocks for outcome in complete if outcome.losses]
    seeds = tuple(outcome.trial.seed for outcome in complete)
    return Losses(seeds, nats_on_test(group), np.stack(blocks) if blocks and len(blocks) == len(seeds) else None)


def nats_on_test(group: Sequence[Outcome]) -> Array:
    """The test losses of the complete seeds, in nats per token."""
    return np.array([opened(outcome.final.test).nats_per_token for outcome in group if outcome.final], dtype=np.float64)


def equal_variants(outcomes: Mapping[str, tuple[Outcome, ...]], baseline: str) -> list[tuple[str, ...]]:
    """Variants that have the very same test loss in every seed: what tells them apart never took effect.

    Those equal to the baseline are left out; the comparison says that of each.
    """
    alike: dict[tuple[float, ...], list[str]] = {}
    for variant, group in outcomes.items():
        losses = tuple(nats_on_test(group).tolist())
        if len(losses) == len(group) and not is_adaptive(group):
            alike.setdefault(losses, []).append(variant)
    return [tuple(names) for names in alike.values() if len(names) > 1 and baseline not in names]
