"""`curves.parquet`: every evaluation of every trial of a report."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from orchestrator.outcomes import Outcome


def curves_of(outcomes: Iterable[Outcome]) -> pa.Table:
    """One row an evaluation, with its trial's variant, seed and key; the fields and units of `lm.record.Evaluation`."""
    return pa.concat_tables(_named(outcome) for outcome in outcomes if outcome.curve)


def _named(outcome: Outcome) -> pa.Table:
    table = outcome.curve
    trial = {"variant": outcome.trial.variant, "seed": outcome.trial.seed, "key": outcome.trial.key}
    for place, (name, value) in enumerate(trial.items()):
        table = table.add_column(place, name, pa.repeat(value, len(table)))
    return table
