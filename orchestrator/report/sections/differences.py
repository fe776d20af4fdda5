"""The pictures of differences and of training: the forest, learning curves, where in the text and on which words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from lm.by_token.losses import Losses, read_cache, read_losses
from lm.by_token.words import WordSavings, vocabulary_of, word_savings
from lm.kept import say_once
from lm.record import token_nats_path
from orchestrator.analysis.comparison import guesses, obstacles, reference_corpus
from orchestrator.analysis.effects import Comparison, Effect, Reason
from orchestrator.analysis.noise import PIECES, Array
from orchestrator.analysis.outcomes import CLASSES, Group, Outcome, Outcomes, TokenLosses, is_adaptive
from orchestrator.report.markdown import Row, Rows
from orchestrator.report.pictures import Pictures
from orchestrator.report.pictures import differences as figures
from orchestrator.report.pictures.differences import WordBar
from orchestrator.report.pictures.learning import VariantCurves, overview, panels, variant_curves
from orchestrator.report.sections.ablation import AblationRow
from orchestrator.report.sections.tables import times_compare
from orchestrator.report.sections.verdicts import level_in_words, verdict_in_words
from orchestrator.sweep.published import Measure
from orchestrator.trials.records import Records
from orchestrator.words import signed

_SHORT: tuple[Reason, ...] = ("another budget", "another test text", "worse than guessing")
"""Why there is no verdict: what is short enough for a picture."""
CACHE_METRIC = "delta_loss_sum_nats"
"""What a published table of words calls the loss without the cache less that with it, summed over a word."""
_MOST_WORDS = 10
"""Words on either side."""


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
        margin = math.log1p(comparison.margin)
        level = "simultaneous " * (comparison.family_size > 1) + level_in_words(comparison)
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


@dataclass(frozen=True)
class WordSection:
    """By what is compared the words, most gained first, most lost last; the published ones beside this text's.

    A table is empty if nothing is saved or lost on any word, as by a cache of weight 0; none is drawn if all are.
    `unnamed`: there are some, but no corpus at hand that the trials read, which has the words.
    """

    variants: Sequence[str] = ()
    tables: Mapping[str, tuple[Rows, Rows]] = field(default_factory=dict)
    is_drawn: bool = False
    unnamed: bool = False


Pair = tuple[Losses, Array]
"""Of one seed: its losses, and the nats that it saves by token."""


def word_section(
    outcomes: Outcomes, records: Records, rows: Sequence[AblationRow], measures: Sequence[Measure], pictures: Pictures
) -> WordSection:
    """The tables that the records have; draws `words` if there is one."""
    tables, bars = dict[str, tuple[Rows, Rows]](), dict[str, list[WordBar]]()
    for variant, over, pairs in (compared := list(_comparisons(outcomes, records, rows))):
        record = next(outcome.record for outcome in outcomes[variant] if outcome.record)
        try:
            vocabulary = vocabulary_of(record)
        except ValueError:
            return WordSection(unnamed=True)
        savings, n = word_savings([(losses.token, saved) for losses, saved in pairs], vocabulary), len(pairs)
        words = savings.most(_MOST_WORDS, helped=True) + savings.most(_MOST_WORDS, helped=False)[::-1]
        if words:
            panel = f"{variant}, over {over or 'the same without its cache'}"
            bars[panel] = [WordBar(f"{word.text} ({word.count:,})", word.nats, word.agree == n) for word in words]
        table: Rows = [
            {"Word": word.text, "Times": f"{word.count:,}", "Nats saved": f"{signed(word.nats)} ({word.agree} of {n})"}
            for word in words
        ]
        of_text = [each for each in measures if over is None and each.dataset == record.corpus.name]
        by = f"{over}, on test" if over else "the same pass without its cache, on validation, where the cache is used"
        title = f"{variant} over {by}: {signed(savings.total, 1)} nats saved in all."
        tables[title] = table, list(_published(of_text, savings))
    if bars:
        pictures.draw("words.svg", figures.words, bars)
    return WordSection([variant for variant, *_ in compared], tables, is_drawn=bool(bars))


def _published(measures: Sequence[Measure], savings: WordSavings) -> Iterator[Row]:
    """The published words that a cache saves most on; None where the text lacks it."""
    for measure in measures:
        if measure.metric == CACHE_METRIC and measure.word is not None:
            word = savings.of(measure.word)
            yield {
                "Word": measure.word,
                "Published times": measure.count and f"{measure.count:,}",
                "Times": word and f"{word.count:,}",
                "Published": signed(measure.value),
                "Nats saved": word and signed(word.nats),
            }


def _comparisons(
    outcomes: Outcomes, records: Records, rows: Sequence[AblationRow]
) -> Iterator[tuple[str, str | None, list[Pair]]]:
    decided = [row.variant for row in rows if row.effect is not None and row.effect.verdict in ("raises", "lowers")]
    if decided:
        base, own = (_by_token(outcomes[variant], records) for variant in (outcomes.baseline, decided[0]))
        if base and own and all(one.is_of_the_text_of(base[0]) for one in [*base, *own]):
            mean_N = np.mean([one.nats for one in base], axis=0)
            yield decided[0], outcomes.baseline, [(one, mean_N - one.nats) for one in own]
    for variant, group in outcomes.items():
        cached = [_cache(outcome, records) for outcome in group if outcome.final and is_adaptive(group)]
        if pairs := [pair for pair in cached if pair is not None]:
            yield variant, None, pairs


def _by_token(group: Group, records: Records) -> list[Losses]:
    """The losses on test of all seeds, or none."""
    if any(outcome.losses is None for outcome in group):
        return []
    return [read_losses(records.test_losses(outcome.trial)) for outcome in group]


def _cache(outcome: Outcome, records: Records) -> Pair | None:
    """What a cache saves on validation, as the published table has it; None if the losses are gone, or older."""
    try:
        both = read_cache(token_nats_path(records.folder(records.holder(outcome.trial)), "cache", "valid"))
    except FileNotFoundError:
        return None
    except ValueError as error:  # of a record without hashes: what else it says is believed as it was before
        say_once(f"{error}; the report goes without these")
        return None
    return None if both is None else (both[0], both[1] - both[0].nats)
