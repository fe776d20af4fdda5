"""What the page says of heads: a picture, a table of costs, a table of the heads' own measures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from lm.costs import HeadCost
from lm.record import opened, perplexity
from lm.spec import Part, decoder_parameters
from orchestrator.analysis.outcomes import Outcomes, incomplete_seeds, is_adaptive
from orchestrator.report.markdown import names
from orchestrator.report.pictures import Pictures
from orchestrator.report.pictures.figures import HeadPoint, Heads, SeedRange
from orchestrator.report.sections.cost import tokens_per_second, train_seconds
from orchestrator.words import NOTHING, Markdown, byte_size, escape, in_thousands, listed, significant, value_in_words

NATS = "_nats_per_token"
"""How the name of a measure ends that is a loss."""
_DISTRIBUTIONS = tuple(f"{name}{NATS}" for name in ("temperature_1", "span_sum"))
"""Measures that are losses of a distribution over the words (`lm.heads.ecoc.Ecoc.measures`)."""
_LARGEST_SHOWN = 1e6
"""A measure's exp from here on says no more than that it is large."""


@dataclass(frozen=True)
class HeadRow:
    """One variant with a complete seed. `head` is in words; `decoder_parameters` leaves a shared embedding out.

    `cost` is by formula, None if no record holds one.
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

    @property
    def flops(self) -> str:
        """FLOPs a token, training / evaluation."""
        cost = self.cost
        if cost is None:
            return NOTHING
        return f"{in_thousands(cost.training_flops_per_token)} / {in_thousands(cost.evaluation_flops_per_token)}"

    @property
    def bytes(self) -> str:
        """The most bytes of intermediate results and gradients in training."""
        return NOTHING if self.cost is None else byte_size(self.cost.peak_bytes)


@dataclass(frozen=True)
class MeasureRow:
    """What of a variant's head validation fitted, and what it measures of itself on test, means over complete seeds.

    `perplexities` are exp of the losses among them, under the same names.
    """

    variant: str
    measures: Mapping[str, float]
    perplexities: Mapping[str, float]


@dataclass(frozen=True)
class HeadSection:
    """The tables; the picture shows the `drawn` variants, and `left_out` says why not the others."""

    rows: tuple[HeadRow, ...]
    drawn: tuple[HeadRow, ...]
    has_baseline: bool
    left_out: Markdown
    devices: tuple[str, ...]
    alt: Markdown
    measures: tuple[MeasureRow, ...]

    @property
    def has_bars(self) -> bool:
        """Whether some point has several seeds."""
        return any(row.seeds > 1 for row in self.drawn)

    @property
    def measure_columns(self) -> dict[str, list[str]]:
        """A column for each measure; after a loss one for its exp, if that is worth showing of some variant."""
        columns: dict[str, list[str]] = {}
        for name in dict.fromkeys(name for row in self.measures for name in row.measures):
            values = [row.measures.get(name) for row in self.measures]
            columns[name] = [NOTHING if value is None else significant(value) for value in values]
            values = [row.perplexities.get(name) for row in self.measures]
            if any(value is not None and value < _LARGEST_SHOWN for value in values):
                columns[f"exp({name})"] = [_exp(value) for value in values]
        return columns

    @property
    def distributions(self) -> str:
        """The measures that are losses of a distribution, with their verb; empty if there are none."""
        present = [name for name in _DISTRIBUTIONS if any(name in row.measures for row in self.measures)]
        return Markdown(listed(present) + (" is" if len(present) == 1 else " are") if present else "")


def head_table(outcomes: Outcomes) -> list[HeadRow]:
    """A row for every variant with a complete seed, adaptive ones left out; none if all decoders are alike."""
    sizes = {o.record.spec.corpus: o.record.corpus.vocabulary_size for o in outcomes.all if o.record is not None}
    decoders: set[tuple[Part, int]] = set()
    rows = []
    for variant, group in outcomes.items():
        spec = group[0].trial.spec
        words = sizes.get(spec.corpus)
        if words is None or is_adaptive(group):
            continue
        parameters = decoder_parameters(spec.model, spec.head, words)
        decoders.add((spec.head, parameters))
        records = [outcome.record for outcome in group if outcome.final and outcome.record]
        if records:
            rows.append(
                HeadRow(
                    variant=variant,
                    kind=spec.head.kind,
                    head=value_in_words(spec.head) + (", tied" if spec.model.tied else ""),
                    decoder_parameters=parameters,
                    seeds=len(group),
                    complete=len(records),
                    test_perplexity=_over_seeds(opened(record.stages[-1].test).perplexity for record in records),
                    train_seconds=_over_seeds(map(train_seconds, records)),
                    tokens_per_second=tokens_per_second(records),
                    peak_memory_bytes=_mean(record.peak_memory_bytes for record in records),
                    cost=records[0].head_cost,
                )
            )
    return rows if len(decoders) > 1 else []


def measure_table(outcomes: Outcomes) -> list[MeasureRow]:
    """A row for every variant whose head measures more than perplexity; a cache changes none of it."""
    rows = []
    for variant, group in outcomes.items():
        seeds = [stage.fitted | stage.measures.get("test", {}) for outcome in group if (stage := outcome.final)]
        if any(seeds) and not is_adaptive(group):
            measures = dict.fromkeys(name for seed in seeds for name in seed)
            measured = {name: [seed[name] for seed in seeds if name in seed] for name in measures}
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


def head_section(outcomes: Outcomes, pictures: Pictures) -> HeadSection:
    """What the page says; draws `heads.svg` if the sweep compares heads."""
    rows = head_table(outcomes)
    drawn = tuple(row for row in rows if row.complete == row.seeds)
    if drawn:
        points = [
            HeadPoint(row.variant, row.kind, row.decoder_parameters, row.test_perplexity, row.train_seconds)
            for row in drawn
        ]
        pictures.draw("heads_cut", Heads(points, outcomes.baseline))
    shown = {row.variant for row in drawn}
    devices = {o.record.device for o in outcomes.all if o.final and o.record and not is_adaptive([o])}
    return HeadSection(
        rows=tuple(rows),
        drawn=drawn,
        has_baseline=outcomes.baseline in shown,
        left_out=Markdown(listed(_left_out(outcomes, shown))),
        devices=tuple(sorted(devices)),
        alt=Markdown(
            f"Test perplexity against decoder parameters and training time of {names(row.variant for row in drawn)}"
        ),
        measures=tuple(measure_table(outcomes)),
    )


def _left_out(outcomes: Outcomes, shown: set[str]) -> list[str]:
    return [
        f"{escape(variant)} "
        f"({'a cache changes nothing in training' if is_adaptive(group) else incomplete_seeds(group)})"
        for variant, group in outcomes.items()
        if variant not in shown
    ]


def _exp(value: float | None) -> str:
    if value is None:
        return NOTHING
    return significant(value) if value < _LARGEST_SHOWN else "10⁶ or more"


def _over_seeds(values: Iterable[float]) -> SeedRange:
    seeds = list(values)
    return SeedRange(_mean(seeds), min(seeds), max(seeds))


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))
