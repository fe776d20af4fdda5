"""Who holds a sweep: one command at a time runs it, and others can tell which.

runs/.sweeps/<name>.<scale>.lock   held while a command runs the sweep; the system frees it when that process dies
                           .json   who held it last: pid, host, user, since, until, command
runs/.searches/<key>.lock          held while a command runs that search, which several sweeps may share
"""

from __future__ import annotations

import dataclasses
import fcntl
import getpass
import json
import logging
import os
import shlex
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
from orchestrator.errors import CannotStartError

_FOLDER = ".sweeps"
_log = logging.getLogger(__name__)
_PATIENCE_SECONDS = 1.0  # far longer than a look of `is_held` takes


class HeldError(CannotStartError):
    """Another command runs this sweep; nothing was started."""


@dataclass(frozen=True)
class Holder:
    """The command that runs a sweep, or ran it last; `until` is None while it runs, and where it was killed."""

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
def holding(runs: Path, sweep: str, scale: str) -> Iterator[None]:
    """Hold a sweep within the block; HeldError says who holds it already, CannotStartError why nobody can."""
    path = lock_path(runs, sweep, scale)
    lock = FileLock(path, timeout=_PATIENCE_SECONDS)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:  # which is an OSError
        holder = read_holder(runs, sweep, scale)
        who = "another command" if holder is None else holder.in_words()
        raise HeldError(f"{sweep} at scale {scale} is run by {who}; `python -m orchestrator status` shows it") from None
    except OSError as error:
        raise CannotStartError(in_a_line(error)) from error
    try:
        holder = Holder(
            sweep=sweep,
            scale=scale,
            pid=os.getpid(),
            host=socket.gethostname(),
            user=_user(),
            since=_now(),
            until=None,
            command=_command(),
        )
        _write(path, holder)
        try:
            yield
        finally:
            _write(path, dataclasses.replace(holder, until=_now()))
    finally:
        lock.release()


@contextmanager
def holding_searches(ledgers: Iterable[Path]) -> Iterator[None]:
    """Hold searches within the block: two drivers would mix up one ledger. HeldError where a sweep runs one of them."""
    with ExitStack() as held:
        for ledger in dict.fromkeys(ledgers):
            ledger.parent.mkdir(parents=True, exist_ok=True)
            try:
                held.enter_context(FileLock(ledger.with_suffix(".lock"), timeout=_PATIENCE_SECONDS))
            except Timeout:
                raise HeldError(
                    f"another sweep runs the same search ({ledger}); start this one when that one has ended"
                ) from None
        yield


def lock_path(runs: Path, sweep: str, scale: str) -> Path:
    """A sweep's lock; both names are slugs, so it cannot lie elsewhere."""
    return runs / _FOLDER / f"{sweep}.{scale}.lock"


def read_holder(runs: Path, sweep: str, scale: str) -> Holder | None:
    """Who holds a sweep or held it last, None where nobody did, or where a killed machine left half a note."""
    return _read(lock_path(runs, sweep, scale))


def holders(runs: Path) -> list[Holder]:
    """Every sweep that was run with this folder, by its last command, the latest first."""
    found = [_read(path) for path in (runs / _FOLDER).glob("*.lock")]
    return sorted((holder for holder in found if holder is not None), key=lambda holder: holder.since, reverse=True)


def sweep_runs(runs: Path) -> bool:
    """Whether any sweep with this folder runs now."""
    return any(map(is_held, (runs / _FOLDER).glob("*.lock")))


def is_held(lock: Path) -> bool:
    """Whether a process holds this lock.

    Asked by a shared lock that is given back at once, so that those who look never see each other. Someone who takes
    the lock at that very moment waits: FileLock tries again within 50 ms, and nothing here asks for one without
    waiting.
    """
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_NONBLOCK)  # not to wait where somebody put a pipe
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)  # which gives the shared lock back
    return False


def trial_is_held(folder: Path) -> bool:
    """Whether a process trains in this trial's folder."""
    return is_held(folder / ".lock")


def _write(lock: Path, holder: Holder) -> None:
    try:
        write_text(lock.with_suffix(".json"), json.dumps(dataclasses.asdict(holder), indent=1) + "\n")
    except OSError as error:  # a note for people: without it the lock still holds
        _log.warning("status cannot tell who runs this sweep: %s", in_a_line(error))


def _read(lock: Path) -> Holder | None:
    try:
        return TypeAdapter(Holder).validate_json(read_regular(lock.with_suffix(".json")))
    except (OSError, ValueError):  # a note for people: without it the lock still holds
        return None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return str(os.getuid())


def _command() -> str:
    program, *arguments = sys.argv
    as_module = Path(program).name == "__main__.py"
    return shlex.join([*(("python", "-m", "orchestrator") if as_module else (program,)), *arguments])


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
