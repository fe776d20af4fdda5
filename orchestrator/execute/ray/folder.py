"""A folder for the files that Ray and Tune need while a sweep runs."""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from orchestrator.errors import CannotStartError

_SOCKET_BYTES = 103
"""What the path of a socket may have on every system; Linux allows 107."""
_LONGEST_NAME = "orch-01234567/session_2026-01-31_12-00-00_123456_1234567/sockets/plasma_store"
_MOST_BYTES = _SOCKET_BYTES - len(_LONGEST_NAME) - 1
_SHORT_PLACES = ("/tmp", "/var/tmp", "/dev/shm")
_log = logging.getLogger(__name__)


@contextmanager
def session_folder() -> Iterator[Path]:
    """A temporary folder with a short path, which nobody else can enter, and which is removed at the end.

    The lock on the folder tells other drivers, in other containers too, that it is in use. Folders that killed drivers
    of the same user left are removed too. CannotStartError if no place is short enough for Ray's sockets.
    """
    root, made = _make()
    lock = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Other drivers only look at folders with such a name, and it has that name only now that it is locked.
            session = made.rename(root / f"orch-{secrets.token_hex(4)}")
        except BaseException:
            made.rmdir()
            raise
        try:
            _remove_left_over(root)
            yield session
        finally:
            shutil.rmtree(session, ignore_errors=True)
    finally:
        os.close(lock)


def _make() -> tuple[Path, Path]:
    """A new folder, and the place that it is in: the usual one if its path is short enough for Ray's sockets."""
    usual = tempfile.gettempdir()
    for place in (usual, *_SHORT_PLACES):
        if len(os.fsencode(place)) > _MOST_BYTES:
            continue
        with suppress(OSError):  # read-only, or not there
            made = Path(tempfile.mkdtemp(prefix=".orch-", dir=place))
            if place != usual:
                _log.warning("%s is too long a path for Ray's sockets; Ray's files go to %s", usual, place)
            return Path(place), made
    raise CannotStartError(
        f"TMPDIR: expected a path of at most {_MOST_BYTES} bytes, for Ray's sockets, got {usual!r}; "
        f"nor can {', '.join(_SHORT_PLACES)} be written"
    )


def _remove_left_over(root: Path) -> None:
    """Remove what killed drivers left: folders of this user that nobody locks. No link is followed."""
    for left in root.glob("orch-" + "[0-9a-f]" * 8):
        with suppress(OSError):  # in use, of another user, or removed meanwhile
            found = left.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                continue
            lock = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(lock)
