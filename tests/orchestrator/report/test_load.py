"""A report as Arrow tables, from the committed pages."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pytest

from orchestrator import load_report

REPORTS = Path(__file__).parents[3] / "reports"


@pytest.mark.parametrize("of", [str, Path])
def test_a_report_is_read_as_tables(of: type[str | Path]) -> None:
    report = load_report(of(REPORTS / "tuned_ablation" / "laptop"))
    assert report.summary.verdicts["Adam"] == "raises"
    table = report.table
    assert {"full", "Adam"} <= set(table["variant"].to_pylist())
    complete = report.trials.filter(pc.equal(report.trials["status"], "complete"))
    assert complete.num_rows == report.summary.complete
    assert report.curves.num_rows > complete.num_rows
    assert set(report.searches["variant"].to_pylist()) == set(table["variant"].to_pylist()) - {
        "unigram model",
        "uniform model",
    }


def test_a_table_that_a_report_lacks_has_no_rows() -> None:
    assert load_report(REPORTS / "zaremba" / "paper").searches.num_rows == 0


def test_a_folder_without_a_report_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected a report's folder, with its summary\.json"):
        load_report(tmp_path)
