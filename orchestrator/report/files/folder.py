"""A report's folder: what it says in short (`summary.json`), where it may lie, how it takes its place.

It takes its place whole, and never that of one with trials which it lacks. The index of all reports is
`reports/README.md`.
"""

from __future__ import annotations

import csv
import errno
import logging
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count, groupby
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from pydantic import Field, JsonValue, ValidationError

from lm.files import WriteError, make_folder, sync, write_text, writing
from lm.spec import Part
from orchestrator.analysis.outcomes import Outcomes
from orchestrator.report.sections.answer import FRAME
from orchestrator.words import counted, escape, listed

IfFuller = Literal["refuse", "write beside", "replace"]
"""What becomes of a new report if the earlier one has trials that it lacks."""

PAGE, FILE = "report.md", "summary.json"
_ABANDONED_SECONDS = 3600.0
_MOST_NAMED = 3
_MARK = "with every report; edits are lost. -->"
_HEAD = f"""<!-- Written again {_MARK}
# Reports

What each page answers. Ranges are simultaneous intervals of the change in test perplexity, if nothing else is said.
"""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Report:
    """A report as written: its page, its answer as plain text, verdicts and changes in perplexity by variant, in words.

    `beside`: why it lies beside the place that it was meant for, or None; `is_whole`: every picture could be drawn;
    `judges`: it has an interval, of a change in perplexity or of another measure that its answer quotes.
    """

    page: Path
    answer: str
    verdicts: dict[str, str]
    beside: str | None = None
    is_whole: bool = True
    changes: dict[str, str] = field(default_factory=dict)
    judges: bool = False


class Summary(Part):
    """A report in short. `finished_at` is when the last of its trials settled, None if none has.

    `scale` is empty if the sweep file has none. `margin` is a share of perplexity, `base` the baseline's spec without
    its seed, `searches` the key of each searched variant's search, `files` are all files of the report; old reports
    have none of the last three.
    """

    name: str
    question: str
    scale: str
    baseline: str
    margin: float
    answer: str
    finished_at: str | None
    complete: int
    planned: int
    verdicts: dict[str, str]
    base: dict[str, JsonValue] = Field(default={})
    searches: dict[str, str] = Field(default={})
    files: tuple[str, ...] = Field(default=())


def write_summary(folder: Path, summary: Summary) -> None:
    """Write `summary.json` into the folder that has all other files of the report."""
    names = sorted({FILE, *(path.name for path in folder.iterdir())})
    summary = summary.model_copy(update={"files": tuple(names)})
    write_text(folder / FILE, summary.model_dump_json(indent=2) + "\n")


def read_summary(folder: Path) -> Summary | None:
    """The summary in a report's folder, None if there is none; ValueError for one that cannot be read."""
    path = folder / FILE
    try:
        return Summary.model_validate_json(path.read_bytes()) if path.exists() else None
    except ValidationError as error:
        problem = error.errors()[0]
        place = "".join(f"{name}: " for name in problem["loc"])
        raise ValueError(f"{path}: {place}{problem['msg']}") from error


class FullerPageError(ValueError):
    """The earlier page has complete trials that the new one lacks; nothing was written."""


def place_for(folder: Path, summary: Summary, outcomes: Outcomes, if_fuller: IfFuller) -> tuple[Path, str | None]:
    """The folder for a report: `folder`, else the first free of `<folder>+2`, ...; and a line that says why."""
    why = None if if_fuller == "replace" else _missing_from(folder, summary, outcomes)
    if why is None:
        return folder, None
    if if_fuller == "refuse":
        raise FullerPageError(f"{why}; --force replaces it")
    others = (folder.with_name(f"{folder.name}+{number}") for number in count(2))
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
    for left in folder.glob(".*.tmp"):  # of killed writers; another that writes at this moment is younger
        with suppress(FileNotFoundError):  # its writer has just ended
            if time.time() - left.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
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
    """Which trials of `folder` the new report lacks, in a line.

    A trial of a variant that has another name since is there; trials of one search stand in for each other.
    """
    page = folder / PAGE
    if not page.exists():
        return None
    try:
        earlier = read_summary(folder)
        if earlier is None:
            raise ValueError(f"it has no {FILE}")
        with (folder / "trials.csv").open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            if not reader.fieldnames:
                raise ValueError("its trials.csv is empty")
            lines = [line for line in reader if line["status"] == "complete"]
        trials = [(line["variant"], int(line["seed"]), line["key"]) for line in lines]
    except (ValueError, OSError, KeyError, csv.Error) as error:
        return f"{page} cannot be compared with this report ({str(error).partition(';')[0]})"
    complete = [outcome.trial for outcome in outcomes.all if outcome.final is not None]
    keys, names = {trial.key for trial in complete}, {(trial.variant, trial.seed) for trial in complete}
    unknown = not earlier.files  # of a page from before either was written
    searched = {name for name, search in summary.searches.items() if unknown or earlier.searches.get(name) == search}
    missing = [
        variant
        for variant, seed, key in trials
        if key not in keys and not ((variant, seed) in names and {variant, f"{variant} for seed {seed}"} & searched)
    ]
    if not missing:
        return None
    variants = list(dict.fromkeys(missing))
    said = variants[:_MOST_NAMED] + [f"{len(variants) - _MOST_NAMED} more"] * (len(variants) > _MOST_NAMED)
    return (
        f"{page} stays: {len(missing)} of its {counted(len(trials), 'complete trial')} would be lost (of "
        f"{listed(said)}), because the file, the text or the numerics changed since, or they are not complete here"
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


def write_index(reports: Path) -> None:
    """Write the index of `reports/<sweep>/<scale>/`, a line each; another `README.md` stays, with a warning."""
    path = reports / "README.md"
    if path.exists() and _MARK not in path.read_text(encoding="utf-8", errors="replace").partition("\n")[0]:
        _log.warning("%s: not an index of reports; it is left as it is, and no index is written", path)
        return
    write_text(reports / "how-to-read.md", (Path(__file__).parents[1] / "how_to_read.md").read_text(encoding="utf-8"))
    text = _HEAD
    for sweep, pages in groupby(sorted(reports.glob("*/*/report.md")), lambda page: page.parents[1].name):
        questions, lines = zip(*(_entry(page.parent) for page in pages), strict=True)
        asked = "".join(f"\n{question}\n" for question in dict.fromkeys(filter(None, questions)))
        text += f"\n## {escape(sweep)}\n{asked}\n{''.join(lines)}"
    write_text(path, text)


def _entry(folder: Path) -> tuple[str, str]:
    """A report's question, empty if it is unknown, and its line: scale, date, answer."""
    sweep, scale = folder.parent.name, folder.name
    link = f"- [{escape(scale)}]({quote(f'{sweep}/{scale}/report.md')})"
    try:
        summary = read_summary(folder)
    except (ValueError, OSError) as error:
        why = str(error).replace(f"{folder.parents[1]}/", "")
        return "", f"{link} cannot be read: {escape(why)}\n"
    if summary is None:
        return "", f"{link}\n"
    date = "" if summary.finished_at is None else f", {escape(summary.finished_at[:10])}"
    partial = "" if summary.complete == summary.planned else f", {summary.complete} of {summary.planned} complete"
    said = summary.answer.partition(FRAME)[0].removeprefix(f"At {summary.scale} scale, ")
    return escape(summary.question), f"{link}{date}{partial}: {escape(said[:1].upper() + said[1:])}\n"
