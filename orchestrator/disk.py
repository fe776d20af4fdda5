"""The disk under `runs/`: how much a trial takes, what can be freed, and old trials set aside."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from lm.files import make_folder, writing
from lm.record import read_record
from orchestrator.hold import sweep_runs, trial_is_held

_LONGEST_WAIT_SECONDS = 0.2


@dataclass(frozen=True)
class Freed:
    """Something that was removed, or would be."""

    path: Path
    bytes: int


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; files that go away meanwhile count nothing."""
    total = 0
    for found in [path, *path.rglob("*")] if path.is_dir() else [path]:
        try:
            total += found.lstat().st_size if not found.is_dir() else 0
        except FileNotFoundError:
            continue
    return total


def aside_folder(runs: Path) -> Path:
    """Where trials lie that were trained anew."""
    return runs / ".old"


def set_aside(path: Path, runs: Path) -> Path:
    """Move a trial's folder, or a search's ledger, to `.old/<name>-<n>`, with the first free n; its new place."""
    old = aside_folder(runs)
    make_folder(old)
    free = (old / f"{path.name}-{n}" for n in itertools.count(1))
    place = next(place for place in free if not place.exists())
    with writing(path):
        return path.rename(place)


def collect(runs: Path, *, keep_weights: bool = False, dry: bool = False) -> Iterator[Freed]:
    """Remove what no report needs, and tell of each thing: weights and checkpoints of trials that are complete or
    diverged, files that were never finished, trials set aside.

    Weights stay while a sweep runs, which may start a trial from them. A trial that is under way, failed or unfinished
    keeps everything. ValueError names a record that cannot be read.
    """
    busy = sweep_runs(runs)
    for folder in sorted(path.parent for path in runs.glob("*/record.json")):
        record = read_record(folder)
        if record is None or record.status == "failed" or trial_is_held(folder):
            continue
        try:
            with nullcontext() if dry else FileLock(folder / ".lock", timeout=_LONGEST_WAIT_SECONDS):
                yield from _remove(_idle(folder, keep_weights=keep_weights or busy), dry)
        except Timeout:
            continue  # taken since it was looked at
    yield from _remove(sorted(aside_folder(runs).glob("*")), dry)


def _idle(folder: Path, *, keep_weights: bool) -> list[Path]:
    parts = [folder / "checkpoints"] + ([] if keep_weights else [folder / "weights"])
    unfinished = [path for path in folder.rglob(".*.tmp") if not any(part in path.parents for part in parts)]
    return [*(part for part in parts if part.exists()), *unfinished]


def _remove(paths: Iterable[Path], dry: bool) -> Iterator[Freed]:
    for path in paths:
        freed = Freed(path, size_of(path))
        if not dry:
            with writing(path):
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
        yield freed
