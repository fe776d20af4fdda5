"""The files of a report are all written before the first of them takes the place of an earlier one."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lm.files import WriteError, make_folder, sync, writing
from orchestrator.report.files.summary import read_summary

PAGE = "report.md"
_ABANDONED_SECONDS = 3600.0


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A folder to write a whole report into; its files move to `folder` when the block ends without an error.

    Until then the earlier report stays as it is. Files that only the earlier report has are removed. A WriteError
    names the file as it would be in `folder`.
    """
    make_folder(folder)
    _remove_abandoned(folder)
    staging = folder / f".{os.getpid()}.tmp"
    try:
        make_folder(staging)
        yield staging
        with writing(folder):
            _move(staging, folder)
    except WriteError as error:
        final = str(error.filename).replace(str(staging), str(folder))
        raise WriteError(error.errno, error.strerror, final) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def remove_report(folder: Path) -> None:
    """Remove the files of a report, and its folder if nothing else lies there."""
    with writing(folder):
        for name in _files(folder):
            (folder / name).unlink(missing_ok=True)
    with suppress(OSError):  # somebody keeps another file there
        folder.rmdir()


def _move(staging: Path, folder: Path) -> None:
    """Each file to its place, the page last; none if a folder lies in the place of a file."""
    names = sorted((path.name for path in staging.iterdir()), key=lambda name: (name == PAGE, name))
    for name in names:
        if (folder / name).is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(folder / name))
    for name in _files(folder) - set(names):
        (folder / name).unlink(missing_ok=True)
    for name in names:
        (staging / name).replace(folder / name)
    sync(folder)


def _files(folder: Path) -> set[str]:
    """The files of the report that lies there, as far as it names them."""
    try:
        summary = read_summary(folder)
    except ValueError:
        return set()
    return set() if summary is None else {name for name in summary.files if Path(name).name == name}


def _remove_abandoned(folder: Path) -> None:
    """What writers left that were killed; another that writes at this moment is younger."""
    for left in folder.glob(".*.tmp"):
        with suppress(FileNotFoundError):  # its writer has just ended
            if time.time() - left.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
