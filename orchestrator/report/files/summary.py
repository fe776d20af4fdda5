"""`summary.json`: what a report says in short, for programs and for the index of all reports, `reports/README.md`."""

from __future__ import annotations

import logging
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from pydantic import Field, JsonValue, ValidationError

from lm.files import write_text
from lm.spec import Part
from orchestrator.report.sections.answer import FRAME
from orchestrator.words import escape

_log = logging.getLogger(__name__)

FILE = "summary.json"
_MARK = "with every report; edits are lost. -->"
_HEAD = f"""<!-- Written again {_MARK}
# Reports

What each page answers. Ranges are simultaneous intervals of the change in test perplexity, if nothing else is said.
"""


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
        field = "".join(f"{name}: " for name in problem["loc"])
        raise ValueError(f"{path}: {field}{problem['msg']}") from error


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
