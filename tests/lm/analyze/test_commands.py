"""`python -m lm analyze`: what it prints, what it keeps in the trial's folder, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import lm.analyze.ask
from lm.__main__ import app
from lm.analyze.ask import analyze
from lm.analyzed import RankFound, analysis_path, read_analysis, trained_stage
from lm.spec import RankAnalysis, SubspaceAnalysis
from tests.support.lm_trials import run, settled
from tests.support.tiny import tiny_spec

RANK = RankAnalysis(kind="rank", positions=60)


def ask(*line: object) -> Result:
    return CliRunner().invoke(app, ["analyze", *map(str, line), "--threads", "1", "--device", "cpu"])


@pytest.fixture(scope="module")
def trained(corpus_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "run"
    run(tiny_spec(corpus_folder, epochs=1, finetune={"epochs": 1}), out)
    return out


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return shutil.copytree(trained, tmp_path / "run")


def test_a_table_has_a_column_for_every_run(folder: Path, tmp_path: Path) -> None:
    other = shutil.copytree(folder, tmp_path / "other")
    result = ask("rank", folder, other, "--positions", 60)
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0] == [str(folder), str(other)]
    assert ["bound", "of", "this", "head", "7", "7"] in lines and ["rank", "7", "7"] in lines


def test_a_question_is_asked_once_of_each_stage_and_settings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = settled(folder)
    first = analyze(RANK, record, folder, stage="finetune-1", device="cpu")
    of_training = analyze(RANK, record, folder, stage="train", device="cpu")
    more = analyze(RANK.model_copy(update={"positions": 80}), record, folder, stage="train", device="cpu")
    assert len({first.model_dump_json(), of_training.model_dump_json(), more.model_dump_json()}) == 3
    assert len(json.loads(analysis_path(folder, "rank").read_text())) == 3
    monkeypatch.setattr(lm.analyze.ask, "open_model", lambda *_, **__: pytest.fail("asked again"))
    shutil.rmtree(folder / "weights")
    assert analyze(RANK, record, folder, stage="finetune-1", device="cpu") == first
    assert read_analysis(folder, RANK, "train", record.hashes) == of_training


@pytest.mark.parametrize("damage", ["", "[{}]", "nonsense"])
def test_what_is_damaged_or_of_other_weights_is_asked_again(folder: Path, damage: str) -> None:
    record = settled(folder)
    stage = trained_stage(record)
    first = analyze(RANK, record, folder, stage=stage, device="cpu")
    analysis_path(folder, "rank").write_text(damage)
    assert read_analysis(folder, RANK, stage, record.hashes) is None
    assert analyze(RANK, record, folder, stage=stage, device="cpu") == first
    assert read_analysis(folder, RANK, stage, {**record.hashes, f"weights/{stage}.safetensors": "0"}) is None


def test_refusals_name_what_is_wrong(folder: Path, tmp_path: Path, corpus_folder: Path) -> None:
    (tmp_path / "empty").mkdir()
    closed = tmp_path / "closed"
    run(tiny_spec(corpus_folder, epochs=1), closed, test=False)
    for line, message in (
        (("rank", tmp_path / "empty"), "empty: no record.json; expected the folder of a settled trial"),
        (("rank", folder, "--split", "train"), "Invalid value for '--split': 'train' is not one of 'valid', 'test'\n"),
        (("rank", folder, "--stage", "finetune"), "no stage 'finetune' with weights of its own (did you mean"),
        (("rank", closed), "its test text has not been opened; ask with split valid"),
        (("subspace", folder), "a tied model has one matrix for both: its distance of subspaces is 0"),
    ):
        result = ask(*line)
        assert result.exit_code == 2 and message in result.stderr, result.output
    assert ask("rank", closed, "--split", "valid").exit_code == 0
    shutil.rmtree(folder / "weights")
    result = ask("rank", folder)
    assert result.exit_code == 2 and "finetune-1.safetensors: not there" in result.stderr
    assert not list(folder.glob("analyses/*rank.json"))


def test_a_head_without_an_output_matrix_has_no_distance_of_subspaces(corpus_folder: Path, tmp_path: Path) -> None:
    model = {"layers": 1, "embedding_size": 6, "hidden_size": 10, "tied": False}
    run(tiny_spec(corpus_folder, model=model, epochs=1), tmp_path)
    with pytest.raises(ValueError, match="subspaces of one size are compared, got last layer 10, embedding_size 6"):
        analyze(SubspaceAnalysis(kind="subspace"), settled(tmp_path), tmp_path, stage="train", device="cpu")


def test_a_trained_softmax_keeps_its_bound_and_a_trained_mixture_passes_it(corpus_folder: Path, tmp_path: Path) -> None:
    """24 words, 6 dimensions: 7 for the softmax, up to 23 for four of them."""
    ranks = {}
    for kind, head in (("softmax", {"kind": "softmax"}), ("mixture", {"kind": "mixture", "experts": [0, 0, 4]})):
        run(tiny_spec(corpus_folder, head=head, epochs=3), tmp_path / kind)
        found = analyze(RANK, settled(tmp_path / kind), tmp_path / kind, stage="train", device="cpu")
        assert isinstance(found, RankFound)
        ranks[kind] = found.centred.rank, found.bound
    assert ranks["softmax"] == (7, 7)
    assert ranks["mixture"][0] > 2 * 7 and ranks["mixture"][1] is None
