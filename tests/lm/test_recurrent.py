"""Recurrent layers against hand-written cells, and proof that dropped weights reach the kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from lm.checkpoint import load_weights, save_weights
from lm.dropout import drop_weights
from lm.model import LanguageModel
from lm.recurrent import RecurrentLayer
from lm.spec import Dropout, Model, SoftmaxHead
from tests.support import references
from tests.support.tiny import even, seeded

Cell = Literal["lstm", "gru"]
T, B, H, INPUT = 6, 3, 4, 5
ALL_DROPPED = 1.0 - 1e-9
"""No float32 below 1 reaches it: every entry is dropped."""

both_cells = pytest.mark.parametrize("cell", ["lstm", "gru"])
both_types = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def make(cell: Cell, drop: float, device: torch.device, dtype: torch.dtype = torch.float64) -> RecurrentLayer:
    """A layer whose weights are drawn on the CPU in float32, then moved: what a changed device or type must survive."""
    return RecurrentLayer(cell, INPUT, H, drop, seeded(0)).to(device=device, dtype=dtype)


def example(layer: RecurrentLayer, steps: int = T, batch: int = B) -> tuple[Tensor, tuple[Tensor, ...]]:
    """An input, and a state that is not zero."""
    like = layer.input_weight_GHI
    draw = torch.randn(steps + 2, batch, max(INPUT, H), generator=seeded(1), dtype=torch.float64).to(like)
    count = len(layer.initial_state(batch))
    return draw[:steps, :, :INPUT], tuple(draw[steps + k, None, :, :H].contiguous() for k in range(count))


def weights_of(layer: RecurrentLayer, recurrent: Tensor | None = None) -> references.Weights:
    u = layer.recurrent_weight_GHH if recurrent is None else recurrent
    return layer.input_weight_GHI, u, layer.input_bias_GH, layer.recurrent_bias_GH


def plain_module(layer: RecurrentLayer) -> nn.LSTM | nn.GRU:
    """PyTorch's own layer with the same weights."""
    module = {"lstm": nn.LSTM, "gru": nn.GRU}[layer.cell](layer.input_weight_GHI.shape[1], layer.size)
    module.to(layer.input_weight_GHI)
    for name, weight in zip(
        ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"), weights_of(layer), strict=True
    ):
        getattr(module, name).data.copy_(weight.detach())
    return module


def close(output: Tensor) -> dict[str, float]:
    """On a GPU float32 was seen to differ by 2.1e-6: cuDNN rounds otherwise."""
    of_float32 = 1e-5 if output.device.type == "cuda" else 1e-6
    return {"rtol": 0.0, "atol": of_float32 if output.dtype == torch.float32 else 1e-12}


def mask_of(layer: RecurrentLayer, seed: int) -> Tensor:
    """The scaled mask that the layer draws from a generator with this seed: its first draw."""
    ones = torch.ones_like(layer.recurrent_weight_GHH)
    return drop_weights(ones, layer.weight_drop, seeded(seed, ones.device))


@both_types
@both_cells
def test_equals_the_hand_written_recurrence(cell: Cell, dtype: torch.dtype, device: torch.device) -> None:
    layer = make(cell, 0.0, device, dtype)
    input_TBI, state = example(layer)
    output, last = layer(input_TBI, state, None)
    expected, expected_last = references.run(cell, input_TBI, state, weights_of(layer))
    torch.testing.assert_close(output, expected, **close(output))
    torch.testing.assert_close(last, expected_last, **close(output))


@both_cells
def test_gradients_are_those_of_the_hand_written_recurrence(cell: Cell, device: torch.device) -> None:
    layer = make(cell, 0.0, device)
    input_TBI, state = example(layer)
    got, expected = (
        torch.autograd.grad((output**2).sum() + sum((part**3).sum() for part in last), list(layer.parameters()))
        for output, last in (
            layer(input_TBI, state, None),
            references.run(cell, input_TBI, state, weights_of(layer)),
        )
    )
    torch.testing.assert_close(got, expected, rtol=0.0, atol=1e-11)


@both_cells
def test_initial_weights_are_uniform_within_the_inverse_root_of_the_size(cell: Cell) -> None:
    layer = RecurrentLayer(cell, 64, 100, 0.0, seeded(0))
    for weight in layer.parameters():
        assert 0.09 < weight.detach().abs().max() <= 0.1 and weight.detach().mean().abs() < 0.01
    assert [tuple(weight.shape) for weight in layer.parameters()] == [
        (layer.input_bias_GH.numel(), 64),
        (layer.input_bias_GH.numel(), 100),
        (layer.input_bias_GH.numel(),),
        (layer.input_bias_GH.numel(),),
    ]
    assert layer.input_bias_GH.numel() == {"lstm": 400, "gru": 300}[cell]


@both_types
@both_cells
def test_without_weight_drop_or_noise_the_plain_layer(cell: Cell, dtype: torch.dtype, device: torch.device) -> None:
    """To the last bit, in training at a probability of 0, and at evaluation at any."""
    never, sometimes = make(cell, 0.0, device, dtype), make(cell, 0.5, device, dtype)
    input_TBI, state = example(never)
    module = plain_module(never)
    plain = module(input_TBI, state if cell == "lstm" else state[0])[0]
    training = never(input_TBI, state, seeded(3, device))[0]
    evaluation = [sometimes(input_TBI, state, None)[0] for _ in range(2)]
    assert torch.equal(evaluation[0], evaluation[1]) and torch.equal(evaluation[0], training)
    if device.type == "cpu":
        assert torch.equal(training, plain)
    torch.testing.assert_close(training, plain, **close(training))


@both_types
@both_cells
def test_masks_show_from_the_second_step_on(cell: Cell, dtype: torch.dtype, device: torch.device) -> None:
    """With no state to begin with, the first step does not depend on the recurrent matrix."""
    layer = make(cell, 0.5, device, dtype)
    input_TBI, _ = example(layer)
    noise = seeded(3, device)
    first, second = (layer(input_TBI, layer.initial_state(B), noise)[0] for _ in range(2))
    assert torch.equal(first[0], second[0])
    different = (first[1:] - second[1:]).abs().amax(dim=(1, 2))
    assert (different > 1e-4).all(), different


@both_types
@both_cells
def test_with_everything_dropped_the_recurrent_matrix_is_zero(
    cell: Cell, dtype: torch.dtype, device: torch.device
) -> None:
    """The layer is then the plain one with U = 0."""
    layer = make(cell, ALL_DROPPED, device, dtype)
    input_TBI, state = example(layer)
    output, _ = layer(input_TBI, state, seeded(3, device))
    expected, _ = references.run(
        cell, input_TBI, state, weights_of(layer, torch.zeros_like(layer.recurrent_weight_GHH))
    )
    torch.testing.assert_close(output, expected, **close(output))


@both_types
@both_cells
def test_one_mask_for_all_steps_and_columns(cell: Cell, dtype: torch.dtype, device: torch.device) -> None:
    """The kernel computes with U * mask / (1 - p), the same at every step and for every column; W stays whole."""
    layer = make(cell, 0.5, device, dtype)
    input_TBI, state = example(layer)
    output, last = layer(input_TBI, state, seeded(3, device))
    dropped = layer.recurrent_weight_GHH * mask_of(layer, 3)
    expected, expected_last = references.run(cell, input_TBI, state, weights_of(layer, dropped))
    torch.testing.assert_close(output, expected, **close(output))
    torch.testing.assert_close(last, expected_last, **close(output))


@both_cells
def test_gradient_flows_only_where_the_mask_lets_it(cell: Cell, device: torch.device) -> None:
    """That of U is 0 exactly where the mask is, and nowhere else; other weights have no mask."""
    layer = make(cell, 0.5, device)
    input_TBI, state = example(layer)
    layer(input_TBI, state, seeded(3, device))[0].square().sum().backward()
    gradient = layer.recurrent_weight_GHH.grad
    assert gradient is not None
    mask = mask_of(layer, 3)
    assert (gradient[mask == 0] == 0).all() and (gradient[mask != 0] != 0).all()
    assert 0 < (mask == 0).sum() < mask.numel()
    assert all((weight.grad != 0).all() for weight in layer.parameters() if weight is not layer.recurrent_weight_GHH)


@both_cells
def test_central_differences_with_the_mask_frozen(cell: Cell, device: torch.device) -> None:
    """Of U, entry by entry."""
    layer = make(cell, 0.5, device)
    input_TBI, state = example(layer, steps=4, batch=2)

    def loss() -> Tensor:
        return layer(input_TBI, state, seeded(3, device))[0].square().sum()

    (gradient,) = torch.autograd.grad(loss(), layer.recurrent_weight_GHH)
    flat = layer.recurrent_weight_GHH.detach().view(-1)
    step = 1e-6
    for index in range(0, flat.numel(), 3):
        value = flat[index].item()
        flat[index] = value + step
        above = loss().item()
        flat[index] = value - step
        below = loss().item()
        flat[index] = value
        assert (above - below) / (2 * step) == pytest.approx(gradient.view(-1)[index].item(), abs=1e-8)


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.7])
def test_fraction_and_scale_of_dropped_weights(probability: float, device: torch.device) -> None:
    """The share that the probability says is zero, the rest is U / (1 - p)."""
    weight = torch.rand(400, 100, generator=seeded(0)).to(device) + 0.5
    noise = seeded(1, device)
    dropped = drop_weights(weight, probability, noise)
    kept = dropped != 0
    assert 1 - kept.double().mean().item() == pytest.approx(probability, abs=5 * (0.25 / 40_000) ** 0.5)
    torch.testing.assert_close(dropped[kept], (weight / (1 - probability))[kept])
    assert not torch.equal(drop_weights(weight, probability, noise) != 0, kept)


@both_types
@both_cells
def test_weight_drop_after_a_move_and_a_checkpoint(
    cell: Cell, dtype: torch.dtype, device: torch.device, tmp_path: Path
) -> None:
    """Weights that were saved, loaded into another model and moved are the ones dropped."""

    def model(seed: int) -> LanguageModel:
        shape = Model(cell=cell, layers=2, embedding_size=INPUT, hidden_size=(H, INPUT))
        return LanguageModel(shape, SoftmaxHead(kind="softmax"), Dropout(weight=0.5), even(7), seeded(seed))

    saved, loaded = model(0), model(1)
    save_weights(tmp_path / "weights.safetensors", saved.weights())
    loaded.load_weights(load_weights(tmp_path / "weights.safetensors", torch.device("cpu")))
    loaded.to(device=device, dtype=dtype)
    tokens_TB = torch.arange(T * B, device=device).view(T, B) % 7
    noise = seeded(3, device)
    outputs, carried = loaded(tokens_TB, loaded.initial_state(B), noise)
    again, masks = seeded(3, device), []
    hidden = saved.to(device=device, dtype=dtype).embedding_VE[tokens_TB]
    for layer, state in zip(saved.layers, saved.initial_state(B), strict=True):
        assert isinstance(layer, RecurrentLayer)
        masks.append(drop_weights(torch.ones_like(layer.recurrent_weight_GHH), 0.5, again))
        dropped = layer.recurrent_weight_GHH * masks[-1]
        hidden, last = references.run(cell, hidden, state, weights_of(layer, dropped))
        torch.testing.assert_close(carried[len(masks) - 1], last, **close(outputs.raw[-1]))
    torch.testing.assert_close(outputs.raw[-1], hidden, **close(outputs.raw[-1]))
    plain, _ = loaded(tokens_TB, loaded.initial_state(B))
    assert not torch.allclose(plain.raw[-1], hidden, atol=1e-4)
    different, _ = loaded(tokens_TB, loaded.initial_state(B), noise)
    assert not torch.allclose(different.raw[-1], hidden, atol=1e-4)


@both_cells
def test_only_the_raw_matrix_is_a_parameter(cell: Cell) -> None:
    layer = make(cell, 0.5, torch.device("cpu"))
    before = layer.recurrent_weight_GHH.detach().clone()
    input_TBI, state = example(layer)
    layer(input_TBI, state, seeded(3))
    assert len(list(layer.parameters())) == 4 and not list(layer.buffers())
    assert torch.equal(layer.recurrent_weight_GHH, before)
