"""Cross-entropy in blocks and in chunks against rows one by one. N rows, H size, V vocabulary."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from lm.heads import blocks
from lm.heads.cross_entropy import linear_nats, whole_rows_nats
from lm.precision import products_in
from tests.lm.heads.live import LiveBytes
from tests.support.tiny import seeded

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


WAYS = {
    "blocks, kept": (linear_nats, 1000),
    "blocks, computed again": (linear_nats, 7),
    "rows, kept": (whole_rows_nats, 1000),
    "chunks of rows": (whole_rows_nats, 7),
    "single rows": (whole_rows_nats, 0),
}
every_way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few words, so that a small vocabulary has several, not all of one width."""
    monkeypatch.setattr(blocks, "LEAST_WORDS", 4)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1)
    monkeypatch.setattr(blocks, "KEPT_BLOCK_BYTES", 9 * N * 8)


def nats(way: str, hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, targets_N: Tensor) -> Tensor:
    function, rows = WAYS[way]
    return function(hidden_NH, weight_VH, bias_V, targets_N, chunk_bytes=rows * len(weight_VH) * weight_VH.itemsize)


@every_way
@pytest.mark.parametrize("with_bias", [True, False])
def test_value_and_gradients_equal_those_of_single_rows(way: str, with_bias: bool) -> None:
    hidden_NH, weight_VH, bias_V, targets_N, upstream_N = problem()
    leaves = [hidden_NH.requires_grad_(), weight_VH.requires_grad_()] + [bias_V.requires_grad_()] * with_bias
    given = (hidden_NH, weight_VH, bias_V if with_bias else None, targets_N)
    nats_N, expected_N = nats(way, *given), one_by_one(*given)
    torch.testing.assert_close(nats_N, expected_N, rtol=0.0, atol=1e-10)
    gradients = torch.autograd.grad(nats_N, leaves, upstream_N)
    for gradient, expected in zip(gradients, torch.autograd.grad(expected_N, leaves, upstream_N), strict=True):
        torch.testing.assert_close(gradient, expected, rtol=0.0, atol=1e-10)


@every_way
def test_no_rows_have_no_loss(way: str) -> None:
    """As a cluster of rare words that no target lies in."""
    hidden_NH, weight_VH, bias_V, targets_N, _ = problem()
    nats_N = nats(way, hidden_NH[:0].requires_grad_(), weight_VH.requires_grad_(), bias_V, targets_N[:0])
    nats_N.sum().backward()
    assert nats_N.shape == (0,)
    assert weight_VH.grad is not None and not weight_VH.grad.any()


def test_what_one_step_keeps_is_not_what_another_needs() -> None:
    """Two losses before either's backward pass, and a third step afterwards, as gradients are accumulated."""
    first, second = problem(), problem(rows=11)
    expected = []
    for hidden_NH, weight_VH, bias_V, targets_N, upstream_N in (first, second):
        loss = one_by_one(hidden_NH, weight_VH.requires_grad_(), bias_V, targets_N) @ upstream_N
        expected.append(torch.autograd.grad(loss, weight_VH)[0])
    for _ in range(2):
        losses = [nats("blocks, kept", *given) @ upstream_N for *given, upstream_N in (first, second)]
        for (_, weight_VH, *_), loss, gradient in zip((first, second), losses, expected, strict=True):
            torch.testing.assert_close(torch.autograd.grad(loss, weight_VH)[0], gradient, rtol=0.0, atol=1e-10)


@pytest.mark.parametrize("with_bias", [True, False])
def test_rows_that_fit_are_the_plain_loss_to_the_last_bit(with_bias: bool) -> None:
    """Of logits (T, B, V), as they would be computed without it; gradients too. As a GPU computes it."""
    hidden_NH, weight_VH, bias_V, targets_N, upstream_N = problem(torch.float32, rows=60, size=40, words=500)
    leaves = [hidden_NH.requires_grad_(), weight_VH.requires_grad_()] + [bias_V.requires_grad_()] * with_bias
    given_bias = bias_V if with_bias else None
    logits_TBV = F.linear(hidden_NH.view(12, 5, 40), weight_VH, given_bias)
    expected_N = F.cross_entropy(logits_TBV.flatten(0, 1), targets_N, reduction="none")
    nats_N = nats("rows, kept", hidden_NH, weight_VH, given_bias, targets_N)
    assert torch.equal(nats_N, expected_N)
    gradients = torch.autograd.grad(nats_N, leaves, upstream_N)
    for gradient, expected in zip(gradients, torch.autograd.grad(expected_N, leaves, upstream_N), strict=True):
        assert torch.equal(gradient, expected)


@every_way
@pytest.mark.parametrize("with_bias", [True, False])
def test_float32_is_float64_within_its_rounding(way: str, with_bias: bool) -> None:
    """At the size of a real step, where a loss is about 9 nats."""
    hidden_NH, weight_VH, bias_V, targets_N, upstream_N = problem(torch.float64, rows=300, size=64, words=3000)
    hidden_NH, bias_V = hidden_NH / 8, bias_V if with_bias else None
    exact, single = [], []
    for dtype, found in ((torch.float64, exact), (torch.float32, single)):
        given = [None if x is None else x.detach().to(dtype).requires_grad_() for x in (hidden_NH, weight_VH, bias_V)]
        nats_N = nats(way, *given, targets_N)
        leaves = [x for x in given if x is not None]
        found += [nats_N, *torch.autograd.grad(nats_N, leaves, upstream_N.to(dtype))]
    for value, expected in zip(single, exact, strict=True):
        torch.testing.assert_close(value.double(), expected, rtol=0.0, atol=3e-6 * float(expected.detach().abs().max()))


def test_a_loss_in_bfloat16_is_one_of_the_rounded_scores() -> None:
    """Never below zero, as it would be if the target's score were rounded otherwise than the others."""
    hidden_NH, weight_VH, _, _, _ = problem(torch.float32, rows=200, size=64, words=500)
    targets_N = (hidden_NH @ weight_VH.t()).argmax(dim=1)
    with products_in("bfloat16"):
        nats_N = nats("blocks, kept", 3 * hidden_NH, weight_VH.requires_grad_(), None, targets_N)
    assert nats_N.min() > -1e-4
    exact_N = nats("rows, kept", 3 * hidden_NH, weight_VH, None, targets_N)
    assert 0.0 < float((nats_N - exact_N).detach().abs().max()) < 0.5


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_no_loss_is_below_zero(mode: type[torch.no_grad] | type[torch.enable_grad]) -> None:
    """In float32, of scores in the hundreds whose highest is the target's: an exponential's rounding is left."""
    hidden_NH, weight_VH, bias_V, _, _ = problem(torch.float32, rows=200, size=64, words=500)
    hidden_NH = 20 * hidden_NH
    targets_N = torch.addmm(bias_V, hidden_NH, weight_VH.t()).argmax(dim=1)
    with mode():
        nats_N = nats("blocks, kept", hidden_NH, weight_VH.requires_grad_(), bias_V, targets_N)
    assert nats_N.min() > -1e-6


@every_way
@pytest.mark.parametrize("frozen", [{0}, {1}, {2}, {0, 1}, {0, 2}, {1, 2}])
def test_only_what_trains_gets_a_gradient(way: str, frozen: set[int]) -> None:
    *given, targets_N, upstream_N = problem()
    for i, tensor in enumerate(given):
        tensor.requires_grad_(i not in frozen)
    (nats(way, *given, targets_N) @ upstream_N).backward()
    leaves = [tensor for tensor in given if tensor.requires_grad]
    expected = torch.autograd.grad(one_by_one(*given, targets_N) @ upstream_N, leaves)
    assert all(tensor.grad is None for i, tensor in enumerate(given) if i in frozen)
    for leaf, gradient in zip(leaves, expected, strict=True):
        torch.testing.assert_close(leaf.grad, gradient, rtol=0.0, atol=1e-10)


@every_way
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradient(way: str, mode: type[torch.no_grad] | type[torch.inference_mode]) -> None:
    """Between two steps of training too: what is made in inference mode must not reach them."""
    *given, _ = problem()
    expected_N = one_by_one(*given)
    given[1].requires_grad_()
    for _ in range(2):
        with mode():
            nats_N = nats(way, *given)
        assert not nats_N.requires_grad
        torch.testing.assert_close(nats_N, expected_N, rtol=0.0, atol=1e-10)
        nats(way, *given).sum().backward()


@every_way
@pytest.mark.parametrize(("everywhere", "off_target"), [(1000.0, 0.0), (0.0, 80.0), (0.0, 200.0)])
def test_scores_that_overflow_when_exponentiated(way: str, everywhere: float, off_target: float) -> None:
    """Adding 1,000 to every score changes nothing; losses of 80 and 200 nats; in float32, gradients included."""
    *given, targets_N, upstream_N = problem()
    given[2][targets_N.unique()[1:]] += off_target  # a target that is far behind the others
    expected_N = one_by_one(*(tensor.requires_grad_() for tensor in given), targets_N)
    expected = torch.autograd.grad(expected_N, given, upstream_N)
    single = [tensor.detach().float().requires_grad_() for tensor in given]
    nats_N = nats(way, single[0], single[1], single[2] + everywhere, targets_N)
    torch.testing.assert_close(nats_N.double(), expected_N, rtol=0.0, atol=1e-3)  # 1,000 itself has 6e-5 between floats
    for gradient, reference in zip(torch.autograd.grad(nats_N, single, upstream_N.float()), expected, strict=True):
        torch.testing.assert_close(gradient.double(), reference, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("function", "least"), [(linear_nats, 0.0), (whole_rows_nats, 1.0)])
def test_the_logits_alive_are_those_of_one_chunk(function: Any, least: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they do not all fit: of a chunk of rows, or of a block of words."""
    monkeypatch.setattr(blocks, "_spare", {})
    hidden_NH, weight_VH, bias_V, targets_N, upstream_N = problem(torch.float32, rows=400, size=4, words=3000)
    leaves = [hidden_NH.requires_grad_(), weight_VH.requires_grad_(), bias_V.requires_grad_()]
    chunk_bytes, all_bytes = 40 * 3000 * 4, 400 * 3000 * 4
    peaks = {}
    for limit in (chunk_bytes, all_bytes):
        with LiveBytes() as live:
            function(hidden_NH, weight_VH, bias_V, targets_N, chunk_bytes=limit).backward(upstream_N)
        peaks[limit] = live.peak
        for leaf in leaves:
            leaf.grad = None
    small = 4 * sum(leaf.nbytes for leaf in leaves)
    assert least * chunk_bytes <= peaks[chunk_bytes] < chunk_bytes + small < all_bytes < peaks[all_bytes]
