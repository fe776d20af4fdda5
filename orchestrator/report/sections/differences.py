"""What the page shows of differences and of training: the forest, the learning curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from lm.spec import TrainSpec
from orchestrator.analysis.comparable import DID_NOT_TRAIN, OTHER_BUDGET, OTHER_TEXT, is_adaptive
from orchestrator.analysis.curve import curve_of
from orchestrator.analysis.guessing import guesses, reference_corpus
from orchestrator.analysis.outcomes import Outcome
from orchestrator.analysis.statistics import Comparison
from orchestrator.report.pictures import Pictures
from orchestrator.report.pictures.figures import Forest, ForestRow, Overview, Panels, VariantCurves, in_order
from orchestrator.report.sections.answer import level_in_words, verdict_in_words
from orchestrator.report.sections.tables import RECALLED, AblationRow, PublishedNumber
from orchestrator.report.sections.where import where_section
from orchestrator.words import Markdown, escape, listed

_SAID = (OTHER_BUDGET, OTHER_TEXT, DID_NOT_TRAIN)
"""Why there is no verdict, short enough for a picture."""


def picture_section(
    outcomes: Mapping[str, tuple[Outcome, ...]],
    rows: Sequence[AblationRow],
    comparison: Comparison | None,
    baseline: str,
    pictures: Pictures,
    published_line: PublishedNumber | None,
) -> dict[str, object]:
    """The values for the page; draws every picture that the outcomes have, variants in the forest's order."""
    cells = _curves(outcomes, baseline, pictures, published_line)
    lines = in_order([_forest_row(row, rows, baseline, comparison) for row in rows if row.effect is not None])
    if lines and comparison is not None:
        forest = Forest(lines, math.log1p(comparison.margin), baseline, level_in_words(comparison))
        pictures.draw("forest_cut", forest)
    names = listed([escape(line.name) for line in lines])
    cells |= {
        "forest": bool(lines),
        "forest_published": any(line.published_nats is not None for line in lines),
        "forest_alt": Markdown(
            f"Difference to {escape(baseline)} in test perplexity, in per cent of its perplexity, with its interval, "
            f"of {names}"
        ),
    }
    return cells | where_section(outcomes, [line.name for line in lines], baseline, pictures)


def _forest_row(
    row: AblationRow, rows: Sequence[AblationRow], baseline: str, comparison: Comparison | None
) -> ForestRow:
    assert row.effect is not None and comparison is not None, "there is an effect"
    base = next(other for other in rows if other.variant == baseline)
    pair, interval = [row.published_test, base.published_test], row.effect.interval
    numbers = [number for number in pair if number is not None]
    verdict = verdict_in_words(row.effect, comparison.margin)
    return ForestRow(
        name=row.variant,
        nats=row.effect.nats,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        verdict=row.incomplete or (row.effect.reason if row.effect.reason in _SAID else None) or verdict,
        published_nats=math.log(numbers[0].perplexity / numbers[1].perplexity) if len(numbers) == len(pair) else None,
        recalled=any(number.certainty == RECALLED for number in numbers),
    )


def _curves(
    outcomes: Mapping[str, tuple[Outcome, ...]],
    baseline: str,
    pictures: Pictures,
    published_line: PublishedNumber | None,
) -> dict[str, object]:
    drawn = [
        VariantCurves(
            name=variant,
            baseline=variant == baseline,
            complete=all(outcome.final for outcome in group),
            seeds=tuple(curve_of(outcome.curve) for outcome in group if outcome.curve),
            seed_numbers=tuple(outcome.trial.seed for outcome in group if outcome.curve),
            turns=_turns(group[0].trial.spec),
        )
        for variant, group in outcomes.items()
        if not is_adaptive(group) and any(outcome.curve for outcome in group)
    ]
    adaptive = [variant for variant, group in outcomes.items() if is_adaptive(group)]
    names = listed([escape(variant.name) for variant in drawn])
    if drawn:
        published = None if published_line is None else published_line.perplexity
        pictures.draw("cut", Overview(drawn, published, _unigram(outcomes[baseline])))
        pictures.draw("variants_cut", Panels(drawn))
    return {
        "overview": bool(drawn),
        "overview_alt": Markdown(f"Validation perplexity by epoch and by seconds of training of {names}"),
        "variants_alt": Markdown(f"Validation perplexity by epoch, one panel each for {names}"),
        "adaptive_names": Markdown(listed([escape(variant) for variant in adaptive])),
    }


def _unigram(group: Sequence[Outcome]) -> float | None:
    """The unigram model's validation perplexity, None where no record has it."""
    corpus = reference_corpus(group)
    found = [] if corpus is None else guesses(corpus, "valid")
    return next((guess.perplexity for guess in found if guess.model == "unigram"), None)


def _turns(spec: TrainSpec) -> frozenset[str]:
    """The stages whose values are not those of the stage before: many legs of a schedule that was found go on alike."""
    values = {stage: spec.during(stage).model_copy(update={"epochs": 1}) for stage in spec.stages()}
    return frozenset(stage for before, stage in pairwise(values) if values[stage] != values[before])
