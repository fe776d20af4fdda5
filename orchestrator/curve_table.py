"""`curves.parquet`: every evaluation of every trial of a report."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from lm.record import CURVE_SCHEMA
from orchestrator.outcomes import Outcome

_TRIAL_SCHEMA = pa.schema([("variant", pa.string()), ("seed", pa.int64()), ("key", pa.string())])


def curve_table(outcomes: Iterable[Outcome]) -> pa.Table:
    """One row an evaluation, with its trial's variant, seed and key; the fields and units of `lm.record.Evaluation`."""
    points = [(outcome.trial, point) for outcome in outcomes for point in outcome.curve]
    schema = pa.schema([*_TRIAL_SCHEMA, *CURVE_SCHEMA])
    columns = {
        **{name: [getattr(trial, name) for trial, _ in points] for name in _TRIAL_SCHEMA.names},
        **{name: [getattr(point, name) for _, point in points] for name in CURVE_SCHEMA.names if name != "terms"},
        "terms": [list(point.terms.items()) for _, point in points],
    }
    return pa.table(columns, schema=schema)
