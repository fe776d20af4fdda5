"""Ensembles of each variant's seeds, never ranked with single models."""

from __future__ import annotations

from dataclasses import dataclass

from lm.by_token.ensemble import Ensemble, ensemble
from lm.by_token.losses import read_losses
from orchestrator.analysis.outcomes import Outcomes, is_adaptive
from orchestrator.trials.records import Records


@dataclass(frozen=True)
class EnsembleRow:
    """A variant's complete seeds on test, and the mean of their probabilities."""

    variant: str
    adaptive: bool
    ensemble: Ensemble


def ensemble_table(outcomes: Outcomes, records: Records) -> list[EnsembleRow]:
    """A row for every variant with two seeds or more that are complete and have their losses by token."""
    rows = []
    for variant, group in outcomes.items():
        readable = [outcome.trial for outcome in group if outcome.losses is not None]
        complete = sum(outcome.final is not None for outcome in group)
        if complete < 2 or len(readable) < complete:
            continue
        losses = [read_losses(records.test_losses(trial)) for trial in readable]
        if all(one.is_of_the_text_of(losses[0]) for one in losses):
            rows.append(EnsembleRow(variant, is_adaptive(group), ensemble([one.nats for one in losses])))
    return rows
