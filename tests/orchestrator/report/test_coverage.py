"""The table of what of the papers is covered: the committed one is the printed one, and every row has its state."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.report.files.folder import Summary, write_summary
from orchestrator.sweep.published import published_rows
from tests.docs.coverage import MEANING, coverage, coverage_text
from tests.support.sweep_texts import SWEEPS

ROOT = Path(__file__).parents[3]
SWEEP = """\
name: toy
question: Does it?
published: [p.table1, p.table2]
baseline: a
base:
  corpus: {name: ptb}
  model: {cell: lstm, layers: 1, embedding_size: 8, hidden_size: 8}
  optimizer: {kind: sgd, learning_rate: 1.0}
  epochs: 1
variants:
  b: {model.cell: gru}
seeds: [1]
scales:
  small: {base: {corpus: {name: pydoc}}}
"""
PUBLISHED = "".join(
    f"- {{paper: p, certainty: seed, {rest}}}\n"
    for rest in (
        "table: '1', dataset: ptb, metric: perplexity, variant: a, cell: lstm, perplexity: 9.0",
        "table: '1', dataset: ptb, metric: perplexity, variant: b, cell: gru, perplexity: null",
        "table: '1', dataset: ptb, metric: perplexity, variant: b, cell: lstm, perplexity: 8.0",
        "table: '1', dataset: wikitext-2, metric: perplexity, variant: a, perplexity: 7.0",
        "table: '2', dataset: ptb, metric: BLEU, variant: a, value: 5",
        "table: '3', dataset: ptb, metric: 'hyperparameter:emb', value: 5",
        "table: figure 1, dataset: ptb, metric: curves, sweep: toy",
    )
)


@pytest.fixture
def sweeps(tmp_path: Path) -> Path:
    folder = tmp_path / "sweeps"
    (folder / "published").mkdir(parents=True)
    (folder / "toy.yaml").write_text(SWEEP, encoding="utf-8")
    (folder / "published/p.yaml").write_text(PUBLISHED, encoding="utf-8")
    for name in (".#toy.yaml", "published/.#p.yaml"):  # with which an editor locks a file
        (folder / name).symlink_to("somebody@a.machine:1234")
    return folder


def page(reports: Path, scale: str, complete: int) -> None:
    folder = reports / "toy" / scale
    folder.mkdir(parents=True, exist_ok=True)
    facts = {"name": "toy", "question": "?", "scale": scale, "baseline": "a", "margin": 0.005, "answer": "."}
    summary = {**facts, "finished_at": None, "complete": complete, "planned": 2, "verdicts": {}}
    write_summary(folder, Summary.model_validate(summary))


def states(sweeps: Path, reports: Path) -> dict[str, str]:
    return {f"{row.table}, {row.dataset}": row.state for row in coverage(sweeps, reports)}


def test_the_state_of_a_table_is_the_furthest_that_a_sweep_has_come(sweeps: Path, tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    none = {"1, wikitext-2": "no sweep", "2, ptb": "no sweep", "3, ptb": "settings"}
    for state, scale, complete in (
        ("not run", None, 0),
        ("run smaller", "small", 2),
        ("run in part", "paper", 1),
        ("run", "paper", 2),
    ):
        if scale is not None:
            page(reports, scale, complete)
        assert states(sweeps, reports) == {"1, ptb": state, "figure 1, ptb": state} | none


def test_a_row_says_how_many_numbers_are_reached_and_where_the_pages_are(sweeps: Path, tmp_path: Path) -> None:
    page(tmp_path / "reports", "small", 2)
    lines = coverage_text(coverage(sweeps, tmp_path / "reports"), tmp_path / "docs/coverage.md").splitlines()
    assert (
        "| p | 1 | ptb | perplexity: 2 of 3 reached; the digits of 1 are lost | `toy`: paper, small | run smaller | "
        "[toy/small](../reports/toy/small/report.md) |" in lines
    )
    assert "| p | 2 | ptb | BLEU: 1 | – | no sweep | – |" in lines
    assert f"| no sweep | 2 | {MEANING['no sweep']} |" in lines


def test_the_committed_page_is_the_printed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    printed = coverage_text(coverage(Path("sweeps"), Path("reports")), Path("docs/coverage.md"))
    assert Path("docs/coverage.md").read_text(encoding="utf-8") == printed, (
        "write it again: python -m tests.docs.coverage > docs/coverage.md"
    )


def test_every_published_record_is_in_a_row_with_a_state() -> None:
    rows = coverage(SWEEPS, ROOT / "reports")
    records = sum(len(published_rows(path)) for path in (SWEEPS / "published").glob("*.yaml"))
    assert sum(len(row.rows) for row in rows) == records > 800
    assert {row.state for row in rows} <= MEANING.keys()
    found = {(row.paper, row.table, row.dataset): row.state for row in rows}
    assert found["zaremba", "1 small", "ptb"] == "run" and found["doc", "9", "iwslt2016-en-de"] == "no sweep"


def test_a_figure_names_a_sweep_that_ships() -> None:
    named = {row.sweep for path in (SWEEPS / "published").glob("*.yaml") for row in published_rows(path) if row.sweep}
    assert named and all((SWEEPS / f"{name}.yaml").exists() for name in named)
