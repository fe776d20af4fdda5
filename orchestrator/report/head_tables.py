"""Heads beside each other, as rows of plain, unrounded values: what each costs, and what it measures of itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from lm.costs import HeadCost
from lm.record import opened, perplexity
from lm.spec import Part, decoder_parameters
from orchestrator.analysis.comparable import is_adaptive
from orchestrator.analysis.outcomes import Outcome, flat
from orchestrator.pictures.shown import Reach
from orchestrator.report.cost_tables import tokens_per_second, train_seconds
from orchestrator.words import value_in_words

NATS = "_nats_per_token"
"""How the name of a measure ends that is a loss."""


@dataclass(frozen=True)
class HeadRow:
    """One variant with a complete seed. `head` is in words; `decoder_parameters` leaves a shared embedding out.

    `cost` is by formula, None where no record holds one.
    """

    variant: str
    kind: str
    head: str
    decoder_parameters: int
    seeds: int
    complete: int
    test_perplexity: Reach
    train_seconds: Reach
    tokens_per_second: float
    peak_memory_bytes: float
    cost: HeadCost | None


@dataclass(frozen=True)
class MeasureRow:
    """What of a variant's head validation fitted, and what it measures of itself on test, means over complete seeds.

    `perplexities` are exp of the losses among them, under the same names.
    """

    variant: str
    measures: Mapping[str, float]
    perplexities: Mapping[str, float]


def head_table(outcomes: Mapping[str, tuple[Outcome, ...]]) -> list[HeadRow]:
    """A row for every variant with a complete seed, adaptive ones left out; none where all decoders are alike."""
    sizes = {o.record.spec.corpus: o.record.corpus.vocabulary_size for o in flat(outcomes) if o.record is not None}
    decoders: set[tuple[Part, int]] = set()
    rows = []
    for variant, group in outcomes.items():
        spec = group[0].trial.spec
        words = sizes.get(spec.corpus)
        if words is None or is_adaptive(group):
            continue
        own = decoder_parameters(spec.model, spec.head, words)
        decoders.add((spec.head, own))
        records = [outcome.record for outcome in group if outcome.final and outcome.record]
        if records:
            rows.append(
                HeadRow(
                    variant=variant,
                    kind=spec.head.kind,
                    head=value_in_words(spec.head) + (", tied" if spec.model.tied else ""),
                    decoder_parameters=own,
                    seeds=len(group),
                    complete=len(records),
                    test_perplexity=_reach(opened(record.stages[-1].test).perplexity for record in records),
                    train_seconds=_reach(map(train_seconds, records)),
                    tokens_per_second=tokens_per_second(records),
                    peak_memory_bytes=_mean(record.peak_memory_bytes for record in records),
                    cost=records[0].head_cost,
                )
            )
    return rows if len(decoders) > 1 else []


def measure_table(outcomes: Mapping[str, tuple[Outcome, ...]]) -> list[MeasureRow]:
    """A row for every variant whose head measures something beside perplexity; a cache changes none of it."""
    rows = []
    for variant, group in outcomes.items():
        seeds = [stage.fitted | stage.measures.get("test", {}) for outcome in group if (stage := outcome.final)]
        if any(seeds) and not is_adaptive(group):
            names = dict.fromkeys(name for seed in seeds for name in seed)
            measured = {name: [seed[name] for seed in seeds if name in seed] for name in names}
            rows.append(
                MeasureRow(
                    variant=variant,
                    measures={name: _mean(values) for name, values in measured.items()},
                    perplexities={
                        name: _mean(map(perplexity, values)) for name, values in measured.items() if name.endswith(NATS)
                    },
                )
            )
    return rows


def _reach(values: Iterable[float]) -> Reach:
    found = list(values)
    return Reach(_mean(found), min(found), max(found))


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))
