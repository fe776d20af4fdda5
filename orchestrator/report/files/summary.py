"""`summary.json`: what a report says in short, for the index of reports and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from pydantic import Field, JsonValue, ValidationError

from lm.files import write_text
from lm.spec import Part
from orchestrator.report.input import ReportInput
from orchestrator.report.sections.ablation import AblationRow
from orchestrator.report.sections.verdicts import verdict_in_words

FILE = "summary.json"


class Summary(Part):
    """A report in short. `finished_at` is when the last of its trials settled, None if none has.

    `margin` is the share of perplexity below which an effect counts as none. `base` is the baseline's spec without its
    seed, `searches` has the key of each searched variant's search, `files` are all files of the report; old reports
    have none of the three.
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


def summary(report: ReportInput, answer: str, rows: Sequence[AblationRow]) -> Summary:
    """What the report says in short: its answer, and the bare verdict on every variant, even if seeds are missing."""
    trials, baseline = report.outcomes.all, report.outcomes.baseline
    ends = [outcome.record.finished_at for outcome in trials if outcome.record is not None]
    compared = [row for row in rows if not row.is_baseline and not row.adaptive]
    return Summary(
        name=report.name,
        question=report.question,
        scale=report.scale,
        baseline=baseline,
        margin=report.margin,
        answer=answer,
        finished_at=max(ends, key=datetime.fromisoformat, default=None),
        complete=sum(outcome.final is not None for outcome in trials),
        planned=len(trials),
        verdicts={
            row.variant: verdict_in_words(row.effect, report.margin) if row.effect else "no verdict" for row in compared
        },
        base=report.outcomes.of_baseline[0].trial.spec.model_dump(mode="json", exclude={"seed"}),
        searches={search.task.variant: search.ledger.stem for search in report.searches},
    )


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
