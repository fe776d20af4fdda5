"""The augmented loss on a CPU, block by block of the vocabulary (Inan et al. 2016, section 3).

N rows, U different targets among them, X = 2 N + U, H size, E embedding, V vocabulary, W words of a block.
"""

from __future__ import annotations

import math
from typing import Any

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
    with all; no gradient goes through it. Equal targets have one soft target. Both hold for losses below `MOST_NATS`
    whose KL is finite; if one is not, the caller takes another way.
    """
    both: tuple[Tensor, Tensor] = _AugmentedNats.apply(  # type: ignore[no-untyped-call]
        hidden_NH, weight_VH, bias_V, embedding_VE.detach(), targets_N, temperature
    )
    return both


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
        saved = (hidden_NH, weight_VH, bias_V, targets_N, which_N, total_N1, soft_total_N1, like_total_U1)
        ctx.save_for_backward(*saved)
        ctx.temperature = temperature
        like_total_N1 = like_total_U1[which_N]
        divergence_N1 = (like_mean_U1[which_N] - cross_N1) / like_total_N1 - like_total_N1.log() + soft_total_N1.log()
        # Beyond, what the backward pass divides by such a sum would lose its digits.
        largest_N1 = torch.maximum(like_total_N1, soft_total_N1)
        divergence_N1.masked_fill_(largest_N1 > math.exp(MOST_NATS), math.nan)
        return (total_N1.log() - own_N1).squeeze(1), divergence_N1.squeeze(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream_N: Tensor, softened_upstream_N: Tensor) -> tuple[Tensor | None, ...]:
        hidden_NH, weight_VH, bias_V, targets_N, which_N, total_N1, soft_total_N1, like_total_U1 = ctx.saved_tensors
        kept, ctx.kept = ctx.kept, None
        if kept is None:
            raise RuntimeError("an augmented loss has one backward pass, whose buffer was given back")
        rows, different = len(hidden_NH), len(like_total_U1)
        gradients = Gradients(hidden_NH, weight_VH, bias_V, ctx.needs_input_grad)
        exp_scale_N1 = upstream_N[:, None] / total_N1
        softened_N1 = softened_upstream_N[:, None] / ctx.temperature
        soft_scale_N1, like_scale_N1 = softened_N1 / soft_total_N1, softened_N1 / like_total_U1[which_N]
        one_N1 = torch.ones_like(total_N1)
        for part, block_XW in blocks(2 * rows + different, len(weight_VH), hidden_NH, kept):
            exp_NW, soft_NW, like_UW = torch.split(block_XW, [rows, rows, different])
            exp_NW.mul_(exp_scale_N1).addcmul_(soft_NW, soft_scale_N1)
            torch.index_select(like_UW, 0, which_N, out=soft_NW)
            exp_NW.addcmul_(soft_NW, like_scale_N1, value=-1)
            rows_M, columns_M = places_of(targets_N, part)
            exp_NW[rows_M, columns_M] -= upstream_N[rows_M]
            gradients.add(part, exp_NW, one_N1)
        give_back(kept)
        return (*gradients.of(one_N1), None, None, None)
