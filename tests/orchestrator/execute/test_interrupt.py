"""Ctrl-C twice, wherever the second one lands."""

from __future__ import annotations

import os
import signal
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import pytest

from orchestrator.agenda.expand import SweepState
from orchestrator.execute import run, run_trial
from orchestrator.execute.interrupt import Interrupt
from orchestrator.execute.run import Options, Prepared
from orchestrator.execute.run_trial import Allotment
from orchestrator.trials.records import Records
from tests.support.sweep_texts import GOOD, read_text


def interrupt_now() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("stops", [True, False])
def test_the_first_signal_in_training_stops_it_and_the_second_ends_the_command(stops: bool) -> None:
    interrupt, stop = Interrupt(), mock.Mock()
    with interrupt.handled():
        with interrupt.stopping(stop if stops else None):
            interrupt_now()
            assert stops, "without a way to stop, the block ends at once"
        assert stop.called == stops and interrupt.exit_code == 130 and not interrupt.insisted
        with pytest.raises(KeyboardInterrupt), interrupt.stopping(stop):
            interrupt_now()
    assert interrupt.insisted and stop.call_count == stops


def test_outside_of_training_the_first_signal_ends_the_command() -> None:
    interrupt = Interrupt()
    with pytest.raises(KeyboardInterrupt), interrupt.handled():
        os.kill(os.getpid(), signal.SIGTERM)
    assert interrupt.exit_code == 143 and not interrupt.insisted
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interrupt_in_a_trial_settles_no_more() -> None:
    source, listener, interrupt = mock.Mock(), mock.Mock(), Interrupt()

    def trained(*_: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    with mock.patch.object(run_trial, "run_trial", trained), pytest.raises(KeyboardInterrupt), interrupt.handled():
        run_trial.run_inline(source, Allotment(Path("runs"), 1.0, 0.0, 600.0), listener, interrupt)
    assert interrupt.insisted and not source.settled.called and not listener.settled.called


@pytest.mark.parametrize("error", [KeyboardInterrupt, ImportError])
def test_a_second_interrupt_that_something_makes_another_error_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], error: type[BaseException]
) -> None:
    sweep = read_text(tmp_path, GOOD).at("tiny")
    allotment = Allotment(tmp_path, 1.0, 0.0, 600.0)
    options, state = Options(file=tmp_path / "toy.yaml"), SweepState((), [])
    prepared = Prepared(sweep, sweep, options, state, Records(tmp_path), allotment)

    def interrupted(*_: object) -> int:
        for _ in range(2):
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt as again:
                second = again
        raise error("numpy failed to import") from second

    with mock.patch.object(run, "_run", interrupted):
        assert run.run_prepared(prepared) == (130, None)
    assert "nothing finished is lost. To go on:\n  python -m orchestrator sweep" in capsys.readouterr().out


def test_an_error_after_one_interrupt_is_an_error(tmp_path: Path) -> None:
    def interrupted(*_: object) -> int:
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        raise OSError("the disk is full")

    with mock.patch.object(run, "_run", interrupted), pytest.raises(OSError, match="disk"):
        run.run_prepared(mock.Mock())


@pytest.mark.parametrize("postponed", [True, False])
def test_the_first_signal_is_acknowledged_at_once_and_only_once(
    postponed: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    interrupt = Interrupt()
    stopping = interrupt.postponed() if postponed else nullcontext()
    with pytest.raises(KeyboardInterrupt), interrupt.handled(), interrupt.stopping(mock.Mock()), stopping:
        for said in ("\nstopping after this step; again to stop at once\n", ""):
            interrupt_now()
            assert capfd.readouterr().err == said
    assert capfd.readouterr().err == ""


def test_a_signal_stops_although_nobody_reads_the_messages_any_more() -> None:
    """As in `sweep ... 2>&1 | tee log`: Ctrl-C ends the `tee` too."""
    interrupt, stop, before = Interrupt(), mock.Mock(), os.dup(2)
    reads, writes = os.pipe()
    os.close(reads)
    os.dup2(writes, 2)
    try:
        with interrupt.handled(), interrupt.stopping(stop):
            interrupt_now()
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(writes)
    assert stop.called and interrupt.exit_code == 130


def test_without_messages_nothing_is_written_into_the_file_in_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python finds 2 closed when it starts, and the next file that is opened has this number."""
    monkeypatch.setattr("sys.stderr", None)
    before = os.dup(2)
    with (tmp_path / "other").open("wb") as other:
        os.dup2(other.fileno(), 2)
        try:
            with Interrupt().handled(), pytest.raises(KeyboardInterrupt):
                interrupt_now()
        finally:
            os.dup2(before, 2)
            os.close(before)
    assert (tmp_path / "other").read_bytes() == b""
