"""The test text stays closed until it is asked for; opened late, it tells what it would have told at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lm.scoring
from lm.record import token_nats_path, weights_path
from lm.spec import TrainSpec
from tests.support.lm_trials import assert_same, contents, killed, run, settled
from tests.support.tiny import tiny_spec, write_corpus

PARTS: dict[str, Any] = {
    "epochs": 2,
    "finetune": {"epochs": 1},
    "cache": {"window": [5, 50], "weight": [0.1, 0.3], "flatness": 0.5, "chunk": 100},
    "head": {"kind": "ecoc", "codebook": {"kind": "random", "bits": 21}, "loss": {"kind": "bce"}},  # it has measures
    "model": {"layers": 2, "embedding_size": 6, "hidden_size": 10, "tied": False},
}
STAGES = ["train", "finetune-1", "cache"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"), tokens=(600, 200, 150))


@pytest.fixture(scope="module")
def spec(folder: Path) -> TrainSpec:
    return tiny_spec(folder, **PARTS)


@pytest.fixture(scope="module")
def opened(spec: TrainSpec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trial that opens the test text at once."""
    out = tmp_path_factory.mktemp("opened")
    run(spec, out)
    return out


def assert_closed(out: Path) -> None:
    record = settled(out)
    assert record.status == "complete" and [stage.name for stage in record.stages] == STAGES and not record.tested
    assert all(stage.test is None and set(stage.measures) <= {"valid"} for stage in record.stages)
    assert record.stages[0].measures["valid"]
    assert record.stages[2].cache is not None and record.stages[2].cache.plain_test is None
    assert sorted(path.name for path in (out / "tokens").iterdir()) == sorted(f"{s}.valid.parquet" for s in STAGES)


def without_test(out: Path) -> dict[str, Any]:
    found = contents(out)
    found["record.json"] = [stage.without_test().valid for stage in settled(out).stages]
    return {name: value for name, value in found.items() if not name.endswith(".test.parquet")}


def test_closed_it_is_not_read_and_changes_nothing_else(
    spec: TrainSpec, opened: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*given: Any) -> None:
        raise AssertionError("the test text was opened")

    monkeypatch.setattr(lm.scoring, "_tested", never)
    assert len(run(spec, tmp_path, test=False)) == 3
    assert_closed(tmp_path)
    assert without_test(tmp_path) == without_test(opened)


def test_opened_late_it_tells_the_same_and_nothing_trains(spec: TrainSpec, opened: Path, tmp_path: Path) -> None:
    run(spec, tmp_path, test=False)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.suffix in (".safetensors", ".npz")}
    before = settled(tmp_path)
    assert run(spec, tmp_path) == [] and settled(tmp_path).tested
    assert settled(tmp_path).seconds > before.seconds
    assert_same(tmp_path, opened)
    assert all(path.stat().st_mtime_ns == at for path, at in kept.items() if path.suffix == ".safetensors")


def test_a_record_with_test_scores_serves_both(spec: TrainSpec, opened: Path) -> None:
    written = (opened / "record.json").stat().st_mtime_ns
    assert run(spec, opened, test=False) == run(spec, opened) == []
    assert (opened / "record.json").stat().st_mtime_ns == written


@pytest.mark.parametrize(("function", "call"), [("lm.scoring.write_table", 2), ("lm.settle.write_record", 1)])
def test_killed_while_it_is_opened(spec: TrainSpec, opened: Path, tmp_path: Path, function: str, call: int) -> None:
    run(spec, tmp_path, test=False)
    killed(spec, tmp_path, function, call)
    assert not settled(tmp_path).tested
    assert run(spec, tmp_path) == []
    assert_same(tmp_path, opened)


@pytest.mark.parametrize("first", [True, False], ids=["open first", "closed first"])
def test_killed_and_asked_for_otherwise(spec: TrainSpec, opened: Path, tmp_path: Path, first: bool) -> None:
    """A checkpoint holds finished stages with or without their test scores."""
    killed(spec, tmp_path, "lm.settle.write_record", 1, test=first)
    run(spec, tmp_path, test=not first)
    assert all((stage.test is None) == first for stage in settled(tmp_path).stages)
    run(spec, tmp_path)
    assert_same(tmp_path, opened)


@pytest.mark.parametrize("test", [True, False], ids=["from closed to open", "from open to closed"])
def test_stages_taken_over(spec: TrainSpec, folder: Path, opened: Path, tmp_path: Path, test: bool) -> None:
    shorter = tiny_spec(folder, **PARTS | {"cache": None})
    run(shorter, tmp_path / "other", test=not test)
    assert run(spec, tmp_path / "taken", resume_from=tmp_path / "other", test=test) == []
    if test:
        assert_same(tmp_path / "taken", opened)
    else:
        assert_closed(tmp_path / "taken")


def test_without_its_weights_it_cannot_be_opened(spec: TrainSpec, tmp_path: Path) -> None:
    run(spec, tmp_path, test=False)
    before = settled(tmp_path)
    weights_path(tmp_path, "train").unlink()
    with pytest.raises(ValueError, match=r"train\.safetensors: not there"):
        run(spec, tmp_path)
    assert settled(tmp_path) == before and not token_nats_path(tmp_path, "train", "test").exists()


def test_a_test_loss_that_is_not_finite_settles_the_trial_anew(
    spec: TrainSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.lm.test_train import given_score

    curve = run(spec, tmp_path, test=False)
    scored = lm.scoring.token_nats
    monkeypatch.setattr(lm.scoring, "token_nats", lambda *given: given_score(scored(*given), float("nan")))
    assert run(spec, tmp_path) == []
    record = settled(tmp_path)
    assert (record.status, record.stages) == ("diverged", ())
    assert record.reason == f"not finite in train, epoch 2, step {curve[1].step}"
