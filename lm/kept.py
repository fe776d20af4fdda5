"""Files that are made once and then read: by one process, while others that want the same wait for it."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from filelock import FileLock

T = TypeVar("T")
_log = logging.getLogger(__name__)


def kept(
    path: Path,
    what: str,
    *,
    read: Callable[[Path], T | None],
    make: Callable[[], T],
    write: Callable[[Path, T], None],
    wait_seconds: float,
) -> T:
    """What `path` keeps; the first process makes and writes it, others meanwhile wait.

    `read` gives None where there is no file or it is damaged; `write` is atomic. A lock held for longer than
    `wait_seconds`, which is longer than any making takes, belongs to a machine that died on a shared disk. Never fails
    for the file's sake: where it cannot be written, that is logged once, in words that begin with `what`.
    """
    if (found := read(path)) is not None:
        return found
    lock = FileLock(path.with_suffix(".lock"), timeout=wait_seconds)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except (OSError, NotImplementedError) as error:  # NotImplementedError: a disk that knows no locks
        say_not_kept(path, what, error)
        return make()
    try:
        if (found := read(path)) is not None:
            return found
        made = make()
        try:
            write(path, made)
        except OSError as error:
            say_not_kept(path, what, error)
        return made
    finally:
        lock.release()


def say_not_kept(path: Path, what: str, error: Exception) -> None:
    """Log, once, that what `path` would keep is not kept, and why."""
    say_once(f"{what} are not kept in {path.parent} ({type(error).__name__}: {error})")


@functools.cache
def say_once(message: str) -> None:
    """Log a warning, the first time it is given."""
    _log.warning(message)
