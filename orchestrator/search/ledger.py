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
import shutil
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from lm.files import atomic, sync
from orchestrator.search.events import Event, SearchTrial, search_trials_in, tell, wrong_with
from orchestrator.search.points import grid
from orchestrator.search.population import extinct
from orchestrator.search.task import SearchTask
from orchestrator.sweep.searches import GridSampler, Search
from orchestrator.trials.disk import free_place, set_aside
from orchestrator.words import counted

FEWEST_FOR_IMPORTANCE = 20
"""Complete trials below which nothing is said of how much each value matters."""

MOST_FAILED_IN_A_ROW = 100
"""Trials that fail take no training time: a search that hours alone bound ends after so many."""

MOST_BYTES = 256 * 2**20
"""A ledger has about a hundred bytes for each epoch of each trial: what is larger is none."""

_log = logging.getLogger(__name__)


def ledger_path(runs: Path, key: str) -> Path:
    """Where the ledger of the task with this key lies."""
    return runs / ".searches" / f"{key}.jsonl"


def read_search_trials(path: Path, task: SearchTask | None = None) -> list[SearchTrial]:
    """The trials of a ledger in the order in which they were asked; none where there is no ledger yet.

    What of it is damaged is left out with a warning; nothing is written.
    """
    read = _read(path, task)
    if read.damage is not None:
        _log.warning("%s", read.damage)
    return search_trials_in(read.events)


def best(found: Iterable[SearchTrial]) -> SearchTrial | None:
    """The complete trial with the lowest validation loss, the first of equals; None while none is complete."""
    complete = [trial for trial in found if trial.state == "complete" and trial.valid_nats is not None]
    return min(complete, key=lambda trial: trial.valid_nats or 0.0, default=None)


def front(found: Iterable[SearchTrial]) -> list[SearchTrial]:
    """The complete trials than which no other is as good in every objective and better in one; the first of equals."""
    complete = [trial for trial in found if trial.state == "complete" and trial.objectives is not None]
    return [trial for trial in complete if not any(_beats(other, trial) for other in complete)]


def _beats(other: SearchTrial, trial: SearchTrial) -> bool:
    theirs, ours = other.objectives or (), trial.objectives or ()
    as_good = all(a <= b for a, b in zip(theirs, ours, strict=True))
    return as_good and (theirs != ours or other.number < trial.number)


def ended(task: SearchTask, found: Sequence[SearchTrial]) -> bool:
    """Whether nothing runs and nothing more is asked."""
    return all(trial.state != "running" for trial in found) and asked_enough(task, found)


def asked_enough(task: SearchTask, found: Sequence[SearchTrial]) -> bool:
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


def budget_spent(task: SearchTask, found: Sequence[SearchTrial]) -> bool:
    """Whether as many trials were asked as wanted, or the hours are spent."""
    searching = task.searching
    if task.trials is not None and len(found) >= task.trials:
        return True
    if not isinstance(searching, Search) or searching.training_hours is None:
        return False
    last = found[-MOST_FAILED_IN_A_ROW:]
    useless = len(last) == MOST_FAILED_IN_A_ROW and all(trial.state == "failed" for trial in last)
    return useless or sum(trial.seconds for trial in found) >= 3600.0 * searching.training_hours


@dataclass(frozen=True)
class SearchState:
    """A search and what it has found so far."""

    task: SearchTask
    ledger: Path
    trials: tuple[SearchTrial, ...]

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return ended(self.task, self.trials)

    @property
    def best(self) -> SearchTrial | None:
        """The complete trial with the lowest validation loss, None where none is complete."""
        return best(self.trials)


class Ledger:
    """An open ledger: `events` when it was opened, `found` by now. Every new line is on the disk.

    When it is opened, a last line that is torn because the writer was killed is cut off; a damaged ledger is kept in
    `.old/` and written again with what of it is whole.
    """

    def __init__(self, path: Path, task: SearchTask, fingerprint: str) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        read = _read(path, task)
        first = _line({"task": task.explain(fingerprint)})
        if read.damage is not None:
            kept = _keep(path, readable=read.whole_bytes > 0)
            _log.warning("%s; the damaged ledger is kept as %s", read.damage, kept)
            with atomic(path) as temporary:
                temporary.write_bytes(first + b"".join(map(_line, read.events)))
        elif path.exists() and read.whole_bytes < path.stat().st_size:
            _log.warning("%s: cut off the last line, which was not wholly written", path)
            os.truncate(path, read.whole_bytes)
        self.events = read.events
        self.trials = search_trials_in(read.events)
        if not read.whole_bytes and read.damage is None:
            self._append(first)
            sync(path.parent)

    def append(self, event: Event) -> None:
        """Write one event."""
        self._append(_line(event))
        tell(self.trials, event)

    def _append(self, line: bytes) -> None:
        with self._path.open("ab", buffering=0) as file:
            before = file.tell()
            try:
                if file.write(line) != len(line):
                    raise OSError(f"{self._path}: only a part of a line could be written")
                os.fsync(file.fileno())
            except OSError:
                file.truncate(before)  # a full disk leaves no half a line for the next one to be glued to
                raise


def _line(event: Event) -> bytes:
    return (json.dumps(event, allow_nan=False) + "\n").encode()


@dataclass(frozen=True)
class _Read:
    """What a ledger holds: the whole events after its first line, the bytes of all whole lines, what is damaged."""

    events: list[Event]
    whole_bytes: int
    damage: str | None


def _read(path: Path, task: SearchTask | None) -> _Read:
    try:
        data = _bytes(path)
    except FileNotFoundError:
        return _Read([], 0, None)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        return _Read([], 0, f"{path}: cannot be read, so that its search begins again: {reason}")
    whole = data[: data.rfind(b"\n") + 1]
    events: list[Event] = []
    found: list[SearchTrial] = []
    wrong: list[str] = []
    for number, line in enumerate(whole.splitlines(), 1):
        event, reason = _parsed(line)
        if number == 1:
            if reason is None and isinstance(event, dict) and "task" in event:
                continue
            wrong.append(f"{path}:1: {reason or 'expected the task of the search'}")
        reason = reason or wrong_with(event, found, task)
        if reason is None:
            events.append(event)
            tell(found, event)
        elif number > 1:
            wrong.append(f"{path}:{number}: {reason}")
    damage = f"{wrong[0]}; {counted(len(wrong), 'line')} left out, damaged or resting on one that is" if wrong else None
    return _Read(events, len(whole), damage)


def _bytes(path: Path) -> bytes:
    """What a file holds; ValueError for what is no file, such as a pipe, which would be waited for, or far too long."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("expected a file, got a folder, pipe or device")
    if found.st_size > MOST_BYTES:
        raise ValueError(f"expected at most {MOST_BYTES // 2**20} MiB, got {found.st_size // 2**20} MiB")
    return path.read_bytes()


def _parsed(line: bytes) -> tuple[Any, str | None]:
    """A line's JSON; where it is none, why."""
    try:
        return json.loads(line), None
    except (ValueError, RecursionError) as error:
        return None, f"damaged JSON: {error}"


def _keep(path: Path, *, readable: bool) -> Path:
    """Keep a damaged ledger in `.old/`; a copy, so that a kill before the new one is written loses nothing."""
    runs = path.parent.parent
    if not readable:
        return set_aside(path, runs)
    place = free_place(path, runs)
    shutil.copyfile(path, place)
    sync(place)
    return place
