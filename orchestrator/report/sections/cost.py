"""What the page says of time and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lm.record import Record
from orchestrator.analysis.comparable import budget, is_adaptive, planned_epochs
from orchestrator.analysis.outcomes import Outcome, flat
from orchestrator.words import Markdown, byte_size, duration, escape, listed


@dataclass(frozen=True)
class CostRow:
    """Means over the complete seeds of one variant; `planned` are the most epochs that a trial of it may take.

    `tokens_per_second` is of all seeds together, `slowest` and `fastest` are single ones'. `is_other_budget` where
    the epochs, or the text it trains on, are not the baseline's. `evaluation_seconds` are outside `train_seconds`.
    """

    variant: str
    planned: int
    is_other_budget: bool
    epochs: float
    train_seconds: float
    evaluation_seconds: float
    tokens_per_second: float
    slowest: float
    fastest: float
    peak_memory_bytes: float
    seeds: int


def cost_table(outcomes: Mapping[str, tuple[Outcome, ...]], baseline: str) -> list[CostRow]:
    """A row for every variant with a complete seed; a cache trains nothing and is left out."""
    rows = []
    for variant, group in outcomes.items():
        records = [outcome.record for outcome in group if outcome.final and outcome.record]
        if records and not is_adaptive(group):
            rates = [tokens_per_second([record]) for record in records]
            rows.append(
                CostRow(
                    variant=variant,
                    planned=planned_epochs(group),
                    is_other_budget=budget(group) != budget(outcomes[baseline]),
                    epochs=float(np.mean([sum(stage.epochs for stage in record.stages) for record in records])),
                    train_seconds=float(np.mean([train_seconds(record) for record in records])),
                    evaluation_seconds=float(np.mean([evaluation_seconds(record) for record in records])),
                    tokens_per_second=tokens_per_second(records),
                    slowest=min(rates),
                    fastest=max(rates),
                    peak_memory_bytes=float(np.mean([record.peak_memory_bytes for record in records])),
                    seeds=len(records),
                )
            )
    return rows


def train_seconds(record: Record) -> float:
    """Seconds of training of all stages, evaluation left out."""
    return sum(stage.train_seconds for stage in record.stages)


def evaluation_seconds(record: Record) -> float:
    """Seconds of scoring of all stages: validation after each epoch, the chosen weights on validation and test."""
    return sum(stage.evaluation_seconds for stage in record.stages)


def tokens_per_second(records: Sequence[Record]) -> float:
    """All tokens over all seconds of training, so that it fits the time beside it; a mean of rates would not.

    Of the records' own stages: one that is cut out of a longer trial's has that one's speed as a whole.
    """
    tokens = sum(stage.tokens_per_second * stage.train_seconds for record in records for stage in record.stages)
    return tokens / sum(map(train_seconds, records))


def cost_section(outcomes: Mapping[str, tuple[Outcome, ...]], baseline: str) -> dict[str, object]:
    """The values for the page."""
    rows = cost_table(outcomes, baseline)
    devices = {outcome.record.device for outcome in flat(outcomes) if outcome.final and outcome.record}
    others = [escape(row.variant) for row in rows if row.is_other_budget]
    return {
        "cost_rows": [_cells(row) for row in rows],
        "cost_ends": any(row.seeds > 1 for row in rows),
        "cost_devices": Markdown(listed([escape(device) for device in sorted(devices)])),
        "cost_other_budget": Markdown(listed(others)),
    }


def _cells(row: CostRow) -> dict[str, object]:
    ends = f" ({row.slowest:,.0f} to {row.fastest:,.0f})" if row.seeds > 1 else ""
    return {
        "variant": row.variant,
        "epochs": f"{row.epochs:.3g} of {row.planned}" + (" (another budget)" if row.is_other_budget else ""),
        "seconds": duration(row.train_seconds),
        "evaluation": duration(row.evaluation_seconds),
        "speed": f"{row.tokens_per_second:,.0f}{ends}",
        "memory": byte_size(row.peak_memory_bytes),
        "seeds": row.seeds,
    }
