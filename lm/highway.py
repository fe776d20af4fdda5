"""A recurrent highway layer. T time, B batch, I input size, H output size, K = 2 H, L depth, G = 2 L gates."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lm.dropout import drop_weights


class HighwayLayer(nn.Module):
    """Highway layers 1 to L within each step, on one state s (Zilly et al. 2017, equations 6 to 9, coupled gates).

    h = tanh(R_l s + b_l), t = sigmoid(R'_l s + b'_l), and s becomes t h + (1 - t) s; the first layer adds W x and W' x
    inside. The state after the last layer is the step's output. Rows of the matrices are in the order of the layers,
    each with its h before its t. All weights are uniform within 1 / sqrt(H) but for b', which begins at one value.
    """

    def __init__(
        self,
        input_size: int,
        size: int,
        depth: int,
        transform_bias: float,
        weight_drop: float,
        init: torch.Generator,
    ) -> None:
        super().__init__()
        self.size, self.depth, self.transform_bias, self.weight_drop = size, depth, transform_bias, weight_drop
        bound = 1.0 / math.sqrt(size)

        def uniform(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(*shape).uniform_(-bound, bound, generator=init))

        self.input_weight_2HI = uniform(2 * size, input_size)
        self.recurrent_weight_GHH = uniform(2 * depth * size, size)
        self.bias_GH = uniform(2 * depth * size)
        self.set_transform_bias()

    @torch.no_grad()
    def set_transform_bias(self) -> None:
        """Set the biases of all transform gates to where they begin."""
        self.bias_GH.view(self.depth, 2, self.size)[:, 1] = self.transform_bias

    def initial_state(self, batch: int) -> tuple[Tensor, ...]:
        """Zeros (1, B, H) for a batch, on the weights' device."""
        return (self.bias_GH.new_zeros(1, batch, self.size),)

    def forward(
        self,
        input_TBI: Tensor,
        state: tuple[Tensor, ...],
        noise: torch.Generator | None,
        mask_BH: Tensor | None = None,
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The outputs (T, B, H) and the last state, neither masked; weights are dropped where there is `noise`.

        A mask multiplies s on its way into every matrix, the same for all layers and steps, and not where s is carried.
        """
        recurrent_GHH = drop_weights(self.recurrent_weight_GHH, self.weight_drop, noise)
        weights = [weight_KH.t() for weight_KH in recurrent_GHH.chunk(self.depth)]
        first_bias_K, *biases = self.bias_GH.chunk(self.depth)
        state_BH, outputs = state[0][0], []
        for first_BK in F.linear(input_TBI, self.input_weight_2HI, first_bias_K):
            for added, weight_HK in zip((first_BK, *biases), weights, strict=True):
                given_BH = state_BH if mask_BH is None else state_BH * mask_BH
                new_BH, transform_BH = torch.addmm(added, given_BH, weight_HK).chunk(2, dim=1)
                state_BH = torch.lerp(state_BH, new_BH.tanh(), transform_BH.sigmoid())
            outputs.append(state_BH)
        return torch.stack(outputs), (state_BH[None],)
