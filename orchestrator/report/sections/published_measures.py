"""What the papers print beside perplexities, next to what our records hold of the same variant and metric."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import shorten

import numpy as np

from lm.record import Record, Split
from lm.spec import decoder_parameters
from orchestrator.analysis.outcomes import Group, Outcomes, is_adaptive
from orchestrator.report.sections.ablation import RECALLED
from orchestrator.report.sections.published import RECALLED_MARK
from orchestrator.sweep.published import Measure
from orchestrator.words import Markdown, published, significant

DECODER = "decoder_parameters_M"
_NAMES = {"coefficient_of_variation": ("gate_variation_code", "gate_variation_paper")}
"""Measures that a published metric may be; all others have the metric's own name (`lm.heads.mixture` says which)."""
SHOWN = (DECODER, *_NAMES)
"""Published metrics that trials leave a measure of."""
_LONGEST_NOTE = 120


@dataclass(frozen=True)
class MeasureBeside:
    """A published number, and the measure that may be the same, over the complete seeds; `split` is None if of none."""

    variant: str
    metric: str
    split: str | None
    published: Markdown
    recalled: bool
    name: str
    value: str
    seeds: int
    note: str | None


def published_measure_table(outcomes: Outcomes, measures: Sequence[Measure]) -> list[MeasureBeside]:
    """A row for each published number, and each measure that a complete seed of its variant has and that may be it."""
    rows = []
    for measure in measures:
        group = outcomes.get(measure.variant or "", ())
        cell = group[0].trial.spec.model.cell if group else None
        if cell is None or measure.cell not in (None, cell) or is_adaptive(group):
            continue
        recalled = measure.certainty == RECALLED
        for name, values in _values(group, measure):
            rows.append(
                MeasureBeside(
                    variant=group[0].trial.variant,
                    metric=measure.metric,
                    split=measure.split,
                    published=Markdown(published(measure.value) + RECALLED_MARK * recalled),
                    recalled=recalled,
                    name=name,
                    value=_spread(values),
                    seeds=len(values),
                    note=measure.note and shorten(measure.note, _LONGEST_NOTE, placeholder=" …"),
                )
            )
    return rows


def _values(group: Group, measure: Measure) -> Iterator[tuple[str, list[float]]]:
    """Each measure that may be the published one, with a value for each complete seed that has it."""
    records = [outcome.record for outcome in group if outcome.final and outcome.record]
    for name in _NAMES.get(measure.metric, (measure.metric,)):
        values = [value for record in records if (value := _value(record, name, measure.split)) is not None]
        if values:
            yield name, values


def _value(record: Record, name: str, split: str | None) -> float | None:
    if name == DECODER:
        return decoder_parameters(record.spec.model, record.spec.head, record.corpus.vocabulary_size) / 1e6
    on: Split = "valid" if split == "valid" else "test"
    return record.stages[-1].measures.get(on, {}).get(name)


def _spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation; the mean alone if all values are the same."""
    mean, deviation = float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return significant(mean) + (f" ± {significant(deviation, 2)}" if deviation else "")
