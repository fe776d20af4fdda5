"""Spans of time, and what a command says whose budget is spent."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.agenda.expand import expand
from orchestrator.execute.machine import load_sweep
from orchestrator.execute.run_trial import Allotment, write_failure
from orchestrator.trials.records import DISK_FULL, Records
from orchestrator.words import seconds_in
from tests.orchestrator.execute.test_sweep_end_to_end import place
from tests.support.places import command, working_in
from tests.support.sweeps import finish, start

__all__ = ["place"]  # a fixture


@pytest.mark.parametrize(
    ("text", "seconds"), [("8h", 28800.0), ("90m", 5400.0), ("30s", 30.0), ("1d", 86400.0), ("1.5h", 5400.0)]
)
def test_a_span(text: str, seconds: float) -> None:
    assert seconds_in(text) == seconds


@pytest.mark.parametrize("text", ["", "8", "h", "8 hours", "-1h", "0s", "1e3s"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="such as 90m or 8h"):
        seconds_in(text)


def test_a_spent_budget_starts_nothing_more_reports_and_says_how_to_go_on(place: Path) -> None:
    notified = "true https://ann:hunter2@host"
    output = finish(start(place, "--executor", "inline", "--budget", "0.01s", "--notify", notified), 3)
    assert "The budget of 0.01s is spent; nothing finished is lost. To go on:" in output
    assert "--executor inline --budget 0.01s" in output and "--notify 'true https://***@host'" in output
    kept = [file.read_text() for file in (place / "runs" / ".sweeps").glob("*.json")]
    assert any("https://***@host" in text for text in kept) and not any("hunter2" in text for text in (output, *kept))
    assert (place / "reports" / "tiny" / "paper" / "report.md").exists()


def test_a_full_disk_of_an_earlier_command_is_no_reason_of_one_whose_budget_is_spent(place: Path) -> None:
    with working_in(place):
        trial = expand(load_sweep("tiny.yaml"), Records("runs")).trained[-1]
        write_failure(trial, Allotment(Path("runs"), 1.0, 0.0, 600.0), f"{DISK_FULL}: ...")
    finish(start(place, "--executor", "inline", "--budget", "0.01s"), 3)


def test_a_span_that_is_none_is_refused_before_anything_starts(place: Path) -> None:
    with working_in(place):
        code, _, err = command("sweep", "tiny.yaml", "--budget", "8 hours")
    refusal = "--budget: expected a number above 0 and s, m, h or d, such as 90m or 8h, got '8 hours'"
    assert (code, err.splitlines()[-1]) == (2, refusal)
    assert not (place / "runs").exists()
