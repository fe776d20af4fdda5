"""What the page says of heads: a picture, a table of costs, a table of the heads' own measures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lm.costs import HeadCost
from lm.record import opened, perplexity
from lm.spec import Part, decoder_parameters
from orchestrator.analysis.comparable import incomplete_seeds, is_adaptive
from orchestrator.analysis.outcomes import Outcome, flat
from orchestrator.report.pictures import Pictures
from orchestrator.report.pictures.figures import HeadPoint, Heads, SeedRange
from orchestrator.report.sections.cost import tokens_per_second, train_seconds
from orchestrator.words import NOTHING, Markdown, byte_size, escape, in_thousands, listed, significant, value_in_words

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
    test_perplexity: SeedRange
    train_seconds: SeedRange
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


def _reach(values: Iterable[float]) -> SeedRange:
    found = list(values)
    return SeedRange(_mean(found), min(found), max(found))


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


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
