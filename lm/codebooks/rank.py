"""Codes of words in an order: a span of the line of all class codes each, Gray class bits, then check bits.

O'Neill & Bollegala (2019) hand out the redundant class codes as "error checks" in spans whose widths follow the words'
weights; the construction here makes that exact. V words by place in the order, W words by id, C check bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from lm.codebooks.code import Codebook, Spans
from lm.codebooks.gray import to_gray
from lm.codebooks.packing import Column, coin_flips, digits, pack, varied
from lm.spec import class_bits
from lm.spec.codebooks import EmbeddingCode, UnigramCode, highest_frequency


def rank_code(
    spec: UnigramCode | EmbeddingCode, order_V: NDArray[np.int64], weights_V: NDArray[np.float64]
) -> Codebook:
    """The code of words in this order; ValueError for square waves that cannot tell the words apart."""
    spans = cut_spans(order_V, weights_V)
    position_W, words = class_positions(spans), len(order_V)
    count, rng = spec.bits - spans.class_bits, np.random.default_rng(spec.seed)
    if spec.checks == "random":
        checks = coin_flips(words, count, rng)
    else:
        checks = square_waves(position_W, spans.class_bits, count, spec.lowest_frequency, rng)
    return Codebook(pack(chain(class_columns(spans), checks)), spec.bits, spans)


def inverse_rank(words: int) -> NDArray[np.float64]:
    """1, 1/2, 1/3, ... (V,): as Zipf's law has the frequencies."""
    return 1.0 / np.arange(1, words + 1, dtype=np.float64)


def cut_spans(order_V: NDArray[np.int64], weights_V: NDArray[np.float64]) -> Spans:
    """Cut the line of 2^K positions: one for each word, the rest in proportion to the weights, which are in order."""
    bits = class_bits(len(order_V))
    widths_V = 1 + largest_remainder(2**bits - len(order_V), weights_V)
    return Spans(bits, order_V, np.concatenate([[0], np.cumsum(widths_V)]))


def largest_remainder(total: int, weights_V: NDArray[np.float64]) -> NDArray[np.int64]:
    """Whole numbers that add up to `total`, nearly in proportion to the weights; ties go to the first (Hamilton)."""
    quotas_V = total * (weights_V / weights_V.sum())
    shares_V: NDArray[np.int64] = np.floor(quotas_V).astype(np.int64)
    largest = np.argsort(shares_V - quotas_V, kind="stable")[: total - shares_V.sum()]
    shares_V[largest] += 1
    return shares_V


def class_positions(spans: Spans) -> NDArray[np.int64]:
    """The middle position of every word's span, by word id, (W,)."""
    starts_V, widths_V = spans.bounds[:-1], np.diff(spans.bounds)
    position_W = np.empty(len(starts_V), dtype=np.int64)
    position_W[spans.order_V] = starts_V + (widths_V - 1) // 2
    return position_W


def class_columns(spans: Spans) -> Iterator[Column]:
    """The Gray code of every word's position, most significant bit first."""
    return digits(to_gray(class_positions(spans)), spans.class_bits)


def square_waves(
    position_W: NDArray[np.int64], bits: int, count: int, lowest: float, rng: np.random.Generator
) -> Iterator[Column]:
    """Check bits that are square waves of the position u in (0, 1), floor(2 f u + phase) mod 2, of random phase.

    Frequencies f rise evenly in logarithm from `lowest` to half a period a position, so that the Hamming distance of
    two words grows with the logarithm of their distance in the order.
    """
    highest = highest_frequency(bits)
    place_W = (position_W + 0.5) / 2**bits
    frequency_C = lowest * (highest / lowest) ** (np.arange(count) / max(count - 1, 1))
    for frequency in frequency_C:

        def wave(frequency: float = frequency) -> Column:
            wave_W: Column = np.floor(2.0 * frequency * place_W + rng.uniform(0.0, 2.0)) % 2 == 1
            return wave_W

        yield varied(wave, f"a square wave of lowest_frequency {lowest:g}, frequency {frequency:g}")
