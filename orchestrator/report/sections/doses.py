"""What the page says of a number's effect: a picture with the number on its axis, and its table."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from lm.record import opened
from lm.spec import TrainSpec
from orchestrator.analysis.looks import LEVEL_OF_ERROR
from orchestrator.analysis.noise import Errors, mean_interval
from orchestrator.analysis.outcomes import Group, Outcomes
from orchestrator.report.markdown import Rows, names
from orchestrator.report.pictures import Pictures
from orchestrator.report.pictures.lines import Line, LinePanel, lines_figure
from orchestrator.report.sections.verdicts import level_in_words
from orchestrator.sweep.override import value_at
from orchestrator.sweep.published import Measure
from orchestrator.sweep.scaled import Dose
from orchestrator.words import Markdown, difference, escape, published, significant, spread

_WIDE = 50
"""A number that spans more than this factor is drawn on a log scale."""
_CAPTION = """A point is a variant's mean over its complete seeds, the bar reaches from the lowest to the highest. \
Variants of one line differ in {} alone."""
_LAST_EPOCH = " Measured at the end of the last epoch, whatever validation chose."
_MEANING = {
    "subspace_distance": _LAST_EPOCH,
    "mean_cosine": _LAST_EPOCH,
    "gate_variation": " Gate variation is the coefficient of variation of the experts' mean weights on the test text: "
    "0 if all are used alike.",
}


@dataclass(frozen=True)
class DoseSection:
    """One picture, `file`, and its table."""

    title: str
    file: str
    alt: Markdown
    caption: Markdown
    rows: Rows


def dose_sections(
    outcomes: Outcomes, doses: Sequence[Dose], measures: Sequence[Measure], pictures: Pictures
) -> list[DoseSection]:
    """A section for each number of the sweep file that complete variants differ in; draws their pictures."""
    sections = []
    for place, dose in enumerate(doses, 1):
        if lines := _lines(outcomes, dose):
            printed = {measure.variant: measure.value for measure in measures if measure.metric == dose.measure}
            sections.append(_section(outcomes, dose, lines, printed, pictures, f"dose-{place}.svg"))
    return sections


def dose_clauses(outcomes: Outcomes, doses: Sequence[Dose]) -> list[Markdown]:
    """What the answer says of each line of a picture that shows another effect than perplexity, which has verdicts.

    All intervals hold at once. A line has none if a seed of one of its ends is not complete, or if they share only one.
    """
    measured = [dose for dose in doses if dose.measure != "test_perplexity"]
    ends = [(dose.measure, [*numbers]) for dose in measured for numbers in _lines(outcomes, dose)]
    error = Errors.of(1 - LEVEL_OF_ERROR, len(ends)).each
    return list(filter(None, (_clause(outcomes, what, names[0], names[-1], error) for what, names in ends)))


def _clause(outcomes: Outcomes, measure: str, first: str, last: str, error: float) -> Markdown | None:
    """The change from one variant to another, a seed with itself: what it draws for both cancels, such as its text."""
    before, after = _by_seed(outcomes[first], measure), _by_seed(outcomes[last], measure)
    seeds = {o.trial.seed for o in outcomes[first]} & {o.trial.seed for o in outcomes[last]}
    if len(seeds) < 2 or not seeds <= before.keys() & after.keys():
        return None
    change, interval = mean_interval([after[seed] - before[seed] for seed in sorted(seeds)], error)
    verb = "is not shown to change" if interval[0] <= 0 <= interval[1] else "rises" if change > 0 else "falls"
    start, end = (significant(fmean(values[seed] for seed in seeds), 2) for values in (before, after))
    return Markdown(
        f"{measure.replace('_', ' ')} {verb} from {start} (“{escape(first)}”) to {end} (“{escape(last)}”): "
        f"{difference(change, interval)}, {level_in_words(None)} interval, {len(seeds)} seeds"
    )


def _lines(outcomes: Outcomes, dose: Dose) -> list[dict[str, float]]:
    """The longest groups of variants that differ in this number alone; of shorter ones, those with three or more."""
    groups = [numbers for numbers in _groups(outcomes, dose.of) if len(numbers) > 1]
    most = max(map(len, groups), default=0)
    return [numbers for numbers in groups if len(numbers) == most or len(numbers) > 2]


def _groups(outcomes: Outcomes, path: str) -> list[dict[str, float]]:
    """Variants with a complete seed that differ in this number alone: each with its number, in ascending order."""
    groups: dict[str, list[tuple[float, str]]] = {}
    for variant, group in outcomes.items():
        value = value_at(group[0].trial.spec, path)
        if isinstance(value, int | float) and any(outcome.final for outcome in group):
            groups.setdefault(_without(group[0].trial.spec, path), []).append((float(value), variant))
    return [{variant: value for value, variant in sorted(each)} for each in groups.values()]


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
    printed: dict[str | None, float],
    pictures: Pictures,
    file: str,
) -> DoseSection:
    rows, lines = Rows(), list[Line]()
    label, of_subspace = dose.measure.replace("_", " "), dose.measure == "subspace_distance"
    for numbers in groups:
        seeds = {name: [*_by_seed(outcomes[name], dose.measure).values()] for name in numbers}
        first, *_, last = seeds
        every = seeds.values()
        name, places = f"{first} to {last}", [*numbers.values()]
        lines.append(Line(name, places, [*map(fmean, every)], [*map(min, every)], [*map(max, every)]))
        for variant, values in seeds.items():
            row = {
                dose.of: f"{numbers[variant]:g}",
                "Variant": variant,
                label.capitalize(): spread(fmean(values), stdev(values) if len(values) > 1 else None),
                "Lowest": significant(min(values)),
                "Highest": significant(max(values)),
                "Published": published(printed.get(variant)),
                "Seeds": len(values),
            }
            rows.append(row)
    doses = sorted({number for numbers in groups for number in numbers.values()})
    panel = LinePanel(
        title="",
        x_label=dose.of,
        y_label=label,
        lines=lines,
        log_x=doses[0] >= 0 and doses[-1] > _WIDE * next(filter(None, doses)),
        low=0.0 if dose.measure in ("subspace_distance", "gate_variation") else None,
        levels=_random_level(outcomes) if of_subspace else (),
    )
    caption = _CAPTION.format(escape(dose.of)) + _MEANING.get(dose.measure, "")
    pictures.draw(file, lines_figure, [panel], "")
    alt = Markdown(f"{label} against {escape(dose.of)} of {names(row['Variant'] for row in rows)}")
    return DoseSection(f"{label.capitalize()} by {dose.of}", file, alt, Markdown(caption), rows)


def _by_seed(group: Group, measure: str) -> dict[int, float]:
    """What is measured of each complete seed."""
    if measure == "test_perplexity":
        return {o.trial.seed: opened(o.final.test).perplexity for o in group if o.final}
    if measure == "gate_variation":
        return {o.trial.seed: o.final.measures["test"]["gate_variation_paper"] for o in group if o.final}
    return {o.trial.seed: float(dict(o.curve["terms"][-1].as_py())[measure]) for o in group if o.final}


def _random_level(outcomes: Outcomes) -> list[tuple[float, str]]:
    """The distance of independent random subspaces of the baseline's size."""
    record = next(outcome.record for outcome in outcomes.all if outcome.record is not None)
    level = math.sqrt(max(0.0, 1 - record.spec.model.embedding_size / record.corpus.vocabulary_size))
    return [(level, "random subspaces")]
