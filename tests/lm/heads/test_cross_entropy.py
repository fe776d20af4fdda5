"""Cross-entropy in chunks against rows one by one. N rows, H size, V vocabulary."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from examples import seeded
from live import LiveBytes
from torch import Tensor
from torch.nn import functional as F

import lm.heads.cross_entropy
from lm.heads.cross_entropy import linear_nats

N, H, V = 23, 5, 31
ROW = V * 8
"""Bytes of one row's logits."""


def problem(dtype: torch.dtype = torch.float64, rows: int = N, size: int = H, words: int = V) -> tuple[Any, ...]:
    """Hidden vectors, weight, bias, targets and a gradient from above that differs by row."""
    draw = seeded(1)
    hidden_NH, weight_VH, bias_V, upstream_N = (
        torch.randn(shape, generator=draw, dtype=torch.float64).to(dtype)
        for shape in ((rows, size), (words, size), (words,), (rows,))
    )
    return hidden_NH, weight_VH, bias_V, torch.randint(words, (rows,), generator=draw), upstream_N


def one_by_one(hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, targets_N: Tensor) -> Tensor:
    nats = []
    for h, y in zip(hidden_NH, targets_N.tolist(), strict=True):
        scores_V = torch.stack([(h * w).sum() for w in weight_VH])
        if bias_V is not None:
            scores_V = scores_V + bias_V
        nats.append(scores_V.exp().sum().log() - scores_V[y])
    return torch.stack(nats)


def chunked(hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, targets_N: Tensor, rows: int = 7) -> Tensor:
    chunk_bytes = rows * len(weight_VH) * weight_VH.itemsize
    return linear_nats(hidden_NH, weight_VH, bias_V, targets_N, chunk_bytes=chunk_bytes)


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("rows", [1, 7, N - 1, N, 1000])
def test_value_and_gradients_equal_those_of_single_rows(rows: int, with_bias: bool) -> None:
    hidden_NH, weight_VH, bias_V, targets_N, upstream_N = problem()
    leaves = [hidden_NH.requires_grad_(), weight_VH.requires_grad_()] + [bias_V.requires_grad_()] * with_bias
    given = (hidden_NH, weight_VH, bias_V if with_bias else None, targets_N)
    nats_N, expected_N = chunked(*given, rows=rows), one_by_one(*given)
    torch.testing.assert_close(nats_N, expected_N, rtol=0.0, atol=1e-10)
    gradients = torch.autograd.grad(nats_N, leaves, upstream_N)
    for gradient, expected in zip(gradients, torch.autograd.grad(expected_N, leaves, upstream_N), strict=True):
        torch.testing.assert_close(gradient, expected, rtol=0.0, atol=1e-10)


def test_a_chunk_smaller_than_a_row_is_a_row() -> None:
    *given, _ = problem()
    torch.testing.assert_close(linear_nats(*given, chunk_bytes=1), one_by_one(*given), rtol=0.0, atol=1e-10)


@pytest.mark.parametrize("with_bias", [True, False])
def test_what_fits_is_the_plain_loss_to_the_last_bit(with_bias: bool) -> None:
    """Of logits (T, B, V), as they would be computed without it; gradients too."""
    hidden_NH, weight_VH, bias_V, targets_N, upstream_N = problem(torch.float32, rows=60, size=40, words=500)
    leaves = [hidden_NH.requires_grad_(), weight_VH.requires_grad_()] + [bias_V.requires_grad_()] * with_bias
    given_bias = bias_V if with_bias else None
    logits_TBV = F.linear(hidden_NH.view(12, 5, 40), weight_VH, given_bias)
    expected_N = F.cross_entropy(logits_TBV.flatten(0, 1), targets_N, reduction="none")
    nats_N = linear_nats(hidden_NH, weight_VH, given_bias, targets_N)
    assert torch.equal(nats_N, expected_N)
    gradients = torch.autograd.grad(nats_N, leaves, upstream_N)
    for gradient, expected in zip(gradients, torch.autograd.grad(expected_N, leaves, upstream_N), strict=True):
        assert torch.equal(gradient, expected)


@pytest.mark.parametrize("frozen", [{0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}])
def test_only_what_trains_gets_a_gradient(frozen: set[int]) -> None:
    *given, targets_N, upstream_N = problem()
    for i, tensor in enumerate(given):
        tensor.requires_grad_(i not in frozen)
    (chunked(*given, targets_N) @ upstream_N).backward()
    leaves = [tensor for tensor in given if tensor.requires_grad]
    expected = torch.autograd.grad(one_by_one(*given, targets_N) @ upstream_N, leaves)
    assert all(tensor.grad is None for i, tensor in enumerate(given) if i in frozen)
    for leaf, gradient in zip(leaves, expected, strict=True):
        torch.testing.assert_close(leaf.grad, gradient, rtol=0.0, atol=1e-10)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradient(mode: type[torch.no_grad] | type[torch.inference_mode]) -> None:
    *given, _ = problem()
    expected_N = one_by_one(*given)
    given[1].requires_grad_()
    with mode():
        nats_N = chunked(*given)
    assert not nats_N.requires_grad
    torch.testing.assert_close(nats_N, expected_N, rtol=0.0, atol=1e-10)


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize(
    ("rows", "size", "words", "chunk"), [(60, 40, 31, 20), (80, 16, 1000, 16), (100, 200, 500, 28), (350, 400, 900, 33)]
)
def test_cached_chunks_without_gradient_are_the_plain_loss_to_the_last_bit(
    rows: int, size: int, words: int, chunk: int, with_bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For chunks of at least 16 rows, the last one too; shorter products may be summed in another order."""
    hidden_NH, weight_VH, bias_V, targets_N, _ = problem(torch.float32, rows=rows, size=size, words=words)
    given_bias = bias_V if with_bias else None
    monkeypatch.setattr(lm.heads.cross_entropy, "CACHED_BYTES", chunk * words * 4)
    expected_N = F.cross_entropy(F.linear(hidden_NH, weight_VH, given_bias), targets_N, reduction="none")
    with torch.no_grad(), LiveBytes() as live:
        nats_N = linear_nats(hidden_NH, weight_VH, given_bias, targets_N)
    assert live.peak < rows * words * 4, "the rows went through in chunks"
    assert torch.equal(nats_N, expected_N)


def test_scores_that_overflow_when_exponentiated() -> None:
    """Adding 1,000 to every score changes nothing; in float32, gradients included."""
    *given, targets_N, upstream_N = problem()
    expected_N = one_by_one(*(tensor.requires_grad_() for tensor in given), targets_N)
    expected = torch.autograd.grad(expected_N, given, upstream_N)
    single = [tensor.detach().float().requires_grad_() for tensor in given]
    nats_N = chunked(single[0], single[1], single[2] + 1000.0, targets_N)
    torch.testing.assert_close(nats_N.double(), expected_N, rtol=0.0, atol=1e-3)  # 1,000 itself has 6e-5 between floats
    for gradient, reference in zip(torch.autograd.grad(nats_N, single, upstream_N.float()), expected, strict=True):
        torch.testing.assert_close(gradient.double(), reference, rtol=1e-3, atol=1e-3)


def test_the_logits_alive_are_those_of_one_chunk() -> None:
    hidden_NH, weight_VH, bias_V, targets_N, upstream_N = problem(torch.float32, rows=400, size=4, words=3000)
    leaves = [hidden_NH.requires_grad_(), weight_VH.requires_grad_(), bias_V.requires_grad_()]
    chunk_bytes, all_bytes = 40 * 3000 * 4, 400 * 3000 * 4
    peaks = {}
    for limit in (chunk_bytes, all_bytes):
        with LiveBytes() as live:
            linear_nats(hidden_NH, weight_VH, bias_V, targets_N, chunk_bytes=limit).backward(upstream_N)
        peaks[limit] = live.peak
        for leaf in leaves:
            leaf.grad = None
    small = 4 * sum(leaf.nbytes for leaf in leaves)
    assert chunk_bytes <= peaks[chunk_bytes] < chunk_bytes + small < all_bytes < peaks[all_bytes]
