"""A report read back from the files it was written as: `summary.json`, `table.csv`, `trials.csv`."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from orchestrator.analysis.effects import Interval, Verdict
from orchestrator.report.files import summary
from orchestrator.report.files.places import ReportPlace
from orchestrator.report.files.summary import Summary

_ANEW = "write it again: python -m orchestrator report FILE"


class Row(BaseModel):
    """A line of `table.csv`; losses in nats per token, `verdict` None where there is no difference."""

    model_config = ConfigDict(frozen=True)

    variant: str
    change: str | None
    adaptive: bool
    parameters: int
    seeds: int
    complete: int
    test_perplexity_mean: float | None
    test_perplexity_deviation: float | None
    difference_nats_per_token: float | None
    difference_nats_per_token_low: float | None
    difference_nats_per_token_high: float | None
    verdict: Verdict | None
    reason: str | None
    reference: bool = False

    @field_validator("*", mode="before")
    @classmethod
    def _empty(cls, value: object) -> object:
        return None if value == "" else value

    @property
    def interval(self) -> Interval | None:
        """Of the difference, in nats per token."""
        low, high = self.difference_nats_per_token_low, self.difference_nats_per_token_high
        return None if low is None or high is None else Interval(low, high)


class _Trial(BaseModel):
    variant: str
    seed: int
    key: str
    status: str


_Line = TypeVar("_Line", bound=BaseModel)


@dataclass(frozen=True)
class WrittenReport:
    """A report: its rows by variant, in its order, and the keys of its complete trials."""

    place: ReportPlace
    summary: Summary
    rows: dict[str, Row]
    baseline: str
    complete: frozenset[str]


def written_report(place: ReportPlace) -> WrittenReport:
    """Read a report; ValueError, in one line, for one of another form or whose files do not belong together."""
    data = _read(place, summary.FILE)
    try:
        told = summary.parsed(data, f"{place}: {summary.FILE}")
    except ValueError as error:
        raise ValueError(f"{error}; {_ANEW}") from error
    rows = {row.variant: row for row in _table(place, "table.csv", Row) if not row.reference}
    compared = {name for name, row in rows.items() if not row.adaptive and name != told.baseline}
    if told.baseline not in rows or told.verdicts.keys() != compared:
        raise ValueError(f"{place}: table.csv and {summary.FILE} are not of one report; {_ANEW}")
    return WrittenReport(place, told, rows, told.baseline, frozenset(complete_trials(place).values()))


def complete_trials(place: ReportPlace) -> dict[tuple[str, int], str]:
    """The keys of a report's complete trials, by variant and seed; ValueError as of `written_report`."""
    trials = _table(place, "trials.csv", _Trial)
    return {(trial.variant, trial.seed): trial.key for trial in trials if trial.status == "complete"}


def _read(place: ReportPlace, name: str) -> bytes:
    data = place.read(name)
    if data is None:
        raise ValueError(f"{place}: the report has no {name}, so it is of an older form; {_ANEW}")
    return data


def _table(place: ReportPlace, name: str, line: type[_Line]) -> Sequence[_Line]:
    try:
        reader = csv.DictReader(io.StringIO(_read(place, name).decode("utf-8"), newline=""), strict=True)
        needed = [name for name, field in line.model_fields.items() if field.is_required()]
        missing = [name for name in needed if name not in (reader.fieldnames or ())]
        if missing:
            raise ValueError(f"{place}: {name} has no column {missing[0]!r}, so it is of an older form; {_ANEW}")
        return [line.model_validate(row) for row in reader]
    except ValidationError as error:
        problem = error.errors()[0]
        where = f"{name}:{reader.line_num}: {problem['loc'][0]}"
        raise ValueError(f"{place}: {where}: {problem['msg']}, got {problem['input']!r}") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{place}: {name}: {error}") from error
