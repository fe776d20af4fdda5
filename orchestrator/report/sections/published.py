"""What the page says of the papers' numbers, and whether our intervals bear out their differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, stdev
from textwrap import shorten
from typing import Literal

from lm.record import Split
from lm.spec import decoder_parameters
from orchestrator.analysis.outcomes import Group, Outcomes, is_adaptive
from orchestrator.report.markdown import Row, Rows
from orchestrator.report.sections.ablation import RECALLED, AblationRow
from orchestrator.report.sections.verdicts import in_percent
from orchestrator.sweep.published import Measure, Number, Published
from orchestrator.words import NOTHING, Markdown, ends_in_words, escape, listed, published, signed, significant

RECALLED_MARK = "†"
RANK = "rank"
"""What published numbers call the rank of the log-probabilities."""
DECODER = "decoder_parameters_M"
_NAMES = {"coefficient_of_variation": ("gate_variation_code", "gate_variation_paper")}
"""Measures that a published metric may be; all others have the metric's own name (`lm.heads.mixture` says which)."""
_METRICS = {"gate_variation": "coefficient_of_variation"}
"""What published numbers call the measure of a dose; all others have the measure's own name."""
SHOWN = (DECODER, *_NAMES)
"""Published metrics that trials leave a measure of."""
_LONGEST_NOTE = 200
Reproduction = Literal["reproduced", "not reproduced", "not decided"]


def published_table(rows: Sequence[AblationRow], published_scale: bool) -> Rows:
    """The variants that the papers have; at the papers' own scale with the sweep's numbers beside them."""
    papers = [row for row in rows if row.published_valid or row.published_test]
    if published_scale and (beside := [cells for row in papers for cells in _beside(row)]):
        return beside
    return [
        {
            "Variant": row.variant,
            "Change": row.percent,
            "Published change": published_percent(row),
            "Published validation": printed(row.published_valid),
            "Published test": printed(row.published_test),
            "Published difference": printed_difference(row),
        }
        for row in papers
    ]


def _beside(row: AblationRow) -> Iterator[Row]:
    """A variant's numbers beside its paper's, a row for each split that both have; differences are of test."""
    splits = (("validation", row.valid, row.published_valid), ("test", row.test, row.published_test))
    for split, reached, paper in splits:
        if reached is None or paper is None:
            continue
        ratio = reached.mean / paper.perplexity
        cells = {
            "Variant": row.variant,
            "On": split,
            "Perplexity": reached,
            "Seeds": reached.n,
            "Published": printed(paper),
            "Less published": f"{signed(reached.mean - paper.perplexity)} ({signed(100 * (ratio - 1), 1)}%)",
            "Mean, 95%": None if (mean := reached.of_mean) is None else ends_in_words(*mean),
            "One more seed, 95%": None if (more := reached.one_more_seed) is None else ends_in_words(*more),
        }
        of_test = split == "test"
        yield cells | {
            "Published difference": printed_difference(row) if of_test else None,
            "Difference": row.difference if of_test else None,
            "Published difference is": ("baseline" if row.is_baseline else reproduction(row)) if of_test else None,
        }


def published_line(published: Mapping[str, Published], baseline: str) -> float | None:
    """The baseline's validation perplexity as a picture may show it: a line has no room for a doubt."""
    number = published[baseline].valid if baseline in published else None
    return None if number is None or number.certainty == RECALLED else number.perplexity


def reproduction(row: AblationRow) -> Reproduction | None:
    """Whether our interval bears out the published difference, as ratios of perplexities; None if there is none."""
    if row.published_difference is None:
        return None
    if row.effect is None or row.effect.interval is None:
        return "not decided"
    low, high = row.effect.interval
    if not low <= row.published_difference.nats <= high:
        return "not reproduced"
    return "not decided" if low < 0.0 < high else "reproduced"


def printed(number: Number | None) -> str:
    """A published number as its paper has it, with its deviation if that is printed."""
    if number is None:
        return NOTHING
    deviation = "" if number.std is None else f" ± {published(number.std)}"
    return published(number.perplexity) + deviation + RECALLED_MARK * (number.certainty == RECALLED)


def printed_difference(row: AblationRow) -> str:
    """A published difference with the numbers' printed digits, marked if one of them is from memory."""
    if (paper := row.published_difference) is None:
        return NOTHING
    digits = len(published(paper.perplexity).partition(".")[2])
    return signed(paper.perplexity, digits) + RECALLED_MARK * paper.recalled


def published_percent(row: AblationRow) -> str:
    """A published difference as a change of perplexity in per cent, marked if one of its numbers is from memory."""
    paper = row.published_difference
    return NOTHING if paper is None else in_percent(paper.nats, None) + RECALLED_MARK * paper.recalled


def published_notes(rows: Sequence[AblationRow], numbers: Mapping[str, Published]) -> list[Markdown]:
    """The notes on the published numbers, each once, with the numbers that it is about; then what else is printed."""
    about: dict[str | None, list[str]] = {}
    for row in rows:
        for split, number in (("validation", row.published_valid), ("test", row.published_test)):
            if number is not None:
                about.setdefault(number.note, []).append(escape(f"{row.variant} ({split})"))
    notes = ((note, "all" if len(about) == 1 else listed(of)) for note, of in about.items() if note is not None)
    of_rows = [Markdown(f"{of}: {_short(note)}") for note, of in notes]
    known = ((row.variant, numbers[row.variant].others) for row in rows if row.variant in numbers)
    return of_rows + [_also_printed(variant, other) for variant, others in known for other in others]


def _also_printed(variant: str, number: Number) -> Markdown:
    about = f"{variant} ({'validation' if number.split == 'valid' else number.split})"
    table = f"table {number.table}" if number.table[:1].isdigit() else number.table
    note = "" if number.note is None else f"; {_short(number.note)}"
    return Markdown(f"{escape(about)}: elsewhere {printed(number)} ({escape(number.paper)}, {escape(table)}{note})")


def _short(note: str) -> str:
    return escape(shorten(note, _LONGEST_NOTE, placeholder=" …"))


def measure_table(outcomes: Outcomes, measures: Sequence[Measure]) -> Iterator[Row]:
    """A row for each published number, and each measure that a complete seed of its variant has and that may be it."""
    for measure in measures:
        group = outcomes.get(measure.variant or "", ())
        if not _is_of(measure, group) or is_adaptive(group):
            continue
        for name, values in _values(group, measure):
            deviation = stdev(values) if len(set(values)) > 1 else None
            yield {
                "Variant": measure.variant,
                "Published as": measure.metric,
                "Published": printed_measure(measure),
                "Measure": name,
                "Value": significant(fmean(values)) + ("" if deviation is None else f" ± {significant(deviation, 2)}"),
                "On": "validation" if measure.split == "valid" else measure.split,
                "Seeds": len(values),
                "Note": measure.note and shorten(measure.note, _LONGEST_NOTE, placeholder=" …"),
            }


def printed_measures(outcomes: Outcomes, measures: Sequence[Measure], metric: str) -> dict[str, str]:
    """What the papers print of another metric, by variant."""
    of_metric = [measure for measure in measures if measure.metric == _METRICS.get(metric, metric)]
    return {
        name: printed_measure(measure)
        for name, group in outcomes.items()
        for measure in of_metric
        if measure.variant == name and _is_of(measure, group)
    }


def printed_measure(measure: Measure) -> str:
    """A published number of another metric, a count whole, with a mark if it is from memory."""
    digits = f"{measure.value:,.0f}" if measure.metric == RANK else published(measure.value)
    return digits + RECALLED_MARK * (measure.certainty == RECALLED)


def _is_of(measure: Measure, group: Group) -> bool:
    """Whether this group is the measure's variant with the measure's cell, if it names one."""
    return bool(group) and measure.cell in (None, group[0].trial.spec.model.cell_name)


def _values(group: Group, measure: Measure) -> Iterator[tuple[str, list[float]]]:
    """Each measure that may be the published one, with a value for each complete seed that has it."""
    on: Split = "valid" if measure.split == "valid" else "test"
    seeds = []
    for record in (outcome.record for outcome in group if outcome.final and outcome.record):
        decoder = decoder_parameters(record.spec.model, record.spec.head, record.corpus.vocabulary_size)
        seeds.append({**record.stages[-1].measures.get(on, {}), DECODER: decoder / 1e6})
    for name in _NAMES.get(measure.metric, (measure.metric,)):
        if values := [seed[name] for seed in seeds if name in seed]:
            yield name, values
