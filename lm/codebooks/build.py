"""From a spec and a corpus to its codebook. V words."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from lm.codebooks.code import Codebook
from lm.codebooks.embeddings import likeness, word_vectors
from lm.codebooks.plain import binary_code, identity_code, random_code
from lm.codebooks.rank import inverse_rank, rank_code
from lm.codebooks.simhash import hybrid_code, simhash_code
from lm.codebooks.store import stored_codebook
from lm.data import EOS, UNKNOWN, EncodedCorpus
from lm.spec import (
    BinaryCode,
    CodebookSpec,
    EcocHead,
    EmbeddingCode,
    HybridCode,
    IdentityCode,
    RandomCode,
    SimHashCode,
    UnigramCode,
    vocabulary_misfits,
)


def build_codebook(spec: CodebookSpec, corpus: EncodedCorpus, copies: Iterable[Path] = ()) -> Codebook:
    """The codebook of a corpus's words, built once and kept in the cache directory.

    The first of `copies` that was built from the same spec and text comes before that: word vectors of two machines
    may differ in rounding, and weights are worth nothing with another codebook. ValueError where the spec does not fit
    the vocabulary, or its word vectors are not what it says.
    """
    words = len(corpus.vocabulary)
    if words < 2:
        raise ValueError(f"a code needs at least two words, corpus {corpus.name!r} has {words}")
    for problem in vocabulary_misfits(EcocHead(kind="ecoc", codebook=spec), words):
        raise ValueError(problem)
    return stored_codebook(spec, corpus, copies, partial(_construct, spec, corpus))


def _construct(spec: CodebookSpec, corpus: EncodedCorpus) -> Codebook:
    words = len(corpus.vocabulary)
    counts_V = np.bincount(corpus.train, minlength=words)
    order_V = np.argsort(-counts_V, kind="stable")
    match spec:
        case IdentityCode():
            return identity_code(words)
        case BinaryCode():
            return binary_code(order_V)
        case RandomCode():
            return random_code(words, spec.bits, np.random.default_rng(spec.seed))
        case UnigramCode():
            return rank_code(spec, order_V, _unigram_weights(spec, counts_V[order_V]))
        case EmbeddingCode():
            like_V = likeness(word_vectors(spec.embeddings, corpus), _most_frequent(order_V, corpus.vocabulary))
            order_V = np.argsort(-like_V, kind="stable")
            return rank_code(spec, order_V, _embedding_weights(spec, like_V[order_V]))
        case SimHashCode():
            return simhash_code(spec, order_V, word_vectors(spec.embeddings, corpus))
        case HybridCode():
            return hybrid_code(spec, order_V, word_vectors(spec.embeddings, corpus))
        case _:
            assert_never(spec)


def _unigram_weights(spec: UnigramCode, counts_V: NDArray[np.int64]) -> NDArray[np.float64]:
    match spec.weight:
        case "inverse_rank":
            return inverse_rank(len(counts_V))
        case "count":
            return counts_V.astype(np.float64)
        case "uniform":
            return np.ones(len(counts_V))


def _embedding_weights(spec: EmbeddingCode, like_V: NDArray[np.float64]) -> NDArray[np.float64]:
    """By default the cosines drawn out to 0 and 1, and a little for the word that is least alike."""
    if spec.weight == "inverse_rank":
        return inverse_rank(len(like_V))
    lowest, highest = float(like_V.min()), float(like_V.max())
    return (like_V - lowest) / ((highest - lowest) or 1.0) + 1e-6


def _most_frequent(order_V: NDArray[np.int64], vocabulary: tuple[str, ...]) -> int:
    """The first word in the order that is neither `<unk>` nor `<eos>`; ValueError where there is no other."""
    for word in order_V.tolist():
        if vocabulary[word] not in (UNKNOWN, EOS):
            return int(word)
    raise ValueError(f"no word but {UNKNOWN} and {EOS}: embedding order begins at the most frequent other word")
