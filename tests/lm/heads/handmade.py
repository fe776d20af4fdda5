"""Small codebooks made by hand, without the package's constructions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lm.codebooks import Codebook, Spans


def random_code(count: int, bits: int, seed: int = 0) -> Codebook:
    """Coin flips, drawn anew until all rows differ."""
    draw = np.random.default_rng(seed)
    rows: list[tuple[int, ...]] = []
    while len(rows) < count:
        row = tuple(draw.integers(0, 2, bits).tolist())
        if row not in rows:
            rows.append(row)
    return Codebook.from_bits(np.array(rows, dtype=np.uint8))


def full_code(bits: int) -> Codebook:
    """All numbers of so many bits."""
    return Codebook.from_bits(np.array([[n >> i & 1 for i in range(bits)] for n in range(2**bits)], dtype=np.uint8))


def identity_code(count: int) -> Codebook:
    return Codebook.from_bits(np.eye(count, dtype=np.uint8))


def gray_rows(bits: int) -> NDArray[np.uint8]:
    """The reflected code: the shorter list after a 0, then its mirror image after a 1."""
    rows: list[list[int]] = [[]]
    for _ in range(bits):
        rows = [[0, *row] for row in rows] + [[1, *row] for row in reversed(rows)]
    return np.array(rows, dtype=np.uint8)


def rank_code(count: int, bits: int, class_bits: int | None = None, seed: int = 0) -> Codebook:
    """Spans of any length; a word has some class code of its span, and random check bits."""
    draw = np.random.default_rng(seed)
    class_bits = class_bits or int(np.ceil(np.log2(count)))
    lengths = [1] * count
    for rank in (count * draw.random(2**class_bits - count) ** 3).astype(int):
        lengths[rank] += 1
    order, bounds = draw.permutation(count), np.concatenate([[0], np.cumsum(lengths)])
    gray, codes = gray_rows(class_bits), np.empty((count, bits), dtype=np.uint8)
    for rank, word in enumerate(order):
        position = draw.integers(bounds[rank], bounds[rank + 1])
        codes[word] = [*gray[position], *draw.integers(0, 2, bits - class_bits)]
    return Codebook.from_bits(codes, Spans(class_bits, order, bounds))
