"""What the page says of heads: a picture, a table of costs, a table of the heads' own measures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from statistics import fmean

from lm.record import opened
from lm.spec import Part, decoder_parameters
from orchestrator.analysis.outcomes import Outcomes, incomplete_seeds, is_adaptive
from orchestrator.report.markdown import Row, Rows
from orchestrator.report.pictures import Pictures
from orchestrator.report.pictures.heads import HeadPoint, SeedRange, heads
from orchestrator.report.sections.tables import times_compare, tokens_per_second, train_seconds, trained
from orchestrator.words import Markdown, byte_size, escape, in_thousands, listed, significant, value_in_words


@dataclass(frozen=True)
class HeadSection:
    """The tables; the picture shows the `drawn` variants, their times if these compare."""

    rows: Rows
    has_times: bool
    drawn: list[str]
    left_out: Markdown
    measures: Rows


def head_section(outcomes: Outcomes, pictures: Pictures) -> HeadSection:
    """What the page says; draws `heads.svg` of the variants whose seeds are all complete, if decoders differ."""
    rows, points = head_table(outcomes)
    if points:
        pictures.draw("heads.svg", heads, points, outcomes.baseline)
    left_out = [
        f"{escape(name)} ({'a cache changes nothing in training' if is_adaptive(group) else incomplete_seeds(group)})"
        for name, group in outcomes.items()
        if name not in {point.name for point in points}
    ]
    return HeadSection(
        rows=rows,
        has_times=times_compare(outcomes),
        drawn=[point.name for point in points],
        left_out=Markdown(listed(left_out)),
        measures=list(head_measure_table(outcomes)),
    )


def head_table(outcomes: Outcomes) -> tuple[Rows, list[HeadPoint]]:
    """A row for every variant with a complete seed, and what the picture shows; nothing if all decoders are alike.

    FLOPs and bytes are by formula. Adaptive variants are left out, and times if they do not compare.
    """
    sizes = {o.record.spec.corpus: o.record.corpus.vocabulary_size for o in outcomes.all if o.record is not None}
    complete, has_times = trained(outcomes), times_compare(outcomes)
    decoders: set[tuple[Part, int]] = set()
    rows, points = [], []
    for variant, group in outcomes.items():
        spec = group[0].trial.spec
        words = sizes.get(spec.corpus)
        if words is None or is_adaptive(group):
            continue
        parameters = decoder_parameters(spec.model, spec.head, words)
        decoders.add((spec.head, parameters))
        if records := complete.get(variant):
            seconds = _over_seeds(map(train_seconds, records)) if has_times else None
            cost, times = records[0].head_cost, {}
            flops = cost and (cost.training_flops_per_token, cost.evaluation_flops_per_token)
            if seconds is not None:
                times["Training seconds"] = significant(seconds.mean, 3)
                times["Training tokens/s"] = f"{tokens_per_second(records):,.0f}"
            row = {
                "Variant": variant,
                "Head": value_in_words(spec.head) + ", tied" * spec.model.tied,
                "Decoder parameters": f"{parameters:,}",
                "Decoder FLOPs a token, training / evaluation": flops and " / ".join(map(in_thousands, flops)),
                "Decoder bytes in training": cost and byte_size(cost.peak_bytes),
                **times,
                "Peak memory": byte_size(fmean(record.peak_memory_bytes for record in records)),
                "Seeds": f"{len(records)} of {len(group)}" if len(records) < len(group) else len(group),
            }
            rows.append(row)
            if len(records) == len(group):
                test = _over_seeds(opened(record.stages[-1].test).perplexity for record in records)
                points.append(HeadPoint(variant, spec.head.kind, parameters, test, seconds))
    return (rows, points) if len(decoders) > 1 else ([], [])


def head_measure_table(outcomes: Outcomes) -> Iterator[Row]:
    """Means over the seeds of what validation fitted and of each head's measures on test; a cache changes none."""
    seeds = {
        variant: [stage.fitted | stage.measures.get("test", {}) for outcome in group if (stage := outcome.final)]
        for variant, group in outcomes.items()
        if not is_adaptive(group)
    }
    columns = dict.fromkeys(chain.from_iterable(chain.from_iterable(seeds.values())))
    for variant, measures in seeds.items():
        if any(measures):
            values = {name: [seed[name] for seed in measures if name in seed] for name in columns}
            means = {name: significant(fmean(each)) if each else None for name, each in values.items()}
            yield {"Variant": variant, **means}


def _over_seeds(values: Iterable[float]) -> SeedRange:
    seeds = list(values)
    return SeedRange(fmean(seeds), min(seeds), max(seeds))
