"""The tables of a report as files beside its page: CSV, LaTeX and Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from lm.files import write_text
from lm.tables import write_table
from orchestrator.analysis.outcomes import Outcome, flat
from orchestrator.report.files import csv_tables
from orchestrator.report.files.latex import table_tex
from orchestrator.report.sections.ablation import AblationRow, ReferenceRow
from orchestrator.report.sections.interactions import InteractionRow
from orchestrator.search.ledger import SearchState
from orchestrator.words import listed


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


def write_tables(
    folder: Path,
    outcomes: Mapping[str, tuple[Outcome, ...]],
    rows: Sequence[AblationRow],
    references: Sequence[ReferenceRow],
    interactions: Sequence[InteractionRow],
    searches: Sequence[SearchState],
    margin: float,
    caption: str,
) -> None:
    """Write the tables that this sweep has into a report's folder; `caption` begins what LaTeX's comment says."""
    write_text(folder / "table.csv", csv_tables.table_csv(rows, references))
    write_text(folder / "trials.csv", csv_tables.trials_csv(outcomes))
    if (measures := csv_tables.measures_csv(outcomes)) is not None:
        write_text(folder / "measures.csv", measures)
    if interactions:
        write_text(folder / "interactions.csv", csv_tables.interactions_csv(interactions))
    if searches:
        write_text(folder / "searches.csv", csv_tables.searches_csv(searches))
    caption = f"{caption}, {_corpora_and_seeds(outcomes)}"
    write_text(folder / "table.tex", table_tex(rows, references, margin, caption))
    if any(outcome.curve for outcome in flat(outcomes)):
        write_table(folder / "curves.parquet", curves_of(flat(outcomes)))


def _corpora_and_seeds(outcomes: Mapping[str, tuple[Outcome, ...]]) -> str:
    trials = [outcome.trial for outcome in flat(outcomes)]
    corpora = sorted({trial.spec.corpus.name for trial in trials})
    seeds = sorted({trial.seed for trial in trials})
    return f"corpus {listed(corpora)}, seeds {', '.join(map(str, seeds))}"
