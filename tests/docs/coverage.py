"""What of the papers a sweep reaches, and what was run: `docs/coverage.md`, from `sweeps/` and `reports/` alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from os.path import relpath
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import quote

from orchestrator.report.files.folder import Summary, read_summary
from orchestrator.report.markdown import table
from orchestrator.report.sections.differences import CACHE_METRIC
from orchestrator.report.sections.published import RANK, SHOWN
from orchestrator.sweep import ScaledSweep, read_sweep
from orchestrator.sweep.published import Number, PublishedRow, published_rows
from orchestrator.words import NOTHING, Markdown, escape, listed

CoverageState = Literal["run", "run in part", "run smaller", "not run", "no sweep", "settings"]
MEANING: Mapping[CoverageState, str] = {
    "run": "a page of the published size is there",
    "run in part": "such a page, of which trials are missing",
    "run smaller": "a page of a smaller scale is there; its numbers are not the paper's",
    "not run": "a sweep has the paper's values; no page is there",
    "no sweep": "no sweep reaches it",
    "settings": "sizes of texts and values of settings, which are no results",
}
_SETTINGS = ("hyperparameter:", "tokens", "vocabulary")
"""How metrics begin that are no results."""
_ON_PAGES = ("perplexity", CACHE_METRIC, *SHOWN, RANK, "subspace_distance")
"""Metrics that a page can have; of others no trial leaves a measure."""
_INTRODUCTION = """# What of the papers is covered

Each table and figure of the papers that ship in `sweeps/published/`, a row for each corpus. A number counts as reached
if a sweep names its table and has a variant of its name, corpus and cell; a figure names its sweep. Of a sweep only the
scales with the paper's numbers or with a page are listed.

This page is made from the sweep files and the reports: `python -m tests.docs.coverage > docs/coverage.md`.

"""


class ReachedBy(NamedTuple):
    """A sweep at a scale that has some of a table's numbers, by their place in it, and how far it has come."""

    sweep: str
    scale: str
    state: CoverageState | None
    numbers: frozenset[int]
    page: Path | None


@dataclass
class CoverageRow:
    """A table or figure on one corpus, as sweep files name it: its rows, and the sweeps that reach some of them."""

    reference: str
    paper: str
    table: str
    dataset: str | None
    rows: list[PublishedRow] = field(default_factory=list)
    reached: list[ReachedBy] = field(default_factory=list)

    @property
    def state(self) -> CoverageState:
        """The furthest that any sweep has come."""
        states = {reach.state for reach in self.reached}
        no_result = all(row.metric.startswith(_SETTINGS) for row in self.rows)
        return next((state for state in MEANING if state in states), "settings" if no_result else "no sweep")


def coverage(sweeps: Path, reports: Path) -> list[CoverageRow]:
    """A row for each table and corpus of `sweeps/published/`. ValueError for a file that is wrong."""
    entries: dict[tuple[str, str, str | None], CoverageRow] = {}
    for path in sorted((sweeps / "published").glob("[!.]*.yaml")):
        for row in published_rows(path):
            new = CoverageRow(f"{path.stem}.{row.reference}", row.paper, row.table, row.dataset)
            entries.setdefault((row.paper, row.table, row.dataset), new).rows.append(row)
    for path in sorted(sweeps.glob("[!.]*.yaml")):
        sweep = read_sweep(path)
        for scaled in map(sweep.at, sweep.scale_names):
            corpus = scaled.baseline.spec.corpus.name if scaled.published_scale else scaled.published_corpus
            summary = read_summary(folder := reports / scaled.name / scaled.scale)
            page, state = None if summary is None else folder / "report.md", _state(scaled, summary)
            for entry in entries.values():
                places = (place for place, row in enumerate(entry.rows) if _reaches(scaled, entry.reference, row))
                if entry.dataset in (corpus, None) and (numbers := frozenset(places)):
                    entry.reached.append(ReachedBy(scaled.name, scaled.scale, state, numbers, page))
    return sorted(entries.values(), key=lambda row: (row.paper, not row.table[:1].isdigit()))


def coverage_text(rows: Sequence[CoverageRow], page: Path) -> str:
    """The table in Markdown, as it stands at `page`, which its links start from."""
    states = Counter(row.state for row in rows)
    counts = [{"state": each, "rows": states[each], "what it says": MEANING[each]} for each in MEANING if states[each]]
    return f"{_INTRODUCTION}{table(counts, 'lrl')}\n\n{table([_row(row, page) for row in rows], 'l')}\n"


def _state(scaled: ScaledSweep, summary: Summary | None) -> CoverageState | None:
    """How far a sweep has come at one scale; None if that is not the papers' and has no page."""
    if summary is None or not scaled.published_scale:
        return "not run" if scaled.published_scale else "run smaller" if summary else None
    return "run" if summary.complete == summary.planned else "run in part"


def _reaches(scaled: ScaledSweep, reference: str, row: PublishedRow) -> bool:
    """Whether a sweep's page has the row, or draws it if it is a figure; words need a variant with a neural cache."""
    if row.sweep is not None or reference not in scaled.published or row.metric not in _ON_PAGES:
        return row.sweep == scaled.name
    if row.metric == CACHE_METRIC:
        return any(variant.spec.cache is not None for variant in scaled.variants)
    cells = {variant.name: variant.spec.model.cell_name for variant in scaled.variants}
    return row.variant in cells and row.cell in (None, cells[row.variant])


def _row(row: CoverageRow, page: Path) -> dict[str, object]:
    metrics = listed(list(dict.fromkeys(each.metric.partition(":")[0].replace("_", " ") for each in row.rows)))
    reached = len(frozenset[int]().union(*(reach.numbers for reach in row.reached)))
    unread = sum(each.metric == "perplexity" and not isinstance(each, Number) for each in row.rows)
    counts = f"{reached} of {len(row.rows)} reached" if reached else len(row.rows)
    by_sweep = groupby((reach for reach in row.reached if reach.state is not None), lambda reach: reach.sweep)
    scales = [f"`{sweep}`: {', '.join(reach.scale for reach in scaled)}" for sweep, scaled in by_sweep]
    links = (
        f"[{escape(f'{reach.sweep}/{reach.scale}')}]({quote(relpath(reach.page, page.parent))})"
        for reach in row.reached
        if reach.page
    )
    return {
        "paper": row.paper,
        "table or figure": row.table,
        "corpus": row.dataset,
        "numbers": f"{metrics}: {counts}" + (f"; the digits of {unread} are lost" if unread else ""),
        "sweep: scales": Markdown("; ".join(scales) or NOTHING),
        "state": row.state,
        "pages": Markdown(", ".join(links) or NOTHING),
    }


if __name__ == "__main__":
    print(coverage_text(coverage(Path("sweeps"), Path("reports")), Path("docs/coverage.md")), end="")
