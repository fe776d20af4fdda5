"""The whole model against stacks of PyTorch's own layers; tying. T time, B batch, E embedding, H size, V vocabulary."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lm.dropout import drop_weights, embed, locked_dropout
from lm.model import LanguageModel
from lm.recurrent import RecurrentLayer
from lm.spec import AddedAugmentedLoss, Dropout, Model, SoftmaxHead
from tests.support import references
from tests.support.tiny import even, seeded

HEAD = SoftmaxHead(kind="softmax")
V, T, B = 13, 8, 3


def build(model: Model, dropout: Dropout | None = None, seed: int = 0, head: SoftmaxHead = HEAD) -> LanguageModel:
    return LanguageModel(model, head, dropout or Dropout(), even(V), seeded(seed))


def text(rows: int = T, batch: int = B) -> Tensor:
    return torch.randint(V, (rows + 1, batch), generator=seeded(9))


def nats(model: LanguageModel, text_RB: Tensor, noise: torch.Generator | None = None) -> Tensor:
    outputs, _ = model(text_RB[:-1], model.initial_state(text_RB.shape[1]), noise)
    return model.head.training_loss(outputs, text_RB[1:], None).nats_TB.mean()


@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_equals_a_standard_stack(cell: str, dtype: torch.dtype, within: float, device: torch.device) -> None:
    """One multi-layer module of PyTorch, an embedding and a linear decoder with the same weights."""
    shape = Model.model_validate({"cell": cell, "layers": 3, "embedding_size": 7, "hidden_size": 7, "tied": False})
    model = build(shape).to(device=device, dtype=dtype)
    with torch.no_grad():
        model.head.bias_V.copy_(torch.linspace(-1, 1, V))
    stack = {"lstm": nn.LSTM, "gru": nn.GRU}[cell](7, 7, num_layers=3).to(device=device, dtype=dtype)
    names = ("weight_ih_l", "weight_hh_l", "bias_ih_l", "bias_hh_l")
    pairs = [
        (parameter, getattr(stack, f"{name}{k}"))
        for k, layer in enumerate(model.layers)
        for name, parameter in zip(names, layer.parameters(), strict=True)
    ]
    embedding, decoder = nn.Embedding(V, 7).to(device, dtype), nn.Linear(7, V).to(device, dtype)
    pairs += [(model.embedding_VE, embedding.weight), (model.head.weight_VH, decoder.weight)]
    pairs += [(model.head.bias_V, decoder.bias)]
    with torch.no_grad():
        for ours, theirs in pairs:
            theirs.copy_(ours)
    text_RB = text().to(device)
    loss = nats(model, text_RB, seeded(0, device))
    loss.backward()
    output_TBH, _ = stack(embedding(text_RB[:-1]))
    expected = F.cross_entropy(decoder(output_TBH).flatten(0, 1), text_RB[1:].flatten())
    expected.backward()
    outputs, _ = model(text_RB[:-1], model.initial_state(B))
    torch.testing.assert_close(outputs.raw[-1], output_TBH, rtol=0.0, atol=within)
    torch.testing.assert_close(model.head.scorer().logits(outputs), decoder(output_TBH), rtol=0.0, atol=within)
    torch.testing.assert_close(loss, expected, rtol=0.0, atol=within)
    for ours, theirs in pairs:
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=0.0, atol=within)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_every_mask_in_its_place(cell: str, device: torch.device) -> None:
    """A training pass written out: masks are drawn in the order of use, and the carried state is not dropped."""
    drop = Dropout(embedding=0.2, input=0.3, between=0.4, output=0.5, weight=0.6)
    shape = Model.model_validate({"cell": cell, "layers": 3, "embedding_size": 5, "hidden_size": 6})
    model = build(shape, drop).to(device, torch.float64)
    tokens_TB = text().to(device)[:-1]
    outputs, carried = model(tokens_TB, model.initial_state(B), seeded(4, device))
    noise = seeded(4, device)
    embedded = embed(tokens_TB, model.embedding_VE, 0.2, noise)
    hidden = locked_dropout(embedded, 0.3, noise)
    assert torch.equal(outputs.raw[0], embedded) and torch.equal(outputs.dropped[0], hidden)
    for k, layer in enumerate(model.layers, 1):
        assert isinstance(layer, RecurrentLayer)
        recurrent = drop_weights(layer.recurrent_weight_GHH, 0.6, noise)
        weights = (layer.input_weight_GHI, recurrent, layer.input_bias_GH, layer.recurrent_bias_GH)
        raw, last = references.run(cell, hidden, layer.initial_state(B), weights)
        hidden = locked_dropout(raw, 0.5 if k == 3 else 0.4, noise)
        torch.testing.assert_close(outputs.raw[k], raw)
        torch.testing.assert_close(outputs.dropped[k], hidden)
        torch.testing.assert_close(carried[k - 1], last)
        torch.testing.assert_close(carried[k - 1][0][0], outputs.raw[k][-1])
    torch.testing.assert_close(model.head.scorer().logits(outputs), hidden @ model.embedding_VE.T + model.head.bias_V)


@pytest.mark.parametrize("lengths", [(1, 7), (3, 5), (4, 3, 1), (1,) * 8])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_windows_with_carried_state_are_one_long_window(
    cell: str, lengths: tuple[int, ...], device: torch.device
) -> None:
    """Where nothing is dropped, however the text is cut."""
    shape = Model.model_validate({"cell": cell, "layers": 2, "embedding_size": 5, "hidden_size": 6})
    model = build(shape, Dropout(weight=0.5, output=0.5)).to(device, torch.float64)
    tokens_TB = text().to(device)[:-1]
    whole, end = model(tokens_TB, model.initial_state(B))
    pieces, state = [], model.initial_state(B)
    for piece in tokens_TB.split(lengths):
        outputs, state = model(piece, state)
        pieces.append(model.head.scorer().logits(outputs))
    torch.testing.assert_close(torch.cat(pieces), model.head.scorer().logits(whole), rtol=0.0, atol=1e-12)
    torch.testing.assert_close(state, end, rtol=0.0, atol=1e-12)


def test_columns_do_not_see_each_other() -> None:
    model = build(Model(layers=2, embedding_size=5, hidden_size=6))
    tokens_TB = text()[:-1]
    together, _ = model(tokens_TB, model.initial_state(B))
    for column in range(B):
        alone, _ = model(tokens_TB[:, column : column + 1], model.initial_state(1))
        torch.testing.assert_close(alone.raw[-1][:, 0], together.raw[-1][:, column])


def test_initial_weights() -> None:
    shape = Model(layers=2, embedding_size=50, hidden_size=80, tied=False)
    model = LanguageModel(shape, HEAD, Dropout(), even(400), seeded(0))
    for matrix in (model.embedding_VE, model.head.weight_VH):
        assert 0.0999 < matrix.detach().abs().max() <= 0.1 and matrix.detach().mean().abs() < 0.001
    assert model.head.bias_V is not None and (model.head.bias_V == 0).all()
    tied = LanguageModel(Model(layers=2, embedding_size=50, hidden_size=80), HEAD, Dropout(), even(400), seeded(0))
    bounds = [layer.recurrent_weight_GHH.detach().abs().max().item() for layer in tied.layers]
    assert bounds == pytest.approx([80**-0.5, 50**-0.5], rel=0.01)  # the last layer's range is wider


@pytest.mark.parametrize("tied", [True, False])
def test_one_range_for_every_weight(tied: bool) -> None:
    shape = Model(layers=2, embedding_size=50, hidden_size=50, tied=tied, init_range=0.04)
    model = LanguageModel(shape, HEAD, Dropout(), even(400), seeded(0))
    for weight in model.weights().values():
        assert 0.037 < weight.abs().max() <= 0.04 and weight.mean().abs() < 0.01
    again, other = (LanguageModel(shape, HEAD, Dropout(), even(400), seeded(seed)).weights() for seed in (0, 1))
    assert all(torch.equal(weight, again[name]) for name, weight in model.weights().items())
    assert not any(torch.equal(weight, other[name]) for name, weight in model.weights().items())


def test_an_output_matrix_may_have_a_range_of_its_own() -> None:
    shape = Model(layers=1, embedding_size=50, hidden_size=50, tied=False)
    plain, small = (
        LanguageModel(shape, SoftmaxHead(kind="softmax", init_range=bound), Dropout(), even(400), seeded(0)).weights()
        for bound in (None, 1e-6)
    )
    assert torch.allclose(small["head.weight_VH"], plain["head.weight_VH"] * 1e-5, rtol=1e-4)
    assert all(torch.equal(small[name], weight) for name, weight in plain.items() if name != "head.weight_VH")


def test_same_seed_same_weights_and_masks() -> None:
    shape, drop = Model(layers=2, embedding_size=5, hidden_size=6), Dropout(weight=0.5, input=0.5)
    first, second, other = build(shape, drop, 3), build(shape, drop, 3), build(shape, drop, 4)
    assert all(torch.equal(weight, second.weights()[name]) for name, weight in first.weights().items())
    assert not torch.equal(first.embedding_VE, other.embedding_VE)
    assert torch.equal(nats(first, text(), seeded(1)), nats(second, text(), seeded(1)))
    assert not torch.equal(nats(first, text(), seeded(1)), nats(second, text(), seeded(2)))


TIED = Model(layers=2, embedding_size=5, hidden_size=6)
UNTIED = Model(layers=2, embedding_size=5, hidden_size=(6, 5), tied=False)


def test_tied_matrices_are_one_storage() -> None:
    """Loading weights and changing their type keep them so; untied matrices are two."""
    model = build(TIED)
    assert model.head.weight_VH is model.embedding_VE
    model.load_weights({name: weight + 1.0 for name, weight in model.weights().items()})
    model.to(torch.float64)
    assert model.head.weight_VH.data_ptr() == model.embedding_VE.data_ptr()
    assert len(list(model.parameters())) == len(model.weights()) == 2 * 4 + 2
    untied = build(UNTIED)
    assert untied.head.weight_VH.data_ptr() != untied.embedding_VE.data_ptr()
    assert len(untied.weights()) == 2 * 4 + 3


@pytest.mark.parametrize("shape", [TIED, UNTIED], ids=["tied", "untied"])
def test_an_augmented_head_has_no_weights_of_its_own(shape: Model) -> None:
    """It sees the model's embedding, wherever that is moved."""
    augmented = SoftmaxHead(kind="softmax", augmented=AddedAugmentedLoss(kind="added"))
    model = build(shape, head=augmented).double()
    assert model.weights().keys() == build(shape).weights().keys()
    assert model.head.embedding_VE is model.embedding_VE


def test_a_tied_head_scores_by_likeness_to_the_embedding() -> None:
    """The logits of a hidden vector that equals a word's embedding are E E_w + b."""
    model = build(TIED)
    embedding_VE = model.embedding_VE.detach()
    bias_V = torch.linspace(-0.1, 0.1, V)
    with torch.no_grad():
        model.head.bias_V.copy_(bias_V)
    outputs, _ = model(text()[:-1], model.initial_state(B))
    for word in range(V):
        chosen = type(outputs)(outputs.raw, (embedding_VE[word][None, None],))
        expected = torch.tensor([float(embedding_VE[v] @ embedding_VE[word] + bias_V[v]) for v in range(V)])
        torch.testing.assert_close(model.head.scorer().logits(chosen)[0, 0], expected)


def test_the_tied_gradient_is_the_sum_of_both() -> None:
    """That of the embedding and that of the decoder, where an untied model holds equal copies."""
    drop = Dropout(embedding=0.2, output=0.3, weight=0.4)
    tied, untied = build(TIED, drop).double(), build(UNTIED, drop).double()
    weights = tied.weights()
    untied.load_weights(weights | {"head.weight_VH": weights["embedding_VE"]})
    for model in (tied, untied):
        nats(model, text(), seeded(2)).backward()
    assert untied.embedding_VE.grad is not None and untied.head.weight_VH.grad is not None
    both = untied.embedding_VE.grad + untied.head.weight_VH.grad
    torch.testing.assert_close(tied.embedding_VE.grad, both, rtol=0.0, atol=1e-14)
    assert (untied.embedding_VE.grad != 0).any() and (untied.head.weight_VH.grad != 0).any()


def test_the_head_is_a_distribution() -> None:
    model = build(TIED).double()
    outputs, _ = model(text()[:-1], model.initial_state(B))
    log_probabilities_TBV = model.head.scorer().log_probabilities(outputs)
    torch.testing.assert_close(log_probabilities_TBV.exp().sum(dim=-1), torch.ones(T, B, dtype=torch.float64))
    expected_TB = torch.stack(
        [torch.stack([-log_probabilities_TBV[t, b, text()[t + 1, b]] for b in range(B)]) for t in range(T)]
    )
    torch.testing.assert_close(model.head.scorer().target_nats(outputs, text()[1:]), expected_TB)


def test_a_head_without_bias() -> None:
    model = build(TIED, head=SoftmaxHead(kind="softmax", bias=False))
    assert model.head.bias_V is None and "head.bias_V" not in model.weights()
    outputs, _ = model(text()[:-1], model.initial_state(B))
    torch.testing.assert_close(model.head.scorer().logits(outputs), outputs.dropped[-1] @ model.embedding_VE.T)


def test_weights_of_another_model_are_refused() -> None:
    model = build(TIED)
    before = {name: weight.clone() for name, weight in model.weights().items()}
    with pytest.raises(ValueError, match=r"head\.weight_VH"):
        model.load_weights(build(UNTIED).weights())
    with pytest.raises(ValueError, match=r"embedding_VE: shape \(13, 4\), this model has \(13, 5\)"):
        model.load_weights(model.weights() | {"embedding_VE": torch.zeros(V, 4)})
    assert all(torch.equal(weight, before[name]) for name, weight in model.weights().items())
