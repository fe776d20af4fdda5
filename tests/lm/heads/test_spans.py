"""Spans of class codes against the sum over all 2^K codes. V words, K class bits, N rows."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from lm.codebooks import Codebook, Spans
from lm.heads.spans import SpanTable
from tests.lm.heads.handmade import gray_rows, rank_code

CASES = [(1, 3), (2, 1), (3, 2), (5, 6), (37, 6), (64, 6), (90, 7)]
"""A word for the whole line; a word for each code; spans of a few codes, and of many."""


def normal(rows: int, bits: int, seed: int = 0, scale: float = 2.0) -> Tensor:
    return scale * torch.randn(rows, bits, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def spans_of(book: Codebook) -> Spans:
    assert book.spans is not None
    return book.spans


def by_enumeration(spans: Spans, logits_K: Tensor) -> tuple[list[float], list[float]]:
    """Sum and maximum of the probabilities of every word's codes, each code multiplied out bit by bit."""
    total, best = [0.0] * len(spans.order_V), [0.0] * len(spans.order_V)
    for position, code in enumerate(gray_rows(spans.class_bits)):
        probability = 1.0
        for bit, logit in zip(code, logits_K.tolist(), strict=True):
            one = 1 / (1 + math.exp(-logit))
            probability *= one if bit else 1 - one
        rank = max(r for r in range(len(spans.order_V)) if spans.bounds[r] <= position)
        word = spans.order_V[rank]
        total[word] += probability
        best[word] = max(best[word], probability)
    return total, best


@pytest.mark.parametrize(("count", "class_bits"), CASES)
def test_sum_and_maximum_equal_enumeration(count: int, class_bits: int) -> None:
    spans = spans_of(rank_code(count, class_bits + 2, class_bits))
    table, logits_NC = SpanTable(spans), normal(3, class_bits + 2)
    words_V = torch.arange(count)
    sums, best = table.log_sum(logits_NC[:, None], words_V).exp(), table.log_max(logits_NC[:, None], words_V).exp()
    for n, logits_C in enumerate(logits_NC):
        expected = torch.tensor(by_enumeration(spans, logits_C[:class_bits]), dtype=torch.float64)
        torch.testing.assert_close(torch.stack((sums[n], best[n])), expected, rtol=1e-10, atol=0.0)


@pytest.mark.parametrize(("count", "class_bits"), CASES)
def test_sums_over_all_words_are_one(count: int, class_bits: int) -> None:
    table = SpanTable(spans_of(rank_code(count, class_bits, class_bits)))
    log_p_NV = table.log_sum(normal(20, class_bits)[:, None], torch.arange(count))
    torch.testing.assert_close(log_p_NV.exp().sum(-1), torch.ones(20, dtype=torch.float64), rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_gradients_are_finite_however_large_the_logits(scale: float) -> None:
    table = SpanTable(spans_of(rank_code(37, 6, 6)))
    logits = normal(37, 6, scale=scale).float().requires_grad_()
    for log_probability in (table.log_sum, table.log_max):
        value = log_probability(logits, torch.arange(37)).sum()
        (gradient,) = torch.autograd.grad(value, logits)
        assert torch.isfinite(value) and torch.isfinite(gradient).all()
