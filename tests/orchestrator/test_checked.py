"""Files that a sweep hashed and found right are not hashed again while nobody has touched them, and only then."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import lm.hashes
from lm.record import write_record
from orchestrator.trials import records as records_module
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from tests.support.factories import make_record, make_trial, settle, write_tokens

NOTE = ".checked.json"
FULL, BARE = make_trial(), make_trial("no fine-tuning", finetune=None)
LOSSES = "tokens/finetune-1.test.parquet"


@pytest.fixture
def hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were hashed, of two trials that a sweep has found right."""
    monkeypatch.setattr(records_module, "TOO_FRESH_SECONDS", -1.0)
    names: list[str] = []
    real = lm.hashes.sha256

    def noted(path: Path) -> str:
        names.append(str(path.relative_to(tmp_path / path.relative_to(tmp_path).parts[0])))
        return real(path)

    for trial in (FULL, BARE):
        settle(tmp_path, trial, 80.0)
        write_tokens(tmp_path, trial)
        write_record(tmp_path / trial.key, make_record(trial, 80.0))
    monkeypatch.setattr(lm.hashes, "sha256", noted)
    records = Records(tmp_path)
    assert [found(records, trial) for trial in (FULL, BARE)] == [True, True]
    assert LOSSES in names
    records.note_checked()
    names.clear()
    return names


def found(records: Records, trial: Trial = FULL) -> bool:
    return records.find(trial) is not None


def test_what_was_found_right_is_not_hashed_again(tmp_path: Path, hashed: list[str]) -> None:
    assert found(Records(tmp_path)) and found(Records(tmp_path), BARE)
    assert hashed == []
    before = (tmp_path / NOTE).stat()
    records = Records(tmp_path)
    assert found(records)
    records.note_checked()
    assert (tmp_path / NOTE).stat() == before


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
    tmp_path: Path, hashed: list[str], name: str, change: Callable[[Path], object]
) -> None:
    time.sleep(0.02)  # more than a tick of the clock by which a file system notes a change
    keep_times(tmp_path / FULL.key / name, change)
    records = Records(tmp_path)
    assert not found(records) and records.is_damaged(FULL.key)
    records.note_checked()
    assert not found(Records(tmp_path)), "what is damaged is noted nowhere"


def test_a_file_that_is_gone_or_has_become_another_trials_is_found(tmp_path: Path, hashed: list[str]) -> None:
    (tmp_path / FULL.key / "curve.parquet").unlink()
    shutil.copy(tmp_path / FULL.key / "record.json", tmp_path / BARE.key / "record.json")
    assert not found(Records(tmp_path)) and not found(Records(tmp_path), BARE)


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', "{" * 10**5, "\0"])
def test_a_damaged_note_is_no_note(tmp_path: Path, hashed: list[str], text: str) -> None:
    (tmp_path / NOTE).write_text(text)
    records = Records(tmp_path)
    assert found(records)
    assert "curve.parquet" in hashed
    records.note_checked()
    assert json.loads((tmp_path / NOTE).read_text()).keys() == {FULL.key}


def test_a_note_that_is_no_file_or_cannot_be_written_costs_a_warning(
    tmp_path: Path, hashed: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / NOTE).unlink()
    (tmp_path / NOTE).mkdir()
    records = Records(tmp_path)
    assert found(records)
    records.note_checked()
    assert [entry.getMessage().partition(":")[0] for entry in caplog.records] == [
        "files that were checked will be checked again"
    ]


def test_another_trials_entry_and_one_of_a_trial_that_is_gone_help_nobody(tmp_path: Path, hashed: list[str]) -> None:
    note = json.loads((tmp_path / NOTE).read_text())
    (tmp_path / NOTE).write_text(json.dumps({FULL.key: note[BARE.key], "0123456789abcdef": note[FULL.key]}))
    records = Records(tmp_path)
    assert found(records) and "curve.parquet" in hashed
    records.note_checked()
    assert json.loads((tmp_path / NOTE).read_text()) == {FULL.key: note[FULL.key]}


def test_a_file_that_was_written_just_now_and_a_failed_trial_are_not_noted(
    tmp_path: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / NOTE).unlink()
    settle(tmp_path, BARE, 80.0, status="failed", reason="no luck")
    records = Records(tmp_path)
    assert found(records, BARE)
    monkeypatch.setattr(records_module, "TOO_FRESH_SECONDS", 3600.0)
    assert found(records)
    records.note_checked()
    assert not (tmp_path / NOTE).exists()
