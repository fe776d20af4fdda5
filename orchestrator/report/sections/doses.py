"""What the page says of a number's effect: a picture with the number on its axis, and its table."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from lm.record import opened
from lm.spec import TrainSpec
from orchestrator.analysis.outcomes import Outcome, Outcomes
from orchestrator.report.markdown import names
from orchestrator.report.pictures import Pictures
from orchestrator.report.pictures.lines import Line, LinePanel, lines_figure
from orchestrator.sweep.override import value_at
from orchestrator.sweep.published import Measure
from orchestrator.sweep.scaled import Dose
from orchestrator.words import NOTHING, Markdown, escape, published, spread

_WIDE = 50
"""A number that spans more than this factor is drawn on a log scale."""
_LABELS = {"test_perplexity": "test perplexity", "subspace_distance": "subspace distance", "mean_cosine": "mean cosine"}


@dataclass(frozen=True)
class DoseRow:
    """A variant's effect over its complete seeds; `train_nats` is all of the last epoch's loss, a mean over seeds."""

    value: float
    variant: str
    average: float
    mean: str
    low: float
    high: float
    published: str
    train_nats: float
    seeds: int


@dataclass(frozen=True)
class DoseSection:
    """One picture, `file`, and its table."""

    title: str
    of: str
    measure: str
    file: str
    alt: Markdown
    caption: str
    rows: Sequence[DoseRow]


def dose_sections(
    outcomes: Outcomes, doses: Sequence[Dose], measures: Sequence[Measure], pictures: Pictures
) -> list[DoseSection]:
    """A section for each number of the sweep file that complete variants differ in; draws their pictures."""
    sections = []
    printed = {(measure.metric, measure.variant): measure.value for measure in measures}
    for place, dose in enumerate(doses, 1):
        if groups := [group for group in _groups(outcomes, dose.of) if len(group) > 1]:
            most = max(map(len, groups))
            wide = [group for group in groups if len(group) == most or len(group) > 2]
            sections.append(_section(outcomes, dose, wide, printed, pictures, f"dose-{place}.svg"))
    return sections


def _groups(outcomes: Outcomes, path: str) -> Iterator[dict[str, float]]:
    """Variants with a complete seed that differ in this number alone: each with its number, in ascending order."""
    groups: dict[str, dict[str, float]] = {}
    for variant, group in outcomes.items():
        value = value_at(group[0].trial.spec, path)
        if isinstance(value, int | float) and any(outcome.final for outcome in group):
            groups.setdefault(_without(group[0].trial.spec, path), {})[variant] = float(value)
    for numbers in groups.values():
        yield dict(sorted(numbers.items(), key=lambda item: item[1]))


def _without(spec: TrainSpec, path: str) -> str:
    """All of a spec but one value, and its seed."""
    data = spec.model_dump(mode="json", exclude={"seed"})
    *parents, last = path.split(".")
    part = data
    for name in parents:
        part = part[name]
    del part[last]
    return json.dumps(data, sort_keys=True)


def _section(
    outcomes: Outcomes,
    dose: Dose,
    groups: Sequence[dict[str, float]],
    printed: Mapping[tuple[str, str | None], float],
    pictures: Pictures,
    file: str,
) -> DoseSection:
    rows, lines = list[DoseRow](), list[Line]()
    for numbers in groups:
        group = [_row(outcomes, dose, variant, value, printed) for variant, value in numbers.items()]
        name = f"{group[0].variant} to {group[-1].variant}"
        means = [row.average for row in group]
        lines.append(Line(name, [r.value for r in group], means, [r.low for r in group], [r.high for r in group]))
        rows += group
    every = [row.value for row in rows]
    label = _LABELS[dose.measure]
    panel = LinePanel(
        title="",
        x_label=dose.of,
        y_label=label,
        lines=lines,
        log_x=min(every) > 0 and max(every) > _WIDE * min(every),
        low=0.0 if dose.measure == "subspace_distance" else None,
        levels=_random_level(outcomes) if dose.measure == "subspace_distance" else (),
    )
    caption = (
        f"A point is a variant's mean over its complete seeds, the bar reaches from the lowest to the highest. "
        f"Variants of one line differ in {escape(dose.of)} alone."
    )
    if dose.measure != "test_perplexity":
        caption += " Measured at the end of the last epoch, whatever validation chose."
    pictures.draw(file, lines_figure, [panel], "")
    return DoseSection(
        title=f"{label[:1].upper()}{label[1:]} by {dose.of}",
        of=dose.of,
        measure=label[:1].upper() + label[1:],
        file=file,
        alt=Markdown(f"{label} against {escape(dose.of)} of {names([row.variant for row in rows])}"),
        caption=Markdown(caption),
        rows=rows,
    )


def _row(
    outcomes: Outcomes, dose: Dose, variant: str, value: float, printed: Mapping[tuple[str, str | None], float]
) -> DoseRow:
    seeds = [outcome for outcome in outcomes[variant] if outcome.final]
    values = [_effect(outcome, dose.measure) for outcome in seeds]
    number = printed.get((dose.measure, variant))
    return DoseRow(
        value=value,
        variant=variant,
        average=fmean(values),
        mean=spread(fmean(values), stdev(values) if len(values) > 1 else None),
        low=min(values),
        high=max(values),
        published=NOTHING if number is None else published(number),
        train_nats=fmean(map(_train_nats, seeds)),
        seeds=len(values),
    )


def _effect(outcome: Outcome, measure: str) -> float:
    if measure == "test_perplexity":
        assert outcome.final is not None, "only complete trials are asked"
        return opened(outcome.final.test).perplexity
    return _last_terms(outcome)[measure]


def _train_nats(outcome: Outcome) -> float:
    """The last epoch's training loss, with what the head adds to it."""
    added = sum(value for name, value in _last_terms(outcome).items() if name not in _LABELS)
    trained: float = outcome.curve["train_nats_per_token"][-1].as_py()
    return trained + added


def _last_terms(outcome: Outcome) -> dict[str, float]:
    return dict(outcome.curve["terms"][-1].as_py())


def _random_level(outcomes: Outcomes) -> list[tuple[float, str]]:
    """The distance of independent random subspaces of the baseline's size."""
    record = next((outcome.record for outcome in outcomes.all if outcome.record is not None), None)
    if record is None:
        return []
    level = math.sqrt(max(0.0, 1 - record.spec.model.embedding_size / record.corpus.vocabulary_size))
    return [(level, "random subspaces")]
