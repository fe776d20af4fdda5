"""The stall limit, in processes of its own: it ends them."""

from __future__ import annotations

import errno
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import lm
from lm.record import Evaluation, read_record
from lm.train import train
from orchestrator.execute.run_trial import Allotment, run_trial, settled_record, write_failure
from orchestrator.execute.watchdog import forget_stalls, recorded_stall, stall_limit
from orchestrator.trials.records import DISK_FULL
from orchestrator.trials.trial import Trial
from tests.orchestrator.execute.test_schedule import trial
from tests.support.places import make_place, settle, trials

LIMITED = """
import re, sys, threading, time
from pathlib import Path
from orchestrator.execute.watchdog import stall_limit

folder = Path(sys.argv[1])

def hangs():
    threading.Event().wait()

def holds_the_interpreter():
    re.match("(a+)+$", "a" * 60 + "b")

def writes():
    for count in range(24):
        time.sleep(0.25)
        (folder / "curve.parquet").write_text(str(count))

def only_waits_for_its_lock():
    while True:
        time.sleep(0.05)
        (folder / ".lock").write_text("")

with stall_limit(folder, float(sys.argv[3])):
    globals()[sys.argv[2]]()
print("through")
"""


def limited(folder: Path, how: str, seconds: float = 2.0) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", LIMITED, str(folder), how, str(seconds)]
    return subprocess.run(line, check=False, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("how", ["hangs", "holds_the_interpreter", "only_waits_for_its_lock"])
def test_a_process_that_writes_nothing_ends_and_says_where_it_stood(tmp_path: Path, how: str) -> None:
    ended = limited(tmp_path / "trial", how)
    assert (ended.returncode, ended.stdout) == (1, ""), ended.stderr
    assert f"in {how}" in (tmp_path / "trial" / "stalled.txt").read_text()


def test_one_that_writes_goes_on_beyond_the_limit(tmp_path: Path) -> None:
    ended = limited(tmp_path, "writes", 5.0)  # a busy machine may pause for seconds
    assert (ended.returncode, ended.stdout) == (0, "through\n"), ended.stderr
    assert not (tmp_path / "stalled.txt").exists()


def test_the_limit_ends_with_its_block(tmp_path: Path) -> None:
    with stall_limit(tmp_path, 0.3):
        assert (tmp_path / "stalled.txt").read_text() == ""
    time.sleep(0.6)
    assert not (tmp_path / "stalled.txt").exists()


TRACES = """Timeout (0:01:00)!
Thread 0x00007f0000000001 (most recent call first):
  File "/x/orchestrator/execute/watchdog.py", line 87 in _watch
  File "/x/threading.py", line 982 in run

Thread 0x00007f0000000002 (most recent call first):
  File "/x/filelock/_api.py", line 1177 in acquire
  File "/x/lm/train.py", line 73 in train
  File "/x/orchestrator/execute/run_trial.py", line 53 in work
"""


def test_a_stalled_trial_is_recorded_and_not_tried_again_until_the_next_command(tmp_path: Path) -> None:
    allotment = Allotment(tmp_path, 1.0, 0.0, checkpoint_seconds=1.0, stall_seconds=60.0)
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "stalled.txt").write_text(TRACES)
    run_trial(trial("a"), allotment, lambda evaluation: pytest.fail("it was tried again"))
    record = read_record(folder)
    assert record is not None and record.status == "failed"
    assert record.reason == "stalled: nothing written for 1 minutes; failure.txt has its threads' tracebacks"
    assert (folder / "failure.txt").read_text() == f"{record.reason}\n\n{TRACES}"
    assert recorded_stall(folder, 60.0) is None


def test_what_nobody_recorded_is_forgotten(tmp_path: Path) -> None:
    for name, text in (("stalled", TRACES), ("runs", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "stalled.txt").write_text(text)
    forget_stalls(tmp_path)
    assert recorded_stall(tmp_path / "stalled", 60.0) is None
    assert (tmp_path / "runs" / "stalled.txt").exists()


def test_a_later_reason_replaces_an_earlier_one(tmp_path: Path) -> None:
    allotment = Allotment(tmp_path, 1.0, 0.0, checkpoint_seconds=1.0)
    write_failure(trial("a"), allotment, "first", "details\n")
    write_failure(trial("a"), allotment, "second")
    assert (tmp_path / "a" / "failure.txt").read_text() == "second\n"


def test_a_trial_that_raises_leaves_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(make_place(tmp_path))
    full = trials()["full"]
    (tmp_path / full.key / ".lock").mkdir(parents=True)  # where the trial makes a file
    allotment = Allotment(tmp_path, 1.0, 0.0, checkpoint_seconds=1.0)
    run_trial(full, allotment, lambda evaluation: None)
    record = read_record(tmp_path / full.key)
    assert record is not None and record.reason is not None and record.reason.startswith("IsADirectoryError")
    assert record.versions == {"lm-ablation": lm.__version__}
    text = (tmp_path / full.key / "failure.txt").read_text()
    assert text.startswith(record.reason) and "Traceback" in text and "/lm/train.py" in text


def test_a_failure_never_replaces_the_record_of_a_complete_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another command may have trained it while this one's worker ran out of memory."""
    monkeypatch.chdir(make_place(tmp_path))
    full = trials()["full"]
    folder = settle(full)
    before = (folder / "record.json").read_bytes()
    write_failure(full, Allotment(tmp_path / "runs", 1.0, 0.0, checkpoint_seconds=1.0), "its worker died")
    assert (folder / "record.json").read_bytes() == before and not (folder / "failure.txt").exists()
    assert caplog.messages == ["full, seed 1 failed (its worker died); its record, of another command, stays"]


def trained_without_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trial:
    """A complete trial that has only to be scored on test, in the current folder's `runs`."""
    monkeypatch.chdir(make_place(tmp_path))
    full = trials()["full"]
    for _ in train(full.spec, out=Path("runs", full.key), test=False):
        pass
    return full


def test_a_failure_on_test_replaces_the_record_of_a_trial_that_was_not_scored_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of a search has it: else the trial would fail with every command, and none would say why."""
    full = trained_without_test(tmp_path, monkeypatch)
    for path in Path("runs", full.key, "weights").iterdir():
        path.unlink()
    allotment = Allotment(tmp_path / "runs", 1.0, 0.0, checkpoint_seconds=1.0)
    run_trial(full, allotment, lambda evaluation: None)
    record = read_record(tmp_path / "runs" / full.key)
    assert record is not None and record.status == "failed" and "weights" in (record.reason or "")
    run_trial(full, allotment, lambda evaluation: None)
    record = read_record(tmp_path / "runs" / full.key)
    assert record is not None and record.status == "complete" and record.tested


def test_a_trial_that_has_to_be_scored_on_test_keeps_its_record_where_nothing_can_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = trained_without_test(tmp_path, monkeypatch)
    before = (tmp_path / "runs" / full.key / "record.json").read_bytes()
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    run_trial(full, Allotment(tmp_path / "runs", 1.0, 0.5, checkpoint_seconds=1.0), lambda evaluation: None)
    record = read_record(tmp_path / "runs" / full.key)
    assert record is not None and (record.reason or "").startswith("ValueError: device cuda: torch sees no GPU here")
    assert (tmp_path / "runs" / full.key / "record.unscored.json").read_bytes() == before


@pytest.mark.parametrize("killed", [False, True])
def test_a_trial_that_could_not_be_scored_on_test_is_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    full, epochs = trained_without_test(tmp_path, monkeypatch), list[Evaluation]()
    before = (tmp_path / "runs" / full.key / "record.json").read_bytes()
    allotment = Allotment(tmp_path / "runs", 1.0, 0.0, checkpoint_seconds=1.0)

    def disk_is_full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("lm.settle.open_test", disk_is_full)
        for _ in range(2):
            run_trial(full, allotment, epochs.append)
            record = read_record(tmp_path / "runs" / full.key)
            assert record is not None and record.status == "failed" and (record.reason or "").startswith(DISK_FULL)
    if killed:  # before the failure was written
        (tmp_path / "runs" / full.key / "record.json").unlink()
    for _ in train(full.spec, out=Path("runs", full.key), test=False):
        pytest.fail("it trains")
    assert (tmp_path / "runs" / full.key / "record.json").read_bytes() == before
    run_trial(full, allotment, epochs.append)
    record = read_record(tmp_path / "runs" / full.key)
    assert record is not None and record.status == "complete" and record.tested and epochs == []
    assert not (tmp_path / "runs" / full.key / "record.unscored.json").exists()


@pytest.mark.parametrize("storage", [None, "there"])
def test_an_earlier_failure_is_not_the_result_of_an_attempt_that_ends_before_it_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: str | None
) -> None:
    """As by Ctrl-C while torch is imported."""
    monkeypatch.chdir(make_place(tmp_path))
    full, allotment = trials()["full"], Allotment(tmp_path / "runs", 1.0, 0.0, checkpoint_seconds=1.0)
    allotment = replace(allotment, storage=storage and str(tmp_path / storage))
    write_failure(full, allotment, "killed")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("orchestrator.execute.run_trial._train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_trial(full, allotment, lambda evaluation: None)
    assert settled_record(full, allotment) is None


def test_a_copy_of_the_record_that_no_failure_followed_is_not_gone_back_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of an attempt that was killed between the two."""
    full = trained_without_test(tmp_path, monkeypatch)
    folder = tmp_path / "runs" / full.key
    (folder / "record.unscored.json").write_bytes((folder / "record.json").read_bytes())
    for path in (folder / "weights").iterdir():
        path.unlink()
    for _ in range(2):
        run_trial(full, Allotment(tmp_path / "runs", 1.0, 0.0, checkpoint_seconds=1.0), lambda evaluation: None)
    record = read_record(folder)
    assert record is not None and record.status == "complete" and record.tested
