"""What became of the trials as a comparison: every variant's test losses against the baseline's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from lm.record import opened
from orchestrator import statistics
from orchestrator.noise import Array, Losses
from orchestrator.outcomes import Outcome
from orchestrator.statistics import LEVEL_OF_ERROR, MARGIN, Comparison
from orchestrator.timing import stage_epochs
from orchestrator.wording import counted

OTHER_BUDGET = "another budget"


def compare_variants(
    outcomes: Mapping[str, tuple[Outcome, ...]], baseline: str, looks: int = 1, margin: float = MARGIN
) -> Comparison | None:
    """Test losses of every variant against the baseline's; None unless the baseline has all its seeds.

    Where the seeds were planned with several `looks`, each look may err as often as its equal share of 5% (Bonferroni),
    so that all of them together err no more often than one look would.

    A variant with a seed that diverged, failed or is unfinished is not compared, since the seeds that survive are
    not a fair sample, nor one that is scored on another text. Adaptive variants are left out. One of another budget
    has an interval and no verdict: nobody can tell what is the change's and what the budget's.
    """
    base = outcomes[baseline]
    if not all(outcome.final for outcome in base) or is_adaptive(base):
        return None
    whole = {
        variant: losses_on_test(group)
        for variant, group in outcomes.items()
        if variant != baseline
        and not is_adaptive(group)
        and all(outcome.final for outcome in group)
        and texts(group) == texts(base)
    }
    found = statistics.compare(losses_on_test(base), whole, 1 - LEVEL_OF_ERROR / looks, margin)
    others = {name: effect for name, effect in found.effects.items() if budget(outcomes[name]) != budget(base)}
    judged = {
        name: replace(effect, verdict="no verdict", reason=OTHER_BUDGET, further=None)
        for name, effect in others.items()
        if effect.reason is None
    }
    return replace(found, effects={**found.effects, **judged})


def losses_on_test(group: Sequence[Outcome]) -> Losses:
    """The test losses of the complete seeds; without blocks of the text where a seed has no losses by token."""
    complete = [outcome for outcome in group if outcome.final]
    blocks = [outcome.losses.blocks for outcome in complete if outcome.losses]
    seeds = tuple(outcome.trial.seed for outcome in complete)
    return Losses(seeds, nats_on_test(group), np.stack(blocks) if blocks and len(blocks) == len(seeds) else None)


def nats_on_test(group: Sequence[Outcome]) -> Array:
    """The test losses of the complete seeds, in nats per token."""
    return np.array([opened(outcome.final.test).nats_per_token for outcome in group if outcome.final], dtype=np.float64)


def texts(group: Sequence[Outcome]) -> set[tuple[str, int]]:
    """The test texts that the complete seeds are scored on, with the columns they were cut into."""
    records = [outcome.record for outcome in group if outcome.final and outcome.record]
    return {(record.corpus.fingerprint, opened(record.stages[-1].test).columns) for record in records}


def planned_epochs(group: tuple[Outcome, ...]) -> int:
    """The most epochs that a trial of the variant may take, over all stages."""
    return sum(stage_epochs(group[0].trial.spec).values())


def budget(group: tuple[Outcome, ...]) -> tuple[int, int | None, int]:
    """What a trial of the variant may train on: epochs, and the stretch of the training text, its length and start."""
    corpus = group[0].trial.spec.corpus
    return planned_epochs(group), corpus.train_tokens, corpus.train_start


def is_adaptive(group: Sequence[Outcome]) -> bool:
    """Whether the variant's scores come from a model that adapts to the text it is scored on."""
    return group[0].trial.spec.cache is not None


def incomplete_seeds(group: Sequence[Outcome]) -> str:
    """How many seeds of a variant are not complete, and why: `1 of 3 seeds diverged`."""
    statuses = Counter(outcome.status for outcome in group if outcome.final is None)
    seeds = counted(len(group), "seed")
    return ", ".join(f"{count} of {seeds} {status}" for status, count in statuses.items())


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
