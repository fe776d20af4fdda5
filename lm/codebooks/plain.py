"""Codes that know nothing of the words but their number and order: identity, binary, random. V words, B bytes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lm.codebooks.code import Codebook, Spans
from lm.codebooks.gray import from_gray
from lm.codebooks.packing import digits, pack, repeated
from lm.spec import class_bits

_NUMBERED_BITS = 24
"""Up to this many bits a random code is drawn as numbers without replacement: redrawn rows might never all differ."""


def identity_code(words: int) -> Codebook:
    """One bit a word."""
    packed_VB = np.zeros((words, -(-words // 8)), dtype=np.uint8)
    ids_V = np.arange(words)
    packed_VB[ids_V, ids_V // 8] = 128 >> ids_V % 8
    return Codebook(packed_VB, words)


def binary_code(order_V: NDArray[np.int64]) -> Codebook:
    """The place in the order as a binary number, in as few bits as can name every word.

    Read as Gray codes, the numbers lie scattered over the line of positions: a word's span runs from its own position
    to the next word's, the codes of no word falling to the word before them.
    """
    bits = class_bits(len(order_V))
    rank_V = np.argsort(order_V)
    position_V = from_gray(rank_V)
    along_V = np.argsort(position_V)
    bounds = np.concatenate([[0], position_V[along_V[1:]], [2**bits]])
    return Codebook(pack(digits(rank_V, bits)), bits, Spans(bits, along_V, bounds))


def random_code(words: int, bits: int, rng: np.random.Generator) -> Codebook:
    """Fair coin flips, codewords that repeat another drawn again."""
    if bits <= _NUMBERED_BITS:
        return Codebook(pack(digits(rng.choice(2**bits, size=words, replace=False), bits)), bits)
    packed_VB = np.empty((words, -(-bits // 8)), dtype=np.uint8)
    drawn = np.arange(words)
    while len(drawn):
        packed_VB[drawn] = rng.integers(256, size=(len(drawn), packed_VB.shape[1]), dtype=np.uint8)
        packed_VB[drawn, -1] &= 0xFF << -bits % 8 & 0xFF
        drawn = repeated(packed_VB)
    return Codebook(packed_VB, bits)
