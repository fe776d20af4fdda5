"""Faults caused for real: processes that are killed, disks that are full, clocks that jump. Nothing whole is lost."""

from __future__ import annotations

import errno
import os
import random
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pytest
import torch

import lm.settle
from lm.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from lm.files import remove_temporaries
from lm.record import read_record, write_record
from lm.spec import TrainSpec
from lm.train import train
from tests.lm.test_record import record
from tests.support.lm_trials import EVERY_STEP, assert_same, before_call, processes, run, settled
from tests.support.tiny import AVERAGING, tiny_spec, write_corpus

CPU = torch.device("cpu")
PARTS: dict[str, Any] = {
    "optimizer": AVERAGING,
    "epochs": 4,
    "finetune": {"epochs": 2},
    "cache": {"window": 20, "weight": 0.1, "flatness": 0.5},
}


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> TrainSpec:
    return tiny_spec(write_corpus(tmp_path_factory.mktemp("corpus"), tokens=(600, 200, 150)), **PARTS)


@pytest.fixture(scope="module")
def undisturbed(spec: TrainSpec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert len(run(spec, folder)) == 6
    return folder


# Killed at any moment


def _train(spec: TrainSpec, out: Path) -> None:
    run(spec, out, checkpoint_seconds=EVERY_STEP)


def _checkpoints(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("checkpoints/[0-9]*")}


def test_killed_in_training_at_any_moment(spec: TrainSpec, undisturbed: Path, tmp_path: Path) -> None:
    moment, kills = random.Random(1), 0
    for _ in range(6):
        process = processes.Process(target=_train, args=(spec, tmp_path))
        before = _checkpoints(tmp_path)
        process.start()
        while process.is_alive() and _checkpoints(tmp_path) == before:
            time.sleep(0.005)
        process.join(0.2 * moment.random())
        kills += process.is_alive()
        process.kill()
        process.join()
    assert kills >= 2
    run(spec, tmp_path)
    assert not list(tmp_path.rglob("*.tmp"))
    assert_same(tmp_path, undisturbed)


def _checkpoint(number: int) -> Checkpoint:
    weights = {name: {"w": torch.full((256, 256), float(number))} for name in ("weights", "best", "average")}
    return Checkpoint(weights, {"number": number})


def _write_on(write: Callable[[Path, int], None], folder: Path, number: int) -> None:
    """Write 1, 2, ... from a number on; the file `acknowledged` tells the last one that is done."""
    with (folder / "acknowledged").open("r+b", buffering=0) as acknowledged:
        while True:
            number += 1
            write(folder, number)
            os.pwrite(acknowledged.fileno(), number.to_bytes(8, "little"), 0)


def _write_checkpoint(folder: Path, number: int) -> None:
    save_checkpoint(folder, _checkpoint(number))


def _write_record(folder: Path, number: int) -> None:
    write_record(folder, record(seconds=float(number), reason=f"{number} " * 50_000))


def _kill_writers(write: Callable[[Path, int], None], folder: Path, rounds: int, whole: Callable[[], int]) -> None:
    """Kill a process that writes, again and again; what is found is whole: the last one acknowledged or the next."""
    moment, number = random.Random(2), 0
    for _ in range(rounds):
        (folder / "acknowledged").write_bytes(bytes(8))
        process = processes.Process(target=_write_on, args=(write, folder, number))
        process.start()
        deadline = time.monotonic() + 60
        while not (acknowledged := int.from_bytes((folder / "acknowledged").read_bytes(), "little")):
            assert time.monotonic() < deadline and process.is_alive()
            time.sleep(0.001)
        time.sleep(0.03 * moment.random())
        process.kill()
        process.join()
        acknowledged = int.from_bytes((folder / "acknowledged").read_bytes(), "little")
        number = whole()
        assert number in (acknowledged, acknowledged + 1)


@pytest.mark.parametrize("rounds", [8, pytest.param(100, marks=pytest.mark.slow)])
def test_killed_while_checkpoints_are_written(tmp_path: Path, rounds: int) -> None:
    def whole() -> int:
        found = load_checkpoint(tmp_path, CPU)
        assert found is not None
        number: int = found.state["number"]
        for name in ("weights", "best", "average"):
            assert torch.equal(found.weights[name]["w"], _checkpoint(number).weights[name]["w"])
        return number

    _kill_writers(_write_checkpoint, tmp_path, rounds, whole)


@pytest.mark.parametrize("rounds", [8, pytest.param(100, marks=pytest.mark.slow)])
def test_killed_while_records_are_written(tmp_path: Path, rounds: int) -> None:
    def whole() -> int:
        found = read_record(tmp_path)
        assert found is not None and found.reason == f"{found.seconds:.0f} " * 50_000
        return int(found.seconds)

    _kill_writers(_write_record, tmp_path, rounds, whole)
    remove_temporaries(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["acknowledged", "record.json"]


def test_training_removes_what_a_killed_trial_left_and_no_file_of_others(spec: TrainSpec, tmp_path: Path) -> None:
    left = [tmp_path / name for name in (".record.json.123.tmp", "tokens/.train.test.parquet.9.tmp")]
    others = [tmp_path / name for name in (".mine.tmp", "project/.record.json.123.tmp", "tokens/.7.tmp")]
    for path in (*left, *others):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    (tmp_path / "checkpoints/.00000001.tmp").mkdir(parents=True)
    run(spec, tmp_path)
    assert sorted(tmp_path.rglob(".*.tmp")) == sorted(others)


# A full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], check=False, capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"mounting a tmpfs is not permitted here ({mounted.stderr.strip()})")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def _fill(folder: Path) -> None:
    with (folder / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            assert error.errno == errno.ENOSPC


def _forbid(folder: Path) -> None:
    """No file may grow from now on: to a writer the same, wherever the folder lies."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def _train_on_full(
    spec: TrainSpec, disk: Path, moment: tuple[str, str, int], fill: Callable[[Path], None], told: Any
) -> None:
    before_call(*moment, lambda: fill(disk))
    try:
        run(spec, disk / "trial")
    except OSError as error:
        told.send((error.errno, error.filename))


FULL = [
    ("lm.train", "save", 3, "checkpoints/.00000003.tmp/", 2),
    ("lm.train", "write_curve", 3, "curve.parquet", 2),
    ("lm.train", "save_weights", 2, "weights/finetune-1.safetensors", 6),
    ("lm.scoring", "write_table", 2, "tokens/train.test.parquet", 4),
    ("lm.settle", "write_record", 1, "record.json", 6),
]


def fails_on_full(spec: TrainSpec, disk: Path, moment: tuple[str, str, int], fill: Callable[[Path], None]) -> str:
    """Train in a process whose disk is full from that moment on; the file that the error names, space being back."""
    hears, told = processes.Pipe(duplex=False)
    process = processes.Process(target=_train_on_full, args=(spec, disk, moment, fill, told))
    process.start()
    process.join(60)
    assert process.exitcode == 0 and hears.poll(), "the trial ended as if there were space"
    number, name = hears.recv()
    assert number == (errno.ENOSPC if fill is _fill else errno.EFBIG)
    (disk / "filler").unlink(missing_ok=True)
    assert not list(disk.rglob("*.tmp"))
    return str(Path(name).relative_to(disk / "trial"))


@pytest.mark.parametrize(("module", "function", "call", "file", "epoch"), FULL, ids=[moment[1] for moment in FULL])
@pytest.mark.parametrize("kind", ["tmpfs", "file size limit"])
def test_the_disk_is_full(
    spec: TrainSpec,
    undisturbed: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    kind: str,
    module: str,
    function: str,
    call: int,
    file: str,
    epoch: int,
) -> None:
    """What was whole stays; once there is space the same command completes the trial."""
    disk: Path = request.getfixturevalue("small_disk") if kind == "tmpfs" else tmp_path
    fill = _fill if kind == "tmpfs" else _forbid
    assert fails_on_full(spec, disk, (module, function, call), fill).startswith(file)
    trial = disk / "trial"
    assert read_record(trial) is None
    found = load_checkpoint(trial, CPU)
    assert found is not None and found.state["position"]["epoch"] == epoch
    run(spec, trial)
    assert_same(trial, undisturbed)


def test_the_disk_is_full_where_a_record_is_written_anew(spec: TrainSpec, undisturbed: Path, tmp_path: Path) -> None:
    run(spec, tmp_path / "trial", test=False)
    before = (tmp_path / "trial" / "record.json").read_bytes()
    assert fails_on_full(spec, tmp_path, ("lm.settle", "write_record", 1), _forbid) == "record.json"
    assert (tmp_path / "trial" / "record.json").read_bytes() == before
    assert run(spec, tmp_path / "trial") == []
    assert_same(tmp_path / "trial", undisturbed)


# A clock that jumps


def test_the_clock_jumps(spec: TrainSpec, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour back, then a year ahead, with files of the future; durations do not notice."""
    clock, jump = time.time, 0.0

    class Jumping(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return datetime.now(tz) + timedelta(seconds=jump)

    monkeypatch.setattr(time, "time", lambda: clock() + jump)
    monkeypatch.setattr(lm.settle, "datetime", Jumping)
    begun = time.perf_counter()
    for jumps in ([-3600.0, 365 * 86400.0], [365 * 86400.0, -3600.0]):
        points = train(spec, out=tmp_path, device="cpu", checkpoint_seconds=EVERY_STEP)
        for seconds in jumps:
            jump = seconds
            assert next(points).tokens_per_second > 0
        points.close()
        for path in tmp_path.rglob("*"):
            os.utime(path, (clock() + jump, clock() + jump))
    run(spec, tmp_path)
    took = time.perf_counter() - begun
    found = settled(tmp_path)
    assert datetime.fromisoformat(found.finished_at).timestamp() == pytest.approx(clock() - 3600, abs=60)
    assert all(0 <= stage.train_seconds + stage.evaluation_seconds <= took for stage in found.stages)
    assert 0 < found.seconds <= took
    assert_same(tmp_path, undisturbed)
