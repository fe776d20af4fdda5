"""A codebook as data: every word's bits, and the spans of those codes that have any. V words, C bits."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Spans:
    """The line of all 2^K class codes, cut into one run for each word (O'Neill & Bollegala 2019, as made exact).

    The word `order_V[r]` owns the positions `bounds[r]` to `bounds[r + 1] - 1`; its class bits, the first K of its
    codeword, are the Gray code of one of them, most significant first.
    """

    class_bits: int
    order_V: NDArray[np.int64]
    bounds: NDArray[np.int64]  # (V + 1,), from 0 to 2^K

    @cached_property
    def owner(self) -> NDArray[np.int64]:
        """The word of every position, (2^K,)."""
        return np.repeat(self.order_V, np.diff(self.bounds))


@dataclass(frozen=True, eq=False)
class Codebook:
    """V distinct codewords of C bits, packed eight to a byte, the first bit of a word the highest of its first byte.

    `origin` is a digest of the spec and the text it was built from, no part of its content.
    """

    packed: NDArray[np.uint8]  # (V, ceil(C / 8))
    bits: int
    spans: Spans | None = None
    origin: str | None = None

    def __len__(self) -> int:
        return len(self.packed)

    @classmethod
    def from_bits(cls, bits_VC: NDArray[np.uint8], spans: Spans | None = None) -> Codebook:
        """Pack a matrix of 0 and 1."""
        return cls(np.packbits(bits_VC, axis=1), bits_VC.shape[1], spans)

    def unpacked(self) -> NDArray[np.uint8]:
        """The codewords as 0 and 1, (V, C)."""
        return np.unpackbits(self.packed, axis=1, count=self.bits)

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that name the codebook's content."""
        digest = hashlib.sha256(f"{len(self)} {self.bits}".encode())
        digest.update(np.ascontiguousarray(self.packed).data)
        if self.spans is not None:
            digest.update(np.ascontiguousarray(self.spans.order_V).data)
            digest.update(np.ascontiguousarray(self.spans.bounds).data)
        return digest.hexdigest()[:16]
