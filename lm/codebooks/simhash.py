"""Codes from word vectors: signs of random projections (Charikar 2002). V words, E vector size, C bits, B bytes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations

import numpy as np
from numpy.typing import NDArray

from lm.codebooks.code import Codebook
from lm.codebooks.packing import Column, coin_flips, pack, repeated
from lm.codebooks.rank import class_columns, cut_spans, inverse_rank
from lm.spec.codebooks import HybridCode, SimHashCode

_BLOCK = 64
"""Projections computed at once: bounds memory."""

Vectors = NDArray[np.float32]


def simhash_code(spec: SimHashCode, order_V: NDArray[np.int64], embedding_VE: Vectors) -> Codebook:
    """The sign of `bits` random projections: two words differ in a bit with probability angle / pi.

    Of words with the same codeword the first in the order keeps it; the others get the nearest free one.
    """
    centred_VE = embedding_VE - embedding_VE.mean(axis=0)
    projection_CE = _projections(spec.bits, centred_VE, np.random.default_rng(spec.seed))
    packed_VB = pack(_signs(centred_VE, projection_CE))
    _separate(packed_VB, order_V, centred_VE, projection_CE)
    return Codebook(packed_VB, spec.bits)


def hybrid_code(spec: HybridCode, order_V: NDArray[np.int64], embedding_VE: Vectors) -> Codebook:
    """Gray class bits by the order, spans by inverse rank; half of the check bits SimHash, the rest coin flips."""
    spans = cut_spans(order_V, inverse_rank(len(order_V)))
    checks, rng = spec.bits - spans.class_bits, np.random.default_rng(spec.seed)
    centred_VE = embedding_VE - embedding_VE.mean(axis=0)
    semantic = _signs(centred_VE, _projections(checks // 2, centred_VE, rng))
    rest = coin_flips(len(order_V), checks - checks // 2, rng)
    return Codebook(pack(chain(class_columns(spans), semantic, rest)), spec.bits, spans)


def _projections(bits: int, centred_VE: Vectors, rng: np.random.Generator) -> Vectors:
    return rng.standard_normal((bits, centred_VE.shape[1]), dtype=np.float32)


def _signs(centred_VE: Vectors, projection_CE: Vectors) -> Iterator[Column]:
    for start in range(0, len(projection_CE), _BLOCK):
        yield from (centred_VE @ projection_CE[start : start + _BLOCK].T > 0).T


def _separate(
    packed_VB: NDArray[np.uint8], order_V: NDArray[np.int64], centred_VE: Vectors, projection_CE: Vectors
) -> None:
    """Give every word a codeword of its own, in place, by flipping the bits nearest to the other sign.

    One bit where that leads to a free codeword, else two, and so on.
    """
    width = packed_VB.shape[1]
    used = {row.tobytes() for row in packed_VB}
    masks = [1 << 8 * width - 1 - bit for bit in range(len(projection_CE))]
    # Words of the very same vector, as those that the text does not have, share one walk over the flips.
    walks: dict[bytes, Iterator[int]] = {}
    for word in order_V[repeated(packed_VB[order_V])]:
        vector_E = centred_VE[word]
        if (walk := walks.get(vector_E.tobytes())) is None:
            nearest = [masks[bit] for bit in np.argsort(np.abs(projection_CE @ vector_E), kind="stable")]
            walk = walks[vector_E.tobytes()] = _flips(nearest)
        code = int.from_bytes(packed_VB[word].tobytes())
        free = next(row for flip in walk if (row := (code ^ flip).to_bytes(width)) not in used)
        used.add(free)
        packed_VB[word] = np.frombuffer(free, dtype=np.uint8)


def _flips(masks: list[int]) -> Iterator[int]:
    return (sum(chosen) for count in range(1, len(masks) + 1) for chosen in combinations(masks, count))
