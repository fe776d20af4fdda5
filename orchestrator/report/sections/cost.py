"""What the page says of time and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lm.record import Record
from orchestrator.analysis.outcomes import Outcomes, budget, is_adaptive, planned_epochs


@dataclass(frozen=True)
class CostRow:
    """Means over the complete seeds of one variant; `planned` are the most epochs that a trial of it may take.

    `tokens_per_second` is of all seeds together, `slowest` and `fastest` are single ones'. `is_other_budget` if
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

    @property
    def speed(self) -> str:
        """Tokens per second, with the slowest and the fastest seed."""
        ends = f" ({self.slowest:,.0f} to {self.fastest:,.0f})" if self.seeds > 1 else ""
        return f"{self.tokens_per_second:,.0f}{ends}"


@dataclass(frozen=True)
class CostSection:
    """The rows, the devices they were measured on, and the variants of another budget."""

    rows: tuple[CostRow, ...]
    devices: tuple[str, ...]
    other_budget: tuple[str, ...]

    @property
    def has_ends(self) -> bool:
        """Whether some row shows its slowest and fastest seed."""
        return any(row.seeds > 1 for row in self.rows)


def cost_table(outcomes: Outcomes) -> list[CostRow]:
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
                    is_other_budget=budget(group) != budget(outcomes.of_baseline),
                    epochs=float(np.mean([sum(stage.epochs for stage in record.stages) for record in records])),
                    train_seconds=float(np.mean([train_seconds(record) for record in records])),
                    evaluation_seconds=float(np.mean([_evaluation_seconds(record) for record in records])),
                    tokens_per_second=tokens_per_second(records),
                    slowest=min(rates),
                    fastest=max(rates),
                    peak_memory_bytes=float(np.mean([record.peak_memory_bytes for record in records])),
                    seeds=len(records),
                )
            )
    return rows


def cost_section(outcomes: Outcomes) -> CostSection:
    """What the page says."""
    rows = cost_table(outcomes)
    devices = {outcome.record.device for outcome in outcomes.all if outcome.final and outcome.record}
    others = tuple(row.variant for row in rows if row.is_other_budget)
    return CostSection(tuple(rows), tuple(sorted(devices)), others)


def train_seconds(record: Record) -> float:
    """Seconds of training of all stages, evaluation left out."""
    return sum(stage.train_seconds for stage in record.stages)


def tokens_per_second(records: Sequence[Record]) -> float:
    """All tokens over all seconds of training, so that it fits the time in the same row; a mean of rates would not.

    Of the records' own stages: one that is cut out of a longer trial's has that one's speed as a whole.
    """
    tokens = sum(stage.tokens_per_second * stage.train_seconds for record in records for stage in record.stages)
    return tokens / sum(map(train_seconds, records))


def _evaluation_seconds(record: Record) -> float:
    """Seconds of scoring of all stages: validation after each epoch, the chosen weights on validation and test."""
    return sum(stage.evaluation_seconds for stage in record.stages)
