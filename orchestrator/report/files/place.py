"""Where a report may lie, and how it takes its place: whole, and never over one that has trials which it lacks."""

from __future__ import annotations

import csv
import errno
import itertools
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from lm.files import WriteError, make_folder, sync, writing
from orchestrator.analysis.outcomes import Outcomes
from orchestrator.report.files.summary import FILE, Summary, read_summary
from orchestrator.words import counted, listed

IfFuller = Literal["refuse", "write beside", "replace"]
"""What becomes of a new report if the earlier one has trials that it lacks."""

PAGE = "report.md"
_ABANDONED_SECONDS = 3600.0
_MOST_NAMED = 3


class FullerPageError(ValueError):
    """The earlier page has complete trials that the new one lacks; nothing was written."""


def place_for(folder: Path, summary: Summary, outcomes: Outcomes, if_fuller: IfFuller) -> tuple[Path, str | None]:
    """The folder for a report: `folder`, else the first free of `<folder>+2`, ...; and a line that says why."""
    why = None if if_fuller == "replace" else _missing_from(folder, summary, outcomes)
    if why is None:
        return folder, None
    if if_fuller == "refuse":
        raise FullerPageError(f"{why}; --force replaces it")
    others = (folder.with_name(f"{folder.name}+{number}") for number in itertools.count(2))
    place = next(other for other in others if _missing_from(other, summary, outcomes) is None)
    return place, f"{why}; the new page is {place / PAGE} (`report --force` replaces the earlier one)"


def remove_contained(folder: Path, written: Path, summary: Summary, outcomes: Outcomes) -> None:
    """Remove every report in `<folder>+2`, ... whose trials are all in the one just written."""
    for page in folder.parent.glob(f"{folder.name}+*/{PAGE}"):
        beside = re.fullmatch(r"\+\d+", page.parent.name.removeprefix(folder.name))  # no `laptop+seeds=1-2`
        if beside and page.parent != written and _missing_from(page.parent, summary, outcomes) is None:
            with writing(page.parent):
                for name in _files(page.parent):
                    (page.parent / name).unlink(missing_ok=True)
            with suppress(OSError):  # somebody keeps another file there
                page.parent.rmdir()


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A folder to write a whole report into; they replace the earlier report when the block ends without error."""
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


def _missing_from(folder: Path, summary: Summary, outcomes: Outcomes) -> str | None:
    """Which trials of `folder` the new report lacks, in a line; trials of one search stand in for each other."""
    page = folder / PAGE
    if not page.exists():
        return None
    try:
        earlier = read_summary(folder)
        if earlier is None:
            raise ValueError(f"it has no {FILE}")
        with (folder / "trials.csv").open(encoding="utf-8", newline="") as file:
            lines = [line for line in csv.DictReader(file, strict=True) if line["status"] == "complete"]
        trials = {(line["variant"], int(line["seed"])): line["key"] for line in lines}
    except (ValueError, OSError, KeyError, csv.Error) as error:
        return f"{page} cannot be compared with this report ({str(error).partition(';')[0]})"
    keys = {(o.trial.variant, o.trial.seed): o.trial.key for o in outcomes.all if o.final is not None}
    searched = {name for name, search in summary.searches.items() if earlier.searches.get(name, search) == search}
    missing = [
        variant
        for (variant, seed), key in trials.items()
        if keys.get((variant, seed)) != key and not (variant in searched and (variant, seed) in keys)
    ]
    if not missing:
        return None
    variants = list(dict.fromkeys(missing))
    names = variants[:_MOST_NAMED] + [f"{len(variants) - _MOST_NAMED} more"] * (len(variants) > _MOST_NAMED)
    return (
        f"{page} has {counted(len(trials), 'complete trial')}; this report would lack {len(missing)} of them, "
        f"of {listed(names)}: not complete, or of another spec, text or version of the numerics"
    )


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
    try:
        summary = read_summary(folder)
    except ValueError:
        return set()
    return set() if summary is None else {name for name in summary.files if Path(name).name == name}


def _remove_abandoned(folder: Path) -> None:
    """Remove what killed writers left; another that writes at this moment is younger."""
    for left in folder.glob(".*.tmp"):
        with suppress(FileNotFoundError):  # its writer has just ended
            if time.time() - left.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
