"""Two written reports side by side, as one Markdown page: of sweeps, scales or commits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import stats

from orchestrator.analysis.effects import DECIDED, Interval, Verdict
from orchestrator.analysis.statistics import perplexity_change
from orchestrator.report.files.places import report_place
from orchestrator.report.files.written import Row, WrittenReport, written_report
from orchestrator.report.markdown import template
from orchestrator.words import NOTHING, Markdown, counted, difference, signed, spread

_FEWEST_RANKED = 4
"""Of fewer variants no rank correlation is given: three fall into one order by chance too often."""
_BOTH_DECIDE = ("agree", "opposite", "differ")
_ONE_OR_NONE = ("only A decides", "only B decides", "neither decides")


@dataclass(frozen=True)
class _RowCells:
    variant: str
    tests: tuple[str, str]
    differences: tuple[Markdown, Markdown]
    verdicts: tuple[str, str]
    together: str


def compare_reports(a: str, b: str) -> str:
    """The page on two reports, each `FOLDER` or `FOLDER@COMMIT`; ValueError, in one line, where one cannot be read."""
    one, two = (written_report(report_place(text)) for text in (a, b))
    variants = list(dict.fromkeys([*one.rows, *two.rows]))
    rows = [_cells(variant, one, two) for variant in variants]
    both = [(one.rows[name], two.rows[name]) for name in variants if name in one.rows and name in two.rows]
    return template("compare.md.jinja").render(
        a=one.summary,
        b=two.summary,
        facts=_facts(one, two),
        warnings=_warnings(one, two),
        rows=rows,
        count=_count(rows),
        correlation=_correlation(both) if one.baseline == two.baseline else "",
        renamed={mine.variant: (mine.change, other.change) for mine, other in both if mine.change != other.change},
    )


def _facts(*reports: WrittenReport) -> list[tuple[object, ...]]:
    told = [report.summary for report in reports]
    return [
        ("Report", *(report.place for report in reports)),
        ("Sweep", *(summary.name for summary in told)),
        ("Scale", *(summary.scale for summary in told)),
        ("Question", *(summary.question for summary in told)),
        ("Answer", *(summary.answer for summary in told)),
        ("Trials complete", *(f"{summary.complete} of {summary.planned}" for summary in told)),
        ("Last trial settled", *((summary.finished_at or NOTHING)[:10] for summary in told)),
        ("Compared with", *(report.baseline for report in reports)),
        ("Its parameters", *(f"{report.rows[report.baseline].parameters:,}" for report in reports)),
    ]


def _warnings(a: WrittenReport, b: WrittenReport) -> list[str]:
    found = []
    if shared := len(a.complete & b.complete):
        found.append(
            f"{counted(shared, 'complete trial')} {'is' if shared == 1 else 'are'} in both (of {len(a.complete)} in A, "
            f"{len(b.complete)} in B): so far A and B are one measurement, and that they agree confirms nothing."
        )
    if a.baseline != b.baseline:
        found.append(
            f"A compares with {a.baseline}, B with {b.baseline}: differences and verdicts answer different questions, "
            "so they are not set against each other."
        )
    if a.summary.margin != b.summary.margin:
        ours, theirs = (f"{100 * report.summary.margin:.3g}%" for report in (a, b))
        found.append(
            f"A takes effects below {ours} as none, B below {theirs}: that both find none is not one statement."
        )
    return found


def _cells(variant: str, *reports: WrittenReport) -> _RowCells:
    a, b = ((report, report.rows.get(variant)) for report in reports)
    return _RowCells(
        variant,
        (_test(a[1]), _test(b[1])),
        (_difference(a[1]), _difference(b[1])),
        (_verdict(*a), _verdict(*b)),
        _together(variant, *reports),
    )


def _test(row: Row | None) -> str:
    if row is None:
        return NOTHING
    seeds = f"{row.complete}" if row.complete == row.seeds else f"{row.complete} of {row.seeds}"
    mean = row.test_perplexity_mean
    return NOTHING if mean is None else f"{spread(mean, row.test_perplexity_deviation)} ({seeds})"


def _difference(row: Row | None) -> Markdown:
    if row is None or row.difference_nats_per_token is None:
        return Markdown(NOTHING)
    ends = row.interval
    interval = None if ends is None else Interval(_percent(ends.low), _percent(ends.high))
    return Markdown(difference(_percent(row.difference_nats_per_token), interval))


def _percent(nats: float) -> float:
    return 100 * perplexity_change(0.0, nats)  # at a perplexity of 1 the difference is the ratio less one


def _verdict(report: WrittenReport, row: Row | None) -> str:
    if row is None:
        return "not in this report"
    if row.variant == report.baseline:
        return "baseline"
    if row.adaptive:
        return "adaptive, not compared"
    verdict = report.summary.verdicts[row.variant]
    reason = "no seed is complete" if row.complete == 0 else row.reason
    return f"{verdict} ({reason})" if reason and not _decided(row) else verdict


def _together(variant: str, a: WrittenReport, b: WrittenReport) -> str:
    if variant not in a.rows or variant not in b.rows:
        return "not in both"
    compared = [variant in report.summary.verdicts for report in (a, b)]
    if not any(compared):
        return NOTHING
    if a.baseline != b.baseline:
        return "other baseline"
    if not all(compared):
        return f"not compared in {'B' if compared[0] else 'A'}"
    one, two = _decided(a.rows[variant]), _decided(b.rows[variant])
    if one is None or two is None:
        return "only A decides" if one else "only B decides" if two else "neither decides"
    if one == two:
        return "agree"
    return "differ" if "equivalent" in (one, two) else "opposite"


def _decided(row: Row) -> Verdict | None:
    return row.verdict if row.verdict in DECIDED else None


def _count(rows: Sequence[_RowCells]) -> str:
    """How many variants agree, and how many do not."""
    counts = Counter(row.together for row in rows)
    decided, others = (sum(counts[word] for word in words) for words in (_BOTH_DECIDE, _ONE_OR_NONE))
    if not decided + others:
        return "No variant is compared with the same baseline in both."
    of_both = ", ".join(f"{counts[word]} {word}" for word in _BOTH_DECIDE)
    of_others = ", ".join(f"{word} {counts[word]}" for word in _ONE_OR_NONE)
    return (
        f"Of {counted(decided + others, 'variant')} compared in both, both decide {decided} ({of_both}); {of_others}."
    )


def _correlation(both: Sequence[tuple[Row, Row]]) -> str:
    """Spearman's rank correlation of the differences, of variants whose seeds are all complete in both."""
    pairs = [
        (mine.difference_nats_per_token, other.difference_nats_per_token)
        for mine, other in both
        if mine.complete == mine.seeds and other.complete == other.seeds
        if mine.difference_nats_per_token is not None and other.difference_nats_per_token is not None
    ]
    if len(pairs) < _FEWEST_RANKED:
        return (
            f"No rank correlation is given: {counted(len(pairs), 'variant')} with all seeds and a difference in both "
            f"{'is' if len(pairs) == 1 else 'are'} fewer than {_FEWEST_RANKED}."
        )
    ours, others = zip(*pairs, strict=True)
    if 1 in (len(set(ours)), len(set(others))):
        return "No rank correlation is given: in one report all differences are the same."
    found = float(stats.spearmanr(ours, others).statistic)
    return (
        f"Spearman's rank correlation of the differences is {signed(found)} (n = {len(pairs)}, the variants with all "
        "seeds in both); it is that of the estimates, their noise included, and no test of anything."
    )
