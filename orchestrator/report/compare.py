"""`report --compare`: two written reports side by side, as one Markdown page."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path

from orchestrator.report.files.summary import FILE, Summary, read_summary
from orchestrator.report.markdown import template
from orchestrator.words import NOTHING, difference, spread

_COLUMNS = (
    *("variant", "seeds", "complete", "test_perplexity_mean", "test_perplexity_deviation"),
    *(f"difference_nats_per_token{end}" for end in ("", "_low", "_high")),
)
_Lines = Mapping[str, Mapping[str, str]]


def compare_reports(a: Path, b: Path) -> str:
    """The page on two folders of reports; ValueError, in one line, if one cannot be read."""
    reports = [_read(folder) for folder in (a, b)]
    variants = dict.fromkeys(variant for _, lines in reports for variant in lines)
    return template("compare.md.jinja").render(
        folders=(a, b),
        summaries=[summary for summary, _ in reports],
        rows=[(variant, [_cells(variant, *report) for report in reports]) for variant in variants],
    )


def _read(folder: Path) -> tuple[Summary, _Lines]:
    summary = read_summary(folder)
    if summary is None:
        raise ValueError(f"--compare: {folder} has no {FILE}, so it holds no report")
    path = folder / "table.csv"
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if missing := [name for name in _COLUMNS if name not in (reader.fieldnames or ())]:
            raise ValueError(f"{path} has no column {missing[0]!r}; write the report again")
        return summary, {line["variant"]: line for line in reader if line.get("reference") != "True"}


def _cells(variant: str, summary: Summary, lines: _Lines) -> tuple[str, str, str]:
    """A variant's test perplexity, its difference to the baseline in per cent, and its verdict."""
    if variant not in lines:
        return NOTHING, NOTHING, "not in this report"
    line = lines[variant]
    value, low, high = (_percent(line[f"difference_nats_per_token{end}"]) for end in ("", "_low", "_high"))
    interval = None if low is None or high is None else (low, high)
    seeds = f"{line['complete']} of {line['seeds']}"
    verdict = "baseline" if variant == summary.baseline else summary.verdicts.get(variant, "adaptive, not compared")
    test = NOTHING
    if line["test_perplexity_mean"]:
        deviation = line["test_perplexity_deviation"]
        test = f"{spread(float(line['test_perplexity_mean']), float(deviation) if deviation else None)} ({seeds})"
    return test, NOTHING if value is None else difference(value, interval), verdict


def _percent(nats: str) -> float | None:
    return 100 * math.expm1(float(nats)) if nats else None
