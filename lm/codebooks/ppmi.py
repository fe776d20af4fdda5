"""Word vectors from a text's own co-occurrences. V words, E vector size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import svds

SMOOTHING = 0.75
"""Power of the context counts (Levy, Goldberg & Dagan 2015, section 3.2)."""


def ppmi_svd(text: NDArray[np.int32], words: int, window: int, size: int) -> NDArray[np.float32]:
    """Vectors U sqrt(S) (V, E) of the truncated SVD U S V' of the text's positive pointwise mutual information.

    Levy, Goldberg & Dagan (2015), sections 2 and 3. No more than V - 1 sizes can be had. The vector of a word that the
    text does not have is zero. ValueError where no two words are together more often than by chance.
    """
    size = min(size, words - 1)
    ppmi_VV = ppmi(cooccurrences(text, words, window))
    if not ppmi_VV.nnz:
        raise ValueError("word vectors: no two words of the training text are together more often than by chance")
    # A fixed start and signs: the same vectors each time on one machine, and up to rounding on another.
    start_V = np.random.default_rng(0).standard_normal(words)
    left_VE, values_E, _ = svds(ppmi_VV, k=size, v0=start_V, return_singular_vectors="u")
    signs_E = np.sign(left_VE[np.abs(left_VE).argmax(axis=0), np.arange(size)])
    embedding_VE: NDArray[np.float32] = (left_VE * (signs_E * np.sqrt(values_E)))[:, ::-1].astype(np.float32)
    embedding_VE[np.diff(ppmi_VV.indptr) == 0] = 0.0  # instead of the rounding noise of sizes beyond the matrix's rank
    return np.ascontiguousarray(embedding_VE)


def cooccurrences(text: NDArray[np.int32], words: int, window: int) -> sparse.csr_array:
    """How often two words are near each other: (window + 1 - d) / window for each pair at distance d, (V, V)."""
    counts_VV = sparse.csr_array((words, words))
    for distance in range(1, window + 1):
        left, right = text[:-distance], text[distance:]
        weights = np.full(len(left), (window + 1 - distance) / window)
        counts_VV = counts_VV + sparse.csr_array((weights, (left, right)), shape=(words, words))
    return counts_VV + counts_VV.T


def ppmi(counts_VV: sparse.csr_array) -> sparse.csr_array:
    """max(0, log P(context | word) / P(context)), the context's own probability smoothed."""
    pairs = counts_VV.tocoo()
    word, context = pairs.coords
    total_V = counts_VV.sum(axis=1)
    smoothed_V = counts_VV.sum(axis=0) ** SMOOTHING
    values = np.log(pairs.data / total_V[word] / smoothed_V[context] * smoothed_V.sum())
    ppmi_VV = sparse.csr_array((np.maximum(values, 0.0), (word, context)), shape=counts_VV.shape)
    ppmi_VV.eliminate_zeros()
    return ppmi_VV
