"""A stage that several trials share is trained once, whoever comes first, also when they start at the same moment."""

from __future__ import annotations

import json
import logging
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from lm import shared_stages
from lm.data import fingerprint_of
from lm.record import weights_path
from lm.spec import TrainSpec, stage_keys
from lm.train import train
from tests.support.lm_trials import EVERY_STEP, NEVER, assert_same, killed, processes, run, settled
from tests.support.tiny import tiny_spec, write_corpus

PARTS: dict[str, Any] = {"epochs": 3, "finetune": {"epochs": 2}}
CACHE = {"window": 20, "weight": 0.1, "flatness": 0.5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"), tokens=(600, 200, 150))


@pytest.fixture(scope="module")
def specs(folder: Path) -> list[TrainSpec]:
    """Three trials that share their first stage, the first two also their second."""
    tuned = {"epochs": 1}
    return [
        tiny_spec(folder, **PARTS, cache=CACHE),
        tiny_spec(folder, **PARTS),
        tiny_spec(folder, epochs=3, finetune=tuned),
    ]


@pytest.fixture(scope="module")
def alone(specs: list[TrainSpec], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """What each trial leaves that shares nothing."""
    folders = [tmp_path_factory.mktemp("alone") for _ in specs]
    for spec, out in zip(specs, folders, strict=True):
        assert len(run(spec, out)) == (4 if spec is specs[2] else 5)
    return folders


def share(spec: TrainSpec, runs: Path, name: str, **options: Any) -> list[str]:
    """Train as a sweep does; the stages that it trained itself, an entry an epoch."""
    return [point.stage for point in run(spec, runs / name, shared_stages=runs / ".stages", **options)]


def test_one_after_the_other(specs: list[TrainSpec], alone: list[Path], tmp_path: Path) -> None:
    assert share(specs[1], tmp_path, "b") == ["train"] * 3 + ["finetune-1"] * 2
    assert share(specs[0], tmp_path, "a") == []
    assert share(specs[2], tmp_path, "c") == ["finetune-1"]
    for name, out in zip("abc", alone, strict=True):
        assert_same(tmp_path / name, out)


def _tell(spec: TrainSpec, runs: Path, name: str, barrier: Any, told: Any) -> None:
    barrier.wait(60)
    told.put((name, share(spec, runs, name)))


def test_at_the_same_moment(specs: list[TrainSpec], alone: list[Path], tmp_path: Path) -> None:
    barrier, told = processes.Barrier(3), processes.Queue()
    started = [
        processes.Process(target=_tell, args=(spec, tmp_path, name, barrier, told))
        for name, spec in zip("abc", specs, strict=True)
    ]
    for process in started:
        process.start()
    trained = dict(told.get(timeout=120) for _ in started)
    for process in started:
        process.join(60)
        assert process.exitcode == 0
    assert sorted(stage for stages in trained.values() for stage in stages) == ["finetune-1"] * 3 + ["train"] * 3
    for name, out in zip("abc", alone, strict=True):
        assert_same(tmp_path / name, out)


def test_one_that_was_killed_in_the_stage_lets_another_train_it(
    specs: list[TrainSpec], alone: list[Path], tmp_path: Path
) -> None:
    shared = tmp_path / ".stages"
    killed(specs[1], tmp_path / "b", "lm.epochs.train_step", 20, checkpoint_seconds=EVERY_STEP, shared_stages=shared)
    assert share(specs[2], tmp_path, "c") == ["train"] * 3 + ["finetune-1"]
    assert share(specs[1], tmp_path, "b") == ["finetune-1"] * 2  # from a checkpoint within a stage that is done by now
    assert_same(tmp_path / "b", alone[1])
    assert_same(tmp_path / "c", alone[2])


def test_one_that_goes_on_within_a_stage_holds_its_lock(
    specs: list[TrainSpec], folder: Path, alone: list[Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shared = tmp_path / ".stages"
    killed(specs[1], tmp_path / "b", "lm.epochs.train_step", 20, checkpoint_seconds=EVERY_STEP, shared_stages=shared)
    keys = stage_keys(specs[1], fingerprint_of(specs[1].corpus))
    points = train(specs[1], out=tmp_path / "b", shared_stages=shared, device="cpu", checkpoint_seconds=NEVER)
    for point in points:
        for name, key in keys.items():
            lock = FileLock(shared / f"{key}.lock", is_singleton=False)
            if name == point.stage:
                with pytest.raises((TimeoutError, RuntimeError)):  # filelock names a deadlock within one thread
                    lock.acquire(timeout=0)
            else:
                lock.acquire(timeout=0)
                lock.release()
    assert_same(tmp_path / "b", alone[1])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    "stale", ["folder gone", "weights gone", "weights changed", "curve gone", "other codebook", "text"]
)
def test_a_marker_that_does_not_hold_is_passed_over(
    specs: list[TrainSpec], alone: list[Path], tmp_path: Path, stale: str, caplog: pytest.LogCaptureFixture
) -> None:
    share(specs[1], tmp_path, "b")
    marker = tmp_path / ".stages" / f"{settled(tmp_path / 'b').stages[0].key}.json"
    found = json.loads(marker.read_text())
    assert found["folder"] == "../b"  # the runs may be moved
    match stale:
        case "folder gone":
            shutil.rmtree(tmp_path / "b")
        case "weights gone":
            weights_path(tmp_path / "b", "train").unlink()
        case "weights changed":
            flip(weights_path(tmp_path / "b", "train"))
        case "curve gone":
            (tmp_path / "b" / "curve.parquet").unlink()
        case "other codebook":
            marker.write_text(json.dumps(found | {"codebook": "of another head"}))
        case _:
            marker.write_text("{")
    with caplog.at_level(logging.WARNING):
        assert share(specs[2], tmp_path, "c") == ["train"] * 3 + ["finetune-1"]
    assert_same(tmp_path / "c", alone[2])
    assert stale == "other codebook" or caplog.records
    assert json.loads(marker.read_text())["folder"] == "../c"
    assert share(specs[1], tmp_path, "again")[:1] in ([], ["finetune-1"])


def test_a_moved_runs_folder_still_shares(specs: list[TrainSpec], tmp_path: Path) -> None:
    share(specs[1], tmp_path / "runs", "b")
    (tmp_path / "runs").rename(tmp_path / "moved")
    assert share(specs[0], tmp_path / "moved", "a") == []


@pytest.mark.parametrize("test", [True, False], ids=["closed, then open", "open, then closed"])
def test_with_and_without_the_test_text(specs: list[TrainSpec], alone: list[Path], tmp_path: Path, test: bool) -> None:
    share(specs[1], tmp_path, "b", test=not test)
    assert share(specs[0], tmp_path, "a", test=test) == []
    assert settled(tmp_path / "a").tested is test
    assert (tmp_path / "a" / "tokens" / "train.test.parquet").exists() is test
    share(specs[0], tmp_path, "a")
    assert_same(tmp_path / "a", alone[0])


def test_a_trial_whose_checkpoints_are_lost_has_its_own_finished_stage(
    specs: list[TrainSpec], alone: list[Path], tmp_path: Path
) -> None:
    killed(specs[1], tmp_path / "b", "lm.train.save", 5, shared_stages=tmp_path / ".stages")
    shutil.rmtree(tmp_path / "b" / "checkpoints")
    assert share(specs[1], tmp_path, "b") == ["finetune-1"] * 2
    assert_same(tmp_path / "b", alone[1])


def test_who_waits_for_a_stage_shows_it_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_stages, "_SIGN_SECONDS", 0.1)
    held, lock, sign = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock", thread_local=False), tmp_path / ".waits"
    held.acquire()
    waiting = threading.Thread(target=shared_stages._wait, args=(lock, sign))
    waiting.start()
    seen = set()
    until = time.monotonic() + 20.0
    while len(seen) < 3:
        assert time.monotonic() < until
        if sign.exists():
            seen.add(sign.stat().st_mtime_ns)
        time.sleep(0.01)
    held.release()
    waiting.join(20.0)
    assert lock.is_locked
    assert not sign.exists()
    lock.release()
