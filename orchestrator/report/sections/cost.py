"""What the page says of time and memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from lm.record import Record
from orchestrator.analysis.outcomes import Outcomes, budget, is_adaptive, planned_epochs


@dataclass(frozen=True)
class CostRow:
    """Means over the complete seeds of a variant; `planned` are the most epochs of a trial, `slowest`, `fastest` seeds.

    `is_other_budget`: its epochs, or text, are not the baseline's. `evaluation_seconds` are outside `train_seconds`.
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


def cost_table(outcomes: Outcomes) -> list[CostRow]:
    """A row for every variant that trains, with a complete seed."""
    rows = []
    for variant, records in trained(outcomes).items():
        stages = [record.stages for record in records]
        rates = [tokens_per_second([record]) for record in records]
        rows.append(
            CostRow(
                variant=variant,
                planned=planned_epochs(outcomes[variant]),
                is_other_budget=budget(outcomes[variant]) != budget(outcomes.of_baseline),
                epochs=mean(sum(stage.epochs for stage in each) for each in stages),
                train_seconds=mean(map(train_seconds, records)),
                evaluation_seconds=mean(sum(stage.evaluation_seconds for stage in each) for each in stages),
                tokens_per_second=tokens_per_second(records),
                slowest=min(rates),
                fastest=max(rates),
                peak_memory_bytes=mean(record.peak_memory_bytes for record in records),
                seeds=len(records),
            )
        )
    return rows


def trained(outcomes: Outcomes) -> dict[str, list[Record]]:
    """The records of the complete seeds of each variant that has some; a cache trains nothing and is left out."""
    variants = {
        variant: [outcome.record for outcome in group if outcome.final and outcome.record]
        for variant, group in outcomes.items()
        if not is_adaptive(group)
    }
    return {variant: records for variant, records in variants.items() if records}


def devices(outcomes: Outcomes) -> list[str]:
    """The devices that time and memory were measured on."""
    return sorted({record.device for records in trained(outcomes).values() for record in records})


def train_seconds(record: Record) -> float:
    """Seconds of training of all stages, evaluation left out."""
    return sum(stage.train_seconds for stage in record.stages)


def tokens_per_second(records: Sequence[Record]) -> float:
    """All tokens over all seconds of training, so that it fits the time in the same row; a mean of rates would not."""
    tokens = sum(stage.tokens_per_second * stage.train_seconds for record in records for stage in record.stages)
    return tokens / sum(map(train_seconds, records))


def mean(values: Iterable[float]) -> float:
    """The mean of one or more numbers."""
    return float(np.mean(list(values)))
