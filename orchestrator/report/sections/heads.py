"""What the page says of heads: a picture, a table of costs, a table of the heads' own measures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lm.costs import HeadCost
from lm.record import opened, perplexity
from lm.spec import Part, decoder_parameters
from orchestrator.analysis.outcomes import Outcomes, incomplete_seeds, is_adaptive
from orchestrator.report.pictures import Pictures
from orchestrator.report.pictures.heads import HeadPoint, SeedRange, heads
from orchestrator.report.sections.cost import mean, tokens_per_second, train_seconds, trained
from orchestrator.words import Markdown, escape, listed, significant, value_in_words

_NATS = "_nats_per_token"
"""How the name of a measure ends that is a loss."""
_DISTRIBUTIONS = tuple(f"{name}{_NATS}" for name in ("temperature_1", "span_sum"))
"""Measures that are losses of a distribution over the words (`lm.heads.ecoc.Ecoc.measures`)."""
_LARGEST_SHOWN = 1e6
"""A measure's exp from here on says no more than that it is large."""


@dataclass(frozen=True)
class HeadRow:
    """One variant with a complete seed. `head` is in words; `cost` is by formula, None if no record holds one."""

    point: HeadPoint
    head: str
    seeds: int
    complete: int
    tokens_per_second: float
    peak_memory_bytes: float
    cost: HeadCost | None


@dataclass(frozen=True)
class MeasureRow:
    """What of a head validation fitted, and what it measures on test, means over seeds; exp of its losses."""

    variant: str
    measures: Mapping[str, float]
    perplexities: Mapping[str, float]


@dataclass(frozen=True)
class HeadSection:
    """The tables; the picture shows the `drawn` variants. `distributions` names losses of a distribution."""

    rows: Sequence[HeadRow]
    drawn: Sequence[HeadRow]
    left_out: Markdown
    measures: Sequence[MeasureRow]
    columns: Mapping[str, Sequence[str | None]]
    distributions: Markdown


def head_table(outcomes: Outcomes) -> list[HeadRow]:
    """A row for every variant with a complete seed, adaptive ones left out; none if all decoders are alike."""
    sizes = {o.record.spec.corpus: o.record.corpus.vocabulary_size for o in outcomes.all if o.record is not None}
    complete = trained(outcomes)
    decoders: set[tuple[Part, int]] = set()
    rows = []
    for variant, group in outcomes.items():
        spec = group[0].trial.spec
        words = sizes.get(spec.corpus)
        if words is None or is_adaptive(group):
            continue
        parameters = decoder_parameters(spec.model, spec.head, words)
        decoders.add((spec.head, parameters))
        if records := complete.get(variant):
            test = _over_seeds(opened(record.stages[-1].test).perplexity for record in records)
            seconds = _over_seeds(map(train_seconds, records))
            rows.append(
                HeadRow(
                    point=HeadPoint(variant, spec.head.kind, parameters, test, seconds),
                    head=value_in_words(spec.head) + (", tied" if spec.model.tied else ""),
                    seeds=len(group),
                    complete=len(records),
                    tokens_per_second=tokens_per_second(records),
                    peak_memory_bytes=mean(record.peak_memory_bytes for record in records),
                    cost=records[0].head_cost,
                )
            )
    return rows if len(decoders) > 1 else []


def measure_table(outcomes: Outcomes) -> list[MeasureRow]:
    """A row for every variant whose head measures more than perplexity; a cache changes none of it."""
    rows = []
    for variant, group in outcomes.items():
        seeds = [stage.fitted | stage.measures.get("test", {}) for outcome in group if (stage := outcome.final)]
        names = dict.fromkeys(name for seed in seeds for name in seed)
        if names and not is_adaptive(group):
            values = {name: [seed[name] for seed in seeds if name in seed] for name in names}
            perplexities = {name: mean(map(perplexity, values[name])) for name in names if name.endswith(_NATS)}
            rows.append(MeasureRow(variant, {name: mean(values[name]) for name in names}, perplexities))
    return rows


def head_section(outcomes: Outcomes, pictures: Pictures) -> HeadSection:
    """What the page says; draws `heads.svg` if the sweep compares heads."""
    rows, measures = head_table(outcomes), measure_table(outcomes)
    drawn = [row for row in rows if row.complete == row.seeds]
    if drawn:
        pictures.draw("heads.svg", heads, [row.point for row in drawn], outcomes.baseline)
    shown = {row.point.name for row in drawn}
    left_out = [
        f"{escape(variant)} "
        f"({'a cache changes nothing in training' if is_adaptive(group) else incomplete_seeds(group)})"
        for variant, group in outcomes.items()
        if variant not in shown
    ]
    losses = [name for name in _DISTRIBUTIONS if any(name in row.measures for row in measures)]
    return HeadSection(
        rows=rows,
        drawn=drawn,
        left_out=Markdown(listed(left_out)),
        measures=measures,
        columns=_columns(measures),
        distributions=Markdown(listed(losses) + (" is" if len(losses) == 1 else " are") if losses else ""),
    )


def _columns(rows: Sequence[MeasureRow]) -> dict[str, list[str | None]]:
    """A column for each measure; after a loss one for its exp, if that is worth showing of some variant."""
    columns: dict[str, list[str | None]] = {}
    for name in dict.fromkeys(name for row in rows for name in row.measures):
        columns[name] = [significant(row.measures[name]) if name in row.measures else None for row in rows]
        if any(row.perplexities.get(name, _LARGEST_SHOWN) < _LARGEST_SHOWN for row in rows):
            values = [row.perplexities.get(name) for row in rows]
            shown = [
                None if value is None else significant(value) if value < _LARGEST_SHOWN else "10⁶ or more"
                for value in values
            ]
            columns[f"exp({name})"] = shown
    return columns


def _over_seeds(values: Iterable[float]) -> SeedRange:
    seeds = list(values)
    return SeedRange(mean(seeds), min(seeds), max(seeds))
