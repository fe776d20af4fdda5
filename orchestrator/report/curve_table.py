"""`curves.parquet`: every evaluation of every trial of a report."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

import pyarrow as pa

from lm.record import CURVE_SCHEMA
from orchestrator.outcomes import Outcome

_TRIAL_SCHEMA = pa.schema([("variant", pa.string()), ("seed", pa.int64()), ("key", pa.string())])


def curve_table(outcomes: Iterable[Outcome]) -> pa.Table:
    """One row an evaluation, with its trial's variant, seed and key; the fields and units of `lm.record.Evaluation`."""
    outcomes = [outcome for outcome in outcomes if outcome.curve]
    names = CURVE_SCHEMA.names[:-1]
    assert CURVE_SCHEMA.names[-1] == "terms"
    fields = list(zip(*map(attrgetter(*names), (p for outcome in outcomes for p in outcome.curve)), strict=True))
    columns: dict[str, object] = {
        name: [value for outcome in outcomes for value in [getattr(outcome.trial, name)] * len(outcome.curve)]
        for name in _TRIAL_SCHEMA.names
    }
    columns |= dict(zip(names, fields, strict=True))
    columns["terms"] = [list(point.terms.items()) for outcome in outcomes for point in outcome.curve]
    return pa.table(columns, schema=pa.schema([*_TRIAL_SCHEMA, *CURVE_SCHEMA]))
