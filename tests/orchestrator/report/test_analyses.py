"""`analyses:` in a sweep file: asked of trained weights after the trials, shown on the page, carried with it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from lm.analyzed import analysis_path
from lm.record import Divergence, read_record, write_record
from orchestrator.api import load_sweep
from orchestrator.execute.pages import questions
from orchestrator.sweep import SweepError
from orchestrator.trials.plan import plan
from orchestrator.trials.records import Records
from tests.support.pages import misread
from tests.support.places import SWEEP, command, make_place, working_in

pytestmark = pytest.mark.usefixtures("without_pictures")

PAGE = Path("reports/toy/paper/report.md")
ASKED = SWEEP.replace("seeds: [1]", "seeds: [1]\nanalyses: [{kind: rank, positions: 100}]")


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The place after a sweep that asks for the rank."""
    place = make_place(tmp_path_factory.mktemp("swept"))
    (place / "toy.yaml").write_text(ASKED, encoding="utf-8")
    with working_in(place):
        code, out, err = command("sweep", "toy.yaml", "--scale", "paper", "--executor", "inline")
    assert code == 0, out + err
    return place


@pytest.fixture
def place(swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, to work in."""
    copy = shutil.copytree(swept, tmp_path / "place")
    monkeypatch.chdir(copy)
    monkeypatch.setenv("LM_CACHE", str(copy / "cache"))
    return copy


def section(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    assert misread(text) == []
    return text.split("\n## Rank of the log-probabilities\n")[1].split("\n## ")[0]


def answers() -> list[Path]:
    return sorted(Path("runs").glob("*/analyses/rank.json"))


def test_the_page_has_a_table_and_a_picture_of_what_was_asked(place: Path) -> None:
    text = section(PAGE)
    assert "(rank.svg)" in text and (PAGE.parent / "rank.svg").exists()
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert rows[0].startswith("| Variant | bound of this head | rows | words | rank | above 1e-2 of the largest |")
    variants = ["| full", "| no weight-dropping", "| no fine-tuning", "| neural cache"]
    assert [row.split(" | ")[0] for row in rows[2:]] == variants
    assert all(" | 7 | 7 | " in row and row.endswith(" | 1 |") for row in rows[2:]), "6 dimensions and a bias"
    assert "left out" not in text


def test_each_stage_of_one_folder_has_its_own_answer_and_no_key_is_another(place: Path) -> None:
    """The trial without fine-tuning is the first stage of the full one, and the cache's weights are the full one's."""
    entries = {path.parent.parent.name: json.loads(path.read_text()) for path in answers()}
    full = next(trial for trial in plan(load_sweep("toy.yaml", "paper")) if trial.variant == "full")
    assert {entry["stage"] for entry in entries[full.key]} == {"train", "finetune-1"}
    Path("plain.yaml").write_text(SWEEP, encoding="utf-8")
    keys = [[trial.key for trial in plan(load_sweep(file, "paper"))] for file in ("toy.yaml", "plain.yaml")]
    assert keys[0] == keys[1]


def test_nothing_is_asked_twice_and_what_is_missing_is_asked_again(place: Path) -> None:
    line = ("sweep", "toy.yaml", "--scale", "paper", "--executor", "inline")
    assert command(*line)[0] == 0, "the page of a copied folder is made again"
    before = {path: path.stat().st_mtime_ns for path in [*answers(), PAGE]}
    assert command(*line)[0] == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    kept = {path: path.read_bytes() for path in answers()}
    answers()[0].unlink()
    assert command(*line)[0] == 0
    assert {path: path.read_bytes() for path in answers()} == kept


def test_the_page_is_made_again_from_evidence_without_weights(place: Path) -> None:
    page = section(PAGE)
    line = ("report", "toy.yaml", "--scale", "paper", "--runs", "there", "--reports", "pages")
    assert command("runs", "export", "toy.yaml", "--scale", "paper", "--to", "there")[0] == 0
    assert not list(Path("there").glob("*/weights")) and list(Path("there").glob("*/analyses/rank.json"))
    assert command(*line)[0] == 0
    assert section(Path("pages/toy/paper/report.md")) == page
    for path in Path("there").glob("*/analyses"):
        shutil.rmtree(path)
    assert command(*line)[0] == 0
    text = section(Path("pages/toy/paper/report.md"))
    assert "4 trials are left out (full, seed 1;" in text and "weights are gone, or have not been analysed yet" in text
    assert "rank.svg" not in text
    assert command("runs", "export", "toy.yaml", "--scale", "paper", "--to", "there")[1].count("trials copied")
    assert list(Path("there").glob("*/analyses/rank.json")), "an answer that came later is carried too"


def answers_folder(variant: str) -> Path:
    trial = next(trial for trial in plan(load_sweep("toy.yaml", "paper")) if trial.variant == variant)
    return Path("runs") / Records("runs").holder(trial)


def test_an_analysis_that_fails_costs_its_answer_alone(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = analysis_path(answers_folder("no weight-dropping"), "rank")
    path.unlink()
    weights = next((path.parent.parent / "weights").iterdir())
    weights.write_bytes(b"no weights")
    code, out, _ = command("sweep", "toy.yaml", "--scale", "paper", "--executor", "inline")
    assert code == 0, out
    assert "no answer: no weight-dropping, seed 1: rank of its weights (DamagedError" in caplog.text
    assert "1 trial is left out (no weight-dropping, seed 1)" in section(PAGE)


def test_a_trial_that_diverged_is_asked_nothing(place: Path) -> None:
    folder = answers_folder("no weight-dropping")
    analysis_path(folder, "rank").unlink()
    sweep, records = load_sweep("toy.yaml", "paper"), Records("runs")
    asked = [title for title, _ in questions(sweep, plan(sweep), records)]
    assert asked == ["no weight-dropping, seed 1: rank of its weights"]
    record = read_record(folder)
    assert record is not None
    where = Divergence(stage="finetune-1", epoch=3, step=1, learning_rate=2.0, gradient_norm=None)
    lost = {"status": "diverged", "divergence": where, "stages": record.stages[:1], "reason": "not finite"}
    write_record(folder, record.model_copy(update=lost))
    assert questions(sweep, plan(sweep), records) == [] and list((folder / "weights").iterdir())


@pytest.mark.parametrize(
    ("written", "line"),
    [
        ("[rnak]", ".0.kind: unknown kind 'rnak' (did you mean 'rank'?)"),
        ("[{kind: rank, position: 5}]", ".0.position: unknown key 'position' (did you mean 'positions'?)"),
        ("[rank, {kind: rank, positions: 5}]", ": should be distinct, got rank twice"),
        ("[subspace]", ".0: no variant can be asked for subspace: subspaces of one size are compared, got last layer"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_starts(tmp_path: Path, written: str, line: str) -> None:
    text = SWEEP.replace("embedding_size: 6", "embedding_size: 6, tied: false") if "subspace" in written else SWEEP
    file = tmp_path / "toy.yaml"
    file.write_text(text.replace("seeds: [1]", f"seeds: [1]\nanalyses: {written}"), encoding="utf-8")
    with pytest.raises(SweepError) as refused:
        load_sweep(file, "paper")
    assert any(f"analyses{line}" in message for message in refused.value.lines), refused.value.lines
