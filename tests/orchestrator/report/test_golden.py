"""A report's bytes: those of the golden files, and the same whatever the order of the records."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.orchestrator.report import golden


@pytest.mark.parametrize("name", golden.FILES)
def test_the_report_is_the_golden_one(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    """Where a change of the page is meant: `python -m tests.orchestrator.report.golden`, and read the difference."""
    place = tmp_path_factory.getbasetemp() / "golden"
    made = place / "report" if place.exists() else golden.make(place)
    assert (made / name).read_text(encoding="utf-8") == (golden.FOLDER / name).read_text(encoding="utf-8")


def test_the_same_records_give_the_same_bytes_in_any_order(tmp_path: Path) -> None:
    one, two = (golden.make(tmp_path / str(order), order=order, pictures=True) for order in (1, -1))
    names = sorted(path.name for path in one.iterdir())
    pictures = [f"{name}.svg" for name in ("forest", "frequency", "overview", "position", "variants")]
    others = ["curves.parquet", "interactions.csv", "report.html"]
    assert names == sorted([*pictures, *others, *golden.FILES])
    for name in names:
        assert (one / name).read_bytes() == (two / name).read_bytes(), name
    targets = re.findall(r"\]\(([^)]+)\)", (one / "report.md").read_text(encoding="utf-8"))
    assert targets and all((one / target).is_file() for target in targets)
