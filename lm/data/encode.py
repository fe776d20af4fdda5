"""From text to token ids: the vocabulary rule, and the encoded corpus that a trial reads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lm.data.text import EOS, SPLITS, UNKNOWN, CorpusError, tokens_of
from lm.data.unigram import log_unigram
from lm.record import CorpusFacts
from lm.spec import Corpus

Ids = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Encoding:
    """A whole text as ids: what the cache keeps. The arrays are one-dimensional, int32 and read-only."""

    vocabulary: tuple[str, ...]
    train: Ids
    valid: Ids
    test: Ids
    rule: str


@dataclass(frozen=True, eq=False)
class EncodedCorpus:
    """A corpus ready to train on: `vocabulary[id]` is a word; the splits are one-dimensional int32 arrays of ids.

    The arrays are read-only and may be mapped from a file that other processes share: copy them to a tensor.
    """

    name: str
    fingerprint: str
    vocabulary: tuple[str, ...]
    train: Ids
    valid: Ids
    test: Ids
    vocabulary_rule: str

    @property
    def facts(self) -> CorpusFacts:
        """What the record keeps of the corpus; the counts are of tokens, after any cut."""
        log_V = log_unigram(np.bincount(self.train, minlength=len(self.vocabulary)))
        return CorpusFacts(
            name=self.name,
            fingerprint=self.fingerprint,
            train_tokens=len(self.train),
            valid_tokens=len(self.valid),
            test_tokens=len(self.test),
            vocabulary_size=len(self.vocabulary),
            vocabulary_rule=self.vocabulary_rule,
            unigram_nats={"valid": -float(log_V[self.valid].mean()), "test": -float(log_V[self.test].mean())},
        )


def encode(lines: Mapping[str, Iterable[str]]) -> Encoding:
    """Ids in order of first appearance over the training text, `<eos>` included.

    A word that only validation or test has counts as `<unk>` where the training text has `<unk>`. Where it has
    none, there is nothing to map to: the word gets an id of its own after the training words, valid before test,
    as in the AWD-LSTM authors' code. `rule` says which of these happened. CorpusError for an empty split.
    """
    ids: defaultdict[str, int] = defaultdict()
    ids.default_factory = ids.__len__
    train = _ids("train", lines["train"], ids.__getitem__)
    words = len(ids)
    if UNKNOWN in ids:
        unseen: set[str] = set()

        def closed(word: str) -> int:
            if word in ids:
                return ids[word]
            unseen.add(word)
            return ids[UNKNOWN]

        valid, test = (_ids(split, lines[split], closed) for split in SPLITS[1:])
        rest = f"; {len(unseen):,} words of validation and test are not among them and count as <unk>"
    else:
        valid, test = (_ids(split, lines[split], ids.__getitem__) for split in SPLITS[1:])
        unseen = set(list(ids)[words:])
        rest = f"; {len(unseen):,} words that only validation and test have follow (there is no <unk>)"
    rule = f"words of the training text and {EOS}, by first appearance"
    return Encoding(tuple(ids), train, valid, test, rule + (rest if unseen else ""))


def capped(encoding: Encoding, most: int) -> Encoding:
    """The text with at most this many words: `<eos>`, `<unk>`, and those that training has most often.

    Of words that are equally frequent the first to appear stay; all keep their order. If no word has to go, nothing
    changes, and a text without `<unk>` gets none.
    """
    words = encoding.vocabulary
    if len(words) <= most:
        return encoding
    counts_V = np.bincount(encoding.train, minlength=len(words))
    counts_V[[place for place, word in enumerate(words) if word in (EOS, UNKNOWN)]] = len(encoding.train) + 1
    kept = np.sort(np.argsort(-counts_V, kind="stable")[: most if UNKNOWN in words else most - 1])
    vocabulary = [words[place] for place in kept]
    if UNKNOWN not in words:
        vocabulary.append(UNKNOWN)
    ids_V = np.full(len(words), vocabulary.index(UNKNOWN), dtype=np.int32)
    ids_V[kept] = np.arange(len(kept), dtype=np.int32)
    splits = [ids_V[ids] for ids in (encoding.train, encoding.valid, encoding.test)]
    for ids in splits:
        ids.setflags(write=False)
    rule = f"{encoding.rule}; of these the {most:,} most frequent in training, all others are {UNKNOWN}"
    return Encoding(tuple(vocabulary), splits[0], splits[1], splits[2], rule)


def cut(encoding: Encoding, fingerprint: str, corpus: Corpus) -> EncodedCorpus:
    """The corpus with its training text cut as asked; all else, the vocabulary too, stays whole.

    CorpusError where the text has fewer.
    """
    rule = encoding.rule
    check_cut(corpus, len(encoding.train))
    train = encoding.train[corpus.train_start :][: corpus.train_tokens]
    if len(train) < len(encoding.train):
        start = (
            f"{len(train):,} tokens from token {corpus.train_start:,}"
            if corpus.train_start
            else f"the first {len(train):,}"
        )
        rule += f"; trained on {start} of {len(encoding.train):,} tokens with the vocabulary of the whole training text"
    return EncodedCorpus(corpus.name, fingerprint, encoding.vocabulary, train, encoding.valid, encoding.test, rule)


def check_cut(corpus: Corpus, available: int) -> None:
    """CorpusError where a cut asks for training tokens beyond those there are."""
    start, wanted = corpus.train_start, corpus.train_tokens
    if start + (wanted or 1) > available:
        asked = (
            f"train_tokens {wanted:,}" + (f" from train_start {start:,}" if start else "")
            if wanted
            else f"train_start {start:,}"
        )
        message = f"{asked} is more than the {available:,} training tokens of {corpus.name!r}"
        raise CorpusError(message, field="train_tokens" if wanted else "train_start")


def _ids(split: str, lines: Iterable[str], lookup: Callable[[str], int]) -> Ids:
    ids = np.fromiter(map(lookup, tokens_of(lines)), dtype=np.int32)
    if not len(ids):
        raise CorpusError(f"{split}.txt is empty: a corpus needs text in each of train.txt, valid.txt and test.txt")
    ids.setflags(write=False)
    return ids
