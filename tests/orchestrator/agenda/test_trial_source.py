"""Which trial comes next."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.agenda.trial_source import FixedOrder, InTurn
from orchestrator.search.trial_source import SearchTrialSource
from orchestrator.trials.records import DISK_FULL, STORAGE_LOST, TEXT_CHANGED
from tests.orchestrator.execute.test_schedule import trial
from tests.support import searching
from tests.support.factories import make_record


def test_one_that_continues_another_waits_until_that_one_has_ended() -> None:
    a, b, c = trial("a"), trial("b", starts_from="a"), trial("c")
    source = FixedOrder([b, a, c])
    assert [source.next(), source.next(), source.next()] == [a, c, None]
    source.settled(a, None)
    assert source.next() == b
    assert source.next() is None


def test_one_whose_source_is_not_among_them_starts_at_once() -> None:
    b = trial("b", starts_from="a")
    assert FixedOrder([b]).next() == b


def test_nothing_starts_when_the_time_is_over() -> None:
    clock = [0.0]
    source = InTurn(iter([FixedOrder([trial("a"), trial("b")])]), 60.0, clock=lambda: clock[0])
    assert source.next() == trial("a")
    clock[0] = 60.0
    assert source.next() is None


def test_a_round_begins_when_all_of_the_one_before_have_settled() -> None:
    source = InTurn(iter([FixedOrder([trial("a"), trial("b")]), FixedOrder([]), FixedOrder([trial("c")])]))
    a, b = source.next(), source.next()
    assert a == trial("a") and b == trial("b")
    assert source.next() is None
    source.settled(trial("a"), None)
    assert source.next() is None
    source.settled(trial("b"), None)
    assert source.next() == trial("c")
    assert source.next() is None
    source.settled(trial("c"), None)
    assert source.next() is None


def test_a_search_whose_ledger_cannot_be_written_stops_nothing_and_goes_on_with_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    task, shelf = searching.task(trials=4), searching.Shelf(tmp_path / "runs")
    undisturbed = searching.search([task], searching.Shelf(tmp_path / "undisturbed"))
    source = InTurn(iter([SearchTrialSource([task], shelf, searching.Facts())]))  # type: ignore[arg-type]
    first = source.next()
    assert first is not None

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("os.fsync", full)
        record = searching.train(first, shelf, lambda evaluation: source.goes_on(first, evaluation))
    assert record is not None, "it trained to its end"
    source.settled(first, record)
    assert source.next() is None
    assert "No space left on device" in caplog.text
    assert searching.search([task], shelf) == undisturbed


@pytest.mark.parametrize(
    "reason", [f"{DISK_FULL}: WriteError: ...", f"{TEXT_CHANGED} since ...", f"{STORAGE_LOST}: ..."]
)
def test_a_trial_of_a_search_that_fails_as_others_would_is_trained_by_the_next_command(
    reason: str, tmp_path: Path
) -> None:
    task, shelf = searching.task(trials=4), searching.Shelf(tmp_path / "runs")
    undisturbed = searching.search([task], searching.Shelf(tmp_path / "undisturbed"))
    source = InTurn(iter([SearchTrialSource([task], shelf, searching.Facts())]))  # type: ignore[arg-type]
    first = source.next()
    assert first is not None
    source.settled(first, make_record(first, 50.0, status="failed", reason=reason))
    assert source.next() is None
    assert searching.search([task], shelf) == undisturbed
