"""The examples of the documentation run as a reader runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from orchestrator import load_report

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "docs/examples/read_a_report.py"


@pytest.mark.parametrize("of", [None, "reports/tuned_ablation/laptop"])
def test_a_report_is_read(tmp_path: Path, of: str | None) -> None:
    """Without arguments in a folder that has the reports; then of another one, with the picture named."""
    (tmp_path / "reports").symlink_to(ROOT / "reports")
    options = [] if of is None else [of, "mine.svg"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), *options],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    report = load_report(ROOT / (of or "reports/awd_ablation/laptop"))
    question, answer, *rows, written = done.stdout.splitlines()
    assert (question, answer) == (report.summary.question, report.summary.answer)
    trained = {row["variant"]: row for row in report.table.to_pylist() if not row["reference"]}
    assert len(rows) == len(trained)
    perplexities = []
    for line in rows:
        variant, rest = line.split("  ", 1)
        perplexity = trained[variant]["test_perplexity_mean"]
        assert f" {perplexity:.2f} " in rest
        perplexities.append(perplexity)
    assert perplexities == sorted(perplexities)
    picture = "curves.svg" if of is None else "mine.svg"
    assert written == f"{picture} written"
    drawn = [element.get("id", "") for element in ElementTree.parse(tmp_path / picture).iter()]
    assert sum(name.startswith("line2d_") for name in drawn) > len(trained)
