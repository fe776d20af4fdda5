"""How far codewords are apart. V words, C bits, P pairs of words, D rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lm.codebooks.code import Codebook

_ROWS = 2048
"""Rows compared at once: bounds memory."""


def distances(codebook: Codebook, left_P: NDArray[np.int64], right_P: NDArray[np.int64]) -> NDArray[np.int64]:
    """The Hamming distance of each pair of words, (P,)."""
    different = np.bitwise_count(codebook.packed[left_P] ^ codebook.packed[right_P])
    distance_P: NDArray[np.int64] = different.sum(axis=1, dtype=np.int64)
    return distance_P


def minimum_distance(codebook: Codebook) -> int:
    """The smallest Hamming distance of two words: (C - s . t) / 2 of their bits as signs s and t, all pairs."""
    nearest = -np.inf
    for first in range(0, len(codebook), _ROWS):
        sign_DC: NDArray[np.float32] | None = None
        for bit_DC in blocks(codebook, first):
            other_DC = 2 * bit_DC - 1
            agreement_DD = (other_DC if sign_DC is None else sign_DC) @ other_DC.T
            if sign_DC is None:
                sign_DC = other_DC
                np.fill_diagonal(agreement_DD, -np.inf)
            nearest = max(nearest, float(agreement_DD.max()))
    return int(codebook.bits - nearest) // 2


def blocks(codebook: Codebook, first: int = 0) -> Iterator[NDArray[np.float32]]:
    """The codewords' bits (D, C) from a row on, a block at a time."""
    for start in range(first, len(codebook), _ROWS):
        rows = codebook.packed[start : start + _ROWS]
        yield np.unpackbits(rows, axis=1, count=codebook.bits).astype(np.float32)
