"""`reports/README.md` and the summaries that it is made of; `curves.parquet`."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lm.record import CURVE_SCHEMA, Evaluation, read_curve
from lm.spec import TrainSpec
from orchestrator.report.files.folder import write_index
from tests.support.factories import CACHE, begin, make_trial, settle
from tests.support.pages import HOSTILE, render, write

HEAD = 5
"""Lines before the first report."""


def rows(reports: Path) -> list[str]:
    write_index(reports)
    return (reports / "README.md").read_text(encoding="utf-8").splitlines()[HEAD:]


def report(tmp_path: Path, place: str, **how: object) -> Path:
    trials = [make_trial(name, seed, batch_size=20 + k) for k, name in enumerate(("full", "b")) for seed in (1, 2)]
    for trial in trials:
        settle(tmp_path / "runs", trial, 60.0 + trial.seed / 10 + 10 * (trial.variant == "b"))
    folder = tmp_path / "reports" / place
    write(tmp_path, trials, folder=folder, **how)
    return folder


def test_a_summary_says_what_the_page_says(tmp_path: Path) -> None:
    folder = report(tmp_path, "s/laptop")
    found = json.loads((folder / "summary.json").read_text())
    assert TrainSpec.model_validate(found.pop("base") | {"seed": 1}) == make_trial("full", 1, batch_size=20).spec
    assert found.pop("files") == sorted(path.name for path in folder.iterdir())
    said = found.pop("answer")
    assert re.fullmatch(
        r"At laptop scale, “b” raises test perplexity by 16\.\d+% \(\+[\d.]+% to \+[\d.]+%\)\. "
        r"\(Ranges: 95% interval of the change in test perplexity against “full”, 2 seeds\.\)",
        said,
    )
    assert found == {
        "name": "awd_ablation",
        "question": "Which parts carry the perplexity?",
        "scale": "laptop",
        "baseline": "full",
        "margin": 0.005,
        "finished_at": "2020-01-01T00:00:00Z",
        "complete": 4,
        "planned": 4,
        "verdicts": {"b": "raises"},
        "searches": {},
    }


def test_verdicts_are_of_what_is_compared(tmp_path: Path) -> None:
    trials = [make_trial("full", 1), make_trial("b", 1, batch_size=3), make_trial("neural cache", 1, cache=CACHE)]
    write(tmp_path, trials)
    found = json.loads((tmp_path / "report/summary.json").read_text())
    assert found["verdicts"] == {"b": "no verdict"} and found["finished_at"] is None
    assert (found["complete"], found["planned"]) == (0, 3)


def test_every_report_has_a_row_whatever_state_it_is_in(tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    report(tmp_path, "b/mini", name="b", scale="mini")
    for place, text in (("a b/mini", None), ("c/paper", "{"), ("c/mini", '{"name": 3}')):
        folder = reports / place
        folder.mkdir(parents=True)
        (folder / "report.md").write_text("# older\n")
        if text is not None:
            (folder / "summary.json").write_text(text)
    (reports / "d" / "begun").mkdir(parents=True)
    found = rows(reports)
    assert found[:4] == ["## a b", "", "- [mini](a%20b/mini/report.md)", ""]
    assert found[4:8] == ["## b", "", "Which parts carry the perplexity?", ""]
    assert re.fullmatch(
        r"- \[mini\]\(b/mini/report.md\), 2020-01-01: “b” raises test perplexity by 16\.\d% \(.*%\)\.", found[8]
    ), "without what the intervals are, which the head of the index says"
    assert found[9:12] == ["", "## c", ""]
    assert found[12].startswith("- [mini](c/mini/report.md) cannot be read: c/mini/summary.json: name: Input should be")
    assert found[13].startswith("- [paper](c/paper/report.md) cannot be read: c/paper/summary.json: Invalid JSON")
    assert len(found) == 14 and rows(reports) == found


def test_names_cannot_break_the_index_and_an_interim_report_says_so(tmp_path: Path) -> None:
    trial = make_trial("full", 1)
    begin(tmp_path / "runs", trial, 60.0, epochs=2)
    write(tmp_path, [trial], folder=tmp_path / "reports/s/x", question=HOSTILE, name=HOSTILE, scale=HOSTILE)
    found = rows(tmp_path / "reports")
    assert len(found) == 5 and ", 0 of 1 complete: " in found[4]
    assert render("\n".join(found) + "\n").links == ["s/x/report.md"]


def test_a_readme_of_ones_own_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "README.md").write_text("# Mine\n")
    with caplog.at_level(logging.WARNING):
        write_index(tmp_path)
    assert (tmp_path / "README.md").read_text() == "# Mine\n"
    assert "README.md: not an index of reports" in caplog.text


def test_curves_hold_every_evaluation_of_every_trial(tmp_path: Path) -> None:
    folder = report(tmp_path, "s/laptop")
    table = pq.read_table(folder / "curves.parquet")
    assert table.column_names == ["variant", "seed", "key", *CURVE_SCHEMA.names]
    assert table.num_rows == 4 * 16
    trial = make_trial("b", 2, batch_size=21)
    own = [row for row in table.to_pylist() if (row["variant"], row["seed"], row["key"]) == ("b", 2, trial.key)]
    points = [
        Evaluation(**{k: v for k, v in row.items() if k not in ("variant", "seed", "key", "terms")}) for row in own
    ]
    assert points == read_curve(tmp_path / "runs" / trial.key)


def test_a_sweep_without_curves_has_no_file_of_them(tmp_path: Path) -> None:
    assert "curves.parquet" not in write(tmp_path, [make_trial("full", 1)])
    assert not (tmp_path / "report/curves.parquet").exists()
