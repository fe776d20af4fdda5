"""Damaged ledgers: the lines before the damage count, the line is named, and the damaged file is kept."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import lm.files
from orchestrator.__main__ import app
from orchestrator.agenda.expand import search_tasks
from orchestrator.search.events import SearchTrial
from orchestrator.search.ledger import Ledger, ledger_path, read_search_trials
from orchestrator.search.task import SearchTask
from orchestrator.trials.plan import Facts as RealFacts
from orchestrator.trials.records import Records
from tests.support.found import SEARCH, at_paper, find
from tests.support.searching import SPACE, Facts, Shelf, path_of, search, task

FINGERPRINT = Facts().fingerprint(task().base.corpus)
ONE = task(space={"optimizer.learning_rate": SPACE["optimizer.learning_rate"]}, trials=4, sampler={"kind": "random"})
VALUES = {"optimizer.learning_rate": 10.0}
ASKED = {"asked": 2, "values": VALUES, "key": "0" * 16}
EVALUATED = {"evaluated": 1, "epoch": 3, "nats": 4.0, "seconds": 1.0, "goes_on": True}
ENDED = {"ended": 1, "state": "complete", "nats": 4.0, "objectives": [4.0], "epochs": 9, "seconds": 1.0, "reason": None}
NO_EVENT = "expected an event; "
WRONG: dict[str, tuple[object, str]] = {
    "no event": ({"anything": 1}, NO_EVENT),
    "no mapping": ([1, 2], NO_EVENT),
    "a trial twice": (ASKED | {"asked": 0}, "expected trial 2, got 0"),
    "a trial too early": (ASKED | {"asked": 7}, "expected trial 2, got 7"),
    "a number that is a word": (ASKED | {"asked": "two"}, NO_EVENT),
    "a number that is true": (ENDED | {"ended": True}, NO_EVENT),
    "no values": ({"asked": 2, "key": None}, NO_EVENT),
    "a parent to come": (ASKED | {"parent": 2}, "expected trial 2, got 2 with parent 2"),
    "an epoch of no trial": (EVALUATED | {"evaluated": 2}, "trial 2 is not running"),
    "a negative trial": (EVALUATED | {"evaluated": -1}, "trial -1 is not running"),
    "an epoch after the end": (EVALUATED | {"evaluated": 0}, "trial 0 is not running"),
    "a loss that is a word": (EVALUATED | {"nats": "low"}, NO_EVENT),
    "a loss without end": (EVALUATED | {"nats": float("inf")}, NO_EVENT),
    "the end of no trial": (ENDED | {"ended": 2}, "trial 2 is not running"),
    "a second end": (ENDED | {"ended": 0}, "trial 0 is not running"),
    "no such state": (ENDED | {"state": "lost"}, NO_EVENT),
}  # fmt: skip


def write(path: Path, *events: object, torn: bytes = b"") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in events) + torn
    )


def begun(path: Path, *more: object, one: SearchTask = ONE) -> list[Any]:
    """A trial that has ended, one that is at its second epoch, and what comes after them."""
    events = [
        {"task": one.explain(FINGERPRINT)},
        {"asked": 0, "values": VALUES, "key": "a" * 16},
        {"asked": 1, "values": VALUES, "key": "b" * 16},
        ENDED | {"ended": 0},
        EVALUATED | {"epoch": 2},
    ]
    write(path, *events, *more)
    return [*events]


@pytest.mark.parametrize(("event", "reason"), WRONG.values(), ids=WRONG)
def test_an_event_that_cannot_be_is_named_and_the_ledger_ends_before_it(
    event: object, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = path_of(ONE, tmp_path)
    events = begun(path, event, EVALUATED)
    before = path.read_bytes()
    trials = read_search_trials(path)
    (said,) = caplog.messages
    assert said.startswith(f"{path}:6: {reason}") and said.endswith("; 2 lines left out, from this one on")
    assert "\n" not in said
    assert [(trial.state, trial.epochs) for trial in trials] == [("complete", 9), ("running", 2)]
    assert path.read_bytes() == before and not (tmp_path / ".old").exists(), "reading writes nothing"
    opened = Ledger(path, ONE, FINGERPRINT)
    assert opened.trials == trials
    kept = tmp_path / ".old" / f"{path.name}-1"
    assert kept.read_bytes() == before and str(kept) in caplog.messages[-1]
    assert [json.loads(line) for line in path.read_text().splitlines()] == events
    caplog.clear()
    assert Ledger(path, ONE, FINGERPRINT).trials == read_search_trials(path) == trials
    assert not caplog.messages and not (tmp_path / ".old" / f"{path.name}-2").exists()


@pytest.mark.parametrize(
    "line",
    [
        *(b"\0\0\0\0\n", b"{\n", b'"asked": 2}\n', b"\xff\xfe\r\n", b"[" * 100_000 + b"\n", b"\n"),
        *(b'{"asked": 2, "values"\n', b'{"asked": ' + b"[" * 100_000 + b"\n", b'{"asked": \xff\xfe}\n'),
        b'{"asked": 2, "values": {"batch_size": "\xff"}, "key": null}\n',
    ],
    ids=repr,
)
def test_a_line_that_is_no_event_is_named(line: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = path_of(ONE, tmp_path)
    begun(path, line, EVALUATED)
    assert read_search_trials(path)[1].epochs == 2
    assert caplog.messages[0].startswith(f"{path}:6: {NO_EVENT}") and "\n" not in caplog.messages[0]


@pytest.mark.parametrize("first", [None, b"garbage\n"], ids=["missing", "damaged"])
def test_without_its_first_line_a_ledger_begins_again(
    first: bytes | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = path_of(ONE, tmp_path)
    events = begun(path)
    write(path, *([] if first is None else [first]), *events[1:])
    assert read_search_trials(path) == []
    assert caplog.messages[0].startswith(f"{path}:1: expected the task of the search; ")
    Ledger(path, ONE, FINGERPRINT)
    assert [json.loads(line) for line in path.read_text().splitlines()] == events[:1]
    assert (tmp_path / ".old" / f"{path.name}-1").exists()


def test_a_search_goes_on_after_any_damage_to_the_same_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one = task(trials=6, scheduler=None)
    whole = Shelf(tmp_path / "whole")
    (undisturbed,) = search([one], whole)
    lines = path_of(one, whole.root).read_bytes().splitlines(keepends=True)
    for broken in range(0, len(lines), 3):
        shelf = Shelf(tmp_path / str(broken))
        shelf.records, shelf.curves = dict(whole.records), dict(whole.curves)
        path = path_of(one, shelf.root)
        write(path, *lines[:broken], b"{" + lines[broken], *lines[broken + 1 :])
        caplog.clear()
        (trials,) = search([one], shelf)
        assert caplog.messages, broken
        assert [_outcome(trial) for trial in trials] == [_outcome(trial) for trial in undisturbed]
        assert not shelf.trained, "every record is there"


def test_a_kill_while_a_damaged_ledger_is_written_again_loses_none_of_its_good_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = path_of(ONE, tmp_path)
    begun(path, b"no JSON\n")
    damaged, good = path.read_bytes(), read_search_trials(path)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("orchestrator.search.ledger.write_text", killed)
        Ledger(path, ONE, FINGERPRINT)
    assert good and Ledger(path, ONE, FINGERPRINT).trials == good == read_search_trials(path)
    assert {kept.read_bytes() for kept in (tmp_path / ".old").iterdir()} == {damaged}


def _outcome(trial: SearchTrial) -> object:
    return trial.values, trial.key, trial.state, trial.valid_nats, trial.objectives


@pytest.mark.parametrize("thing", ["folder", "pipe", "unreadable"])
def test_what_cannot_be_read_is_moved_away_and_the_search_begins_again(
    thing: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = path_of(ONE, tmp_path)
    begun(path)
    if thing in ("folder", "pipe"):
        path.unlink()
        path.mkdir() if thing == "folder" else os.mkfifo(path)
    else:
        read_bytes = Path.read_bytes

        def refuse(self: Path) -> bytes:
            if self == path and not (tmp_path / ".old").exists():
                raise PermissionError(13, "Permission denied", str(self))
            return read_bytes(self)

        monkeypatch.setattr(Path, "read_bytes", refuse)
    assert read_search_trials(path) == []
    assert path.exists() and not (tmp_path / ".old").exists()
    assert caplog.messages[0].startswith(f"{path}: cannot be read, so that its search begins again: ")
    assert Ledger(path, ONE, FINGERPRINT).trials == []
    assert (tmp_path / ".old" / f"{path.name}-1").exists()
    (trials,) = search([ONE], Shelf(tmp_path))
    assert len(trials) == 4


def test_a_ledger_has_no_largest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = path_of(ONE, tmp_path)
    begun(path)
    before = read_search_trials(path)
    monkeypatch.setattr(lm.files, "MOST_NOTE_BYTES", 100)
    assert before and read_search_trials(path) == before


def test_a_torn_last_line_is_no_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = path_of(ONE, tmp_path)
    events = begun(path)
    write(path, *events, torn=b'{"ended": 1, "sta')
    assert len(read_search_trials(path)) == 2 and not caplog.messages
    Ledger(path, ONE, FINGERPRINT)
    assert [json.loads(line) for line in path.read_text().splitlines()] == events
    assert not caplog.messages and not (tmp_path / ".old").exists()


@pytest.mark.parametrize("command", ["plan", "status", "report"])
def test_commands_that_read_name_the_line_and_go_on(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sweep = at_paper(tmp_path, SEARCH)
    (one,) = search_tasks(sweep)
    fingerprint = RealFacts().fingerprint(one.base.corpus)
    path = ledger_path(tmp_path / "runs", one.key(fingerprint))
    find(
        Records(tmp_path / "runs"),
        one,
        ({"optimizer.learning_rate": 5.0}, 4.0),
        ({"optimizer.learning_rate": 7.0}, 3.9),
    )
    path.write_bytes(path.read_bytes() + b'{"ended": 99}\n[]\n')
    before = path.read_bytes()
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.WARNING)
    result = CliRunner().invoke(app, [command, "toy.yaml", "--runs", "runs"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert any(f"{path.name}:6: expected an event; 2 lines left out" in said for said in caplog.messages)
    assert path.read_bytes() == before and not (tmp_path / "runs/.old").exists()
