"""Codebooks, specs and corpora as the tests of codebooks make them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lm.codebooks import Codebook
from lm.data import EncodedCorpus
from lm.spec import CodebookSpec, EcocHead


def code(kind: str, **values: Any) -> CodebookSpec:
    """A codebook's spec, as a sweep file would write it."""
    return EcocHead.model_validate({"kind": "ecoc", "codebook": {"kind": kind, **values}}).codebook


def corpus_of(text: Sequence[int] | NDArray[np.int64], vocabulary: Sequence[str]) -> EncodedCorpus:
    """A corpus with this training text."""
    ids = np.array(text, dtype=np.int32)
    return EncodedCorpus("made", "0" * 64, tuple(vocabulary), ids, ids[:1], ids[:1], "made for a test")


def random_corpus(words: int, tokens: int = 5000, seed: int = 0) -> EncodedCorpus:
    """Words of every frequency, in no order of ids, likelier near those of like id; `<eos>` the most frequent."""
    rng = np.random.default_rng(seed)
    topic = np.repeat(rng.integers(words, size=tokens // 10 + 1), 10)[:tokens]
    text = (topic + (rng.exponential(words / 8, size=tokens)).astype(int)) % words
    text[rng.random(tokens) < 0.1] = 3 % words
    names = [f"w{word}" for word in range(words)]
    names[3 % words] = "<eos>"
    return corpus_of(text, names)


def order_of(corpus: EncodedCorpus) -> list[int]:
    """Word ids, the most frequent first, ties by id."""
    counts = [0] * len(corpus.vocabulary)
    for word in corpus.train.tolist():
        counts[word] += 1
    return sorted(range(len(counts)), key=lambda word: (-counts[word], word))


def distance(codebook: Codebook, left: int, right: int) -> int:
    """Hamming's, bit by bit."""
    bits = codebook.unpacked()
    return sum(int(a != b) for a, b in zip(bits[left], bits[right], strict=True))


def nearest(codebook: Codebook, bits: NDArray[np.uint8]) -> int:
    """The word whose codeword differs from these bits in the fewest places."""
    return int((codebook.unpacked() != bits).sum(axis=1).argmin())
