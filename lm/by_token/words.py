"""Which words one model predicts better than another. K pairs of models (seeds), N predicted tokens, V words."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lm.by_token.losses import Array
from lm.data import fingerprint_of, load
from lm.record import Record
from lm.spec import Corpus


@dataclass(frozen=True)
class Word:
    """How often a text has a word, and how much of its loss is saved on it, all occurrences together, nats.

    `nats` is the mean over the pairs, above 0 if the word is predicted better; `agree` says how many have its sign.
    """

    text: str
    count: int
    nats: float
    agree: int


@dataclass(frozen=True, eq=False)
class WordSavings:
    """The loss saved on every word: `count_V`, and `saved_KV` in nats (Merity et al. 2017, table 3, has one pair)."""

    vocabulary: tuple[str, ...]
    count_V: NDArray[np.int64]
    saved_KV: Array

    def most(self, count: int, *, helped: bool) -> list[Word]:
        """At most `count` words on which most is saved, or lost, the largest first; none on which neither is."""
        order = np.argsort(self._mean_V, kind="stable")
        chosen = order[::-1][:count] if helped else order[:count]
        return [self._word(k) for k in chosen if (self._mean_V[k] > 0 if helped else self._mean_V[k] < 0)]

    def of(self, text: str) -> Word | None:
        """A word by its text; None if the vocabulary has no such."""
        return self._word(self.vocabulary.index(text)) if text in self.vocabulary else None

    @property
    def total(self) -> float:
        """What is saved on the whole text, nats."""
        return float(self._mean_V.sum())

    @functools.cached_property
    def _mean_V(self) -> Array:
        return np.asarray(self.saved_KV.mean(axis=0))

    def _word(self, k: int) -> Word:
        nats = self._mean_V[k]
        agree = int((np.sign(self.saved_KV[:, k]) == np.sign(nats)).sum())
        return Word(self.vocabulary[k], int(self.count_V[k]), float(nats), agree)


def word_savings(pairs: Sequence[tuple[NDArray[np.int32], Array]], vocabulary: tuple[str, ...]) -> WordSavings:
    """The savings by word from those by token: of each pair of models the tokens' ids and the nats saved, (N,) both.

    Words are counted in the first pair: caches of several seeds may begin at other tokens.
    """
    size = len(vocabulary)
    sums = [np.bincount(token_N, weights=saved_N, minlength=size) for token_N, saved_N in pairs]
    return WordSavings(vocabulary, np.bincount(pairs[0][0], minlength=size), np.array(sums))


def vocabulary_of(record: Record) -> tuple[str, ...]:
    """The words by id of the corpus that a trial read; ValueError (CorpusError) if it is not here, or another now."""
    if (now := fingerprint_of(record.spec.corpus)) != record.corpus.fingerprint:
        raise ValueError(f"corpus {record.corpus.name} is {now}, the record's is {record.corpus.fingerprint}")
    return _vocabulary(record.spec.corpus, now)


@functools.lru_cache(maxsize=4)  # a page is made again and again while trials run
def _vocabulary(corpus: Corpus, _fingerprint: str) -> tuple[str, ...]:
    return load(corpus, download=False).vocabulary
