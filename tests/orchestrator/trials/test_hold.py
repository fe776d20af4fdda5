from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from filelock import FileLock

from orchestrator.agenda.standing import last_commands
from orchestrator.errors import CannotStartError
from orchestrator.trials.locks import holding, holding_searches, is_held, lock_path, read_holder


def hold_in_another_process(runs: Path) -> subprocess.Popen[str]:
    """A process that holds a sweep, and a search of its, until it is killed."""
    code = f"""
    from pathlib import Path
    from orchestrator.trials.locks import holding, holding_searches
    runs = Path({str(runs)!r})
    with holding(runs, "toy", "mini", " at scale mini"), holding_searches([runs / ".searches" / "aa.jsonl"]):
        print("held", flush=True)
        input()
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_the_second_command_is_told_who_holds_a_sweep_until_that_one_dies(tmp_path: Path) -> None:
    process = hold_in_another_process(tmp_path)
    said = rf"^toy at scale mini is run by .*process {process.pid} on .*since 2"
    with pytest.raises(CannotStartError, match=said), holding(tmp_path, "toy", "mini", " at scale mini"):
        pytest.fail("held twice")
    with pytest.raises(CannotStartError, match=r"^toy is run by "), holding(tmp_path, "toy", "mini", at_scale=""):
        pytest.fail("held twice")
    ledgers = [tmp_path / ".searches" / f"{key}.jsonl" for key in ("bb", "aa")]
    with (
        holding(tmp_path, "other", "mini", " at scale mini"),
        pytest.raises(CannotStartError, match=r"^another sweep runs the same search \(.*aa.jsonl\)"),
        holding_searches(ledgers),
    ):
        pytest.fail("searched twice")
    with holding_searches(ledgers[:1]):
        pass  # given back, and free
    assert is_held(lock_path(tmp_path, "toy", "mini"))
    with holding(tmp_path, "toy", "paper", " at scale paper"), holding(tmp_path, "toy2", "mini", " at scale mini"):
        pass  # another scale or sweep is free
    ((holder, state),) = [found for found in last_commands(tmp_path) if found[0].pid == process.pid]
    assert (holder.sweep, holder.scale, state) == ("toy", "mini", "running")

    process.kill()
    process.communicate()
    assert not is_held(lock_path(tmp_path, "toy", "mini"))
    assert ("mini", "killed") in {(holder.scale, state) for holder, state in last_commands(tmp_path)}
    with holding(tmp_path, "toy", "mini", " at scale mini"):
        assert is_held(lock_path(tmp_path, "toy", "mini"))
    holder = read_holder(lock_path(tmp_path, "toy", "mini"))
    assert holder is not None
    assert holder.until is not None
    assert {state for _, state in last_commands(tmp_path)} == {"ended"}


def test_a_sweep_that_ended_in_an_error_is_free_again(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), holding(tmp_path, "toy", "mini", " at scale mini"):
        raise ZeroDivisionError
    assert not is_held(lock_path(tmp_path, "toy", "mini"))
    assert [holder.until is not None for holder, _ in last_commands(tmp_path)] == [True]


def test_a_look_takes_nothing_and_is_seen_by_nobody(tmp_path: Path) -> None:
    lock = tmp_path / "a.lock"
    assert not is_held(lock)
    assert not lock.exists()
    with FileLock(lock):
        assert is_held(lock)
        assert is_held(lock)
    assert not is_held(lock)
    with FileLock(lock, timeout=0):
        pass


def test_a_damaged_note_holds_nothing_up(tmp_path: Path) -> None:
    with holding(tmp_path, "toy", "mini", " at scale mini"):
        lock_path(tmp_path, "toy", "mini").with_suffix(".json").write_text("{")
        assert last_commands(tmp_path) == []
        with (
            pytest.raises(CannotStartError, match="is run by another command"),
            holding(tmp_path, "toy", "mini", " at scale mini"),
        ):
            pytest.fail("held twice")
