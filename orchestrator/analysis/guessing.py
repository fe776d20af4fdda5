"""Models that look at no context: what a trial must beat before it counts as trained."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from lm.record import CorpusFacts, Split, perplexity
from orchestrator.analysis.outcomes import Outcome


@dataclass(frozen=True)
class Guess:
    """A model without context: `uniform` over the vocabulary, or `unigram`, the words' frequencies."""

    model: Literal["unigram", "uniform"]
    nats: float
    perplexity: float


@dataclass(frozen=True)
class Untrained:
    """A complete trial that is worse than guessing, its perplexity on the split that decides, and the guess."""

    outcome: Outcome
    split: Split
    perplexity: float
    guess: Guess


def guesses(corpus: CorpusFacts, split: Split) -> list[Guess]:
    """The models without context, the better known one first; records made before it was measured lack the unigram."""
    words, unigram = corpus.vocabulary_size, corpus.unigram_nats.get(split)
    uniform = Guess("uniform", math.log(words), float(words))
    return [uniform] if unigram is None else [Guess("unigram", unigram, perplexity(unigram)), uniform]


def untrained(outcomes: Iterable[Outcome]) -> list[Untrained]:
    """The complete trials that are worse than guessing by the words' frequencies.

    Without the unigram model's loss the uniform model's decides, which is higher: fewer trials are caught, and none
    that is better than guessing. Test decides where it has been opened, else validation. A loss that is not a
    number is worse too.
    """
    worse = []
    for outcome in outcomes:
        if outcome.record is not None and (final := outcome.final) is not None:
            split: Split = "valid" if final.test is None else "test"
            nats = (final.test or final.valid).nats_per_token
            guess = guesses(outcome.record.corpus, split)[0]
            if not nats <= guess.nats:
                worse.append(Untrained(outcome, split, perplexity(nats), guess))
    return worse


def reference_corpus(outcomes: Iterable[Outcome]) -> CorpusFacts | None:
    """The corpus of the first record, one with a unigram model's loss if there is any; None without a record."""
    corpora = [outcome.record.corpus for outcome in outcomes if outcome.record is not None and outcome.record.stages]
    return min(corpora, key=lambda corpus: not corpus.unigram_nats, default=None)
