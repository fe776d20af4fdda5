"""The recurrence of an LSTM, step by step. T time, S = T + 1, B batch, H output size, K gates, G = K H = 4 H.

It is faster than the fused kernel if products are in bfloat16, which that kernel does not know, and the only way if the
state is masked between two steps. In the backward pass one product a step waits for the step after it; all others are
done for the whole window at once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lm.precision import in_bfloat16


def lstm_steps(
    gates_TBG: Tensor, hidden_BH: Tensor, memory_BH: Tensor, weight_GH: Tensor, mask_BH: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The outputs (T, B, H), and the memory (B, H) after the last step.

    `gates_TBG` holds what the inputs and both biases add to the gates, in the order i, f, g, o. A mask multiplies h
    on its way into the recurrent matrix. If products are in bfloat16, the weights are rounded once a window, and what a
    step's product gives, to the gates and back to h, is rounded too; all else stays in float32.
    """
    result: tuple[Tensor, Tensor] = _Steps.apply(gates_TBG, hidden_BH, memory_BH, weight_GH, mask_BH)  # type: ignore[no-untyped-call]
    return result


class _Steps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, gates_TBG: Tensor, hidden_BH: Tensor, memory_BH: Tensor, weight_GH: Tensor, mask_BH: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        steps, batch, _ = gates_TBG.shape
        size = hidden_BH.shape[1]
        outputs_SBH = gates_TBG.new_empty(steps + 1, batch, size)  # the window's beginning, then the steps'
        memories_SBH, tanh_TBH = torch.empty_like(outputs_SBH), gates_TBG.new_empty(steps, batch, size)
        outputs_SBH[0], memories_SBH[0] = hidden_BH, memory_BH
        gates_out_TBG = torch.empty_like(gates_TBG)
        weight_HG = _rounded(weight_GH).t()
        for t in range(steps):
            given_BH = outputs_SBH[t] if mask_BH is None else outputs_SBH[t] * mask_BH
            gates_BG = gates_out_TBG[t]
            if weight_HG.dtype == given_BH.dtype:
                torch.addmm(gates_TBG[t], given_BH, weight_HG, out=gates_BG)
            else:
                torch.add(gates_TBG[t], given_BH.to(weight_HG.dtype) @ weight_HG, out=gates_BG)
            i, f, g, o = gates_BG.view(batch, 4, size).unbind(1)
            gates_BG[:, : 2 * size].sigmoid_()
            g.tanh_()
            o.sigmoid_()
            torch.mul(f, memories_SBH[t], out=memories_SBH[t + 1]).addcmul_(i, g)
            torch.tanh(memories_SBH[t + 1], out=tanh_TBH[t])
            torch.mul(o, tanh_TBH[t], out=outputs_SBH[t + 1])
        ctx.save_for_backward(weight_GH, mask_BH, gates_out_TBG, memories_SBH, tanh_TBH, outputs_SBH)
        ctx.rounded = weight_HG.dtype != weight_GH.dtype
        return outputs_SBH[1:], memories_SBH[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, output_grad_TBH: Tensor, memory_grad_BH: Tensor) -> tuple[Tensor | None, ...]:
        weight_GH, mask_BH, gates_out_TBG, memories_SBH, tanh_TBH, outputs_SBH = ctx.saved_tensors
        steps, batch, _ = gates_out_TBG.shape
        i, f, g, o = gates_out_TBG.view(steps, batch, 4, -1).unbind(2)
        # Each gate's slope times what its gradient is multiplied by: the memory's gradient, or of o the output's.
        slopes_TBG = torch.empty_like(gates_out_TBG)
        slopes_TBKH = slopes_TBG.view(steps, batch, 4, -1)
        torch.sub(1, i, out=slopes_TBKH[:, :, 0]).mul_(i).mul_(g)
        torch.sub(1, f, out=slopes_TBKH[:, :, 1]).mul_(f).mul_(memories_SBH[:-1])
        torch.mul(g, g, out=slopes_TBKH[:, :, 2]).neg_().add_(1).mul_(i)
        torch.sub(1, o, out=slopes_TBKH[:, :, 3]).mul_(o).mul_(tanh_TBH)
        into_memory_TBH = tanh_TBH.square().neg_().add_(1).mul_(o)
        rounded_GH = weight_GH.bfloat16() if ctx.rounded else weight_GH
        memory_grad_BH = memory_grad_BH.clone()
        hidden_grad_BH = torch.zeros_like(memory_grad_BH)
        for t in range(steps - 1, -1, -1):
            hidden_grad_BH = hidden_grad_BH + output_grad_TBH[t]
            memory_grad_BH.addcmul_(hidden_grad_BH, into_memory_TBH[t])
            slopes_TBKH[t, :, :3].mul_(memory_grad_BH[:, None])
            slopes_TBKH[t, :, 3].mul_(hidden_grad_BH)
            memory_grad_BH.mul_(f[t])
            hidden_grad_BH = (slopes_TBG[t].to(rounded_GH.dtype) @ rounded_GH).to(slopes_TBG.dtype)
            if mask_BH is not None:
                hidden_grad_BH.mul_(mask_BH)
        given_TBH = outputs_SBH[:-1] if mask_BH is None else outputs_SBH[:-1] * mask_BH
        weight_grad_GH = slopes_TBG.flatten(0, 1).t() @ given_TBH.flatten(0, 1)
        return slopes_TBG, hidden_grad_BH, memory_grad_BH, weight_grad_GH, None


def _rounded(weight: Tensor) -> Tensor:
    return weight.bfloat16() if in_bfloat16() and weight.dtype == torch.float32 else weight
