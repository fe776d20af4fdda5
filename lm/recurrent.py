"""One recurrent layer whose weights are handed to the fused kernel at every call.

T time, B batch, I input size, H output size, G gates (4 for an LSTM, 3 for a GRU).

Modules such as `nn.LSTM` keep a private list of the weights that the kernel reads, so that a dropped matrix written
to an attribute may never reach it. Here there is no such list: what `forward` passes is what the kernel gets.
"""

from __future__ import annotations

import math
import warnings
from typing import Literal, assert_never

import torch
from torch import Tensor, nn

from lm.dropout import drop_weights

State = tuple[Tensor, ...]
"""What a layer carries to the next window: (h, c) of an LSTM, (h,) of a GRU, each (1, B, H)."""

# cuDNN copies weights that do not share one buffer, and says so at every call. Dropped weights are new tensors in each
# window, so the copy is inherent; it costs microseconds beside the window's thousands of dependent steps.
warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk of memory")


class RecurrentLayer(nn.Module):
    """A single-layer LSTM or GRU with weight drop on its recurrent matrix (Merity et al. 2017, section 2).

    Two bias vectors, gate order (i, f, g, o) or (r, z, n), all weights uniform within 1 / sqrt(H): PyTorch's layer.
    """

    def __init__(
        self, cell: Literal["lstm", "gru"], input_size: int, size: int, weight_drop: float, init: torch.Generator
    ) -> None:
        super().__init__()
        self.cell, self.size, self.weight_drop = cell, size, weight_drop
        gates = {"lstm": 4, "gru": 3}[cell]
        bound = 1.0 / math.sqrt(size)

        def uniform(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(*shape).uniform_(-bound, bound, generator=init))

        self.input_weight_GHI = uniform(gates * size, input_size)
        self.recurrent_weight_GHH = uniform(gates * size, size)
        self.input_bias_GH = uniform(gates * size)
        self.recurrent_bias_GH = uniform(gates * size)

    def initial_state(self, batch: int) -> State:
        """Zeros for a batch, on the weights' device."""
        count = {"lstm": 2, "gru": 1}[self.cell]
        return tuple(self.input_weight_GHI.new_zeros(1, batch, self.size) for _ in range(count))

    def forward(self, input_TBI: Tensor, state: State, noise: torch.Generator | None) -> tuple[Tensor, State]:
        """The outputs (T, B, H) and the last state; weights are dropped where there is `noise`."""
        weights = [
            self.input_weight_GHI,
            drop_weights(self.recurrent_weight_GHH, self.weight_drop, noise),
            self.input_bias_GH,
            self.recurrent_bias_GH,
        ]
        # has_biases, num_layers, dropout, train, bidirectional, batch_first; cuDNN keeps what backward needs if train.
        options = (True, 1, 0.0, torch.is_grad_enabled(), False, False)
        match self.cell:
            case "lstm":
                output_TBH, hidden, memory = torch.lstm(input_TBI, state, weights, *options)
                return output_TBH, (hidden, memory)
            case "gru":
                output_TBH, hidden = torch.gru(input_TBI, state[0], weights, *options)
                return output_TBH, (hidden,)
            case _:
                assert_never(self.cell)
