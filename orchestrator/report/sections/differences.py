"""The pictures of differences and of training: the forest, learning curves, and where in the text variants differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from orchestrator.analysis.comparison import guesses, obstacles, reference_corpus
from orchestrator.analysis.effects import Comparison, Effect, Reason
from orchestrator.analysis.noise import PIECES, Array
from orchestrator.analysis.outcomes import CLASSES, Group, Outcomes, TokenLosses
from orchestrator.report.pictures import Pictures
from orchestrator.report.pictures import differences as figures
from orchestrator.report.pictures.learning import VariantCurves, overview, panels, variant_curves
from orchestrator.report.sections.ablation import AblationRow
from orchestrator.report.sections.tables import times_compare
from orchestrator.report.sections.verdicts import level_in_words, verdict_in_words

_SHORT: tuple[Reason, ...] = ("another budget", "another test text", "worse than guessing")
"""Why there is no verdict: what is short enough for a picture."""


@dataclass(frozen=True)
class Where:
    """Differences to the baseline by the words' frequency and along the text; `left_out` have other frequent words."""

    by_class: list[figures.DifferenceRow]
    by_piece: list[figures.DifferenceRow]
    classes: Sequence[str]
    shares: Sequence[float]
    left_out: Sequence[str]


@dataclass(frozen=True)
class Differences:
    """What the pictures show, each of which is drawn if there is something to show.

    `by_time`: curves are drawn by seconds too, because times compare.
    """

    forest: Sequence[figures.ForestRow]
    curves: Sequence[VariantCurves]
    where: Where | None
    by_time: bool


def picture_section(
    outcomes: Outcomes,
    rows: Sequence[AblationRow],
    comparison: Comparison | None,
    pictures: Pictures,
    published: float | None,
) -> Differences:
    """Draw every picture of differences and of training that the outcomes have, variants in the forest's order."""
    curves, by_time = variant_curves(outcomes), times_compare(outcomes)
    if curves:
        figure = overview if by_time else partial(overview, by_time=False)
        pictures.draw("overview.svg", figure, curves, published, _unigram(outcomes.of_baseline))
        pictures.draw("variants.svg", panels, curves)
    effects = [(row, row.effect) for row in rows if row.effect is not None]
    forest: list[figures.ForestRow] = []
    if comparison is not None and effects:
        forest = figures.in_order([_forest_row(row, effect, comparison.margin) for row, effect in effects])
        margin, level = math.log1p(comparison.margin), level_in_words(comparison)
        pictures.draw("forest.svg", figures.forest, forest, margin, outcomes.baseline, level)
    where = where_table(outcomes)
    if where is not None:
        order = [row.name for row in forest]
        for table in (where.by_class, where.by_piece):
            table.sort(key=lambda row: order.index(row.name))
        pictures.draw(
            "frequency.svg", figures.frequency, where.by_class, where.classes, where.shares, outcomes.baseline
        )
        pictures.draw("position.svg", figures.position, where.by_piece, outcomes.baseline)
    return Differences(forest, curves, where, by_time)


def where_table(outcomes: Outcomes) -> Where | None:
    """Rows in the order of the plan, of variants that may be compared but for budget; None without losses by token."""
    base = _losses(outcomes.of_baseline)
    if not base:
        return None
    shares = base[0].shares
    present = np.flatnonzero(shares > 0)  # a class without a test token says nothing
    by_class, by_piece, left_out = [], [], []
    for variant, group in outcomes.items():
        seeds = _losses(group)
        barred = any(obstacle.bars_interval for obstacle in obstacles(outcomes, [variant, outcomes.baseline]))
        if variant == outcomes.baseline or barred or not seeds:
            continue
        if not np.array_equal(seeds[0].shares, shares):
            left_out.append(variant)
            continue
        by_class.append(_row(variant, *([losses.classes[present] for losses in each] for each in (seeds, base))))
        pieces = ([losses.blocks.reshape(PIECES, -1).mean(axis=1) for losses in each] for each in (seeds, base))
        by_piece.append(_row(variant, *pieces))
    if not by_class:
        return None
    return Where(by_class, by_piece, [CLASSES[k] for k in present], shares[present].tolist(), left_out)


def _losses(group: Group) -> list[TokenLosses]:
    """The losses of all seeds, or none."""
    losses = [outcome.losses for outcome in group if outcome.losses is not None]
    return losses if len(losses) == len(group) else []


def _row(variant: str, seeds: Sequence[Array], base: Sequence[Array]) -> figures.DifferenceRow:
    """Means over the seeds, less the baseline's, and the ends over the seeds, which a single seed does not have."""
    table = np.stack(seeds) - np.mean(base, axis=0)
    ends = (table.min(axis=0), table.max(axis=0)) if len(seeds) > 1 else [np.full(table.shape[1], np.nan)] * 2
    return figures.DifferenceRow(variant, table.mean(axis=0).tolist(), ends[0].tolist(), ends[1].tolist())


def _forest_row(row: AblationRow, effect: Effect, margin: float) -> figures.ForestRow:
    assert effect.nats is not None, "a variant of the table has losses"
    low, high = effect.interval or (None, None)
    short = row.reason if effect.obstacle is not None and effect.obstacle.reason in _SHORT else None
    paper = row.published_difference
    return figures.ForestRow(
        name=row.variant,
        nats=effect.nats,
        low=low,
        high=high,
        verdict=row.incomplete or short or verdict_in_words(effect, margin),
        published_nats=None if paper is None else paper.nats,
        recalled=paper is not None and paper.recalled,
    )


def _unigram(group: Group) -> float | None:
    """The unigram model's validation perplexity, None where no record has it."""
    corpus = reference_corpus(group)
    every = [] if corpus is None else guesses(corpus, "valid")
    return next((guess.perplexity for guess in every if guess.model == "unigram"), None)
