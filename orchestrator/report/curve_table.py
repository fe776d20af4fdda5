"""`curves.parquet`: every evaluation of every trial of a report."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from orchestrator.analysis.outcomes import Outcome


def curves_of(outcomes: Iterable[Outcome]) -> pa.Table:
    """One row an evaluation, with its trial's variant, seed and key; the fields and units of `lm.record.Evaluation`."""
    return pa.concat_tables(_named(outcome) for outcome in outcomes if outcome.curve)


def _named(outcome: Outcome) -> pa.Table:
    table, trial, rows = outcome.curve, outcome.trial, len(outcome.curve)
    seeds = pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(np.full(rows, trial.seed, np.int64))])
    columns = {"variant": _repeated(trial.variant, rows), "seed": seeds, "key": _repeated(trial.key, rows)}
    for place, (name, column) in enumerate(columns.items()):
        table = table.add_column(place, name, column)
    return table


def _repeated(text: str, times: int) -> pa.Array:
    """Made of bytes, as the seeds are: to convert values, Arrow imports pandas, a tenth of a report's time."""
    letters = text.encode()
    ends = np.arange(times + 1, dtype=np.int32) * np.int32(len(letters))
    return pa.StringArray.from_buffers(times, pa.py_buffer(ends), pa.py_buffer(letters * times))
