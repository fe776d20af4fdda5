"""What the page says of a number's effect: a picture with the number on its axis, and its table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from lm.record import opened
from orchestrator.analysis.looks import LEVEL_OF_ERROR
from orchestrator.analysis.noise import Errors, mean_interval
from orchestrator.analysis.outcomes import Group, Outcome, Outcomes, last_trained
from orchestrator.report.markdown import Rows
from orchestrator.report.pictures import Pictures
from orchestrator.report.pictures.lines import Line, LinePanel, lines_figure
from orchestrator.report.sections.published import printed, printed_measures
from orchestrator.report.sections.verdicts import level_in_words
from orchestrator.sweep.override import value_at
from orchestrator.sweep.published import Measure, Published
from orchestrator.sweep.scaled import Dose
from orchestrator.words import Markdown, difference, escape, significant, spread

_WIDE = 50
"""A number that spans more than this factor is drawn on a log scale."""


@dataclass(frozen=True)
class DoseSection:
    """One picture, `file`, and its table."""

    dose: Dose
    file: str
    rows: Rows


def dose_sections(
    outcomes: Outcomes,
    doses: Sequence[Dose],
    measures: Sequence[Measure],
    papers: Mapping[str, Published],
    pictures: Pictures,
) -> list[DoseSection]:
    """A section for each number of the sweep file that complete variants differ in; draws their pictures."""
    sections = []
    for place, dose in enumerate(doses, 1):
        if groups := _lines(outcomes, dose):
            of_papers = printed_measures(outcomes, measures, dose.measure)
            if dose.measure == "test_perplexity":
                of_papers = {name: printed(paper.test) for name, paper in papers.items() if paper.test}
            panel, rows = _panel(outcomes, dose, groups, of_papers)
            pictures.draw(f"dose-{place}.svg", lines_figure, [panel], "")
            sections.append(DoseSection(dose, f"dose-{place}.svg", rows))
    return sections


def dose_clauses(outcomes: Outcomes, doses: Sequence[Dose], error: float = LEVEL_OF_ERROR) -> list[Markdown]:
    """What the answer says of each line of a picture that shows another effect than perplexity, which has verdicts.

    All intervals hold at once, but with probability `error`. A line has none if a seed of one of its ends is not
    complete, or if they share only one.
    """
    measured = [dose for dose in doses if dose.measure != "test_perplexity"]
    ends = [(dose.measure, [*numbers]) for dose in measured for numbers in _lines(outcomes, dose, planned=True)]
    each = Errors.of(1 - error, len(ends)).each
    kind = f"{level_in_words(1 - error)} interval"
    return list(filter(None, (_clause(outcomes, what, names[0], names[-1], each, kind) for what, names in ends)))


def _clause(outcomes: Outcomes, measure: str, first: str, last: str, error: float, kind: str) -> Markdown | None:
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
        f"{difference(change, interval)}, {kind}, {len(seeds)} seeds"
    )


def _lines(outcomes: Outcomes, dose: Dose, *, planned: bool = False) -> list[dict[str, float]]:
    """Variants that differ in this number alone: each with its number, in ascending order.

    Those with a complete seed that has the measure, or all that are `planned`: where a line ends must not depend on
    what came out.

    The longest groups of them; of shorter ones, those with three or more.
    """
    number: Any = True
    for name in reversed(dose.of.split(".")):
        number = {name: number}
    groups: dict[str, list[tuple[float, str]]] = {}
    # Compared at the same seed, with which more may vary, such as the text.
    shared = set[int].intersection(*({outcome.trial.seed for outcome in group} for group in outcomes.values()))
    for variant, group in outcomes.items():
        spec = min(group, key=lambda outcome: (outcome.trial.seed not in shared, outcome.trial.seed)).trial.spec
        value = value_at(spec, dose.of)
        if isinstance(value, int | float) and (planned or _by_seed(group, dose.measure)):
            all_else = spec.model_dump_json(exclude={"seed": True, **number})
            groups.setdefault(all_else, []).append((float(value), variant))
    lines = [sorted(group) for group in groups.values() if len({number for number, _ in group}) > 1]
    most = max([2, *map(len, lines)])
    long = [line for line in lines if len(line) == most or len(line) > 2]
    return [{variant: value for value, variant in group} for group in long]


def _panel(
    outcomes: Outcomes, dose: Dose, groups: Sequence[dict[str, float]], of_papers: dict[str, str]
) -> tuple[LinePanel, Rows]:
    """A line for each group of variants, and a row for each variant."""
    rows, lines = Rows(), list[Line]()
    label = dose.measure.replace("_", " ")
    for numbers in groups:
        seeds = {name: [*_by_seed(outcomes[name], dose.measure).values()] for name in numbers}
        first, *_, last = seeds
        lines.append(Line.over_seeds(f"{first} to {last}", [*numbers.values()], seeds.values()))
        rows += [
            {
                dose.of: f"{numbers[variant]:g}",
                "Variant": variant,
                label.capitalize(): spread(fmean(values), stdev(values)) if len(values) > 1 else significant(values[0]),
                "Lowest": significant(min(values)),
                "Highest": significant(max(values)),
                **({"Published": of_papers.get(variant)} if of_papers.keys() & outcomes.keys() else {}),
                "Seeds": len(values),
            }
            for variant, values in seeds.items()
        ]
    doses = sorted({number for numbers in groups for number in numbers.values()})
    panel = LinePanel(
        title="",
        x_label=dose.of,
        y_label=label,
        lines=lines,
        log_x=doses[0] >= 0 and doses[-1] > _WIDE * next(filter(None, doses)),
        low=0.0 if dose.measure in ("subspace_distance", "gate_variation") else None,
        levels=_random_level(outcomes) if dose.measure == "subspace_distance" else (),
    )
    return panel, rows


def _by_seed(group: Group, measure: str) -> dict[int, float]:
    """What is measured of each complete seed, but of those without it: a search may find a head that has no gates."""
    values = {outcome.trial.seed: _measured(outcome, measure) for outcome in group}
    return {seed: value for seed, value in values.items() if value is not None}


def _measured(outcome: Outcome, measure: str) -> float | None:
    if outcome.final is None or outcome.record is None:
        return None
    if measure == "test_perplexity":
        return opened(outcome.final.test).perplexity
    if measure == "gate_variation":  # a neural cache does not change it, and its stage does not have it
        return last_trained(outcome.record).measures.get("test", {}).get("gate_variation_paper")
    return dict(outcome.curve["terms"][-1].as_py()).get(measure)


def _random_level(outcomes: Outcomes) -> list[tuple[float, str]]:
    """The distance of independent random subspaces of the baseline's size."""
    record = next(outcome.record for outcome in outcomes.all if outcome.record is not None)
    level = math.sqrt(max(0.0, 1 - record.spec.model.embedding_size / record.corpus.vocabulary_size))
    return [(level, "random subspaces")]
