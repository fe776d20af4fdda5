"""Files that are written whole or not at all: temporary name, fsync, rename, fsync of the folder."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MOST_NOTE_BYTES = 64 * 2**20
"""No record, and no note of any kind, comes near this."""


class DamagedError(ValueError):
    """A file of a trial is not what was written there."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(path, problem)
        self.path, self.problem = path, problem

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}; once its folder is moved away the trial is trained again"


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to; it becomes `path` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with errors_of(path, temporary):
            yield temporary
            sync(temporary)
            temporary.replace(path)
            sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def errors_of(path: Path, temporary: Path | None = None) -> Iterator[None]:
    """An OSError of the block that names no file, as of a write to a full disk, or the temporary one, names `path`."""
    try:
        yield
    except OSError as error:
        if error.filename is not None and error.filename != str(temporary):
            raise
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), str(path)) from error


def check_regular(path: Path) -> os.stat_result:
    """OSError if this is no regular file: to read a pipe would wait for ever."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    return found


def read_regular(path: Path) -> bytes:
    """A small file whole; OSError if it is no regular file, or far larger than anything that is written as a note."""
    if (size := check_regular(path).st_size) > MOST_NOTE_BYTES:
        raise OSError(errno.EFBIG, f"has {size:,} bytes, at most {MOST_NOTE_BYTES:,} are read", str(path))
    return path.read_bytes()


def remove_temporaries(folder: Path) -> None:
    """Drop what writers that were killed left in a folder and below; nobody may be writing there."""
    for left in sorted(folder.rglob(".*.tmp"), reverse=True):
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink(missing_ok=True)  # gone with its folder


def sha256(path: Path) -> str:
    """The SHA-256 of a regular file, hexadecimal."""
    check_regular(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Force a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
