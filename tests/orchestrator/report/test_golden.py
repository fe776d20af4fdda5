"""A report's bytes are the same whatever the order of the records."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support import golden


def test_the_same_records_give_the_same_bytes_in_any_order(tmp_path: Path) -> None:
    one, two = (golden.make(tmp_path / str(order), order=order, pictures=True) for order in (1, -1))
    names = sorted(path.name for path in one.iterdir())
    pictures = [f"{name}.svg" for name in ("forest", "frequency", "overview", "position", "variants")]
    others = ["blocks.csv", "curves.parquet", "interactions.csv", "report.html"]
    assert names == sorted([*pictures, *others, *golden.FILES])
    for name in names:
        assert (one / name).read_bytes() == (two / name).read_bytes(), name
    targets = re.findall(r"\]\(([^)]+)\)", (one / "report.md").read_text(encoding="utf-8"))
    targets.remove("../../how-to-read.md")  # once for all reports, beside their index
    assert targets and all((one / target).is_file() for target in targets)
