"""A page that ships with its records is the page that they make."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support.places import command

ROOT = Path(__file__).parents[2]
REPORTS = ROOT / "reports"


@pytest.mark.skipif(not os.environ.get("LM_DATA"), reason="needs the Penn Treebank, in the folder that LM_DATA names")
@pytest.mark.parametrize(
    "page", sorted(str(place.parent.relative_to(REPORTS)) for place in REPORTS.glob("*/*/evidence"))
)
def test_the_page_follows_from_its_records(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, scale = Path(page).parts
    shutil.copytree(REPORTS / page / "evidence", tmp_path / "runs")
    (tmp_path / "sweeps").symlink_to(ROOT / "sweeps")
    monkeypatch.chdir(tmp_path)
    code, _, err = command("report", f"sweeps/{name}.yaml", "--scale", scale)
    assert code == 0, err
    made, shipped = (place / page / "report.md" for place in (Path("reports"), REPORTS))
    assert made.read_text(encoding="utf-8") == shipped.read_text(encoding="utf-8")
