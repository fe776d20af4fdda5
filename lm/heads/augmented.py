"""The augmented loss on a CPU, block by block of the vocabulary (Inan et al. 2016, section 3).

N rows, U different targets among them, X = 2 N + U, H size, E embedding, V vocabulary, W words of a block.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lm.heads.blocks import MOST_NATS, Gradients, blocks, give_back, places_of, scores, take, target_scores


def augmented_nats(
    hidden_NH: Tensor,
    weight_VH: Tensor,
    bias_V: Tensor | None,
    embedding_VE: Tensor,
    targets_N: Tensor,
    temperature: float,
) -> tuple[Tensor, Tensor]:
    """Loss (N,) of each target, and KL (N,) of softmax(scores / temperature) from its soft target, in nats.

    The soft target is softmax(likeness / temperature), where likeness are the inner products of the target's embedding
    with all; a detached embedding keeps the gradient out of it. Equal targets have one soft target. Both hold for
    losses below `MOST_NATS` whose KL is finite; if one is not, the caller takes another way.
    """
    both: tuple[Tensor, Tensor] = _AugmentedNats.apply(  # type: ignore[no-untyped-call]
        hidden_NH, weight_VH, bias_V, embedding_VE, targets_N, temperature
    )
    return both


class _Saved(NamedTuple):
    """What the backward pass reads, beside the exponentials: totals are their sums over the vocabulary."""

    hidden_NH: Tensor
    weight_VH: Tensor
    bias_V: Tensor | None
    embedding_VE: Tensor
    targets_N: Tensor
    different_U: Tensor
    which_N: Tensor
    total_N1: Tensor
    soft_total_N1: Tensor
    like_total_U1: Tensor
    offset_N1: Tensor
    """scores / temperature, less their log softmax, less the KL: one number for each row."""


class _AugmentedNats(torch.autograd.Function):
    """Keeps exp(scores - target's), the same softened, and the soft targets' exponentials."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        embedding_VE: Tensor,
        targets_N: Tensor,
        temperature: float,
    ) -> tuple[Tensor, Tensor]:
        rows, words = len(hidden_NH), len(weight_VH)
        different_U, which_N = torch.unique(targets_N, return_inverse=True)
        own_UE = embedding_VE[different_U]
        own_U1 = own_UE.square().sum(dim=1, keepdim=True).div_(temperature)
        own_UE = own_UE / temperature
        shift_N1 = target_scores(hidden_NH, weight_VH, bias_V, targets_N)[:, None]
        total_N1, own_N1, soft_total_N1, cross_N1 = (torch.zeros_like(shift_N1) for _ in range(4))
        like_total_U1, like_mean_U1 = torch.zeros_like(own_U1), torch.zeros_like(own_U1)
        kept_rows = 2 * rows + len(different_U)
        ctx.kept = take(kept_rows * words, hidden_NH)
        for part, block_XW in blocks(kept_rows, words, hidden_NH, ctx.kept):
            exp_NW, soft_NW, like_UW = torch.split(block_XW, [rows, rows, len(different_U)])
            # The first two are free as yet, and take what is needed for a moment.
            excess_UW, chosen_NW = exp_NW[: len(different_U)], exp_NW
            torch.mm(own_UE, embedding_VE[part].t(), out=excess_UW)
            excess_UW -= own_U1
            like_total_U1 += torch.exp(excess_UW, out=like_UW).sum(dim=1, keepdim=True)
            like_mean_U1 += excess_UW.mul_(like_UW).sum(dim=1, keepdim=True)
            scores(hidden_NH, weight_VH, bias_V, part, soft_NW)
            soft_NW.sub_(shift_N1)
            rows_M, columns_M = places_of(targets_N, part)
            own_N1[rows_M, 0] = soft_NW[rows_M, columns_M]
            soft_NW.div_(temperature)
            torch.index_select(like_UW, 0, which_N, out=chosen_NW)
            cross_N1 += chosen_NW.mul_(soft_NW).sum(dim=1, keepdim=True)
            torch.mul(soft_NW, temperature, out=exp_NW)
            soft_total_N1 += soft_NW.exp_().sum(dim=1, keepdim=True)
            total_N1 += exp_NW.exp_().sum(dim=1, keepdim=True)
        ctx.temperature = temperature
        like_total_N1 = like_total_U1[which_N]
        divergence_N1 = (like_mean_U1[which_N] - cross_N1) / like_total_N1 - like_total_N1.log() + soft_total_N1.log()
        offset_N1 = shift_N1 / temperature + soft_total_N1.log() - divergence_N1
        given = (hidden_NH, weight_VH, bias_V, embedding_VE, targets_N, different_U, which_N)
        ctx.save_for_backward(*_Saved(*given, total_N1, soft_total_N1, like_total_U1, offset_N1))
        # Beyond, what the backward pass divides by such a sum would lose its digits.
        largest_N1 = torch.maximum(like_total_N1, soft_total_N1)
        divergence_N1.masked_fill_(largest_N1 > math.exp(MOST_NATS), math.nan)
        return (total_N1.log() - own_N1).squeeze(1), divergence_N1.squeeze(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream_N: Tensor, softened_upstream_N: Tensor) -> tuple[Tensor | None, ...]:
        saved = _Saved(*ctx.saved_tensors)
        kept, ctx.kept = ctx.kept, None
        if kept is None:
            raise RuntimeError("an augmented loss has one backward pass, whose buffer was given back")
        rows, different, words = len(saved.hidden_NH), len(saved.different_U), len(saved.weight_VH)
        gradients = Gradients(saved.hidden_NH, saved.weight_VH, saved.bias_V, ctx.needs_input_grad)
        exp_scale_N1 = upstream_N[:, None] / saved.total_N1
        softened_N1 = softened_upstream_N[:, None] / ctx.temperature
        soft_scale_N1 = softened_N1 / saved.soft_total_N1
        like_scale_N1 = softened_N1 / saved.like_total_U1[saved.which_N]
        one_N1 = torch.ones_like(saved.total_N1)
        into_target = None
        if ctx.needs_input_grad[3]:
            into_target = _IntoTarget(saved, softened_upstream_N[:, None], ctx.temperature)
        for part, block_XW in blocks(2 * rows + different, words, saved.hidden_NH, kept):
            exp_NW, soft_NW, like_UW = torch.split(block_XW, [rows, rows, different])
            exp_NW.mul_(exp_scale_N1).addcmul_(soft_NW, soft_scale_N1)
            torch.index_select(like_UW, 0, saved.which_N, out=soft_NW)
            exp_NW.addcmul_(soft_NW, like_scale_N1, value=-1)
            rows_M, columns_M = places_of(saved.targets_N, part)
            exp_NW[rows_M, columns_M] -= upstream_N[rows_M]
            gradients.add(part, exp_NW, one_N1)
            if into_target is not None:
                into_target.add(part, like_UW, exp_NW[:different])
        give_back(kept)
        for_embedding_VE = None if into_target is None else into_target.gradient()
        return (*gradients.of(one_N1), for_embedding_VE, None, None)


class _IntoTarget:
    """The gradient through the soft targets p, by p_i (log p_i - log q_i - KL) / temperature of each likeness i.

    Rows with the same target share p; log q is linear in their hidden vectors, but for one number of each row. So the
    hidden vectors are summed before the product with the vocabulary.
    """

    def __init__(self, saved: _Saved, upstream_N1: Tensor, temperature: float) -> None:
        self.saved, own_UE = saved, saved.embedding_VE[saved.different_U]

        def summed(rows_NX: Tensor) -> Tensor:
            return rows_NX.new_zeros(len(own_UE), rows_NX.shape[1]).index_add_(0, saved.which_N, rows_NX)

        upstream_U1 = summed(upstream_N1)
        self.scaled_U1 = upstream_U1 / temperature
        self.hidden_UH = summed(saved.hidden_NH * upstream_N1).div_(temperature)
        self.own_UE = own_UE * self.scaled_U1
        self.offset_U1 = summed(upstream_N1 * saved.offset_N1) - upstream_U1 * saved.like_total_U1.log()
        self.offset_U1 -= own_UE.square().sum(dim=1, keepdim=True) * self.scaled_U1
        self.scale_U1 = 1.0 / (temperature * saved.like_total_U1)
        self.gradients = Gradients(own_UE, saved.embedding_VE, None, (True, True, False))

    def add(self, part: slice, like_UW: Tensor, scratch_UW: Tensor) -> None:
        """Take in the block of these words, whose exponentials are given."""
        torch.mm(self.own_UE, self.saved.embedding_VE[part].t(), out=scratch_UW)
        torch.addmm(scratch_UW, self.hidden_UH, self.saved.weight_VH[part].t(), alpha=-1, out=scratch_UW)
        if self.saved.bias_V is not None:
            scratch_UW.addr_(self.scaled_U1[:, 0], self.saved.bias_V[part], alpha=-1)
        scratch_UW.add_(self.offset_U1).mul_(like_UW)
        self.gradients.add(part, scratch_UW, self.scale_U1)

    def gradient(self) -> Tensor:
        """Of the whole embedding (V, E)."""
        for_own_UE, for_embedding_VE, _ = self.gradients.of(self.scale_U1)
        assert for_own_UE is not None and for_embedding_VE is not None
        return for_embedding_VE.index_add_(0, self.saved.different_U, for_own_UE)
