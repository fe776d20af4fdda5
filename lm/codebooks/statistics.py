"""What a codebook is worth: how far its rows and columns are apart. V words, C bits, P pairs of words, D rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from lm.codebooks.code import Codebook
from lm.codebooks.distance import blocks, distances, minimum_distance
from lm.codebooks.packing import repeated

_PAIRS = 200_000


@dataclass(frozen=True)
class NeighbourDistances:
    """Mean Hamming distance of words that follow each other on the line: all of them, the first and last hundred."""

    mean: float
    first: float
    last: float


@dataclass(frozen=True)
class CodebookStatistics:
    """Distances are Hamming's, in bits; means and the rank correlation are over random pairs of words."""

    words: int
    bits: int
    pairs: int
    minimum_distance: int
    mean_distance: float
    lowest_column_mean: float
    highest_column_mean: float
    column_correlation: float
    duplicates: int
    neighbours: NeighbourDistances | None
    rank_correlation: float | None

    @property
    def correctable_errors(self) -> int:
        """How many wrong bits decoding to the nearest codeword always puts right."""
        return max(0, (self.minimum_distance - 1) // 2)


def codebook_statistics(
    codebook: Codebook, embedding_VE: NDArray[np.float32] | None = None, *, pairs: int = _PAIRS, seed: int = 0
) -> CodebookStatistics:
    """The statistics of a code of two words or more; V^2 C multiplications and V C^2.

    With word vectors also Spearman's correlation of their cosine with the negative distance, unless one of them is the
    same for all pairs. The column correlation is the largest absolute one of two columns that are not constant.
    """
    words, rng = len(codebook), np.random.default_rng(seed)
    left_P = rng.integers(words, size=pairs)
    right_P = (left_P + rng.integers(1, words, size=pairs)) % words
    distance_P = distances(codebook, left_P, right_P)
    mean_C, correlation = _columns(codebook)
    return CodebookStatistics(
        words=words,
        bits=codebook.bits,
        pairs=pairs,
        minimum_distance=minimum_distance(codebook),
        mean_distance=float(distance_P.mean()),
        lowest_column_mean=float(mean_C.min()),
        highest_column_mean=float(mean_C.max()),
        column_correlation=correlation,
        duplicates=len(repeated(codebook.packed)),
        neighbours=_neighbours(codebook),
        rank_correlation=None if embedding_VE is None else _rank_correlation(embedding_VE, left_P, right_P, distance_P),
    )


def _columns(codebook: Codebook) -> tuple[NDArray[np.float64], float]:
    """Every column's mean (C,), and the largest absolute correlation of two columns; 0 where there are no two."""
    words = len(codebook)
    both_CC = np.zeros((codebook.bits, codebook.bits), dtype=np.float32)  # counts: exact below 2^24 words
    for bit_DC in blocks(codebook):
        both_CC += bit_DC.T @ bit_DC
    mean_C = both_CC.diagonal().astype(np.float64) / words
    varied = (mean_C > 0) & (mean_C < 1)
    deviation_C = np.sqrt(mean_C * (1 - mean_C))[varied]
    mean_V = mean_C[varied]
    covariance_CC = both_CC[np.ix_(varied, varied)] / words - np.outer(mean_V, mean_V)
    correlation_CC = np.abs(covariance_CC / np.outer(deviation_C, deviation_C))
    np.fill_diagonal(correlation_CC, 0.0)
    return mean_C, float(correlation_CC.max(initial=0.0))


def _neighbours(codebook: Codebook) -> NeighbourDistances | None:
    if codebook.spans is None:
        return None
    order_V = codebook.spans.order_V
    distance_P = distances(codebook, order_V[:-1], order_V[1:])
    return NeighbourDistances(float(distance_P.mean()), float(distance_P[:100].mean()), float(distance_P[-100:].mean()))


def _rank_correlation(
    embedding_VE: NDArray[np.float32],
    left_P: NDArray[np.int64],
    right_P: NDArray[np.int64],
    distance_P: NDArray[np.int64],
) -> float | None:
    norm_V = np.linalg.norm(embedding_VE, axis=1, keepdims=True)
    unit_VE = embedding_VE / np.where(norm_V == 0, 1.0, norm_V)
    cosine_P = np.einsum("pe,pe->p", unit_VE[left_P], unit_VE[right_P])
    if not np.ptp(cosine_P) or not np.ptp(distance_P):
        return None
    return float(spearmanr(cosine_P, -distance_P).statistic)
