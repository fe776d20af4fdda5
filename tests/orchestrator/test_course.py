"""Which trial comes next."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.agenda.trial_source import Planned, Rounds, UntilLost, Within
from orchestrator.search.trial_source import SearchCourse
from tests.orchestrator.search import searching
from tests.orchestrator.test_schedule import trial


def test_one_that_continues_another_waits_until_that_one_has_ended() -> None:
    a, b, c = trial("a"), trial("b", starts_from="a"), trial("c")
    course = Planned([b, a, c])
    assert [course.next(), course.next(), course.next()] == [a, c, None]
    assert not course.ended()
    course.settled(a, None)
    assert course.next() == b
    assert course.ended()


def test_one_whose_source_is_not_among_them_starts_at_once() -> None:
    b = trial("b", starts_from="a")
    assert Planned([b]).next() == b


def test_nothing_starts_when_the_time_is_over() -> None:
    clock = [0.0]
    course = Within(Planned([trial("a"), trial("b")]), 60.0, now=lambda: clock[0])
    assert course.next() == trial("a")
    assert not course.ended()
    clock[0] = 60.0
    assert course.next() is None
    assert course.ended()


def test_a_round_begins_when_all_of_the_one_before_have_settled() -> None:
    rounds = iter([Planned([trial("a"), trial("b")]), Planned([]), Planned([trial("c")]), None])
    course = Rounds(lambda: next(rounds))
    a, b = course.next(), course.next()
    assert a == trial("a") and b == trial("b")
    assert course.next() is None and not course.ended()
    course.settled(trial("a"), None)
    assert course.next() is None
    course.settled(trial("b"), None)
    assert course.next() == trial("c")
    assert course.next() is None and not course.ended()
    course.settled(trial("c"), None)
    assert course.next() is None and course.ended()


def test_a_search_whose_ledger_cannot_be_written_stops_nothing_and_goes_on_with_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    task, shelf = searching.task(trials=4), searching.Shelf(tmp_path / "runs")
    undisturbed = searching.search([task], searching.Shelf(tmp_path / "undisturbed"))
    course = UntilLost(SearchCourse([task], shelf, searching.Facts()))  # type: ignore[arg-type]
    first = course.next()
    assert first is not None

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("os.fsync", full)
        record = searching.train(first, shelf, lambda evaluation: course.goes_on(first, evaluation))
    assert record is not None, "it trained to its end"
    course.settled(first, record)
    assert course.next() is None and course.ended() and course.is_lost
    assert "No space left on device" in caplog.text
    assert searching.search([task], shelf) == undisturbed
