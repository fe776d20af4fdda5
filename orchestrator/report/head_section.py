"""What the page says of heads: a picture, a table of costs, a table of the heads' own measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lm.costs import HeadCost
from orchestrator.analysis.comparable import incomplete_seeds, is_adaptive
from orchestrator.analysis.outcomes import Outcome, flat
from orchestrator.pictures import HeadPoint, Heads, Pictures
from orchestrator.report.head_tables import NATS, HeadRow, MeasureRow, head_table, measure_table
from orchestrator.words import NOTHING, Markdown, byte_size, escape, in_thousands, listed, significant

_DISTRIBUTIONS = tuple(f"{name}{NATS}" for name in ("temperature_1", "span_sum"))
"""Measures that are losses of a distribution over the words (`lm.heads.ecoc.Ecoc.measures`)."""

_LARGEST_SHOWN = 1e6
"""A measure's exp from here on says no more than that it is large."""


def head_section(outcomes: Mapping[str, tuple[Outcome, ...]], baseline: str, pictures: Pictures) -> dict[str, object]:
    """The values for the page; draws `heads.svg` where the sweep compares heads."""
    rows, measures = head_table(outcomes), measure_table(outcomes)
    drawn = [row for row in rows if row.complete == row.seeds]
    if drawn:
        points = [
            HeadPoint(row.variant, row.kind, row.decoder_parameters, row.test_perplexity, row.train_seconds)
            for row in drawn
        ]
        pictures.draw("heads_cut", Heads(points, baseline))
    names = listed([escape(row.variant) for row in drawn])
    devices = {o.record.device for o in flat(outcomes) if o.final and o.record and not is_adaptive([o])}
    return {
        "head_rows": [_head_cells(row) for row in rows],
        "heads_alt": Markdown(f"Test perplexity against decoder parameters and training time of {names}"),
        "heads_drawn": bool(drawn),
        "heads_bars": any(row.seeds > 1 for row in drawn),
        "heads_baseline": any(row.variant == baseline for row in drawn),
        "heads_left_out": Markdown(listed(_left_out(outcomes, {row.variant for row in drawn}))),
        "heads_devices": Markdown(listed([escape(device) for device in sorted(devices)])),
        **_measure_cells(measures),
    }


def _head_cells(row: HeadRow) -> dict[str, object]:
    cost = row.cost
    return {
        "variant": row.variant,
        "head": row.head,
        "parameters": f"{row.decoder_parameters:,}",
        "seconds": significant(row.train_seconds.mean, 3),
        "speed": f"{row.tokens_per_second:,.0f}",
        "flops": NOTHING if cost is None else _flops(cost),
        "bytes": NOTHING if cost is None else byte_size(cost.peak_bytes),
        "memory": byte_size(row.peak_memory_bytes),
        "seeds": f"{row.complete}" if row.complete == row.seeds else f"{row.complete} of {row.seeds}",
    }


def _flops(cost: HeadCost) -> str:
    return f"{in_thousands(cost.training_flops_per_token)} / {in_thousands(cost.evaluation_flops_per_token)}"


def _left_out(outcomes: Mapping[str, tuple[Outcome, ...]], drawn: set[str]) -> list[Markdown]:
    found = []
    for variant, group in outcomes.items():
        if variant not in drawn:
            why = "a cache changes nothing in training" if is_adaptive(group) else incomplete_seeds(group)
            found.append(Markdown(f"{escape(variant)} ({why})"))
    return found


def _measure_cells(rows: Sequence[MeasureRow]) -> dict[str, object]:
    """A column for each measure; beside a loss one for its exp, if that is worth showing of some variant."""
    columns: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for row in rows for name in row.measures):
        values = [row.measures.get(name) for row in rows]
        columns[name] = [NOTHING if value is None else significant(value) for value in values]
        values = [row.perplexities.get(name) for row in rows]
        if any(value is not None and value < _LARGEST_SHOWN for value in values):
            columns[f"exp({name})"] = [_exp(value) for value in values]
    distributions = [name for name in _DISTRIBUTIONS if name in columns]
    return {
        "one_distribution": Markdown(listed(distributions) + (" is" if len(distributions) == 1 else " are"))
        if distributions
        else "",
        "measure_names": list(columns),
        "measure_rows": [(row.variant, [cells[k] for cells in columns.values()]) for k, row in enumerate(rows)],
    }


def _exp(value: float | None) -> str:
    if value is None:
        return NOTHING
    return significant(value) if value < _LARGEST_SHOWN else "10⁶ or more"
