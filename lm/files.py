"""Files that are written whole or not at all: temporary name, fsync, rename, fsync of the folder."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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


_TEMPORARY = re.compile(r"\..+\.\d+\.tmp|\.\d{8}\.tmp")
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}
_WHAT_IS_NEEDED = {
    errno.ENOTDIR: " (a file lies where a folder is needed)",
    errno.EISDIR: " (a folder lies where a file is needed)",
}
_IN_THE_WAY = {errno.EACCES, errno.EPERM, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG}


class LostWeightsError(ValueError):
    """A settled trial cannot be scored, because its weights are gone, or the codebook that they belong to."""


class WriteError(OSError):
    """A file or folder cannot be written: the disk is full or read-only, or something else lies in its place."""


def cannot_write(error: BaseException, *, broadly: bool = False) -> bool:
    """Whether an error says that a file or folder cannot be written; commands then end with exit code 5.

    `broadly`: also if it may be an error of a reader, such as of a file that belongs to somebody else.
    """
    if not isinstance(error, OSError) or isinstance(error, WriteError):
        return isinstance(error, WriteError)
    return disk_is_full(error) or (broadly and error.errno in _IN_THE_WAY)


def disk_is_full(error: BaseException) -> bool:
    """Whether an error, or its cause, says that a disk is full or read-only, or a quota or limit of size reached."""
    if error.__cause__ is not None and disk_is_full(error.__cause__):
        return True
    if not isinstance(error, OSError):
        return False
    no_temporary = error.errno == errno.ENOENT and "No usable temporary directory" in str(error.strerror)
    return no_temporary or error.errno in _FULL


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on the GPU or on the CPU, for which torch has no type of its own."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator: " in str(error)


def in_a_line(error: OSError) -> str:
    """What went wrong, with the file; an error that a library raises may name none, and have no number."""
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}{_WHAT_IS_NEEDED.get(error.errno or 0, '')}"
    return " ".join((error.strerror or str(error)).split())


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Every OSError of the block, which only writes or removes, becomes a WriteError of its file, or else of `path`."""
    try:
        yield
    except OSError as error:
        name = str(path) if error.filename is None else str(error.filename)
        raise WriteError(error.errno or errno.EIO, error.strerror or str(error), name) from error


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, unless it is there; WriteError if it cannot be made."""
    if folder.exists() and not folder.is_dir():
        raise WriteError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)


def check_writable(folder: Path) -> None:
    """WriteError unless a file can be written into a folder."""
    probe = folder / f".probe.{os.getpid()}.tmp"
    try:
        with errors_of(folder, probe):
            probe.write_bytes(bytes(4096))
            sync(probe)
            probe.unlink()
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to; it becomes `path` when the block ends without an error."""
    make_folder(path.parent)
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
    """An OSError of the block that names no file, as a full disk's, or names the temporary one, gets the name `path`.

    It becomes a WriteError if it has a number. An error of a library that reads from elsewhere has none.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None and error.filename != str(temporary):
            raise
        if error.errno is None:
            raise OSError(errno.EIO, error.strerror or str(error), str(path)) from error
        raise WriteError(error.errno, error.strerror or str(error), str(path)) from error


def expanded(path: str) -> Path:
    """A path whose `~` is a home folder; as it stands if there is no such user, as a shell leaves it."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def check_regular(path: Path) -> os.stat_result:
    """OSError if this is no regular file: to read a pipe would wait for ever."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    return found


def read_regular(path: Path) -> bytes:
    """A small file whole; OSError if it is no regular file, or far larger than anything that is written as a note."""
    if (size := check_regular(path).st_size) > MOST_NOTE_BYTES:
        raise OSError(errno.EOVERFLOW, f"has {size:,} bytes, at most {MOST_NOTE_BYTES:,} are read", str(path))
    return path.read_bytes()


def remove_temporaries(*folders: Path) -> None:
    """Drop what writers that were killed left in these folders; nobody may be writing there.

    Only what has a name that `atomic` or a checkpoint gives: the files of others may lie there too.
    """
    for left in [path for folder in folders for path in folder.glob(".*.tmp")]:
        if _TEMPORARY.fullmatch(left.name) and left.is_dir():
            shutil.rmtree(left)
        elif _TEMPORARY.fullmatch(left.name):
            left.unlink(missing_ok=True)  # an analysis writes under a lock of its own


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
