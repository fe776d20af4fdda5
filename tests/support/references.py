"""Slow, independent forms of the recurrent cells. T time, B batch, I input size, H output size, G gates."""

from __future__ import annotations

import torch
from torch import Tensor

Weights = tuple[Tensor, Tensor, Tensor, Tensor]
"""W (G * H, I), U (G * H, H), and their biases."""


def lstm(input_TBI: Tensor, hidden_BH: Tensor, memory_BH: Tensor, weights: Weights) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs (T, B, H), last h, last c. Gates are stacked as i, f, g, o."""
    w, u, b_w, b_u = weights
    size = u.shape[1]
    outputs = []
    for x in input_TBI:
        gate = [
            x @ w[k * size : (k + 1) * size].T
            + b_w[k * size : (k + 1) * size]
            + hidden_BH @ u[k * size : (k + 1) * size].T
            + b_u[k * size : (k + 1) * size]
            for k in range(4)
        ]
        memory_BH = torch.sigmoid(gate[1]) * memory_BH + torch.sigmoid(gate[0]) * torch.tanh(gate[2])
        hidden_BH = torch.sigmoid(gate[3]) * torch.tanh(memory_BH)
        outputs.append(hidden_BH)
    return torch.stack(outputs), hidden_BH, memory_BH


def gru(input_TBI: Tensor, hidden_BH: Tensor, weights: Weights) -> tuple[Tensor, Tensor]:
    """Outputs (T, B, H) and last h. Gates are stacked as r, z, n."""
    w, u, b_w, b_u = weights
    size = u.shape[1]
    r, z, n = (slice(k * size, (k + 1) * size) for k in range(3))
    outputs = []
    for x in input_TBI:
        reset = torch.sigmoid(x @ w[r].T + b_w[r] + hidden_BH @ u[r].T + b_u[r])
        keep = torch.sigmoid(x @ w[z].T + b_w[z] + hidden_BH @ u[z].T + b_u[z])
        new = torch.tanh(x @ w[n].T + b_w[n] + reset * (hidden_BH @ u[n].T + b_u[n]))
        hidden_BH = (1 - keep) * new + keep * hidden_BH
        outputs.append(hidden_BH)
    return torch.stack(outputs), hidden_BH


def run(cell: str, input_TBI: Tensor, state: tuple[Tensor, ...], weights: Weights) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Outputs and last state, in the shapes of `RecurrentLayer`: states are (1, B, H)."""
    if cell == "lstm":
        output, hidden, memory = lstm(input_TBI, state[0][0], state[1][0], weights)
        return output, (hidden[None], memory[None])
    output, hidden = gru(input_TBI, state[0][0], weights)
    return output, (hidden[None],)
