"""The augmented losses of the softmax (Inan et al. 2016). T time, B batch, E embedding, H size, V vocabulary."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from lm.heads import Outputs, TrainingLoss
from lm.heads.softmax import Softmax
from lm.losses import soft_target
from lm.spec import AddedAugmentedLoss, SoftmaxHead
from tests.lm.heads.examples import Example, V, build, outputs, targets
from tests.support.tiny import seeded

tight = {"rtol": 0.0, "atol": 1e-12}


def head_of(*, tied: bool = False, dtype: torch.dtype = torch.float64, **augmented: Any) -> Softmax:
    """The same weights whatever the loss; without options the plain head."""
    spec = {"kind": "softmax", "augmented": augmented or None}
    head = build(Example("", spec, tied=tied), dtype=dtype)
    assert isinstance(head, Softmax)
    return head


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def softmax(scores: list[float], temperature: float = 1.0) -> list[float]:
    exponentials = [math.exp(score / temperature) for score in scores]
    return [each / sum(exponentials) for each in exponentials]


def divergence(target: list[float], predicted: list[float]) -> float:
    return sum(p * math.log(p / q) for p, q in zip(target, predicted, strict=True))


def gradients(head: Softmax) -> dict[str, Tensor]:
    """Of the whole loss, by parameter; those that have none are left out."""
    loss = head.training_loss(outputs(), targets(), None)
    total = loss.nats_TB.sum() + sum((term.sum() for term in loss.terms.values()), torch.zeros(()))
    named = dict(head.named_parameters())
    found = torch.autograd.grad(total, list(named.values()), allow_unused=True)
    return {name: gradient for name, gradient in zip(named, found, strict=True) if gradient is not None}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("bias", ["include", "exclude"])
def test_both_losses_by_their_definition(bias: str, tied: bool) -> None:
    options = {"temperature": 3.0, "bias": bias}
    added = head_of(tied=tied, kind="added", weight=0.7, **options)
    blended = head_of(tied=tied, kind="blended", share=0.3, **options)
    given, targets_TB = outputs(), targets()
    added_loss, blended_loss = (head.training_loss(given, targets_TB, None) for head in (added, blended))
    embedding = added.embedding_VE.tolist()
    for (t, b), target in zip(((t, b) for t in range(4) for b in range(3)), targets_TB.flatten().tolist(), strict=True):
        hidden = given.dropped[-1][t, b].tolist()
        scores = [sum(h * w for h, w in zip(hidden, row, strict=True)) for row in added.weight_VH.tolist()]
        logits = [score + offset for score, offset in zip(scores, added.bias_V.tolist(), strict=True)]
        likeness = [sum(x * y for x, y in zip(embedding[target], row, strict=True)) for row in embedding]
        nats = -math.log(softmax(logits)[target])
        kl = divergence(softmax(likeness, 3.0), softmax(logits if bias == "include" else scores, 3.0))
        assert added_loss.nats_TB[t, b].item() == pytest.approx(nats, rel=1e-11)
        assert added_loss.terms["augmented"][t, b].item() == pytest.approx(0.7 * 3.0 * kl, rel=1e-11)
        assert blended_loss.nats_TB[t, b].item() == pytest.approx(0.7 * nats, rel=1e-11)
        assert blended_loss.terms["augmented"][t, b].item() == pytest.approx(0.3 * 9.0 * V * kl, rel=1e-11)


@pytest.mark.parametrize("nothing", [{"kind": "added", "weight": 0.0}, {"kind": "blended", "share": 0.0}])
@pytest.mark.parametrize("flow", ["stop", "flow"])
def test_no_weight_is_plain_cross_entropy(nothing: dict[str, Any], flow: str) -> None:
    plain = head_of()
    augmented = head_of(**nothing, target_gradient=flow)
    loss = augmented.training_loss(outputs(), targets(), None)
    assert (loss.terms["augmented"] == 0).all()
    torch.testing.assert_close(loss.nats_TB, plain.scorer().target_nats(outputs(), targets()), **tight)
    found = gradients(augmented)
    assert (found.pop("embedding_VE", torch.zeros(())) == 0).all()
    torch.testing.assert_close(found, gradients(plain), **tight)


def test_evaluation_is_plain_cross_entropy() -> None:
    plain, augmented = head_of(), head_of(kind="blended", share=1.0)
    given, targets_TB = outputs(), targets()
    assert torch.equal(augmented.scorer().target_nats(given, targets_TB), plain.scorer().target_nats(given, targets_TB))
    assert torch.equal(augmented.scorer().log_probabilities(given), plain.scorer().log_probabilities(given))


def test_a_stopped_target_is_a_constant_and_a_flowing_one_is_not() -> None:
    """In an untied head the embedding is in the target alone; central differences hold the flow in the contract."""
    stop, flow = (head_of(kind="added", target_gradient=mode) for mode in ("stop", "flow"))
    stopped, flowing = gradients(stop), gradients(flow)
    assert "embedding_VE" not in stopped
    through_target = flowing.pop("embedding_VE")
    assert through_target.abs().max() > 1e-4
    torch.testing.assert_close(stopped, flowing, **tight)
    tied_stop, tied_flow = (head_of(tied=True, kind="added", target_gradient=mode) for mode in ("stop", "flow"))
    for head in (stop, flow):
        with torch.no_grad():
            head.weight_VH.copy_(tied_stop.weight_VH)
            head.embedding_VE.copy_(tied_stop.weight_VH)
            head.bias_V.copy_(tied_stop.bias_V)
    decoder, both = gradients(stop)["weight_VH"], gradients(flow)
    torch.testing.assert_close(gradients(tied_stop)["weight_VH"], decoder, **tight)
    expected = both["weight_VH"] + both["embedding_VE"]
    torch.testing.assert_close(gradients(tied_flow)["weight_VH"], expected, **tight)
    assert not torch.allclose(expected, decoder, atol=1e-4)


def test_dropped_words_do_not_change_the_target() -> None:
    """It is made of the embedding itself, whatever the embedding's outputs are."""
    head, given = head_of(kind="added"), outputs()
    other = Outputs(given.raw, (torch.zeros_like(given.dropped[0]), *given.dropped[1:]))
    losses = [head.training_loss(each, targets(), None).terms["augmented"] for each in (given, other)]
    assert torch.equal(*losses)


def test_it_is_not_negative_and_nothing_where_both_agree_but_for_a_constant() -> None:
    scores_TBV, likeness_TBV = normal(5, 4, 30), normal(5, 4, 30, seed=1)
    assert (soft_target(scores_TBV, likeness_TBV, 20.0, torch.float64) > 0).all()
    shifted = soft_target(likeness_TBV + normal(5, 4, 1, seed=2), likeness_TBV, 2.0, torch.float64)
    torch.testing.assert_close(shifted, torch.zeros(5, 4, dtype=torch.float64), **tight)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 20.0])
def test_its_gradient_is_the_difference_of_the_softmaxes(temperature: float) -> None:
    scores_TBV, likeness_TBV = normal(5, 4, 30).requires_grad_(), normal(5, 4, 30, seed=1)
    (found,) = torch.autograd.grad(soft_target(scores_TBV, likeness_TBV, temperature, torch.float64).sum(), scores_TBV)
    expected = (scores_TBV / temperature).softmax(-1) - (likeness_TBV / temperature).softmax(-1)
    torch.testing.assert_close(found, expected / temperature, rtol=0.0, atol=1e-15)
    assert found.sum(-1).abs().max() < 1e-14


def test_against_a_sharp_target_it_is_the_cross_entropy() -> None:
    scores_TBV, targets_TB = normal(5, 4, 30), torch.arange(20).view(5, 4)
    sharp_TBV = 1e4 * F.one_hot(targets_TB, 30).double()
    expected = F.cross_entropy(scores_TBV.flatten(0, 1), targets_TB.flatten(), reduction="none").view(5, 4)
    torch.testing.assert_close(soft_target(scores_TBV, sharp_TBV, 1.0, torch.float64), expected, **tight)


def test_at_high_temperature_it_is_half_the_variance_of_the_difference() -> None:
    """tau^2 J -> Var(delta) / 2 and tau^2 V dJ/dz -> delta - mean(delta), the limit of Inan et al. 2016, section 4."""
    scores_TBV, likeness_TBV = normal(1, 1, 500).requires_grad_(), normal(1, 1, 500, seed=1)
    delta = (scores_TBV - likeness_TBV).detach()
    centred = delta - delta.mean()
    values, slopes = [], []
    for temperature in (10.0, 100.0, 1000.0):
        divergence = soft_target(scores_TBV, likeness_TBV, temperature, torch.float64).sum()
        (slope,) = torch.autograd.grad(divergence, scores_TBV)
        values.append(abs(temperature**2 * divergence.item() / (delta.var(correction=0).item() / 2) - 1))
        slopes.append(((temperature**2 * 500 * slope - centred).norm() / centred.norm()).item())
    assert all(value < bound for value, bound in zip(values, (2e-2, 2e-3, 2e-4), strict=True)), values
    assert all(slope < bound for slope, bound in zip(slopes, (0.3, 0.03, 0.003), strict=True)), slopes
    assert slopes[0] / slopes[1] == pytest.approx(10, rel=0.1) == slopes[1] / slopes[2]


def target_of(word: int, embedding_VE: Tensor, temperature: float) -> Tensor:
    """A word's soft target (V,), from the gradient of a head that predicts all words alike."""
    augmented = AddedAugmentedLoss(kind="added", weight=1.0, temperature=temperature)
    words, size = embedding_VE.shape
    spec, embedding = SoftmaxHead(kind="softmax", augmented=augmented), nn.Parameter(embedding_VE)
    head = Softmax(spec, size, words, None, torch.Generator().manual_seed(0), embedding_VE=embedding).double()
    outputs_11E = (torch.zeros(1, 1, size, dtype=torch.float64),)
    term = head.training_loss(Outputs(outputs_11E, outputs_11E), torch.tensor([[word]]), None).terms["augmented"]
    (gradient_V,) = torch.autograd.grad(term.sum(), head.bias_V)
    return 1 / words - gradient_V


def test_a_cold_target_is_the_word_itself() -> None:
    embedding_VE = F.normalize(normal(20, 6), dim=1)
    for word in range(20):
        expected = F.one_hot(torch.tensor(word), 20).double()
        torch.testing.assert_close(target_of(word, embedding_VE, 1e-3), expected, **tight)


@pytest.mark.parametrize("temperature", [0.5, 20.0])
def test_words_that_have_nothing_in_common_get_label_smoothing(temperature: float) -> None:
    """e^(1/tau) : 1 for the target against each other word, where all vectors are orthonormal."""
    embedding_VE = torch.linalg.qr(normal(12, 8))[0].T
    total = math.exp(1 / temperature) + 7
    expected = torch.full((8,), 1 / total, dtype=torch.float64)
    expected[3] = math.exp(1 / temperature) / total
    torch.testing.assert_close(target_of(3, embedding_VE, temperature), expected, **tight)


def in_both(dtype: torch.dtype, **options: Any) -> tuple[TrainingLoss, TrainingLoss]:
    """The loss of one head and one input in `dtype`, and of the same numbers in float64."""
    head, given = head_of(dtype=dtype, **options), outputs(scale=0.3, dtype=dtype)
    rough = head.training_loss(given, targets(), None)
    exact_given = Outputs(given.raw, tuple(x.double() for x in given.dropped))
    return rough, head.double().training_loss(exact_given, targets(), None)


@pytest.mark.parametrize(
    ("options", "scale", "within"),
    [({"kind": "added", "weight": 1.0}, 20.0, 1e-6), ({"kind": "blended", "share": 1.0}, 400.0 * V, 1e-8)],
)
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_small_difference_survives_its_scale(
    options: dict[str, Any], scale: float, within: float, tied: bool, dtype: torch.dtype
) -> None:
    """At temperature 20 a KL of a thousandth of a nat, where bfloat16 has rounded every probability by more."""
    rough, exact = in_both(dtype, tied=tied, temperature=20.0, **options)
    assert rough.nats_TB.dtype == torch.float32
    torch.testing.assert_close(rough.nats_TB.double(), exact.nats_TB, rtol=1e-5, atol=0.0)
    assert (exact.terms["augmented"] / scale < 5e-3).all()
    difference = (rough.terms["augmented"] - exact.terms["augmented"]) / scale
    assert (difference.abs() < within).all(), difference


def test_autocast_stays_out_of_the_augmented_loss() -> None:
    head, given = head_of(kind="added", dtype=torch.float32), outputs(dtype=torch.float32)
    plain = head.training_loss(given, targets(), None)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = head.training_loss(given, targets(), None)
    assert torch.equal(cast.nats_TB, plain.nats_TB) and torch.equal(cast.terms["augmented"], plain.terms["augmented"])


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("temperature", [0.7, 20.0])
@pytest.mark.parametrize("flow", ["stop", "flow"])
def test_in_blocks_it_is_the_loss_of_all_logits_at_once(
    flow: str, temperature: float, tied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values and gradients, with several blocks, targets that come again, and rows that weigh differently."""
    for name, value in {"LEAST_WORDS": 4, "KEPT_BLOCK_BYTES": 1, "_spare": {}}.items():
        monkeypatch.setattr(f"lm.heads.blocks.{name}", value)
    found = []
    for in_blocks in (True, False):
        head = head_of(tied=tied, kind="added", weight=0.7, temperature=temperature, target_gradient=flow)
        if not in_blocks:
            monkeypatch.setattr(head, "_in_blocks", lambda *_: False)
        given, targets_TB = outputs(), targets()
        targets_TB[0] = targets_TB[1]
        last_TBH = given.dropped[-1].requires_grad_()
        loss = head.training_loss(given, targets_TB, None)
        weigh_TB = torch.linspace(0.0, 2.0, loss.nats_TB.numel(), dtype=last_TBH.dtype).view_as(loss.nats_TB)
        total = (weigh_TB * loss.nats_TB + weigh_TB.flip(0) * loss.terms["augmented"]).sum()
        leaves = [last_TBH, head.weight_VH, head.bias_V]
        if flow == "flow" and not tied:
            leaves.append(head.embedding_VE)
        found.append((loss.nats_TB, loss.terms["augmented"], *torch.autograd.grad(total, leaves)))
    for blocked, plain in zip(*found, strict=True):
        torch.testing.assert_close(blocked, plain, rtol=1e-9, atol=1e-10)


def test_a_loss_of_two_hundred_nats_is_left_to_all_logits_at_once() -> None:
    head, given, targets_TB = head_of(tied=False, kind="added", weight=0.7), outputs(), targets()
    with torch.no_grad():
        head.bias_V[(targets_TB[0, 0] + 1) % V] += 800.0
    head, given = head.float(), Outputs((), tuple(x.float() for x in given.dropped))
    loss = head.training_loss(given, targets_TB, None)
    assert loss.nats_TB[0, 0] > 700.0
    assert loss.nats_TB.isfinite().all() and loss.terms["augmented"].isfinite().all()


@pytest.mark.parametrize(("flow", "different"), [("stop", 100), ("flow", 57)])
def test_in_blocks_it_costs_what_its_formula_says(flow: str, different: int) -> None:
    """Where all targets differ, or with `flow` as many as the formula takes to."""
    words, size, rows = 600, 12, 100
    augmented = {"kind": "added", "target_gradient": flow}
    spec = SoftmaxHead.model_validate({"kind": "softmax", "augmented": augmented})
    embedding_VE = nn.Parameter(torch.randn(words, size, generator=seeded(1)))
    head = Softmax(spec, size, words, None, seeded(2), embedding_VE=embedding_VE)
    hidden_TBH = torch.randn(rows, 1, size, generator=seeded(3)).requires_grad_()
    with FlopCounterMode(display=False) as counted:
        loss = head.training_loss(Outputs((), (hidden_TBH,)), torch.arange(rows)[:, None] % different, None)
        (loss.nats_TB + loss.terms["augmented"]).sum().backward()
    assert head.cost(rows).training_flops_per_token * rows == pytest.approx(counted.get_total_flops(), rel=0.02)


def test_in_blocks_it_has_one_backward_pass() -> None:
    """A second one is refused: its buffer may hold another step by then."""
    head, given = head_of(kind="added", weight=0.7), outputs()
    loss = head.training_loss(given, targets(), None).nats_TB.sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="one backward pass"):
        loss.backward()


def test_a_word_far_more_like_the_target_than_itself_is_left_to_all_logits_at_once() -> None:
    """Its exponential, in float32, would leave the others no digits; the gradient is that of float64."""
    found = []
    for dtype in (torch.float32, torch.float64):
        head, targets_TB = head_of(kind="added", weight=0.7, temperature=1.0, dtype=dtype), targets()
        target = int(targets_TB[0, 0])
        with torch.no_grad():
            own_E = head.embedding_VE[target]
            head.embedding_VE[(target + 1) % V] = own_E * (1.0 + 80.0 / own_E.square().sum())
        given = Outputs((), tuple(x.to(dtype) for x in outputs().dropped))
        loss = head.training_loss(given, targets_TB, None).terms["augmented"].sum()
        found.append(torch.autograd.grad(1e-8 * loss, head.weight_VH)[0].double())
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-4 * float(found[1].abs().max()))
