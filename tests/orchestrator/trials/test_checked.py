"""A change of a trial's files is found, however it was made, also by records that read them before."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import lm.hashes
from lm.record import write_record
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from tests.support.factories import make_record, make_trial, settle, write_tokens

FULL, BARE = make_trial(), make_trial("no fine-tuning", finetune=None)
LOSSES = "tokens/finetune-1.test.parquet"


@pytest.fixture
def records(tmp_path: Path) -> Records:
    """The records of two trials, which were found right."""
    for trial in (FULL, BARE):
        settle(tmp_path, trial, 80.0)
        write_tokens(tmp_path, trial)
        write_record(tmp_path / trial.key, make_record(trial, 80.0))
    records = Records(tmp_path)
    assert [found(records, trial) for trial in (FULL, BARE)] == [True, True]
    return records


def found(records: Records, trial: Trial = FULL) -> bool:
    return records.find(trial) is not None


def test_what_nobody_touched_is_hashed_once(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    def hashed(path: Path) -> str:
        pytest.fail(f"{path} is hashed again")

    monkeypatch.setattr(lm.hashes, "sha256", hashed)
    assert found(records) and found(records, BARE)


def keep_times(path: Path, change: Callable[[Path], object]) -> None:
    """As somebody does who wants a change to go unnoticed."""
    before = path.stat()
    change(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def flip(path: Path) -> None:
    """In place: the same inode and the same size."""
    with path.open("r+b") as file:
        file.seek(40)
        byte = file.read(1)
        file.seek(40)
        file.write(bytes([byte[0] ^ 1]))


def replace(path: Path) -> None:
    copy = path.with_name("copy")
    shutil.copy2(path, copy)
    flip(copy)
    copy.replace(path)


@pytest.mark.parametrize("change", [flip, replace])
@pytest.mark.parametrize("name", [LOSSES, "curve.parquet", "record.json"])
def test_a_change_by_hand_is_found_though_size_and_time_are_as_before(
    records: Records, name: str, change: Callable[[Path], object]
) -> None:
    time.sleep(0.02)  # more than a tick of the clock by which a file system notes a change
    keep_times(records.root / FULL.key / name, change)
    assert not found(records) and records.is_damaged(FULL.key)
    assert not found(Records(records.root))


def test_a_file_that_is_gone_or_has_become_another_trials_is_found(records: Records) -> None:
    (records.root / FULL.key / "curve.parquet").unlink()
    shutil.copy(records.root / FULL.key / "record.json", records.root / BARE.key / "record.json")
    assert not found(records) and not found(records, BARE)
