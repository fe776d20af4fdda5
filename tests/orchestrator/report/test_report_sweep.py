from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.agenda.expand import expand
from orchestrator.report import report_sweep
from orchestrator.sweep import read_sweep
from orchestrator.trials.records import Records
from tests.support.sweep_texts import edited

ROW = "- {paper: p, dataset: ptb, variant: base net, split: test, metric: perplexity, certainty: seed, "
ROWS = f"{ROW}table: '1', perplexity: 61.25}}\n{ROW}table: '2', perplexity: 62.25}}\n"
ELSEWHERE = "**another scale**"


@pytest.mark.parametrize(
    ("corpus", "published", "shown", "elsewhere"),
    [
        ("ptb", "false", "61.25", True),
        ("ptb", "true", "61.25", False),
        ("ptb", "p.table2", "62.25", False),
        ("pydoc", "false", "61.25", True),
        ("pydoc", "true", None, False),
    ],
)
def test_the_papers_numbers_stand_in_only_where_they_are_said_to_be_of_another_scale(
    tmp_path: Path, corpus: str, published: str, shown: str | None, elsewhere: bool
) -> None:
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "p.yaml").write_text(ROWS)
    text = edited("name: toy", "name: toy\nbaseline: base net\npublished: p.table1")
    text = text.replace("{epochs: 1,", f"{{corpus: {{name: {corpus}}}, epochs: 1,")
    file = tmp_path / "toy.yaml"
    file.write_text(text.replace("    seeds: [7]", f"    published: {published}"))
    sweep = read_sweep(file).at("tiny")
    records = Records(tmp_path / "runs")
    page = report_sweep(
        sweep, file, expand(sweep, records), records, tmp_path / "reports", if_fuller="refuse"
    ).page.read_text(encoding="utf-8")
    assert [number for number in ("61.25", "62.25") if number in page] == ([] if shown is None else [shown])
    assert (ELSEWHERE in page) is elsewhere
    assert "| base net | the base itself |" in page
