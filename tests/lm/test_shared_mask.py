"""One mask on a layer's way up and on its way back to itself (VD-LSTM). T time, B batch, I input, H output size."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from lm.dropout import drop_weights, embed, keep_mask, locked_dropout
from lm.model import LanguageModel
from lm.recurrent import RecurrentLayer, State
from lm.spec import Dropout, Model, SoftmaxHead
from tests.support import references
from tests.support.tiny import even, seeded

Cell = Literal["lstm", "gru"]
T, B, H, INPUT, V = 7, 4, 6, 5, 13
both_cells = pytest.mark.parametrize("cell", ["lstm", "gru"])
tight = {"rtol": 0.0, "atol": 1e-12}


def make(cell: Cell, device: torch.device, drop: float = 0.0) -> tuple[RecurrentLayer, Tensor, State, Tensor]:
    """A layer in float64, an input, a state that is not zero, and a mask with zeros in every column."""
    layer = RecurrentLayer(cell, INPUT, H, drop, seeded(0)).to(device, torch.float64)
    draw = torch.randn(T + 2, B, H, generator=seeded(1), dtype=torch.float64).to(device)
    state = tuple(draw[T + k : T + k + 1] for k in range(len(layer.initial_state(B))))
    mask_BH = keep_mask((B, H), 0.5, draw, seeded(2, device))
    assert ((mask_BH == 0).any(dim=1) & (mask_BH != 0).any(dim=1)).all()
    return layer, draw[:T, :, :INPUT], state, mask_BH


def column_by_column(
    layer: RecurrentLayer, input_TBI: Tensor, state: State, mask_BH: Tensor, recurrent: Tensor | None = None
) -> tuple[Tensor, State]:
    """A plain recurrence for each column, the columns of its recurrent matrix scaled by that column's mask."""
    u = layer.recurrent_weight_GHH if recurrent is None else recurrent
    runs = [
        references.run(
            layer.cell,
            input_TBI[:, b : b + 1],
            tuple(part[:, b : b + 1] for part in state),
            (layer.input_weight_GHI, u * mask_BH[b], layer.input_bias_GH, layer.recurrent_bias_GH),
        )
        for b in range(len(mask_BH))
    ]
    last = tuple(torch.cat(parts, dim=1) for parts in zip(*(last for _, last in runs), strict=True))
    return torch.cat([output for output, _ in runs], dim=1), last


def loss_of(output: Tensor, last: State) -> Tensor:
    return (output**2).sum() + sum(((part**3).sum() for part in last), torch.zeros((), device=output.device))


@both_cells
def test_a_mask_of_ones_is_the_fused_layer(cell: Cell, device: torch.device) -> None:
    layer, input_TBI, state, mask_BH = make(cell, device)
    looped = layer(input_TBI, state, None, torch.ones_like(mask_BH))
    fused = layer(input_TBI, state, None)
    torch.testing.assert_close(looped, fused, **tight)
    gradients = [torch.autograd.grad(loss_of(*found), list(layer.parameters())) for found in (looped, fused)]
    torch.testing.assert_close(*gradients, rtol=0.0, atol=1e-11)


@both_cells
def test_each_column_has_the_mask_in_its_recurrent_matrix(cell: Cell, device: torch.device) -> None:
    """U (m * h) = (U diag(m)) h; outputs and carried state are not masked."""
    layer, input_TBI, state, mask_BH = make(cell, device)
    found = layer(input_TBI, state, None, mask_BH)
    expected = column_by_column(layer, input_TBI, state, mask_BH)
    torch.testing.assert_close(found, expected, **tight)
    torch.testing.assert_close(found[1][0][0], found[0][-1], **tight)
    assert (found[0] != 0).all()
    gradients = [torch.autograd.grad(loss_of(*run), list(layer.parameters())) for run in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=0.0, atol=1e-11)


@both_cells
def test_a_batch_of_one_is_the_fused_layer_with_another_matrix(cell: Cell, device: torch.device) -> None:
    layer, input_TBI, state, mask_BH = make(cell, device)
    input_T1I, state_1, mask_1H = input_TBI[:, :1], tuple(part[:, :1].contiguous() for part in state), mask_BH[:1]
    looped = layer(input_T1I, state_1, None, mask_1H)
    with torch.no_grad():
        layer.recurrent_weight_GHH.mul_(mask_1H)
    torch.testing.assert_close(looped, layer(input_T1I, state_1, None), **tight)


@both_cells
def test_weight_drop_and_the_mask_together(cell: Cell, device: torch.device) -> None:
    layer, input_TBI, state, mask_BH = make(cell, device, drop=0.4)
    dropped = drop_weights(layer.recurrent_weight_GHH, 0.4, seeded(3, device))
    expected = column_by_column(layer, input_TBI, state, mask_BH, dropped)
    torch.testing.assert_close(layer(input_TBI, state, seeded(3, device), mask_BH), expected, **tight)


@both_cells
def test_two_windows_under_one_mask_are_one_long_window(cell: Cell, device: torch.device) -> None:
    layer, input_TBI, state, mask_BH = make(cell, device)
    whole, end = layer(input_TBI, state, None, mask_BH)
    first, between = layer(input_TBI[:3], state, None, mask_BH)
    second, last = layer(input_TBI[3:], between, None, mask_BH)
    torch.testing.assert_close((torch.cat((first, second)), last), (whole, end), **tight)


def model(cell: Cell, device: torch.device, **dropout: Any) -> LanguageModel:
    shape = Model(cell=cell, layers=2, embedding_size=H, hidden_size=H, tied=False)
    head, drop = SoftmaxHead(kind="softmax"), Dropout(shared_mask=True, **dropout)
    return LanguageModel(shape, head, drop, even(V), seeded(0)).to(device, torch.float64)


def tokens(device: torch.device, batch: int = B) -> Tensor:
    return torch.randint(V, (T, batch), generator=seeded(9)).to(device)


@both_cells
def test_the_mask_on_the_way_up_is_the_one_on_the_way_back(cell: Cell, device: torch.device) -> None:
    """A training pass written out, from the masks that the outputs show."""
    built = model(cell, device, embedding=0.2, input=0.3, between=0.5, output=0.4)
    tokens_TB = tokens(device)
    outputs, carried = built(tokens_TB, built.initial_state(B), seeded(4, device))
    noise = seeded(4, device)
    embedded = embed(tokens_TB, built.embedding_VE, 0.2, noise)
    torch.testing.assert_close(outputs.dropped[0], locked_dropout(embedded, 0.3, noise), **tight)
    for k, (layer, probability) in enumerate(zip(built.layers, (0.5, 0.4), strict=True), 1):
        assert isinstance(layer, RecurrentLayer)
        mask_TBH = outputs.dropped[k] / outputs.raw[k]
        torch.testing.assert_close(mask_TBH, mask_TBH[:1].expand_as(mask_TBH))
        mask_BH = (outputs.dropped[k][0] != 0).double() / (1.0 - probability)
        torch.testing.assert_close(mask_TBH[0], mask_BH)
        assert len({tuple(row.tolist()) for row in mask_BH}) > 1
        raw, last = column_by_column(layer, outputs.dropped[k - 1], layer.initial_state(B), mask_BH)
        torch.testing.assert_close((outputs.raw[k], carried[k - 1]), (raw, last), **tight)


@both_cells
def test_without_noise_or_probability_the_fused_layers_to_the_last_bit(cell: Cell, device: torch.device) -> None:
    never, shared = model(cell, device), model(cell, device, between=0.5, output=0.4)
    tokens_TB, state = tokens(device), never.initial_state(B)
    plain, _ = never(tokens_TB, state)
    for outputs, _ in (never(tokens_TB, state, seeded(3, device)), shared(tokens_TB, state)):
        assert all(torch.equal(some, other) for some, other in zip(outputs.raw, plain.raw, strict=True))
        assert torch.equal(outputs.raw[-1], outputs.dropped[-1])


def test_windows_draw_masks_of_their_own_at_the_rate_asked(device: torch.device) -> None:
    built, tokens_TB = model("lstm", device, between=0.25, output=0.25), tokens(device, 400)
    noise = seeded(3, device)
    zeros = [
        torch.stack([dropped[0] == 0 for dropped in built(tokens_TB, built.initial_state(400), noise)[0].dropped[1:]])
        for _ in range(2)
    ]
    assert not torch.equal(*zeros) and not torch.equal(*zeros[0])
    for zero in zeros:
        assert zero.double().mean().item() == pytest.approx(0.25, abs=5 * (0.25 * 0.75 / zero.numel()) ** 0.5)


@both_cells
def test_a_dropped_unit_says_nothing_to_anyone(cell: Cell, device: torch.device) -> None:
    """Its column gets no gradient, neither in its layer's recurrent matrix nor in the matrix above."""
    built, tokens_T1 = model(cell, device, between=0.5, output=0.5), tokens(device, 1)
    outputs, _ = built(tokens_T1, built.initial_state(1), seeded(3, device))
    built.head.training_loss(outputs, tokens_T1.roll(-1, 0), None).nats_TB.sum().backward()
    lower, upper = built.layers
    for dropped, matrices in (
        (outputs.dropped[1], (lower.recurrent_weight_GHH, upper.input_weight_GHI)),
        (outputs.dropped[2], (upper.recurrent_weight_GHH, built.head.weight_VH)),
    ):
        out = dropped[0, 0] == 0
        assert out.any() and not out.all()
        for matrix in matrices:
            assert matrix.grad is not None
            assert (matrix.grad[:, out] == 0).all() and (matrix.grad[:, ~out] != 0).any(dim=0).all()
