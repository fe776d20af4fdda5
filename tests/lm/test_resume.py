"""A trial that is killed anywhere and resumed leaves what an undisturbed one leaves, bit for bit."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from lm.checkpoint import Checkpoint, load_checkpoint
from lm.data import fingerprint_of
from lm.record import read_curve, write_record
from lm.spec import TrainSpec, trial_key
from lm.train import train
from tests.support.lm_trials import EVERY_STEP, NEVER, assert_same, at_once, contents, killed, run, settled
from tests.support.tiny import AVERAGING, tiny_spec, write_corpus

FINETUNED: dict[str, Any] = {
    "optimizer": AVERAGING,
    "epochs": 6,
    "finetune": {"epochs": 2, "repeats": 2, "cap_extra": 1},
    "cache": {"window": [5, 50], "weight": [0.1, 0.3], "flatness": 0.5, "chunk": 100},
}
EPOCHS = 6 + 2 + 2


@pytest.fixture(scope="module")
def corpus_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Smaller still: most tests here train a trial of three stages."""
    return write_corpus(tmp_path_factory.mktemp("corpus"), tokens=(600, 200, 150))


@pytest.fixture(scope="module")
def spec(corpus_folder: Path) -> TrainSpec:
    return tiny_spec(corpus_folder, **FINETUNED)


def test_a_checkpoint_of_another_device_is_refused(
    spec: TrainSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of a GPU's generator is no state of a CPU's."""
    next(train(spec, out=tmp_path, device="cpu"))

    def of_a_gpu(folder: Path, device: torch.device, *missing: Any) -> Checkpoint | None:
        found = load_checkpoint(folder, device, *missing)
        assert found is not None and found.state["device"] == "cpu"
        return Checkpoint(found.weights, found.state | {"device": "cuda"})

    monkeypatch.setattr("lm.resume.load_checkpoint", of_a_gpu)
    with pytest.raises(ValueError, match="checkpoint is of a run on cuda, this run is on cpu; ask for cuda, or remove"):
        next(train(spec, out=tmp_path, device="cpu"))


@pytest.fixture(scope="module")
def undisturbed(spec: TrainSpec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the trial that nothing happens to; averaging begins within its first stage."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert len(run(spec, folder)) == EPOCHS
    averaging = settled(folder).stages[0].averaging_from_epoch
    assert averaging is not None and averaging < 6
    return folder


def step_in(folder: Path, epoch: int, offset: int) -> int:
    """The number, counted over the trial, of a step in an epoch, counted from 1."""
    curve = read_curve(folder)
    step = offset + (curve[epoch - 2].step if epoch > 1 else 0)
    assert step < curve[epoch - 1].step
    return step


def test_the_same_trial_twice_is_the_same(spec: TrainSpec, undisturbed: Path, tmp_path: Path) -> None:
    run(spec, tmp_path)
    assert_same(tmp_path, undisturbed)


@pytest.mark.parametrize(
    ("epoch", "checkpoint_seconds"),
    [
        pytest.param(1, EVERY_STEP, id="first epoch"),
        pytest.param(2, EVERY_STEP, id="second epoch"),
        pytest.param(6, EVERY_STEP, id="averaging has begun"),
        pytest.param(8, EVERY_STEP, id="fine-tuning"),
        pytest.param(10, EVERY_STEP, id="fine-tuning again"),
        pytest.param(1, NEVER, id="no checkpoint yet"),
        pytest.param(6, NEVER, id="averaging, checkpoint of the epoch before"),
        pytest.param(8, NEVER, id="fine-tuning, checkpoint of the epoch before"),
    ],
)
def test_killed_in_the_middle_of_an_epoch(
    spec: TrainSpec, undisturbed: Path, tmp_path: Path, epoch: int, checkpoint_seconds: float
) -> None:
    if epoch > 1:
        killed(spec, tmp_path, "lm.epochs.train_step", step_in(undisturbed, epoch, 1))
    killed(spec, tmp_path, "lm.epochs.train_step", 9, checkpoint_seconds=checkpoint_seconds)
    if checkpoint_seconds == EVERY_STEP:
        state = torch.load(max(tmp_path.glob("checkpoints/*/state.pt")), weights_only=True)
        assert state["position"]["step"] == step_in(undisturbed, epoch, 8) and state["position"]["row"] > 0
    rest = run(spec, tmp_path)
    assert [point.epoch for point in rest] == list(range(epoch, EPOCHS + 1))
    assert_same(tmp_path, undisturbed)


@pytest.mark.parametrize(
    ("function", "call", "after"),
    [
        ("lm.checkpoint.sync", 11, False),  # the second checkpoint is written and not yet named
        ("lm.checkpoint.save_weights", 5, False),  # half of the third
        ("lm.checkpoint.sync", 32, True),  # named, the older ones not yet removed
        ("lm.train.write_curve", 4, False),  # an epoch has ended and left nothing
        ("lm.train.write_curve", 4, True),  # the curve is an epoch ahead of the checkpoint
        ("lm.train.save_weights", 1, False),  # the first stage has ended, nothing of it is kept
        ("lm.scoring.write_table", 1, True),  # its losses on validation are kept, on test not
        ("lm.train.begin_stage", 2, True),  # the first stage is done, the second has no checkpoint
        ("lm.scoring.write_table", 4, False),  # between the losses of a stage that has begun from another
        ("lm.scoring.score_with_cache", 1, False),
        ("lm.scoring.write_table", 7, True),  # between the losses with the cache
        ("lm.settle.write_record", 1, False),
        ("lm.settle.write_record", 1, True),  # settled, its checkpoints not yet removed
    ],
)
def test_killed_between_two_files(
    spec: TrainSpec, undisturbed: Path, tmp_path: Path, function: str, call: int, after: bool
) -> None:
    killed(spec, tmp_path, function, call, after=after)
    run(spec, tmp_path)
    left = {path.name for path in tmp_path.rglob("*") if "checkpoints" not in path.parts}
    assert not [name for name in left if name.endswith(".tmp")]
    if not (function.endswith("write_record") and after):
        assert_same(tmp_path, undisturbed)
        return
    found = contents(tmp_path)
    assert {name: found[name] for name in found if "checkpoints" not in name} == contents(undisturbed)


def test_killed_again_and_again(spec: TrainSpec, undisturbed: Path, tmp_path: Path) -> None:
    for count in (5, 25, 21, 12, 2):
        killed(spec, tmp_path, "lm.epochs.train_step", count, checkpoint_seconds=EVERY_STEP)
    run(spec, tmp_path)
    assert_same(tmp_path, undisturbed)


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": {"kind": "adam", "learning_rate": 0.01, "clip": 0.5}},
        {"optimizer": {"kind": "sgd_halving", "learning_rate": 8.0, "trigger": "monotonic"}},
        {
            "model": {"cell": "gru", "layers": 2, "embedding_size": 6, "hidden_size": [9, 6]},
            "bptt": {"kind": "fixed", "length": 12},
        },
        {"model": {"cell": "peephole_lstm", "layers": 2, "embedding_size": 6, "hidden_size": [9, 6]}},
        {
            "model": {"cell": {"kind": "rhn", "depth": 3}, "layers": 1, "embedding_size": 6},
            "dropout": {"input": 0.2, "state": 0.2, "weight": 0.2, "output": 0.2},
        },
        {"model": {"layers": 1, "embedding_size": 6, "hidden_size": 9, "tied": False}, "early_stop": 1},
        {
            "model": {"layers": 2, "embedding_size": 6, "hidden_size": 6, "init_range": 0.1, "embedding_norm": "word"},
            "head": {"kind": "softmax", "bias": False, "augmented": {"kind": "added"}},
            "dropout": {"input": 0.2, "between": 0.2, "output": 0.2, "shared_mask": True},
            "optimizer": {"kind": "sgd_decay", "learning_rate": 1.0, "decay": 0.5, "full_epochs": 1, "restart": 2},
            "loss_reduction": "sum_over_time",
        },
        {"optimizer": {"kind": "sgd_plateau", "learning_rate": 20.0}},  # its second epoch is worse than its first
        {"head": {"kind": "sampled", "loss": {"kind": "nce", "samples": 8}}},
        {"head": {"kind": "mixture", "experts": [0, 1, 2], "dropout": 0.3, "prior_penalty": 0.01}},
        {
            "small_batch": 3,
            "epochs": 1,
            "finetune": {"epochs": 2},
            "scoring": {"valid_columns": 3, "raw_iterate": True},
        },
    ],
    ids=[
        *(
            "adam",
            "sgd_halving",
            "gru",
            "peepholes",
            "rhn",
            "untied",
            "augmented, in two sessions",
            "sgd_plateau",
            "sampled",
            "mixture",
        ),
        "in parts, the iterate scored",
    ],
)
def test_other_trials_killed(corpus_folder: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    spec = tiny_spec(corpus_folder, **changes)
    run(spec, tmp_path / "whole")
    step = step_in(tmp_path / "whole", 2, 3)
    killed(spec, tmp_path / "killed", "lm.epochs.train_step", step, checkpoint_seconds=EVERY_STEP)
    run(spec, tmp_path / "killed")
    assert_same(tmp_path / "killed", tmp_path / "whole")


def test_a_generator_that_is_dropped_goes_on_later(spec: TrainSpec, undisturbed: Path, tmp_path: Path) -> None:
    for _ in range(3):
        points = train(spec, out=tmp_path, device="cpu")
        assert len(list(islice(points, 2))) == 2
        points.close()
    assert len(run(spec, tmp_path)) == EPOCHS - 6  # an epoch whose evaluation was yielded is done
    assert_same(tmp_path, undisturbed)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-5] ^= 1  # a weight's: the file still loads
    path.write_bytes(data)


def garble(path: Path) -> None:
    path.write_bytes(b"garbled")


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("state.pt", garble),
        ("weights.safetensors", cut),
        ("weights.safetensors", flip),
        ("average.safetensors", Path.unlink),
        ("manifest.json", Path.unlink),
    ],
)
def test_a_damaged_checkpoint_costs_the_work_since_the_one_before(
    spec: TrainSpec,
    undisturbed: Path,
    tmp_path: Path,
    name: str,
    damage: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    killed(spec, tmp_path, "lm.train.save", 9)
    newer = max((tmp_path / "checkpoints").iterdir())
    damage(newer / name)
    with caplog.at_level(logging.WARNING):
        rest = run(spec, tmp_path)
    assert [point.epoch for point in rest] == [8, 9, 10]
    assert [record.levelname for record in caplog.records] == ["WARNING"] and newer.name in caplog.text
    assert_same(tmp_path, undisturbed)


def test_two_damaged_checkpoints_cost_the_whole(
    spec: TrainSpec, undisturbed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    killed(spec, tmp_path, "lm.train.save", 5)
    for folder in (tmp_path / "checkpoints").iterdir():
        garble(folder / "state.pt")
    with caplog.at_level(logging.WARNING):
        assert len(run(spec, tmp_path)) == EPOCHS
    assert len(caplog.records) == 2
    assert_same(tmp_path, undisturbed)


def test_two_processes_on_one_folder_train_once(spec: TrainSpec, undisturbed: Path, tmp_path: Path) -> None:
    assert sorted(at_once(spec, tmp_path, 2)) == [0, EPOCHS]
    assert_same(tmp_path, undisturbed)


def test_a_settled_trial_yields_nothing(spec: TrainSpec, undisturbed: Path, tmp_path: Path) -> None:
    written = {path: path.stat().st_mtime_ns for path in undisturbed.rglob("*") if path.is_file()}
    assert run(spec, undisturbed) == [] == run(spec, undisturbed, resume_from=tmp_path)
    left = {path: path.stat().st_mtime_ns for path in undisturbed.rglob("*") if path.is_file()}
    left.pop(undisturbed / ".lock"), written.pop(undisturbed / ".lock")
    assert left == written


def test_a_failed_trial_is_tried_again(spec: TrainSpec, undisturbed: Path, tmp_path: Path) -> None:
    failed = settled(undisturbed).model_copy(update={"status": "failed", "reason": "no space left", "stages": ()})
    write_record(tmp_path, failed)
    assert len(run(spec, tmp_path)) == EPOCHS
    assert_same(tmp_path, undisturbed)


def test_a_failed_trial_is_tried_again_where_its_text_has_moved(spec: TrainSpec, tmp_path: Path) -> None:
    """Its key is the same, and its checkpoints are not lost."""
    moved = shutil.copytree(spec.corpus.name, tmp_path / "moved")
    there = spec.model_copy(update={"corpus": spec.corpus.model_copy(update={"name": str(moved)})})
    killed(spec, tmp_path / "run", "lm.epochs.train_step", 40)  # within a later epoch than the first
    run(spec, tmp_path / "once")
    failed = settled(tmp_path / "once").model_copy(update={"status": "failed", "reason": "?", "stages": ()})
    write_record(tmp_path / "run", failed)
    assert 0 < len(run(there, tmp_path / "run")) < EPOCHS
    assert settled(tmp_path / "run").status == "complete"


def test_a_folder_of_another_trial_is_refused(spec: TrainSpec, undisturbed: Path, tmp_path: Path) -> None:
    other = spec.model_copy(update={"seed": 2})
    key, other_key = (trial_key(each, fingerprint_of(spec.corpus)) for each in (spec, other))
    killed(spec, tmp_path, "lm.epochs.train_step", 3, checkpoint_seconds=EVERY_STEP)
    with pytest.raises(ValueError, match=f"its checkpoint is of trial {key}, this spec is {other_key}"):
        run(other, tmp_path)
    with pytest.raises(ValueError, match=f"record of trial {key}, of another spec"):
        run(other, undisturbed)


CONTINUED = [
    ({"finetune": None, "cache": None}, "train"),
    ({"finetune": FINETUNED["finetune"] | {"repeats": 1}, "cache": None}, "finetune-1"),
    ({"cache": None}, "finetune-2"),
    ({"finetune": FINETUNED["finetune"] | {"epochs": 1}}, "train"),
    ({"cache": FINETUNED["cache"] | {"flatness": 0.9}}, "finetune-2"),
    ({"seed": 5, "finetune": None, "cache": None}, None),
]


@pytest.mark.parametrize(("changes", "last"), CONTINUED, ids=[f"{list(c)} {last}" for c, last in CONTINUED])
def test_a_trial_continued_from_another_is_one_trained_whole(
    corpus_folder: Path,
    spec: TrainSpec,
    undisturbed: Path,
    tmp_path: Path,
    changes: dict[str, Any],
    last: str | None,
) -> None:
    run(tiny_spec(corpus_folder, **(FINETUNED | changes)), tmp_path / "other")
    rest = run(spec, tmp_path / "continued", resume_from=tmp_path / "other")
    assert len(rest) == {"train": 4, "finetune-1": 2, "finetune-2": 0, None: EPOCHS}[last]
    assert_same(tmp_path / "continued", undisturbed)


def test_a_chain_of_trials_is_one_trained_whole(
    corpus_folder: Path, spec: TrainSpec, undisturbed: Path, tmp_path: Path
) -> None:
    """Each is whole without the one before it, which may be gone by then."""
    source = None
    for count, (changes, _) in enumerate(CONTINUED[:3]):
        folder = tmp_path / str(count)
        run(tiny_spec(corpus_folder, **(FINETUNED | changes)), folder, resume_from=source)
        if source is not None:
            source.rename(source.with_suffix(".gone"))
        source = folder
    assert run(spec, tmp_path / "last", resume_from=source) == []
    assert_same(tmp_path / "last", undisturbed)


@pytest.mark.parametrize(
    ("function", "call"), [("shutil.copyfile", 2), ("lm.train.begin_stage", 1), ("lm.epochs.train_step", 10)]
)
def test_a_continued_trial_that_is_killed(
    corpus_folder: Path, spec: TrainSpec, undisturbed: Path, tmp_path: Path, function: str, call: int
) -> None:
    run(tiny_spec(corpus_folder, **(FINETUNED | CONTINUED[0][0])), tmp_path / "other")
    killed(
        spec,
        tmp_path / "killed",
        function,
        call,
        checkpoint_seconds=EVERY_STEP,
        resume_from=tmp_path / "other",
    )
    rest = run(spec, tmp_path / "killed", resume_from=tmp_path / "other")
    assert [point.epoch for point in rest] == [7, 8, 9, 10]
    assert_same(tmp_path / "killed", undisturbed)


def test_a_folder_without_a_record_gives_nothing(spec: TrainSpec, undisturbed: Path, tmp_path: Path) -> None:
    killed(spec, tmp_path / "killed", "lm.epochs.train_step", 60)
    assert len(run(spec, tmp_path / "whole", resume_from=tmp_path / "killed")) == EPOCHS
    assert_same(tmp_path / "whole", undisturbed)
