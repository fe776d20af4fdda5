"""LSTMs with peepholes against the equations written out. T time, B batch, I input size, H output size."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lm.dropout import drop_weights, keep_mask
from lm.recurrent import RecurrentLayer, State
from tests.support.tiny import seeded

T, B, H, INPUT = 6, 3, 4, 5
tight = {"rtol": 0.0, "atol": 1e-12}


def make(device: torch.device, drop: float = 0.0) -> tuple[RecurrentLayer, Tensor, State]:
    """A layer, an input, and a state that is not zero."""
    layer = RecurrentLayer("peephole_lstm", INPUT, H, drop, seeded(0)).to(device, torch.float64)
    draw = torch.randn(T + 2, B, INPUT, generator=seeded(1), dtype=torch.float64).to(device)
    hidden, memory = (part.contiguous() for part in draw[T:, None, :, :H])  # cuDNN takes no other
    return layer, draw[:T], (hidden, memory)


def written_out(
    layer: RecurrentLayer, input_TBI: Tensor, state: State, mask_BH: Tensor | None = None, u: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The poster's equations 2 to 5, with a diagonal matrix for each peephole; outputs and last memory."""
    w, u = layer.input_weight_GHI.view(4, H, INPUT), (layer.recurrent_weight_GHH if u is None else u).view(4, H, H)
    b = (layer.input_bias_GH + layer.recurrent_bias_GH).view(4, H)
    p = [torch.diag(part) for part in layer.peephole_weight_3H.view(3, H)]
    h, c, outputs = state[0][0], state[1][0], []
    for x in input_TBI:
        given = h if mask_BH is None else h * mask_BH
        i, f, g, o = (x @ w[k].T + given @ u[k].T + b[k] for k in range(4))
        i, f = torch.sigmoid(i + c @ p[0]), torch.sigmoid(f + c @ p[1])
        c = f * c + i * torch.tanh(g)
        h = torch.sigmoid(o + c @ p[2]) * torch.tanh(c)
        outputs.append(h)
    return torch.stack(outputs), c


def test_equals_the_equations_and_their_gradients(device: torch.device) -> None:
    layer, input_TBI, state = make(device)
    output, (hidden, memory) = layer(input_TBI, state, None)
    expected = written_out(layer, input_TBI, state)
    torch.testing.assert_close((output, memory[0]), expected, **tight)
    assert torch.equal(hidden[0], output[-1])
    gradients = [
        torch.autograd.grad(out.pow(3).sum() + last.pow(2).sum(), list(layer.parameters()))
        for out, last in ((output, memory[0]), expected)
    ]
    torch.testing.assert_close(*gradients, rtol=0.0, atol=1e-11)
    assert all((gradient != 0).all() for gradient in gradients[0])


def test_without_weights_of_the_peepholes_it_is_the_plain_lstm(device: torch.device) -> None:
    layer, input_TBI, state = make(device)
    plain = RecurrentLayer("lstm", INPUT, H, 0.0, seeded(0)).to(device, torch.float64)
    with torch.no_grad():
        layer.peephole_weight_3H.zero_()
    torch.testing.assert_close(layer(input_TBI, state, None), plain(input_TBI, state, None), **tight)


def test_masks_of_state_and_weights(device: torch.device) -> None:
    """The peepholes see the memory as it is."""
    layer, input_TBI, state = make(device, drop=0.4)
    mask_BH = keep_mask((B, H), 0.5, input_TBI, seeded(2, device))
    dropped = drop_weights(layer.recurrent_weight_GHH, 0.4, seeded(3, device))
    output, (_, memory) = layer(input_TBI, state, seeded(3, device), mask_BH)
    torch.testing.assert_close((output, memory[0]), written_out(layer, input_TBI, state, mask_BH, dropped), **tight)


def test_initial_weights_are_uniform_within_the_inverse_root_of_the_size() -> None:
    layer = RecurrentLayer("peephole_lstm", 64, 400, 0.0, seeded(0))
    assert layer.peephole_weight_3H.shape == (1200,)
    assert 0.045 < layer.peephole_weight_3H.detach().abs().max() <= 0.05


@pytest.mark.parametrize("first", [1, 4])
def test_two_windows_are_one_long_window(first: int, device: torch.device) -> None:
    layer, input_TBI, state = make(device)
    whole, end = layer(input_TBI, state, None)
    before, between = layer(input_TBI[:first], state, None)
    after, last = layer(input_TBI[first:], between, None)
    torch.testing.assert_close((torch.cat((before, after)), last), (whole, end), **tight)
