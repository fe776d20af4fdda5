"""Mixtures against their equations, word by word. T time, B batch, J experts, H layer size, E expert size, V words."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from lm.heads import Outputs
from lm.heads.cross_entropy import linear_nats, whole_rows_nats
from lm.heads.mixture import Mixture
from lm.heads.softmax import Softmax
from lm.model import LanguageModel
from lm.spec import Dropout, MixtureHead, Model, SoftmaxHead, parameter_count
from tests.lm.heads.examples import EMBEDDING, HIDDEN, LAST, B, Example, T, V, build, outputs, targets
from tests.lm.heads.live import LiveBytes
from tests.support.tiny import even, seeded

tight = {"rtol": 0.0, "atol": 1e-12}


def mixture(
    experts: Sequence[int], *, tied: bool = False, dtype: torch.dtype = torch.float64, **options: Any
) -> Mixture:
    example = Example("", {"kind": "mixture", "experts": list(experts), **options}, tied=tied)
    head = build(example, dtype=dtype)
    assert isinstance(head, Mixture)
    return head


def softmax(scores: Tensor) -> Tensor:
    return scores.exp() / scores.exp().sum()


def distribution(head: Mixture, given: Outputs, t: int, b: int) -> Tensor:
    """Equations 7, 8, 10 and 11 for one position, in probability space: naive."""
    weights = head.state_dict()
    vectors = []
    for layer, count in enumerate(head.spec.experts):
        for i in range(count):
            own = slice(i * EMBEDDING, (i + 1) * EMBEDDING)
            matrix_EH = weights[f"experts.{layer}.weight_IEH"][own]
            bias_E = weights[f"experts.{layer}.bias_IE"][own]
            vectors.append(torch.tanh(matrix_EH @ given.dropped[layer][t, b] + bias_E))
    gate_J = torch.full((len(vectors),), 1 / len(vectors), dtype=torch.float64)
    if head.spec.gate == "learned":
        gate_J = softmax(weights["gate_JH"] @ given.dropped[-1][t, b])
    if head.spec.mixture == "contexts":
        vectors = [sum((g * k for g, k in zip(gate_J, vectors, strict=True)), torch.zeros(()))]
        gate_J = torch.ones(1)
    each = (softmax(weights["weight_VE"] @ k + weights["bias_V"]) for k in vectors)
    return sum((g * p_V for g, p_V in zip(gate_J, each, strict=True)), torch.zeros(()))


COUNTS = [counts for counts in itertools.product(range(3), repeat=3) if any(counts)]


@pytest.mark.parametrize("options", [{}, {"mixture": "contexts"}, {"gate": "uniform"}], ids=str)
@pytest.mark.parametrize("experts", COUNTS, ids=str)
def test_equals_the_equations(experts: tuple[int, ...], options: dict[str, Any]) -> None:
    head, given, targets_TB = mixture(experts, **options), outputs(), targets()
    log_probabilities_TBV = head.log_probabilities(given)
    nats_TB = head.training_loss(given, targets_TB, None).nats_TB
    for t, b in itertools.product(range(T), range(B)):
        expected_V = distribution(head, given, t, b)
        torch.testing.assert_close(log_probabilities_TBV[t, b].exp(), expected_V, **tight)
        torch.testing.assert_close(nats_TB[t, b], -expected_V[targets_TB[t, b]].log(), **tight)
    total_TB = log_probabilities_TBV.exp().sum(dim=-1)
    torch.testing.assert_close(total_TB, torch.ones(T, B, dtype=torch.float64), **tight)


def test_one_expert_is_a_softmax_over_a_tanh() -> None:
    """The gate is 1, and the prior penalty 0 with zero gradient."""
    head, given, targets_TB = mixture([0, 0, 1], prior_penalty=1.0), outputs(), targets()
    weights = head.state_dict()
    vector_TBE = torch.tanh(given.dropped[2] @ weights["experts.2.weight_IEH"].T + weights["experts.2.bias_IE"])
    expected_TBV = F.log_softmax(vector_TBE @ weights["weight_VE"].T + weights["bias_V"], dim=-1)
    torch.testing.assert_close(head.log_probabilities(given), expected_TBV, **tight)
    assert torch.equal(head.log_gate(given).exp(), torch.ones(T, B, 1, dtype=torch.float64))
    term = head.training_loss(given, targets_TB, None).terms["prior_penalty"]
    (gradient,) = torch.autograd.grad(term, [head.gate_JH])
    assert term == 0.0 and torch.equal(gradient, torch.zeros(1, LAST, dtype=torch.float64))


@pytest.mark.parametrize("tied", [True, False])
def test_the_masks_differ_in_training_alone(tied: bool) -> None:
    """DOC with all experts on the last layer is MoS: bit for bit without noise, another regulariser with it."""
    doc, mos = (mixture([0, 0, 4], tied=tied, dropout=0.5, mask=mask) for mask in ("shared", "independent"))
    given, targets_TB = outputs(), targets()
    assert torch.equal(doc.log_probabilities(given), mos.log_probabilities(given))
    for noise, same in ((None, True), (5, False)):
        nats = [head.training_loss(given, targets_TB, noise and seeded(noise)).nats_TB for head in (doc, mos)]
        assert torch.equal(*nats) == same


@pytest.mark.parametrize(("mask", "masks"), [("shared", 1), ("independent", 3)])
def test_a_mask_holds_for_the_window_and_follows_the_tanh(mask: str, masks: int) -> None:
    head, given = mixture([0, 1, 2], dropout=0.3, mask=mask), outputs(batch=40)
    kept_TBJE = head.expert_vectors(given, seeded(6)) / head.expert_vectors(given)
    assert set(kept_TBJE.detach().mul(0.7).round(decimals=9).unique().tolist()) == {0.0, 1.0}
    torch.testing.assert_close(kept_TBJE, kept_TBJE[:1].expand_as(kept_TBJE))
    different = {str(row) for row in (kept_TBJE[0] > 0).transpose(0, 1).flatten(1).int().tolist()}
    assert len(different) == masks
    assert len({str(column) for column in (kept_TBJE[0, :, 0] > 0).int().tolist()}) > 30
    assert (kept_TBJE == 0).double().mean().item() == pytest.approx(0.3, abs=0.05)


def test_equal_experts_make_the_gate_irrelevant() -> None:
    head, given, targets_TB = mixture([0, 0, 3]), outputs(), targets()
    with torch.no_grad():
        for parameter in head.experts["2"].parameters():
            parameter.copy_(parameter[:EMBEDDING].repeat(3, *[1] * (parameter.dim() - 1)))
    before_TBV = head.log_probabilities(given)
    head.training_loss(given, targets_TB, None).nats_TB.sum().backward()
    torch.testing.assert_close(head.gate_JH.grad, torch.zeros_like(head.gate_JH), **tight)
    with torch.no_grad():
        head.gate_JH.mul_(-2.0)
    torch.testing.assert_close(head.log_probabilities(given), before_TBV, **tight)


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_gradients_are_weighed_by_responsibility(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With r_j the posterior of expert j: pi - r for the gate's scores, r_j D^T (p_j - e_y) for its vector."""
    monkeypatch.setattr("lm.heads.mixture.linear_nats", partial(linear_nats, chunk_bytes=rows * V * 8))
    head, given, targets_TB = mixture([1, 2, 2]), outputs(), targets()
    vectors_TBJE = head.expert_vectors(given).detach().requires_grad_()
    scores_TBJ = torch.randn(T, B, 5, generator=seeded(8), dtype=torch.float64, requires_grad=True)
    monkeypatch.setattr(head, "expert_vectors", lambda *_: vectors_TBJE)
    monkeypatch.setattr(head, "log_gate", lambda _: F.log_softmax(scores_TBJ, dim=-1))
    upstream_TB = torch.rand(T, B, generator=seeded(9), dtype=torch.float64)
    (head.training_loss(given, targets_TB, None).nats_TB * upstream_TB).sum().backward()
    weight_VE, bias_V = head.weight_VE.detach(), head.bias_V.detach()
    matrix_gradient, bias_gradient = torch.zeros_like(weight_VE), torch.zeros_like(bias_V)
    for t, b in itertools.product(range(T), range(B)):
        y, scale = int(targets_TB[t, b]), upstream_TB[t, b]
        gate_J, k_JE = softmax(scores_TBJ[t, b].detach()), vectors_TBJE[t, b].detach()
        p_JV = torch.stack([softmax(weight_VE @ k + bias_V) for k in k_JE])
        r_J = gate_J * p_JV[:, y] / (gate_J * p_JV[:, y]).sum()
        excess_JV = r_J[:, None] * (p_JV - F.one_hot(torch.tensor(y), V))
        close = {"rtol": 0.0, "atol": 1e-9}
        torch.testing.assert_close(scores_TBJ.grad[t, b], scale * (gate_J - r_J), **close)
        torch.testing.assert_close(vectors_TBJE.grad[t, b], scale * excess_JV @ weight_VE, **close)
        matrix_gradient += scale * excess_JV.T @ k_JE
        bias_gradient += scale * excess_JV.sum(dim=0)
    torch.testing.assert_close(head.weight_VE.grad, matrix_gradient, **close)
    torch.testing.assert_close(head.bias_V.grad, bias_gradient, **close)


def test_it_is_stable_where_the_naive_form_overflows() -> None:
    head, given, targets_TB = mixture([1, 1, 2]), outputs(), targets()
    before_TBV, nats_TB = head.log_probabilities(given), head.target_nats(given, targets_TB)
    with torch.no_grad():
        head.bias_V.add_(1000.0)
    assert not distribution(head, given, 0, 0).isfinite().any()
    torch.testing.assert_close(head.log_probabilities(given), before_TBV, rtol=0.0, atol=1e-10)
    torch.testing.assert_close(head.target_nats(given, targets_TB), nats_TB, rtol=0.0, atol=1e-10)


PTB = Model(layers=3, embedding_size=280, hidden_size=(960, 960, 620))
WIKITEXT2 = Model(layers=3, embedding_size=300, hidden_size=(1150, 1150, 650))


@pytest.mark.parametrize(
    ("model", "experts", "words", "expected"),
    [
        (PTB, (0, 0, 5, 15), 10_000, 22_849_120),
        (WIKITEXT2, (0, 0, 5, 15), 33_278, 36_639_278),
        (PTB, (0, 0, 0, 15), 10_000, 21_500_620),
        (WIKITEXT2, (0, 0, 0, 15), 33_278, 34_909_528),
        (PTB, (0, 0, 0, 20), 10_000, 22_373_120),
    ],
)
def test_published_models_have_their_published_size(
    model: Model, experts: tuple[int, ...], words: int, expected: int
) -> None:
    """Takase et al. 2018 print 23M, 37M, 22M and 35M."""
    head = MixtureHead(kind="mixture", experts=experts)
    assert parameter_count(model, head, words) == expected
    small = Model(layers=3, embedding_size=7, hidden_size=(9, 8, 6))
    built = LanguageModel(small, head, Dropout(), even(11), seeded(0))
    assert sum(p.numel() for p in built.parameters()) == parameter_count(small, head, 11)


def test_it_begins_as_published() -> None:
    spec = MixtureHead(kind="mixture", experts=(0, 2, 3))
    head = Mixture(spec, (EMBEDDING, HIDDEN, LAST), V, None, seeded(0))
    bounds = {"experts.1.weight_IEH": HIDDEN**-0.5, "experts.2.weight_IEH": LAST**-0.5}
    bounds |= {
        "gate_JH": LAST**-0.5,
        "weight_VE": 0.1,
        "bias_V": 0.0,
        "experts.1.bias_IE": 0.0,
        "experts.2.bias_IE": 0.0,
    }
    assert head.state_dict().keys() == bounds.keys()
    for name, weight in head.named_parameters():
        assert 0.9 * bounds[name] <= weight.abs().max().item() <= bounds[name], name


def test_a_layer_without_experts_changes_nothing() -> None:
    with_two = MixtureHead(kind="mixture", experts=(1, 3), dropout=0.5)
    with_three = MixtureHead(kind="mixture", experts=(1, 0, 3), dropout=0.5)
    embedded, middle, last = outputs().dropped
    two = Mixture(with_two, (EMBEDDING, LAST), V, None, seeded(0)).double()
    three = Mixture(with_three, (EMBEDDING, HIDDEN, LAST), V, None, seeded(0)).double()
    assert [p.shape for p in two.parameters()] == [p.shape for p in three.parameters()]
    nats = two.training_loss(Outputs((), (embedded, last)), targets(), seeded(1)).nats_TB
    assert torch.equal(nats, three.training_loss(Outputs((), (embedded, middle, last)), targets(), seeded(1)).nats_TB)


@pytest.mark.parametrize("gate", ["uniform", "learned"])
def test_experts_of_the_first_layer_train_that_layer_directly(gate: Any) -> None:
    """With the gate cut off, no gradient takes the way over the layers above."""
    head = MixtureHead(kind="mixture", experts=(0, 3, 0, 0), gate=gate)
    model = LanguageModel(Model(layers=3, embedding_size=7, hidden_size=9), head, Dropout(), even(V), seeded(0))
    text_RB = targets()
    made, _ = model(text_RB[:-1], model.initial_state(B))
    cut = Outputs(made.raw, (*made.dropped[:-1], made.dropped[-1].detach()))
    model.head.training_loss(cut, text_RB[1:], None).nats_TB.sum().backward()
    lowest, *above = model.layers
    assert all(parameter.grad.any() for parameter in lowest.parameters())
    assert all(parameter.grad is None for layer in above for parameter in layer.parameters())


def test_rank() -> None:
    """What a mixture is for: log-probabilities of full rank (Yang et al. 2018, section 2).

    D units and a bias give logits of rank D + 1; the normalisation of rows adds one, centring them takes it away.
    """
    words, size, steps = 400, 20, 500
    draw = seeded(0)
    one = Outputs((), (torch.randn(steps, 1, size, generator=draw, dtype=torch.float64),) * 2)
    plain = Softmax(
        SoftmaxHead(kind="softmax"), size, words, None, draw, embedding_VE=torch.nn.Parameter(torch.empty(0, size))
    )
    kinds: dict[str, Any] = {"softmaxes": (400, 399), "contexts": (size + 2, size + 1)}
    found = {"softmax": ranks(plain.double(), one)}
    for kind in kinds:
        spec = MixtureHead(kind="mixture", experts=(0, 5), mixture=kind)
        found[kind] = ranks(Mixture(spec, (size, size), words, None, draw).double(), one)
    assert found == {"softmax": (size + 2, size + 1), **kinds}


def ranks(head: Softmax | Mixture, given: Outputs) -> tuple[int, int]:
    """Of the log-probabilities, as they are and with their rows centred."""
    with torch.no_grad():
        for i, parameter in enumerate(head.parameters()):
            parameter.copy_(torch.randn(parameter.shape, generator=seeded(i), dtype=torch.float64))
        log_NV = head.scorer().log_probabilities(given).flatten(0, 1)
    centred_NV = log_NV - log_NV.mean(dim=-1, keepdim=True)
    return int(torch.linalg.matrix_rank(log_NV)), int(torch.linalg.matrix_rank(centred_NV))


@pytest.mark.parametrize("function", [linear_nats, whole_rows_nats])
def test_memory_does_not_grow_with_the_logits_of_every_expert(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step holds a chunk or a block of logits, weights' gradients and the experts' vectors; (T B J, V) never."""
    steps, batch, width, words, chunk_bytes = 10, 8, 4, 3000, 400_000
    monkeypatch.setattr("lm.heads.mixture.linear_nats", partial(function, chunk_bytes=chunk_bytes))
    monkeypatch.setattr("lm.heads.blocks.LEAST_WORDS", 50)
    monkeypatch.setattr("lm.heads.blocks.BLOCK_BYTES", chunk_bytes)
    hidden_TBE = torch.randn(steps, batch, width, generator=seeded(0))
    targets_TB = torch.randint(words, (steps, batch), generator=seeded(1))
    for total in (2, 10, 20):
        head = Mixture(
            MixtureHead(kind="mixture", experts=(0, total), dropout=0.5), (width, width), words, None, seeded(2)
        )
        with LiveBytes() as live:
            loss = head.training_loss(Outputs((), (hidden_TBE, hidden_TBE)), targets_TB, seeded(3))
            loss.nats_TB.mean().backward()
        gradients = sum(parameter.nbytes for parameter in head.parameters())
        vectors = steps * batch * total * width * 4
        assert live.peak < chunk_bytes + 2 * gradients + 12 * vectors < steps * batch * total * words * 4


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_step_of_training_lowers_the_loss(cell: Any, tied: bool) -> None:
    head = MixtureHead(kind="mixture", experts=(1, 2, 3), dropout=0.3, prior_penalty=0.01)
    shape = Model(cell=cell, layers=2, embedding_size=8, hidden_size=(12, 10), tied=tied)
    drop = Dropout(embedding=0.1, input=0.2, between=0.2, output=0.3, weight=0.4)
    model = LanguageModel(shape, head, drop, even(V), seeded(0))
    text_RB = torch.randint(V, (12, B), generator=seeded(1))

    def loss() -> Tensor:
        noise = seeded(2)
        made, _ = model(text_RB[:-1], model.initial_state(B), noise)
        found = model.head.training_loss(made, text_RB[1:], noise)
        return found.nats_TB.mean() + found.terms["prior_penalty"]

    before = loss()
    before.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            assert parameter.grad.any()
            parameter.sub_(0.1 * parameter.grad)
    assert loss() < before - 1e-4
