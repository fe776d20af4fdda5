"""The disk under `runs/`: how much a trial takes, what can be freed, and old trials set aside."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from lm.files import DamagedError, in_a_line, make_folder, read_regular, writing
from lm.hashes import RECORD, WEIGHTS
from lm.kept import say_once
from orchestrator.trials.locks import trial_is_held
from orchestrator.trials.records import check_trial, damage_in_a_line, read_own

_LONGEST_WAIT_SECONDS = 0.2


@dataclass(frozen=True)
class Freed:
    """Something that was removed, or would be."""

    path: Path
    bytes: int


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; files that go away meanwhile count nothing."""
    total = 0
    for part in [path, *path.rglob("*")] if path.is_dir() else [path]:
        try:
            total += part.lstat().st_size if not part.is_dir() else 0
        except FileNotFoundError:
            continue
    return total


def has_weights(folder: Path) -> bool:
    """Whether a trial keeps any weights."""
    return any((folder / WEIGHTS).glob("*"))


def aside_folder(runs: Path) -> Path:
    """The folder of trials that were trained again, asked for with --fresh or because they were damaged."""
    return runs / ".old"


def set_aside(path: Path, runs: Path) -> Path:
    """Move a trial's folder, or a search's ledger, to `.old/<name>-<n>`, with the first free n; its new place."""
    make_folder(aside_folder(runs))
    places = (aside_folder(runs) / f"{path.name}-{n}" for n in itertools.count(1))
    with writing(path):
        return path.rename(next(place for place in places if not place.exists()))


def set_aside_damaged(folder: Path, *, weights: bool = False) -> None:
    """Move a trial's folder aside if a file of it is not what the trial wrote there; a warning says so.

    `weights` are read only if asked for. Waits for a process that works there, which may mend it. A file that cannot be
    read is given a moment: the error may pass.
    """
    try:
        check_trial(folder, weights=weights)
    except DamagedError as error:
        if isinstance(error.__cause__, OSError):
            time.sleep(_LONGEST_WAIT_SECONDS)
        with FileLock(folder / ".lock") if folder.is_dir() else nullcontext():
            try:
                check_trial(folder, weights=weights)
            except DamagedError as error:
                say_once(damage_in_a_line(error))
                _forget_stages(folder)
                set_aside(folder, folder.parent)


def _forget_stages(folder: Path) -> None:
    """Drop the notes by which other trials would take stages over from this folder."""
    for note in (folder.parent / ".stages").glob("*.json"):
        try:
            text = read_regular(note)
        except OSError:  # which no trial could read either
            continue
        if f'"folder": "../{folder.name}"'.encode() in text:
            note.unlink(missing_ok=True)


def collect(runs: Path, *, weights: Collection[str] = (), dry: bool = False) -> Iterator[Freed]:
    """Remove what nobody needs, each thing as it is yielded, or with `dry` nothing.

    Checkpoints of trials that are complete or diverged, files that were never finished, trials set aside, and the
    weights of the trials with these keys. A trial that is under way, failed or unfinished keeps everything, and so does
    one whose record cannot be read; a warning says so.
    """
    for folder in sorted(path.parent for path in runs.glob(f"*/{RECORD}")):
        try:
            record = read_own(folder)
            if record is None or record.status == "failed" or trial_is_held(folder):
                continue
            with nullcontext() if dry else FileLock(folder / ".lock", timeout=_LONGEST_WAIT_SECONDS):
                yield from _remove(_unneeded(folder, weights=folder.name in weights), dry)
        except Timeout:
            continue  # taken since it was looked at
        except ValueError as error:
            say_once(damage_in_a_line(error))
        except OSError as error:
            say_once(in_a_line(error))
    yield from _remove(sorted(aside_folder(runs).glob("*")), dry)


def _unneeded(folder: Path, *, weights: bool) -> list[Path]:
    parts = [folder / "checkpoints"] + ([folder / WEIGHTS] if weights else [])
    unfinished = [path for path in folder.rglob(".*.tmp") if not any(part in path.parents for part in parts)]
    return [*(part for part in parts if part.exists()), *unfinished]


def _remove(paths: Iterable[Path], dry: bool) -> Iterator[Freed]:
    for path in paths:
        freed = Freed(path, size_of(path))
        if not dry:
            with writing(path):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
        yield freed
