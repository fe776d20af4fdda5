"""Recurrent highways (Zilly et al. 2017) against the equations written out. T time, B batch, I input, H output size."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from lm.dropout import drop_weights, embed, keep_mask, locked_dropout
from lm.highway import HighwayLayer
from lm.model import LanguageModel
from lm.recurrent import RecurrentLayer
from lm.spec import Dropout, Model, RecurrentHighway, SoftmaxHead, parameter_count
from tests.support.tiny import even, seeded

T, B, H, INPUT, V, DEPTH = 6, 3, 4, 5, 13, 3
HEAD = SoftmaxHead(kind="softmax")
tight = {"rtol": 0.0, "atol": 1e-12}


def make(depth: int = DEPTH, bias: float = -1.0, drop: float = 0.0, device: str | torch.device = "cpu") -> HighwayLayer:
    return HighwayLayer(INPUT, H, depth, bias, drop, seeded(0)).to(device, torch.float64)


def example(device: str | torch.device = "cpu") -> tuple[Tensor, tuple[Tensor]]:
    draw = torch.randn(T + 1, B, INPUT, generator=seeded(1), dtype=torch.float64).to(device)
    return draw[:T], (draw[T:, :, :H].contiguous(),)  # as cuDNN, in PyTorch's network, demands


def written_out(
    layer: HighwayLayer,
    input_TBI: Tensor,
    state_BH: Tensor,
    mask_BH: Tensor | None = None,
    recurrent: Tensor | None = None,
) -> Tensor:
    """Unit by unit of a column: the outputs (T, B, H)."""
    u = (layer.recurrent_weight_GHH if recurrent is None else recurrent).view(layer.depth, 2, H, H)
    w, b = layer.input_weight_2HI.view(2, H, INPUT), layer.bias_GH.view(layer.depth, 2, H)
    steps = []
    for x_BI in input_TBI:
        for k in range(layer.depth):
            given = state_BH * (1.0 if mask_BH is None else mask_BH)
            into = [
                torch.stack(
                    [
                        sum(given[:, j] * u[k, which, i, j] for j in range(H))
                        + b[k, which, i]
                        + (sum(x_BI[:, j] * w[which, i, j] for j in range(INPUT)) if k == 0 else 0.0)
                        for i in range(H)
                    ],
                    dim=1,
                )
                for which in (0, 1)
            ]
            new, transform = torch.tanh(into[0]), 1 / (1 + torch.exp(-into[1]))
            state_BH = new * transform + state_BH * (1 - transform)
        steps.append(state_BH)
    return torch.stack(steps)


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_equals_the_equations_and_their_gradients(depth: int, device: torch.device) -> None:
    layer, (input_TBI, state) = make(depth, device=device), example(device)
    output, (last,) = layer(input_TBI, state, None)
    expected = written_out(layer, input_TBI, state[0][0])
    torch.testing.assert_close(output, expected, **tight)
    assert torch.equal(last[0], output[-1])
    gradients = [torch.autograd.grad(out.pow(3).sum(), list(layer.parameters())) for out in (output, expected)]
    torch.testing.assert_close(*gradients, rtol=0.0, atol=1e-11)


def test_an_open_transform_gate_is_a_plain_recurrent_network(device: torch.device) -> None:
    """One layer whose transform gates are 1 is PyTorch's tanh network."""
    layer, (input_TBI, state) = make(1, bias=100.0, device=device), example(device)
    plain = nn.RNN(INPUT, H).to(device, torch.float64)
    with torch.no_grad():
        plain.weight_ih_l0.copy_(layer.input_weight_2HI[:H])
        plain.weight_hh_l0.copy_(layer.recurrent_weight_GHH[:H])
        plain.bias_ih_l0.copy_(layer.bias_GH[:H])
        plain.bias_hh_l0.zero_()
    torch.testing.assert_close(layer(input_TBI, state, None)[0], plain(input_TBI, state[0])[0], **tight)


def test_a_closed_transform_gate_carries_the_state_unchanged(device: torch.device) -> None:
    """Through every layer and step, whatever is read; a mask on the way into the matrices does not touch it."""
    layer, (input_TBI, state) = make(bias=-100.0, device=device), example(device)
    mask_BH = keep_mask((B, H), 0.5, state[0], seeded(2, device))
    for mask in (None, mask_BH):
        output, _ = layer(input_TBI, state, None, mask)
        torch.testing.assert_close(output, state[0].expand(T, B, H), **tight)


def test_one_mask_for_all_layers_and_steps(device: torch.device) -> None:
    layer, (input_TBI, state) = make(device=device), example(device)
    mask_BH = keep_mask((B, H), 0.5, state[0], seeded(2, device))
    assert (mask_BH == 0).any() and len({tuple(row.tolist()) for row in mask_BH}) > 1
    output, _ = layer(input_TBI, state, None, mask_BH)
    torch.testing.assert_close(output, written_out(layer, input_TBI, state[0][0], mask_BH), **tight)


def test_weight_drop_reaches_every_layer(device: torch.device) -> None:
    layer, (input_TBI, state) = make(drop=0.4, device=device), example(device)
    dropped = drop_weights(layer.recurrent_weight_GHH, 0.4, seeded(3, device))
    zero = (dropped == 0).view(DEPTH, -1)
    assert zero.any(dim=1).all() and not zero.all(dim=1).any()
    expected = written_out(layer, input_TBI, state[0][0], recurrent=dropped)
    torch.testing.assert_close(layer(input_TBI, state, seeded(3, device))[0], expected, **tight)


def test_initial_weights() -> None:
    layer = HighwayLayer(64, 100, DEPTH, -2.0, 0.0, seeded(0))
    matrices = [layer.input_weight_2HI, layer.recurrent_weight_GHH, layer.bias_GH.view(DEPTH, 2, 100)[:, 0]]
    for weight in matrices:
        assert 0.09 < weight.detach().abs().max() <= 0.1 and weight.detach().mean().abs() < 0.01
    assert (layer.bias_GH.view(DEPTH, 2, 100)[:, 1] == -2.0).all()


def model(device: torch.device, **dropout: Any) -> LanguageModel:
    shape = Model(
        cell=RecurrentHighway(kind="rhn", depth=DEPTH), layers=2, embedding_size=INPUT, hidden_size=(H, INPUT)
    )
    return LanguageModel(shape, HEAD, Dropout(**dropout), even(V), seeded(0)).to(device, torch.float64)


def test_one_range_for_all_weights_leaves_the_transform_biases() -> None:
    cell = RecurrentHighway(kind="rhn", depth=2, transform_bias=-3.0)
    shape = Model(cell=cell, layers=1, embedding_size=50, hidden_size=50, init_range=0.04)
    built = LanguageModel(shape, HEAD, Dropout(), even(400), seeded(0))
    (layer,) = built.layers
    assert isinstance(layer, HighwayLayer)
    biases = layer.bias_GH.detach().view(2, 2, 50)
    assert (biases[:, 1] == -3.0).all() and 0.03 < biases[:, 0].abs().max() <= 0.04
    assert layer.recurrent_weight_GHH.detach().abs().max() <= 0.04


def test_the_state_has_a_mask_of_its_own(device: torch.device) -> None:
    """A training pass written out: masks are drawn in the order of use; the carried state is not dropped."""
    built = model(device, embedding=0.2, input=0.3, between=0.4, output=0.5, state=0.25)
    tokens_TB = torch.randint(V, (T, B), generator=seeded(9)).to(device)
    outputs, carried = built(tokens_TB, built.initial_state(B), seeded(4, device))
    noise = seeded(4, device)
    hidden = locked_dropout(embed(tokens_TB, built.embedding_VE, 0.2, noise), 0.3, noise)
    for k, (layer, probability) in enumerate(zip(built.layers, (0.4, 0.5), strict=True), 1):
        assert isinstance(layer, HighwayLayer)
        mask_BH = keep_mask((B, layer.size), 0.25, hidden, noise)
        raw, last = layer(hidden, layer.initial_state(B), None, mask_BH)
        hidden = locked_dropout(raw, probability, noise)
        torch.testing.assert_close((outputs.raw[k], outputs.dropped[k], carried[k - 1]), (raw, hidden, last), **tight)
    plain, _ = built(tokens_TB, built.initial_state(B))
    assert torch.equal(plain.raw[-1], plain.dropped[-1])


def test_an_lstms_state_may_have_a_mask_of_its_own_too(device: torch.device) -> None:
    shape = Model(layers=1, embedding_size=H, hidden_size=H)
    built = LanguageModel(shape, HEAD, Dropout(state=0.5, output=0.5), even(V), seeded(0)).to(device, torch.float64)
    (layer,) = built.layers
    assert isinstance(layer, RecurrentLayer)
    tokens_TB = torch.randint(V, (T, B), generator=seeded(9)).to(device)
    outputs, _ = built(tokens_TB, built.initial_state(B), seeded(4, device))
    mask_BH = keep_mask((B, H), 0.5, outputs.raw[0], seeded(4, device))
    raw, _ = layer(built.embedding_VE[tokens_TB], layer.initial_state(B), None, mask_BH)
    torch.testing.assert_close(outputs.raw[1], raw, **tight)
    assert not torch.equal(outputs.dropped[1][0] == 0, mask_BH == 0)


def test_windows_with_carried_state_are_one_long_window(device: torch.device) -> None:
    built = model(device, weight=0.5, state=0.5, output=0.5)
    tokens_TB = torch.randint(V, (T, B), generator=seeded(9)).to(device)
    whole, end = built(tokens_TB, built.initial_state(B))
    first, between = built(tokens_TB[:2], built.initial_state(B))
    second, last = built(tokens_TB[2:], between)
    torch.testing.assert_close((torch.cat((first.raw[-1], second.raw[-1])), last), (whole.raw[-1], end), **tight)


@pytest.mark.parametrize(
    ("depth", "size", "tied", "total"),
    [
        pytest.param(8, 890, False, 32_082_040, id="71.2/68.5, 32M"),
        pytest.param(9, 860, True, 23_417_480, id="68.1/66.0"),
        pytest.param(10, 830, True, 23_482_400, id="67.9/65.4, 23M"),
        pytest.param(1, 1275, False, 32_015_050, id="depth 1, 32M"),
    ],
)
def test_parameters_of_the_published_networks(depth: int, size: int, tied: bool, total: int) -> None:
    """V H of embedding and untied decoder, V biases, and two gates: H (H + 1) numbers a layer, H^2 for the input."""
    assert total == 10_000 * (size * (2 - tied) + 1) + 2 * (size * size + depth * size * (size + 1))
    cell = RecurrentHighway(kind="rhn", depth=depth)
    shape = Model(cell=cell, layers=1, embedding_size=size, hidden_size=size, tied=tied)
    assert parameter_count(shape, HEAD, 10_000) == total
    built = LanguageModel(shape, HEAD, Dropout(), even(10_000), seeded(0))
    assert sum(weight.numel() for weight in built.parameters()) == total


def test_two_masks_of_one_state_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"state = 0\.25 and shared_mask would both mask a layer's state"):
        Dropout(shared_mask=True, state=0.25)
