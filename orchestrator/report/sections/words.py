"""Which words the first decided variant gains and loses over the baseline, and which a neural cache does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from lm.by_token.losses import Array, Losses, read_cache, read_losses
from lm.by_token.words import WordSavings, vocabulary_of, word_savings
from lm.kept import say_once
from lm.record import token_nats_path
from orchestrator.analysis.outcomes import Group, Outcome, Outcomes, is_adaptive
from orchestrator.report.markdown import Row, Rows
from orchestrator.report.pictures import Pictures
from orchestrator.report.pictures import differences as figures
from orchestrator.report.pictures.differences import WordBar
from orchestrator.report.sections.ablation import AblationRow
from orchestrator.sweep.published import Measure
from orchestrator.trials.records import Records
from orchestrator.words import signed

CACHE_METRIC = "delta_loss_sum_nats"
"""What a published table of words calls the loss without the cache less that with it, summed over a word."""
MOST = 10
"""Words on either side."""


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
        words = savings.most(MOST, helped=True) + savings.most(MOST, helped=False)[::-1]
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
