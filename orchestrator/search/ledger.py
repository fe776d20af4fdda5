"""What a search asked and found, on disk: `runs/.searches/<task key>.jsonl`, one event a line. Free of Optuna.

{"task": {...}}                                                        first: all that the task's key hashes
{"asked": n, "values": {...}, "key": "<trial key>"}                    key null where no spec has these values;
                                                                       of a population also "parent": the number of
                                                                       the trial from whose weights it goes on
{"evaluated": n, "epoch": e, "nats": best so far, "seconds": s, "goes_on": true}
{"ended": n, "state": "complete", "nats": x, "objectives": [...], "epochs": e, "seconds": s, "reason": null}
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from lm.files import sync
from orchestrator.search.grid import grid
from orchestrator.search.population import extinct
from orchestrator.search.task import SearchTask
from orchestrator.sweep.searches import GridSampler, Search

State = Literal["running", "complete", "stopped", "diverged", "failed"]
Event = dict[str, Any]

FEWEST_FOR_IMPORTANCE = 20
"""Complete trials below which nothing is said of how much each value matters."""

MOST_FAILED_IN_A_ROW = 100
"""Trials that fail take no training time: a search that hours alone bound ends after so many."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Found:
    """One trial of a search so far. `valid_nats` is the best validation loss, of a complete trial its final one.

    `curve` has the best loss until each epoch, nats a token; `seconds` those of its training, wherever it was trained;
    `key` is None for values that no spec can have; `parent` is the number of the trial from whose weights it goes on:
    epochs and seconds count what that one trained too.
    """

    number: int
    values: Mapping[str, Any]
    key: str | None
    state: State
    epochs: int
    seconds: float
    valid_nats: float | None
    objectives: tuple[float, ...] | None
    reason: str | None
    curve: tuple[tuple[int, float], ...] = ()
    stopping: bool = False
    parent: int | None = None


def ledger_path(runs: Path, key: str) -> Path:
    """Where the ledger of the task with this key lies."""
    return runs / ".searches" / f"{key}.jsonl"


def read_found(path: Path) -> list[Found]:
    """The trials of a ledger in the order in which they were asked; none where there is no ledger yet."""
    events, _ = _read(path)
    return found_in(events)


def found_in(events: Iterable[Event]) -> list[Found]:
    """What the events tell, in order."""
    found: list[Found] = []
    for event in events:
        _tell(found, event)
    return found


def _tell(found: list[Found], event: Event) -> None:
    match event:
        case {"asked": int(n), "values": values, "key": key, "parent": int(parent)}:
            before = found[parent]
            asked = Found(n, values, key, "running", before.epochs, before.seconds, None, None, None, parent=parent)
            found.append(asked)
        case {"asked": int(n), "values": values, "key": key}:
            found.append(Found(n, values, key, "running", 0, 0.0, None, None, None))
        case {"evaluated": int(n), "epoch": epoch, "nats": nats, "seconds": seconds, "goes_on": goes_on}:
            curve = found[n].curve + (() if nats is None else ((epoch, nats),))
            found[n] = replace(
                found[n], epochs=epoch, seconds=seconds, valid_nats=nats, curve=curve, stopping=not goes_on
            )
        case {"ended": int(n), "objectives": objectives, **rest}:
            update = {field: rest[field] for field in ("state", "epochs", "seconds", "reason")}
            objectives = None if objectives is None else tuple(objectives)
            found[n] = replace(found[n], valid_nats=rest["nats"], objectives=objectives, **update)


def best(found: Iterable[Found]) -> Found | None:
    """The complete trial with the lowest validation loss, the first of equals; None while none is complete."""
    complete = [trial for trial in found if trial.state == "complete" and trial.valid_nats is not None]
    return min(complete, key=lambda trial: trial.valid_nats or 0.0, default=None)


def front(found: Iterable[Found]) -> list[Found]:
    """The complete trials than which no other is as good in every objective and better in one; the first of equals."""
    complete = [trial for trial in found if trial.state == "complete" and trial.objectives is not None]
    return [trial for trial in complete if not any(_beats(other, trial) for other in complete)]


def _beats(other: Found, trial: Found) -> bool:
    theirs, ours = other.objectives or (), trial.objectives or ()
    as_good = all(a <= b for a, b in zip(theirs, ours, strict=True))
    return as_good and (theirs != ours or other.number < trial.number)


def ended(task: SearchTask, found: Sequence[Found]) -> bool:
    """Whether nothing runs and nothing more is asked."""
    return all(trial.state != "running" for trial in found) and asked_enough(task, found)


def asked_enough(task: SearchTask, found: Sequence[Found]) -> bool:
    """Whether the budget is spent, or every point of the grid was asked."""
    if budget_spent(task, found):
        return True
    if task.population:
        return extinct(task, found)
    sampler = task.searching.sampler
    asked = len(found) - len(task.searching.start)
    if not isinstance(sampler, GridSampler) or asked < 0:
        return False
    return next(islice(grid(task, sampler.points), asked, None), None) is None


def budget_spent(task: SearchTask, found: Sequence[Found]) -> bool:
    """Whether as many trials were asked as wanted, or the hours are spent."""
    searching = task.searching
    if task.trials is not None and len(found) >= task.trials:
        return True
    if not isinstance(searching, Search) or searching.training_hours is None:
        return False
    last = found[-MOST_FAILED_IN_A_ROW:]
    useless = len(last) == MOST_FAILED_IN_A_ROW and all(trial.state == "failed" for trial in last)
    return useless or sum(trial.seconds for trial in found) >= 3600.0 * searching.training_hours


class Ledger:
    """An open ledger: `events` when it was opened, `found` by now. Every new line is on the disk.

    The last line, torn where the writer was killed, is cut off when it is opened.
    ValueError names a line that is no event.
    """

    def __init__(self, path: Path, task: Mapping[str, Any]) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        events, whole = _read(path)
        if path.exists() and whole < path.stat().st_size:
            _log.warning("%s: cut off the last line, which was not wholly written", path)
            os.truncate(path, whole)
        self.events = events
        self.found = found_in(events)
        if not whole:
            self._append({"task": dict(task)})
            sync(path.parent)

    def append(self, event: Event) -> None:
        """Write one event."""
        self._append(event)
        _tell(self.found, event)

    def _append(self, event: Event) -> None:
        line = (json.dumps(event, allow_nan=False) + "\n").encode()
        with self._path.open("ab", buffering=0) as file:
            before = file.tell()
            try:
                if file.write(line) != len(line):
                    raise OSError(f"{self._path}: only a part of a line could be written")
                os.fsync(file.fileno())
            except OSError:
                file.truncate(before)  # a full disk leaves no half a line for the next one to be glued to
                raise


def _read(path: Path) -> tuple[list[Event], int]:
    """The events after the first line, and the bytes of all whole lines."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], 0
    whole = data[: data.rfind(b"\n") + 1]
    return list(_parse(path, whole)), len(whole)


def _parse(path: Path, whole: bytes) -> Iterator[Event]:
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            event = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{path}:{number}: no event of a search: {error}") from error
        if not isinstance(event, dict):
            raise ValueError(f"{path}:{number}: no event of a search: {event!r}")
        if number > 1:
            yield event
