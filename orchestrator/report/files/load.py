"""A report that was written, as Arrow tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from orchestrator.report.files.summary import Summary, read_summary


@dataclass(frozen=True)
class LoadedReport:
    """What lies in a report's folder. A table that the report lacks has no rows."""

    folder: Path
    summary: Summary

    @property
    def table(self) -> pa.Table:
        """One row a variant: perplexities, difference in nats per token with its interval, verdict."""
        return self._csv("table.csv")

    @property
    def trials(self) -> pa.Table:
        """One row a trial: status, perplexities, epochs, seconds."""
        return self._csv("trials.csv")

    @property
    def searches(self) -> pa.Table:
        """One row a trial of a search: its values, and what became of it."""
        return self._csv("searches.csv")

    @property
    def curves(self) -> pa.Table:
        """One row an evaluation of a trial."""
        path = self.folder / "curves.parquet"
        return pa.parquet.read_table(path) if path.exists() else pa.table({})

    def _csv(self, name: str) -> pa.Table:
        path = self.folder / name
        return pa.csv.read_csv(path) if path.exists() else pa.table({})


def load_report(folder: Path | str) -> LoadedReport:
    """The report in a folder such as `reports/awd_ablation/laptop`; ValueError if there is none."""
    folder = Path(folder)
    summary = read_summary(folder)
    if summary is None:
        raise ValueError(f"{folder}: expected a report's folder, with its summary.json")
    return LoadedReport(folder, summary)
