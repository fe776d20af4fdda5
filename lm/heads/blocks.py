"""Cross-entropy of a linear layer on a CPU, block by block of the vocabulary. N rows, H size, V vocabulary, W of it.

A CPU loses most of a softmax's time outside of its products: passes over logits that left the cache, and memory that
the system hands out page by page. Here a block of logits is exponentiated while it is in the cache, and what the
backward pass needs of it lies in one buffer that the next training step takes over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

KEPT_BLOCK_BYTES = 2 * 2**20
"""Of one block that is kept for the backward pass; times with 1 to 8 MiB differed by less than 10%."""
BLOCK_BYTES = 2**20
"""Of one scratch block, which the next one overwrites while it is in the CPU's cache."""
LEAST_WORDS = 256
"""Of a block: products with fewer columns are slow."""

MOST_NATS = 60.0
"""Of a loss: exponentials of larger ones, times weights, may be infinite in float32."""

_spare: dict[tuple[torch.dtype, bool], Tensor] = {}
"""The process's buffer of the last step, while none uses it: a thread that takes it has it alone. One made in
inference mode is of no use outside of it."""


def blocked_nats(
    hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, targets_N: Tensor, *, keep_bytes: int
) -> Tensor:
    """Loss (N,) of each row's target under softmax(W h + b), natural logarithm, of tensors on a CPU.

    Scores are exponentiated less the target's own, so that no pass looks for the highest: the logarithm of their sum
    is the loss. That holds for losses below `MOST_NATS`; if one is higher, the caller takes another way. If all
    exponentials take more than `keep_bytes`, the backward pass computes them again, a third more arithmetic.
    """
    keeps = torch.is_grad_enabled() and len(hidden_NH) * len(weight_VH) * hidden_NH.itemsize <= keep_bytes
    nats_N: Tensor = _BlockedNats.apply(hidden_NH, weight_VH, bias_V, targets_N, keeps)  # type: ignore[no-untyped-call]
    return nats_N


class _BlockedNats(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, targets_N: Tensor, keeps: bool
    ) -> Tensor:
        rows, words = len(hidden_NH), len(weight_VH)
        shift_N1 = target_scores(hidden_NH, weight_VH, bias_V, targets_N)[:, None]
        ctx.kept = take(rows * words, hidden_NH) if keeps else None
        total_N1, own_N1 = torch.zeros_like(shift_N1), torch.zeros_like(shift_N1)
        for part, block_NW in blocks(rows, words, hidden_NH, ctx.kept):
            scores(hidden_NH, weight_VH, bias_V, part, block_NW)
            block_NW.sub_(shift_N1)
            # What is left of the target's score, which the product sums, or rounds, in another way.
            rows_M, columns_M = places_of(targets_N, part)
            own_N1[rows_M, 0] = block_NW[rows_M, columns_M]
            total_N1 += block_NW.exp_().sum(dim=1, keepdim=True)
        ctx.save_for_backward(hidden_NH, weight_VH, bias_V, targets_N, shift_N1, total_N1)
        return (total_N1.log() - own_N1).squeeze(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream_N: Tensor) -> tuple[Tensor | None, ...]:
        hidden_NH, weight_VH, bias_V, targets_N, shift_N1, total_N1 = ctx.saved_tensors
        kept, ctx.kept = ctx.kept, None
        gradients = Gradients(hidden_NH, weight_VH, bias_V, ctx.needs_input_grad)
        # total x (probability - one-hot); what scales a row is applied where a row is H numbers, not V.
        scale_N1 = upstream_N[:, None] / total_N1
        for part, block_NW in blocks(len(hidden_NH), len(weight_VH), hidden_NH, kept):
            if kept is None:
                scores(hidden_NH, weight_VH, bias_V, part, block_NW)
                block_NW.sub_(shift_N1).exp_()
            rows_M, columns_M = places_of(targets_N, part)
            block_NW[rows_M, columns_M] -= total_N1[rows_M, 0]
            gradients.add(part, block_NW, scale_N1)
        if kept is not None:
            give_back(kept)
        return (*gradients.of(scale_N1), None, None)


class Gradients:
    """Those of hidden vectors, weight and bias, from blocks of their logits' (N, V), but for a scale of each row."""

    def __init__(self, hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, wanted: tuple[bool, ...]) -> None:
        self.hidden_NH, self.weight_VH = hidden_NH, weight_VH
        self.for_hidden_NH = torch.zeros_like(hidden_NH) if wanted[0] else None
        self.for_weight_VH = torch.empty_like(weight_VH) if wanted[1] else None
        self.for_bias_V = torch.empty_like(bias_V) if bias_V is not None and wanted[2] else None
        self.scaled_NH: Tensor | None = None

    def add(self, part: slice, block_NW: Tensor, scale_N1: Tensor) -> None:
        """Take in the block of these words, which is multiplied by a row's scale."""
        if self.for_hidden_NH is not None:
            self.for_hidden_NH += block_NW @ self.weight_VH[part]
        if self.for_weight_VH is not None:
            if self.scaled_NH is None:
                self.scaled_NH = self.hidden_NH * scale_N1
            torch.mm(block_NW.t(), self.scaled_NH, out=self.for_weight_VH[part])
        if self.for_bias_V is not None:
            torch.mv(block_NW.t(), scale_N1[:, 0], out=self.for_bias_V[part])

    def of(self, scale_N1: Tensor) -> tuple[Tensor | None, ...]:
        """The three gradients, None where none was wanted."""
        hidden_NH = None if self.for_hidden_NH is None else self.for_hidden_NH.mul_(scale_N1)
        return hidden_NH, self.for_weight_VH, self.for_bias_V


def target_scores(hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, targets_N: Tensor) -> Tensor:
    """The score (N,) of each row's target."""
    scores_N = (hidden_NH * F.embedding(targets_N, weight_VH)).sum(dim=1)
    return scores_N if bias_V is None else scores_N + bias_V[targets_N]


def scores(hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, part: slice, out_NW: Tensor) -> None:
    """Write the scores of a block of words."""
    torch.mm(hidden_NH, weight_VH[part].t(), out=out_NW)
    if bias_V is not None:
        out_NW += bias_V[part]


def blocks(rows: int, words: int, like: Tensor, kept: Tensor | None) -> Iterator[tuple[slice, Tensor]]:
    """Even blocks of words: where each lies, and its place (N, W) in what is kept, else one that all share."""
    block_bytes = BLOCK_BYTES if kept is None else KEPT_BLOCK_BYTES
    width = max(LEAST_WORDS, block_bytes // (max(1, rows) * like.itemsize))
    count = -(-words // width)
    space = take(rows * -(-words // count), like) if kept is None else kept
    for k in range(count):
        start, stop = words * k // count, words * (k + 1) // count
        numbers = space[: rows * (stop - start)] if kept is None else kept[rows * start : rows * stop]
        yield slice(start, stop), numbers.view(rows, stop - start)
    if kept is None:
        give_back(space)


def places_of(targets_N: Tensor, part: slice) -> tuple[Tensor, Tensor]:
    """Which rows (M,) have their target in a block, and in which of its columns (M,)."""
    rows_M: Tensor = ((targets_N >= part.start) & (targets_N < part.stop)).nonzero()[:, 0]
    return rows_M, targets_N[rows_M] - part.start


def take(count: int, like: Tensor) -> Tensor:
    """A buffer of this many numbers: the spare one, if it is large enough."""
    spare = _spare.pop((like.dtype, torch.is_inference_mode_enabled()), None)
    return spare if spare is not None and len(spare) >= count else torch.empty(count, dtype=like.dtype)


def give_back(buffer: Tensor) -> None:
    """Keep a buffer for the next step."""
    _spare[buffer.dtype, buffer.is_inference()] = buffer
