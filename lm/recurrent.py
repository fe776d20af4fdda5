"""One recurrent layer whose weights are handed to the fused kernel at every call.

T time, B batch, I input size, H output size, G gates (4 for an LSTM, 3 for a GRU).

Modules such as `nn.LSTM` keep a private list of the weights that the kernel reads, so that a dropped matrix written
to an attribute may never reach it. Here there is no such list: what `forward` passes is what the kernel gets.
No kernel masks the state between two steps, or has peepholes; for these there is a loop over time.
"""

from __future__ import annotations

import math
import warnings
from typing import assert_never

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lm.dropout import drop_weights
from lm.lstm import lstm_steps
from lm.precision import in_bfloat16
from lm.spec.training import CellName

State = tuple[Tensor, ...]
"""What a layer carries to the next window: (h, c) of an LSTM, (h,) of a GRU, (s,) of a highway, each (1, B, H)."""

_LARGE = 256
"""The size from which an LSTM is faster step by step in bfloat16 than fused in float32; at 200 neither was."""

# cuDNN copies weights that do not share one buffer, and says so at every call. Dropped weights are new tensors in each
# window, so the copy is inherent; it costs microseconds beside the window's thousands of dependent steps.
warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk of memory")


class RecurrentLayer(nn.Module):
    """A single-layer LSTM or GRU with weight drop on its recurrent matrix (Merity et al. 2017, section 2).

    Two bias vectors, gate order (i, f, g, o) or (r, z, n), all weights uniform within 1 / sqrt(H): PyTorch's layer.
    With peepholes, i and f also see the memory before the step, and o that after it, each unit its own
    (Gers & Schmidhuber 2000).
    """

    def __init__(self, cell: CellName, input_size: int, size: int, weight_drop: float, init: torch.Generator) -> None:
        super().__init__()
        self.cell, self.size, self.weight_drop = cell, size, weight_drop
        gates = {"lstm": 4, "gru": 3, "peephole_lstm": 4}[cell]
        bound = 1.0 / math.sqrt(size)

        def uniform(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(*shape).uniform_(-bound, bound, generator=init))

        self.input_weight_GHI = uniform(gates * size, input_size)
        self.recurrent_weight_GHH = uniform(gates * size, size)
        self.input_bias_GH = uniform(gates * size)
        self.recurrent_bias_GH = uniform(gates * size)
        if cell == "peephole_lstm":
            self.peephole_weight_3H = uniform(3 * size)

    def initial_state(self, batch: int) -> State:
        """Zeros for a batch, on the weights' device."""
        count = 1 if self.cell == "gru" else 2
        return tuple(self.input_weight_GHI.new_zeros(1, batch, self.size) for _ in range(count))

    def forward(
        self, input_TBI: Tensor, state: State, noise: torch.Generator | None, mask_BH: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """The outputs (T, B, H) and the last state, neither masked; weights are dropped where there is `noise`.

        A mask multiplies h at each step on its way into the recurrent matrix, the same for the whole window
        (Gal & Ghahramani 2016; Inan et al. 2016, section 5).
        """
        recurrent_weight_GHH = drop_weights(self.recurrent_weight_GHH, self.weight_drop, noise)
        if self._goes_step_by_step(mask_BH):
            return self._step_by_step(input_TBI, state, recurrent_weight_GHH, mask_BH)
        weights = [self.input_weight_GHI, recurrent_weight_GHH, self.input_bias_GH, self.recurrent_bias_GH]
        # has_biases, num_layers, dropout, train, bidirectional, batch_first; cuDNN keeps what backward needs if train.
        options = (True, 1, 0.0, torch.is_grad_enabled(), False, False)
        match self.cell:
            case "lstm":
                output_TBH, hidden, memory = torch.lstm(input_TBI, state, weights, *options)
                return output_TBH, (hidden, memory)
            case "gru":
                output_TBH, hidden = torch.gru(input_TBI, state[0], weights, *options)
                return output_TBH, (hidden,)
            case "peephole_lstm":
                raise AssertionError("it goes step by step")
            case _:
                assert_never(self.cell)

    def _goes_step_by_step(self, mask_BH: Tensor | None) -> bool:
        """Where no fused kernel masks the state or has peepholes, and where one would not multiply in bfloat16."""
        large = self.cell == "lstm" and self.size >= _LARGE and torch.is_grad_enabled() and in_bfloat16()
        return mask_BH is not None or large or self.cell == "peephole_lstm"

    def _step_by_step(
        self, input_TBI: Tensor, state: State, recurrent_weight_GHH: Tensor, mask_BH: Tensor | None
    ) -> tuple[Tensor, State]:
        """The fused kernels' recurrence; the inputs of all steps are multiplied at once."""
        hidden_BH = state[0][0]
        match self.cell:
            case "lstm":
                bias_GH = self.input_bias_GH + self.recurrent_bias_GH
                gates_TBGH = F.linear(input_TBI, self.input_weight_GHI, bias_GH)
                output_TBH, memory_BH = lstm_steps(gates_TBGH, hidden_BH, state[1][0], recurrent_weight_GHH, mask_BH)
                return output_TBH, (output_TBH[-1:], memory_BH[None])
            case "gru":
                assert mask_BH is not None
                weight_HGH, outputs = recurrent_weight_GHH.t(), []
                for input_BGH in F.linear(input_TBI, self.input_weight_GHI, self.input_bias_GH):
                    recurrent_BGH = torch.addmm(self.recurrent_bias_GH, hidden_BH * mask_BH, weight_HGH)
                    (r_in, z_in, n_in), (r, z, n) = input_BGH.chunk(3, dim=1), recurrent_BGH.chunk(3, dim=1)
                    new_BH = torch.addcmul(n_in, (r_in + r).sigmoid(), n).tanh()
                    hidden_BH = torch.lerp(new_BH, hidden_BH, (z_in + z).sigmoid())
                    outputs.append(hidden_BH)
                return torch.stack(outputs), (hidden_BH[None],)
            case "peephole_lstm":
                gates_TBG = F.linear(input_TBI, self.input_weight_GHI, self.input_bias_GH + self.recurrent_bias_GH)
                into_i_H, into_f_H, into_o_H = self.peephole_weight_3H.chunk(3)
                weight_HG, memory_BH, outputs = recurrent_weight_GHH.t(), state[1][0], []
                for added_BG in gates_TBG:
                    given_BH = hidden_BH if mask_BH is None else hidden_BH * mask_BH
                    i, f, g, o = torch.addmm(added_BG, given_BH, weight_HG).chunk(4, dim=1)
                    kept_BH = (f + into_f_H * memory_BH).sigmoid() * memory_BH
                    memory_BH = kept_BH + (i + into_i_H * memory_BH).sigmoid() * g.tanh()
                    hidden_BH = (o + into_o_H * memory_BH).sigmoid() * memory_BH.tanh()
                    outputs.append(hidden_BH)
                return torch.stack(outputs), (hidden_BH[None], memory_BH[None])
            case _:
                assert_never(self.cell)
