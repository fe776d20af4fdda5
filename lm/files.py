"""Files that are written whole or not at all: temporary name, fsync, rename, fsync of the folder."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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


def remove_temporaries(folder: Path) -> None:
    """Drop what writers that were killed left in a folder and below; nobody may be writing there."""
    for left in sorted(folder.rglob(".*.tmp"), reverse=True):
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink(missing_ok=True)  # gone with its folder


def sha256(path: Path) -> str:
    """The SHA-256 of a file, hexadecimal."""
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
