"""Which words the first decided variant gains and loses over the baseline, and which a neural cache does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from lm.by_token.losses import Array, Losses, read_cache, read_losses
from lm.by_token.words import Word, WordSavings, vocabulary_of, word_savings
from lm.kept import say_once
from lm.record import token_nats_path
from orchestrator.analysis.outcomes import Group, Outcome, Outcomes, is_adaptive
from orchestrator.report.pictures import Pictures
from orchestrator.report.pictures import differences as figures
from orchestrator.report.pictures.differences import WordBar
from orchestrator.report.sections.ablation import AblationRow
from orchestrator.sweep.published import Measure
from orchestrator.trials.records import Records

CACHE_METRIC = "delta_loss_sum_nats"
"""What a published table of words calls the loss without the cache less that with it, summed over a word."""
MOST = 10
"""Words on either side."""


@dataclass(frozen=True)
class WordTable:
    """A variant's words: gained beside lost, over its `seeds`; the published ones, None where the text lacks a word.

    `over` is the baseline, None if the variant's cache is compared with the same pass without it.
    """

    variant: str
    over: str | None
    seeds: int
    total_nats: float
    rows: Sequence[tuple[Word | None, Word | None]]
    published: Sequence[tuple[Measure, Word | None]]


@dataclass(frozen=True)
class WordSection:
    """The tables; `unnamed`: there are some, but no corpus at hand that the trials read, which has the words."""

    tables: Sequence[WordTable]
    unnamed: bool


Pair = tuple[Losses, Array]
"""Of one seed: its losses, and the nats that it saves by token."""


def word_section(
    outcomes: Outcomes, records: Records, rows: Sequence[AblationRow], measures: Sequence[Measure], pictures: Pictures
) -> WordSection:
    """The tables that the records have; draws `words` if there is one."""
    tables = []
    for variant, over, pairs in _comparisons(outcomes, records, rows):
        record = next(outcome.record for outcome in outcomes[variant] if outcome.record)
        try:
            vocabulary = vocabulary_of(record)
        except ValueError:
            return WordSection((), unnamed=True)
        savings = word_savings([(losses.token, saved) for losses, saved in pairs], vocabulary)
        of_text = [m for m in measures if over is None and m.dataset == record.corpus.name]
        tables.append(_table(variant, over, len(pairs), savings, of_text))
    if tables:
        pictures.draw("words.svg", figures.words, {_title(table): _bars(table) for table in tables})
    return WordSection(tables, unnamed=False)


def _comparisons(
    outcomes: Outcomes, records: Records, rows: Sequence[AblationRow]
) -> Iterator[tuple[str, str | None, list[Pair]]]:
    decided = [row.variant for row in rows if row.effect is not None and row.effect.verdict in ("raises", "lowers")]
    if decided:
        base, own = (_losses(outcomes[variant], records) for variant in (outcomes.baseline, decided[0]))
        if base and own and all(one.is_of_the_text_of(base[0]) for one in [*base, *own]):
            mean_N = np.mean([one.nats for one in base], axis=0)
            yield decided[0], outcomes.baseline, [(one, mean_N - one.nats) for one in own]
    for variant, group in outcomes.items():
        cached = [_cache(outcome, records) for outcome in group if outcome.final and is_adaptive(group)]
        if pairs := [pair for pair in cached if pair is not None]:
            yield variant, None, pairs


def _losses(group: Group, records: Records) -> list[Losses]:
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


def _table(variant: str, over: str | None, seeds: int, savings: WordSavings, measures: Sequence[Measure]) -> WordTable:
    gained, lost = savings.most(MOST, helped=True), savings.most(MOST, helped=False)
    printed = [(m, savings.of(m.word)) for m in measures if m.metric == CACHE_METRIC and m.word is not None]
    return WordTable(variant, over, seeds, savings.total, [*zip_longest(gained, lost)], printed)


def _title(table: WordTable) -> str:
    return f"{table.variant}, over {table.over or 'the same without its cache'}"


def _bars(table: WordTable) -> list[WordBar]:
    words = [word for word, _ in table.rows if word] + [word for _, word in reversed(table.rows) if word]
    return [WordBar(f"{word.text} ({word.count:,})", word.nats, word.agree == table.seeds) for word in words]
