"""Locks: one command at a time runs a sweep or a search, and others can see which.

runs/.sweeps/<name>.<scale>.lock   held while a command runs the sweep; the system frees it when that process dies
                           .json   who held it last: pid, host, user, since, until, command
runs/<key>/.lock                   held while a process trains in the trial's folder
runs/.searches/<key>.lock          held while a command runs that search, which several sweeps may share
"""

from __future__ import annotations

import dataclasses
import fcntl
import getpass
import json
import logging
import os
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import TypeAdapter

from lm.files import in_a_line, read_regular, write_text
from orchestrator.errors import CannotStartError, command_line

_log = logging.getLogger(__name__)
_PATIENCE_SECONDS = 1.0  # far longer than `is_held` takes


@dataclass(frozen=True)
class Holder:
    """The command that runs a sweep, or ran it last; `until` is None while it runs, and if it was killed."""

    sweep: str
    scale: str
    pid: int
    host: str
    user: str
    since: str
    until: str | None
    command: str

    def in_words(self) -> str:
        """`ada, process 4711 on lab3, since 2026-01-31T10:00:00+00:00`."""
        return f"{self.user}, process {self.pid} on {self.host}, since {self.since}"


@contextmanager
def holding(runs: Path, sweep: str, scale: str, at_scale: str) -> Iterator[None]:
    """Hold a sweep within the block, whose scale messages name so; CannotStartError says who holds it already."""
    path = lock_path(runs, sweep, scale)
    lock = FileLock(path, timeout=_PATIENCE_SECONDS)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:  # which is an OSError
        other = read_holder(path)
        who = "another command" if other is None else other.in_words()
        raise CannotStartError(f"{sweep}{at_scale} is run by {who}; `python -m orchestrator status` shows it") from None
    except OSError as error:
        raise CannotStartError(in_a_line(error)) from error
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = str(os.getuid())
    program, *arguments = sys.argv
    started = ["python", "-m", "orchestrator"] if program.endswith("__main__.py") else [program]
    command = command_line([*started, *arguments])
    holder = Holder(sweep, scale, os.getpid(), socket.gethostname(), user, _now(), None, command)
    try:
        _note(path, holder)
        yield
    finally:
        _note(path, dataclasses.replace(holder, until=_now()))
        lock.release()


@contextmanager
def holding_searches(ledgers: Iterable[Path]) -> Iterator[None]:
    """Hold searches within the block: CannotStartError if a sweep runs one, since two would mix up its ledger."""
    with ExitStack() as held:
        for ledger in dict.fromkeys(ledgers):
            ledger.parent.mkdir(parents=True, exist_ok=True)
            try:
                held.enter_context(FileLock(ledger.with_suffix(".lock"), timeout=_PATIENCE_SECONDS))
            except Timeout:
                message = f"another sweep runs the same search ({ledger}); start this one when that one has ended"
                raise CannotStartError(message) from None
        yield


def lock_path(runs: Path, sweep: str, scale: str) -> Path:
    """A sweep's lock; both names are slugs: it cannot lie elsewhere."""
    return runs / ".sweeps" / f"{sweep}.{scale}.lock"


def sweep_locks(runs: Path) -> list[Path]:
    """The locks of all sweeps that were run with this folder; OSError if they cannot be listed."""
    try:
        return [path for path in (runs / ".sweeps").iterdir() if path.suffix == ".lock"]
    except FileNotFoundError:
        return []


def check_no_sweep_runs(runs: Path) -> None:
    """ValueError while a sweep runs with this folder; OSError if that cannot be known."""
    if any(map(is_held, sweep_locks(runs))):
        raise ValueError(f"a sweep runs with {runs}, and may start a trial from weights there")


def read_holder(lock: Path) -> Holder | None:
    """Who holds a sweep's lock or held it last; None if nobody did, or the note is damaged."""
    try:
        return TypeAdapter(Holder).validate_json(read_regular(lock.with_suffix(".json")))
    except (OSError, ValueError):
        return None


def is_held(lock: Path) -> bool:
    """Whether a process holds this lock; one that takes it at this very moment tries again within 50 ms."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_NONBLOCK)  # not to wait for a pipe in its place
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)  # which gives the shared lock back
    return False


def _note(lock: Path, holder: Holder) -> None:
    try:
        write_text(lock.with_suffix(".json"), json.dumps(dataclasses.asdict(holder), indent=1) + "\n")
    except OSError as error:  # a note for people: without it the lock still holds
        _log.warning("status cannot tell who runs this sweep: %s", in_a_line(error))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
