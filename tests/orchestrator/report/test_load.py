"""A report as Arrow tables, from the committed pages."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
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


@pytest.mark.parametrize("name", ["table", "trials"])
def test_tables_of_all_reports_can_be_joined(name: str) -> None:
    """Whatever they lack, and whether or not their numbers are round."""
    tables = [getattr(load_report(path.parent), name) for path in sorted(REPORTS.glob(f"*/*/{name}.csv"))]
    joined = pa.concat_tables(tables)
    assert joined.num_rows == sum(len(table) for table in tables) and len(tables) > 40
    assert {*map(str, joined.schema.types)} <= {"string", "int64", "double", "bool"}


def test_a_key_of_digits_is_text(tmp_path: Path) -> None:
    shutil.copytree(REPORTS / "tuned_ablation/laptop", tmp_path, dirs_exist_ok=True)
    for name in ("trials", "searches"):
        (header, *_) = (tmp_path / f"{name}.csv").read_text().splitlines()
        row = ["1e12345678901234" if column == "key" else "" for column in header.split(",")]
        (tmp_path / f"{name}.csv").write_text(f"{header}\n{','.join(row)}\n")
        assert getattr(load_report(tmp_path), name)["key"].to_pylist() == ["1e12345678901234"]


def test_a_table_that_a_report_lacks_has_no_rows() -> None:
    assert load_report(REPORTS / "zaremba" / "paper").searches.num_rows == 0


def test_a_folder_without_a_report_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected a report's folder, with its summary\.json"):
        load_report(tmp_path)
