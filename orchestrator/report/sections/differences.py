"""What the page shows of differences and of training: the forest, the learning curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from lm.spec import TrainSpec
from orchestrator.analysis.curve import curve_of
from orchestrator.analysis.effects import Comparison, Effect, Reason
from orchestrator.analysis.guessing import guesses, reference_corpus
from orchestrator.analysis.outcomes import Outcome, Outcomes, is_adaptive
from orchestrator.report.markdown import names
from orchestrator.report.pictures import Pictures
from orchestrator.report.pictures.figures import Forest, ForestRow, Overview, Panels, VariantCurves, in_order
from orchestrator.report.sections.ablation import RECALLED, AblationRow
from orchestrator.report.sections.verdicts import level_in_words, verdict_in_words
from orchestrator.report.sections.where import Where, where_section
from orchestrator.sweep.published import Number
from orchestrator.words import Markdown, escape

_SHORT: tuple[Reason, ...] = ("another budget", "another test text", "did not train")
"""Why there is no verdict: what is short enough for a picture."""


@dataclass(frozen=True)
class Differences:
    """What the page says of the forest and the learning curves; these pictures are drawn if there is one to show."""

    forest: bool
    forest_published: bool
    forest_alt: Markdown
    curves: bool
    overview_alt: Markdown
    variants_alt: Markdown
    adaptive: tuple[str, ...]
    where: Where | None


def picture_section(
    outcomes: Outcomes,
    rows: Sequence[AblationRow],
    comparison: Comparison | None,
    pictures: Pictures,
    published_line: Number | None,
) -> Differences:
    """Draw every picture of differences and of training that the outcomes have, variants in the forest's order."""
    drawn = _draw_curves(outcomes, pictures, published_line)
    base = next(row for row in rows if row.is_baseline)
    effects = [(row, row.effect) for row in rows if row.effect is not None]
    lines: list[ForestRow] = []
    if comparison is not None and effects:
        lines = in_order([_forest_row(row, effect, base, comparison.margin) for row, effect in effects])
        level = level_in_words(comparison)
        pictures.draw("forest_cut", Forest(lines, math.log1p(comparison.margin), outcomes.baseline, level))
    curves = names(drawn)
    return Differences(
        forest=bool(lines),
        forest_published=any(line.published_nats is not None for line in lines),
        forest_alt=Markdown(
            f"Difference to {escape(outcomes.baseline)} in test perplexity, in per cent of its perplexity, with its "
            f"interval, of {names(line.name for line in lines)}"
        ),
        curves=bool(drawn),
        overview_alt=Markdown(f"Validation perplexity by epoch and by seconds of training of {curves}"),
        variants_alt=Markdown(f"Validation perplexity by epoch, one panel each for {curves}"),
        adaptive=tuple(variant for variant, group in outcomes.items() if is_adaptive(group)),
        where=where_section(outcomes, [line.name for line in lines], pictures),
    )


def _forest_row(row: AblationRow, effect: Effect, base: AblationRow, margin: float) -> ForestRow:
    assert effect.nats is not None, "a variant of the table has losses"
    numbers = [number for number in (row.published_test, base.published_test) if number is not None]
    interval, obstacle = effect.interval, effect.obstacle
    short = row.reason if obstacle is not None and obstacle.reason in _SHORT else None
    return ForestRow(
        name=row.variant,
        nats=effect.nats,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        verdict=row.incomplete or short or verdict_in_words(effect, margin),
        published_nats=math.log(numbers[0].perplexity / numbers[1].perplexity) if len(numbers) == 2 else None,
        recalled=any(number.certainty == RECALLED for number in numbers),
    )


def _draw_curves(outcomes: Outcomes, pictures: Pictures, published_line: Number | None) -> list[str]:
    """Draw the learning curves; the variants that have some."""
    drawn = [
        VariantCurves(
            name=variant,
            baseline=variant == outcomes.baseline,
            complete=all(outcome.final for outcome in group),
            seeds=tuple(curve_of(outcome.curve) for outcome in group if outcome.curve),
            seed_numbers=tuple(outcome.trial.seed for outcome in group if outcome.curve),
            turns=_turns(group[0].trial.spec),
        )
        for variant, group in outcomes.items()
        if not is_adaptive(group) and any(outcome.curve for outcome in group)
    ]
    if drawn:
        published = None if published_line is None else published_line.perplexity
        pictures.draw("cut", Overview(drawn, published, _unigram(outcomes.of_baseline)))
        pictures.draw("variants_cut", Panels(drawn))
    return [variant.name for variant in drawn]


def _unigram(group: Sequence[Outcome]) -> float | None:
    """The unigram model's validation perplexity, None where no record has it."""
    corpus = reference_corpus(group)
    every = [] if corpus is None else guesses(corpus, "valid")
    return next((guess.perplexity for guess in every if guess.model == "unigram"), None)


def _turns(spec: TrainSpec) -> frozenset[str]:
    """The stages whose values are not those of the stage before: many legs of a schedule that was found go on alike."""
    values = {stage: spec.during(stage).model_copy(update={"epochs": 1}) for stage in spec.stages()}
    return frozenset(stage for before, stage in pairwise(values) if values[stage] != values[before])
