"""What the page shows of differences and of training: the forest, the learning curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.comparison import OTHER_BUDGET, is_adaptive
from orchestrator.outcomes import Outcome
from orchestrator.report.answer import level_in_words, verdict_in_words
from orchestrator.report.tables import RECALLED, AblationRow, PublishedNumber
from orchestrator.report.where_section import where_section
from orchestrator.statistics import Comparison
from orchestrator.wording import Markdown, escape, listed

if TYPE_CHECKING:  # matplotlib takes most of a second to import, and only a report that is written needs it
    from orchestrator.report.curves import ForestRow


def picture_section(
    outcomes: Mapping[str, tuple[Outcome, ...]],
    rows: Sequence[AblationRow],
    comparison: Comparison | None,
    baseline: str,
    folder: Path,
    published_line: PublishedNumber | None,
) -> dict[str, object]:
    """The values for the page; draws every picture that the outcomes have, variants in the forest's order."""
    from orchestrator.report import curves

    lines = curves.in_order([_forest_row(row, rows, baseline, comparison) for row in rows if row.effect is not None])
    cells: dict[str, object] = {"forest": bool(lines), "forest_cut": None}
    if lines and comparison is not None:
        margin = math.log1p(comparison.margin)
        cells["forest_cut"] = curves.draw_forest(folder, lines, margin, baseline, level_in_words(comparison))
        cells["forest_published"] = any(line.published_nats is not None for line in lines)
    names = listed([escape(line.name) for line in lines])
    cells["forest_alt"] = Markdown(f"Difference in test perplexity, with its interval, of {names}")
    order = [line.name for line in lines]
    return (
        cells | _curves(outcomes, baseline, folder, published_line) | where_section(outcomes, order, baseline, folder)
    )


def _forest_row(
    row: AblationRow, rows: Sequence[AblationRow], baseline: str, comparison: Comparison | None
) -> ForestRow:
    from orchestrator.report.curves import ForestRow

    assert row.effect is not None and comparison is not None, "there is an effect"
    base = next(other for other in rows if other.variant == baseline)
    pair, interval = [row.published_test, base.published_test], row.effect.interval
    numbers = [number for number in pair if number is not None]
    verdict = verdict_in_words(row.effect.verdict, comparison.margin)
    return ForestRow(
        name=row.variant,
        nats=row.effect.nats,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        verdict=row.incomplete or (OTHER_BUDGET if row.effect.reason == OTHER_BUDGET else verdict),
        published_nats=math.log(numbers[0].perplexity / numbers[1].perplexity) if len(numbers) == len(pair) else None,
        recalled=any(number.certainty == RECALLED for number in numbers),
    )


def _curves(
    outcomes: Mapping[str, tuple[Outcome, ...]], baseline: str, folder: Path, published_line: PublishedNumber | None
) -> dict[str, object]:
    from orchestrator.report import curves

    drawn = [
        curves.VariantCurves(
            name=variant,
            baseline=variant == baseline,
            complete=all(outcome.final for outcome in group),
            seeds=tuple(outcome.curve for outcome in group if outcome.curve),
            seed_numbers=tuple(outcome.trial.seed for outcome in group if outcome.curve),
        )
        for variant, group in outcomes.items()
        if not is_adaptive(group) and any(outcome.curve for outcome in group)
    ]
    adaptive = [variant for variant, group in outcomes.items() if is_adaptive(group)]
    names = listed([escape(variant.name) for variant in drawn])
    line = None if published_line is None else published_line.perplexity
    return {
        "overview": bool(drawn),
        "cut": curves.draw_overview(folder, drawn, line) if drawn else None,
        "variants_cut": curves.draw_variants(folder, drawn) if drawn else None,
        "overview_alt": Markdown(f"Validation perplexity by epoch and by seconds of training of {names}"),
        "variants_alt": Markdown(f"Validation perplexity by epoch, one panel each for {names}"),
        "adaptive_names": Markdown(listed([escape(variant) for variant in adaptive])),
    }
