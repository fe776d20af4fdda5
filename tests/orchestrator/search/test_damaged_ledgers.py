"""Damaged ledgers: the lines before the damage count, the line is named, and the damaged file is kept."""

# ruff: noqa: E501 (one case a line reads best)

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
from tests.orchestrator.search.test_population import CHANGING, SCHEDULER
from tests.orchestrator.test_rounds import SEARCH, at_paper, find
from tests.support.searching import SPACE, Facts, Shelf, path_of, search, task

FINGERPRINT = Facts().fingerprint(task().base.corpus)
ONE = task(space={"optimizer.learning_rate": SPACE["optimizer.learning_rate"]}, trials=4, sampler={"kind": "random"})
VALUES = {"optimizer.learning_rate": 10.0}
ASKED = {"asked": 2, "values": VALUES, "key": "0" * 16}
EVALUATED = {"evaluated": 1, "epoch": 3, "nats": 4.0, "seconds": 1.0, "goes_on": True}
ENDED = {"ended": 1, "state": "complete", "nats": 4.0, "objectives": [4.0], "epochs": 9, "seconds": 1.0, "reason": None}
WRONG: dict[str, tuple[object, str]] = {
    "no event": ({"anything": 1}, "expected an event: asked, evaluated or ended"),
    "no mapping": ([1, 2], "expected an event: asked, evaluated or ended"),
    "a trial twice": (ASKED | {"asked": 0}, "asked: expected trial 2, got 0"),
    "a trial too early": (ASKED | {"asked": 7}, "asked: expected trial 2, got 7"),
    "a number that is a word": (ASKED | {"asked": "two"}, "asked: Input should be a valid integer"),
    "a number that is true": (ENDED | {"ended": True}, "ended: Input should be a valid integer"),
    "no values": ({"asked": 2, "key": None}, "values: Field required"),
    "a value that is missing": (ASKED | {"values": {}}, "values.optimizer.learning_rate: missing"),
    "a value out of its range": (ASKED | {"values": {"optimizer.learning_rate": 1e6}}, "values.optimizer.learning_rate: out of its range"),
    "a value of another type": (ASKED | {"values": {"optimizer.learning_rate": "10"}}, "values.optimizer.learning_rate: out of its range"),
    "a value that is not searched": (ASKED | {"values": VALUES | {"batch_size": 4}}, "values.batch_size: not searched with the others"),
    "a parent without a population": (ASKED | {"parent": 0}, "parent: expected a trial of the generation before, none in the first generation"),
    "a parent to come": (ASKED | {"parent": 2}, "parent: trial 2 was not asked for"),
    "an epoch of no trial": (EVALUATED | {"evaluated": 2}, "trial 2 is not running"),
    "a negative trial": (EVALUATED | {"evaluated": -1}, "evaluated: Input should be greater than or equal to 0"),
    "an epoch after the end": (EVALUATED | {"evaluated": 0}, "trial 0 is not running"),
    "an epoch twice": (EVALUATED | {"epoch": 2}, "epoch: expected one after 2, got 2"),
    "a loss that is a word": (EVALUATED | {"nats": "low"}, "nats: Input should be a valid number"),
    "a loss without end": (EVALUATED | {"nats": float("inf")}, "nats: Input should be a finite number"),
    "time that runs backwards": (EVALUATED | {"seconds": -1.0}, "seconds: Input should be greater than or equal to 0"),
    "the end of no trial": (ENDED | {"ended": 2}, "trial 2 is not running"),
    "a second end": (ENDED | {"ended": 0}, "trial 0 is not running"),
    "no such state": (ENDED | {"state": "lost"}, "state: Input should be 'complete', 'stopped', 'diverged' or 'failed'"),
    "complete without a loss": (ENDED | {"nats": None}, "expected the loss of a complete trial, got null"),
    "complete without objectives": (ENDED | {"objectives": None}, "expected objectives of a complete trial, and of no other"),
    "objectives of a stopped trial": (ENDED | {"state": "stopped"}, "expected objectives of a complete trial, and of no other"),
    "too many objectives": (ENDED | {"objectives": [4.0, 5.0]}, "objectives: expected 1 numbers, got 2"),
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
    trials = read_search_trials(path, ONE)
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
    assert Ledger(path, ONE, FINGERPRINT).trials == read_search_trials(path, ONE) == trials
    assert not caplog.messages and not (tmp_path / ".old" / f"{path.name}-2").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"\0\0\0\0\n", "expected an event"),
        (b"{\n", "expected an event"),
        (b'"asked": 2}\n', "expected an event"),
        (b"\xff\xfe\r\n", "expected an event"),
        (b"[" * 100_000 + b"\n", "expected an event"),
        (b"\n", "expected an event"),
        (b'{"asked": 2, "values"\n', "Invalid JSON: "),
        (b'{"asked": ' + b"[" * 100_000 + b"\n", "Invalid JSON: "),
        (b'{"asked": \xff\xfe}\n', "Invalid JSON: "),
    ],
    ids=repr,
)
def test_a_line_that_is_no_event_is_named(
    line: bytes, said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = path_of(ONE, tmp_path)
    begun(path, line, EVALUATED)
    assert read_search_trials(path, ONE)[1].epochs == 2
    assert caplog.messages[0].startswith(f"{path}:6: {said}") and "\n" not in caplog.messages[0]


@pytest.mark.parametrize("first", [None, b"garbage\n"], ids=["missing", "damaged"])
def test_without_its_first_line_a_ledger_begins_again(
    first: bytes | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = path_of(ONE, tmp_path)
    events = begun(path)
    write(path, *([] if first is None else [first]), *events[1:])
    assert read_search_trials(path, ONE) == []
    assert caplog.messages[0].startswith(f"{path}:1: expected the task of the search; ")
    Ledger(path, ONE, FINGERPRINT)
    assert [json.loads(line) for line in path.read_text().splitlines()] == events[:1]
    assert (tmp_path / ".old" / f"{path.name}-1").exists()


def test_a_parent_of_another_generation_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one = task(space=CHANGING, sampler={"kind": "random"}, scheduler=SCHEDULER, trials=None)
    values = {"optimizer.learning_rate": 10.0, "dropout.input": 0.3}
    path = path_of(one, tmp_path)
    size = one.population
    asked = [{"asked": n, "values": values, "key": None} for n in range(size)]
    ended = [ENDED | {"ended": n, "state": "stopped", "objectives": None} for n in range(size)]
    later = [{"asked": size + n, "values": values, "key": None, "parent": n} for n in range(size)]
    write(path, {"task": {}}, *asked, *ended, *later, later[0] | {"asked": 2 * size})
    assert len(read_search_trials(path, one)) == 2 * size
    assert caplog.messages[0].startswith(f"{path}:{3 * size + 2}: parent: expected a trial of the generation before")


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


def _outcome(trial: SearchTrial) -> object:
    return trial.values, trial.key, trial.state, trial.valid_nats, trial.objectives


@pytest.mark.parametrize("thing", ["folder", "pipe", "too large", "unreadable"])
def test_what_cannot_be_read_is_moved_away_and_the_search_begins_again(
    thing: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = path_of(ONE, tmp_path)
    begun(path)
    if thing in ("folder", "pipe"):
        path.unlink()
        path.mkdir() if thing == "folder" else os.mkfifo(path)
    elif thing == "too large":
        monkeypatch.setattr(lm.files, "MOST_NOTE_BYTES", 100)
    else:
        read_bytes = Path.read_bytes

        def refuse(self: Path) -> bytes:
            if self == path and not (tmp_path / ".old").exists():
                raise PermissionError(13, "Permission denied", str(self))
            return read_bytes(self)

        monkeypatch.setattr(Path, "read_bytes", refuse)
    assert read_search_trials(path, ONE) == []
    assert path.exists() and not (tmp_path / ".old").exists()
    assert caplog.messages[0].startswith(f"{path}: cannot be read, so that its search begins again: ")
    assert Ledger(path, ONE, FINGERPRINT).trials == []
    assert (tmp_path / ".old" / f"{path.name}-1").exists()
    monkeypatch.setattr(lm.files, "MOST_NOTE_BYTES", 2**20)
    (trials,) = search([ONE], Shelf(tmp_path))
    assert len(trials) == 4


def test_a_torn_last_line_is_no_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = path_of(ONE, tmp_path)
    events = begun(path)
    write(path, *events, torn=b'{"ended": 1, "sta')
    assert len(read_search_trials(path, ONE)) == 2 and not caplog.messages
    Ledger(path, ONE, FINGERPRINT)
    assert "cut off the last line" in caplog.messages[0] and not (tmp_path / ".old").exists()


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
    assert any(f"{path.name}:6: state: Field required; 2 lines left out" in said for said in caplog.messages)
    assert path.read_bytes() == before and not (tmp_path / "runs/.old").exists()
