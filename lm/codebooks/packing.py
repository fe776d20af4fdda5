"""Codewords from columns of bits, eight to a byte. V words, B bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.bool_]
"""One bit of every word, (V,)."""

_DRAWS = 1000


def pack(columns: Iterable[Column]) -> NDArray[np.uint8]:
    """Columns, first to last, as packed codewords (V, B); never more than eight of them are held unpacked."""
    remaining = iter(columns)
    packed: list[NDArray[np.uint8]] = []
    while eight := list(islice(remaining, 8)):
        packed.append(np.packbits(np.stack(eight), axis=0)[0])
    return np.stack(packed, axis=1)


def digits(numbers_V: NDArray[np.int64], bits: int) -> Iterator[Column]:
    """The columns of numbers below 2^bits, most significant first."""
    for shift in range(bits - 1, -1, -1):
        yield (numbers_V >> shift & 1).astype(np.bool_)


def coin_flips(words: int, count: int, rng: np.random.Generator) -> Iterator[Column]:
    """Columns of fair coin flips, none of them constant."""
    for _ in range(count):
        yield varied(lambda: rng.integers(2, size=words, dtype=np.uint8).astype(np.bool_), "coin flips")


def varied(draw: Callable[[], Column], what: str) -> Column:
    """The first of the columns drawn that tells some words from others; ValueError if a thousand tell none."""
    for _ in range(_DRAWS):
        column_V = draw()
        if column_V.any() and not column_V.all():
            return column_V
    raise ValueError(f"{what}: constant over the words in {_DRAWS:,} draws")


def repeated(packed_VB: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The rows, in order, that equal one above them."""
    rows_V = np.ascontiguousarray(packed_VB).view(f"V{packed_VB.shape[1]}")[:, 0]
    _, first = np.unique(rows_V, return_index=True)
    return np.setdiff1d(np.arange(len(rows_V)), first)
