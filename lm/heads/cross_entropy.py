"""Cross-entropy of a linear layer, in bounded memory. N rows, R rows of a chunk, H size, V vocabulary.

PyTorch 2.13's `linear_cross_entropy` does the same where its reduction is "none"; it is not used because 2.11 and 2.12
lack it, and at equal chunks it was measured no faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from lm.heads.blocks import BLOCK_BYTES, LEAST_WORDS, MOST_NATS, blocked_nats

CHUNK_BYTES = 256 * 2**20
"""Of logits: thousands of rows at the usual vocabularies, so that chunks stay few and large."""

CACHED_BYTES = 4 * 2**20
"""Of logits that a CPU goes through row by row: they stay in its cache."""
SAME_BITS_ROWS = 16
"""Matrix products of fewer rows were seen to round otherwise than those of more."""


def linear_nats(
    hidden_NH: Tensor,
    weight_VH: Tensor,
    bias_V: Tensor | None,
    targets_N: Tensor,
    *,
    chunk_bytes: int = CHUNK_BYTES,
) -> Tensor:
    """Loss of each row's target under softmax(W h + b), (N,), natural logarithm.

    On a CPU in blocks of the vocabulary, whose exponentials are kept for the backward pass if all of them take at most
    `chunk_bytes`. On a GPU, or if a loss is above `MOST_NATS`, in whole rows: if the logits of all take at most
    `chunk_bytes`, autograd keeps them; otherwise rows go through in a few large chunks of at most that size (or single
    rows, if even one is larger), and the backward pass computes the logits again, a third more arithmetic. Whichever
    way, the gradient that arrives may differ from row to row.
    """
    precise = hidden_NH.dtype == weight_VH.dtype and hidden_NH.dtype in (torch.float32, torch.float64)
    if precise and not hidden_NH.is_cuda:
        nats_N = blocked_nats(hidden_NH, weight_VH, bias_V, targets_N, keep_bytes=chunk_bytes)
        if (nats_N < MOST_NATS).all():
            return nats_N
    return whole_rows_nats(hidden_NH, weight_VH, bias_V, targets_N, chunk_bytes)


def whole_rows_nats(
    hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, targets_N: Tensor, chunk_bytes: int
) -> Tensor:
    """As `linear_nats` where no block is taken: all logits of a row at once."""
    rows = max(1, chunk_bytes // (weight_VH.shape[0] * weight_VH.itemsize))
    if len(hidden_NH) <= rows:
        return _plain_nats(hidden_NH, weight_VH, bias_V, targets_N)
    chunks = -(-len(hidden_NH) // rows)
    even_rows = -(-len(hidden_NH) // chunks)
    chunked_N: Tensor = _ChunkedNats.apply(hidden_NH, weight_VH, bias_V, targets_N, even_rows)  # type: ignore[no-untyped-call]
    return chunked_N


def _plain_nats(hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, targets_N: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(hidden_NH, weight_VH, bias_V), targets_N, reduction="none")


def linear_nats_cost(rows: int, size: int, vocabulary_size: int, *, on_gpu: bool) -> tuple[float, float]:
    """FLOPs of a training step of `linear_nats`, and the bytes of logits it holds at once, in float32."""
    product, logits_bytes = 2 * rows * size * vocabulary_size, 4 * rows * vocabulary_size
    if not on_gpu:
        kept = logits_bytes <= CHUNK_BYTES
        return (3 if kept else 4) * product, logits_bytes if kept else max(BLOCK_BYTES, 4 * rows * LEAST_WORDS)
    chunks = -(-logits_bytes // CHUNK_BYTES)
    if chunks <= 1:
        return 3 * product, 3 * logits_bytes  # backward: their softmax, and the gradients of both
    return 4 * product, logits_bytes / chunks


class _ChunkedNats(torch.autograd.Function):
    """Keeps each row's highest score, and its sum of exponentials, in the place of its logits."""

    @staticmethod
    def forward(
        ctx: Any, hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, targets_N: Tensor, rows: int
    ) -> Tensor:
        top_N1, total_N1, target_N1 = (hidden_NH.new_empty(len(hidden_NH), 1) for _ in range(3))
        for chunk, logits_NV in _logits(hidden_NH, weight_VH, bias_V, rows):
            top_N1[chunk] = logits_NV.amax(dim=-1, keepdim=True)
            logits_NV.sub_(top_N1[chunk])
            target_N1[chunk] = logits_NV.gather(-1, targets_N[chunk, None])
            total_N1[chunk] = logits_NV.exp_().sum(dim=-1, keepdim=True)
        ctx.save_for_backward(hidden_NH, weight_VH, bias_V, targets_N, top_N1, total_N1)
        ctx.rows = rows
        return (total_N1.log() - target_N1).squeeze(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream_N: Tensor) -> tuple[Tensor | None, ...]:
        hidden_NH, weight_VH, bias_V, targets_N, top_N1, total_N1 = ctx.saved_tensors
        wants_hidden, wants_weight, wants_bias, _, _ = ctx.needs_input_grad
        hidden_grad = torch.empty_like(hidden_NH) if wants_hidden else None
        weight_grad = torch.zeros_like(weight_VH) if wants_weight else None
        bias_grad = torch.zeros_like(bias_V) if wants_bias else None
        for chunk, logits_NV in _logits(hidden_NH, weight_VH, bias_V, ctx.rows):
            # total x (probability - one-hot); what scales a row is applied where a row is H numbers, not V.
            excess_NV = logits_NV.sub_(top_N1[chunk]).exp_()
            excess_NV[torch.arange(len(excess_NV), device=excess_NV.device), targets_N[chunk]] -= total_N1[chunk, 0]
            scale_N1 = upstream_N[chunk, None] / total_N1[chunk]
            if hidden_grad is not None:
                hidden_grad[chunk] = (excess_NV @ weight_VH).mul_(scale_N1)
            if weight_grad is not None:
                weight_grad.addmm_(excess_NV.t(), hidden_NH[chunk] * scale_N1)
            if bias_grad is not None:
                bias_grad.addmv_(excess_NV.t(), scale_N1[:, 0])
        return hidden_grad, weight_grad, bias_grad, None, None


def _logits(hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, rows: int) -> Iterator[tuple[slice, Tensor]]:
    """Where each chunk of rows lies, and its logits, which the next chunk's overwrite."""
    block_RV = hidden_NH.new_empty(rows, len(weight_VH))
    for start in range(0, len(hidden_NH), rows):
        chunk = slice(start, start + rows)
        logits_NV = block_RV[: len(hidden_NH[chunk])]
        torch.mm(hidden_NH[chunk], weight_VH.t(), out=logits_NV)
        if bias_V is not None:
            logits_NV += bias_V
        yield chunk, logits_NV
