"""The recurrence of an LSTM, step by step. T time, B batch, H output size, G = 4 H.

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
        outputs = gates_TBG.new_empty(steps + 1, batch, size)  # the window's beginning, then the steps'
        memories, memory_tanh = torch.empty_like(outputs), gates_TBG.new_empty(steps, batch, size)
        outputs[0], memories[0] = hidden_BH, memory_BH
        activations = torch.empty_like(gates_TBG)
        weight_HG = _rounded(weight_GH).t()
        for t in range(steps):
            given_BH = outputs[t] if mask_BH is None else outputs[t] * mask_BH
            gates_BG = activations[t]
            if weight_HG.dtype == given_BH.dtype:
                torch.addmm(gates_TBG[t], given_BH, weight_HG, out=gates_BG)
            else:
                torch.add(gates_TBG[t], given_BH.to(weight_HG.dtype) @ weight_HG, out=gates_BG)
            i, f, g, o = gates_BG.view(batch, 4, size).unbind(1)
            gates_BG[:, : 2 * size].sigmoid_()
            g.tanh_()
            o.sigmoid_()
            torch.mul(f, memories[t], out=memories[t + 1]).addcmul_(i, g)
            torch.tanh(memories[t + 1], out=memory_tanh[t])
            torch.mul(o, memory_tanh[t], out=outputs[t + 1])
        ctx.save_for_backward(weight_GH, mask_BH, activations, memories, memory_tanh, outputs)
        ctx.rounded = weight_HG.dtype != weight_GH.dtype
        return outputs[1:], memories[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, output_grad_TBH: Tensor, memory_grad_BH: Tensor) -> tuple[Tensor | None, ...]:
        weight_GH, mask_BH, activations, memories, memory_tanh, outputs = ctx.saved_tensors
        steps, batch, _ = activations.shape
        i, f, g, o = activations.view(steps, batch, 4, -1).unbind(2)
        # Each gate's slope times what its gradient is multiplied by: the memory's gradient, or of o the output's.
        slopes = torch.empty_like(activations)
        gates_TB4H = slopes.view(steps, batch, 4, -1)
        torch.sub(1, i, out=gates_TB4H[:, :, 0]).mul_(i).mul_(g)
        torch.sub(1, f, out=gates_TB4H[:, :, 1]).mul_(f).mul_(memories[:-1])
        torch.mul(g, g, out=gates_TB4H[:, :, 2]).neg_().add_(1).mul_(i)
        torch.sub(1, o, out=gates_TB4H[:, :, 3]).mul_(o).mul_(memory_tanh)
        into_memory = memory_tanh.square().neg_().add_(1).mul_(o)
        weight = weight_GH.bfloat16() if ctx.rounded else weight_GH
        memory_grad_BH = memory_grad_BH.clone()
        hidden_grad_BH = torch.zeros_like(memory_grad_BH)
        for t in range(steps - 1, -1, -1):
            hidden_grad_BH = hidden_grad_BH + output_grad_TBH[t]
            memory_grad_BH.addcmul_(hidden_grad_BH, into_memory[t])
            gates_TB4H[t, :, :3].mul_(memory_grad_BH[:, None])
            gates_TB4H[t, :, 3].mul_(hidden_grad_BH)
            memory_grad_BH.mul_(f[t])
            hidden_grad_BH = (slopes[t].to(weight.dtype) @ weight).to(slopes.dtype)
            if mask_BH is not None:
                hidden_grad_BH.mul_(mask_BH)
        given = outputs[:-1] if mask_BH is None else outputs[:-1] * mask_BH
        weight_grad_GH = slopes.flatten(0, 1).t() @ given.flatten(0, 1)
        return slopes, hidden_grad_BH, memory_grad_BH, weight_grad_GH, None


def _rounded(weight: Tensor) -> Tensor:
    return weight.bfloat16() if in_bfloat16() and weight.dtype == torch.float32 else weight
