"""What holds of every output head. An example of each kind is tried; a kind without one fails."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, get_args

import pytest
import torch
from pydantic import BaseModel
from torch import Tensor

from lm.heads import OutputHead, Outputs
from lm.spec import Head, decoder_parameters
from lm.spec.codebooks import CodebookSpec
from tests.lm.heads.examples import EXAMPLES, MODEL, B, Example, T, V, build, embedding, outputs, targets
from tests.support.tiny import seeded

each = partial(pytest.mark.parametrize, "example", ids=lambda example: example.name)
every_head = each(EXAMPLES)
tight = {"rtol": 0.0, "atol": 1e-12}


def kinds(annotation: Any) -> set[type]:
    """All parts with a `kind` that an annotation allows, within other parts too."""
    if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return set().union(*map(kinds, get_args(annotation)))
    fields = annotation.model_fields
    return set().union({annotation} if "kind" in fields else (), *(kinds(f.annotation) for f in fields.values()))


def parts(part: BaseModel) -> set[type]:
    """The kinds of a part and of all parts within it."""
    return {type(part)}.union(*(parts(value) for _, value in part if isinstance(value, BaseModel)))


def trained(head: OutputHead, given: Outputs, targets_TB: Tensor, seed: int | None = 3) -> Tensor:
    """The whole training loss, one number; without a seed, without noise."""
    loss = head.training_loss(given, targets_TB, None if seed is None else seeded(seed))
    return loss.nats_TB.mean() + sum((term.mean() for term in loss.terms.values()), torch.zeros(()))


def test_every_kind_has_an_example() -> None:
    """Every head, and every loss or tree it may have; of codebooks a head sees the bits alone."""
    tried = set().union(*(parts(example.spec) for example in EXAMPLES))
    assert kinds(Head) - kinds(CodebookSpec) == tried - kinds(CodebookSpec)


@every_head
@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_it_is_a_distribution(example: Example, dtype: torch.dtype, within: float) -> None:
    log_probabilities_TBV = build(example, dtype=dtype).scorer().log_probabilities(outputs(dtype=dtype))
    assert log_probabilities_TBV.shape == (T, B, V) and log_probabilities_TBV.dtype == dtype
    total_TB = log_probabilities_TBV.double().exp().sum(dim=-1)
    torch.testing.assert_close(total_TB, torch.ones(T, B, dtype=torch.float64), rtol=0.0, atol=within)


@every_head
def test_the_targets_loss_is_read_from_that_distribution(example: Example) -> None:
    scorer, given, targets_TB = build(example).scorer(), outputs(), targets()
    expected_TB = -scorer.log_probabilities(given).gather(-1, targets_TB[..., None])[..., 0]
    torch.testing.assert_close(scorer.target_nats(given, targets_TB), expected_TB, **tight)


@each([example for example in EXAMPLES if example.exact])
def test_a_training_loss_that_claims_to_be_exact_is(example: Example) -> None:
    head, given, targets_TB = build(example), outputs(), targets()
    loss = head.training_loss(given, targets_TB, None)
    torch.testing.assert_close(loss.nats_TB, head.scorer().target_nats(given, targets_TB), **tight)


@every_head
def test_without_noise_only_a_head_that_samples_refuses_to_train(example: Example) -> None:
    head = build(example)
    if example.sampled:
        with pytest.raises(ValueError, match="noise must be a generator, got None"):
            head.training_loss(outputs(), targets(), None)
    else:
        assert torch.isfinite(head.training_loss(outputs(), targets(), None).nats_TB).all()


@every_head
def test_terms_are_those_it_names(example: Example) -> None:
    head, targets_TB = build(example), targets()
    loss = head.training_loss(outputs(), targets_TB, seeded(3))
    assert loss.nats_TB.shape == (T, B)
    assert tuple(loss.terms) == head.term_names
    assert all(term.shape in ((), (T, B)) for term in loss.terms.values())


@every_head
def test_gradients_equal_central_differences(example: Example) -> None:
    """Of every parameter that is not cut off and of every layer's output, in a random direction each."""
    head, targets_TB = build(example), targets()
    given = outputs()
    leaves = [x.requires_grad_() for x in given.dropped]
    assert set(example.cut) <= dict(head.named_parameters()).keys()
    tensors = [*(p for name, p in head.named_parameters() if name not in example.cut), *leaves]
    gradients = torch.autograd.grad(trained(head, given, targets_TB), tensors, allow_unused=True)
    step = 1e-6
    for i, (tensor, gradient) in enumerate(zip(tensors, gradients, strict=True)):
        direction = torch.randn(tensor.shape, generator=seeded(10 + i), dtype=torch.float64)
        values = []
        with torch.no_grad():
            for sign in (step, -2 * step):
                tensor.add_(sign * direction)
                values.append(trained(head, given, targets_TB))
            tensor.add_(step * direction)
        numeric = (values[0] - values[1]) / (2 * step)
        analytic = torch.zeros(()) if gradient is None else (gradient * direction).sum()
        torch.testing.assert_close(analytic.double(), numeric, rtol=1e-5, atol=1e-7, msg=lambda m, i=i: f"{i}: {m}")


@every_head
def test_weights_carry_the_whole_head(example: Example) -> None:
    """Parameters copied to a head that began otherwise make it the same function, training loss included."""
    head, other = build(example, seed=0), build(example, seed=1)
    other.load_state_dict(head.state_dict())
    given, targets_TB = outputs(), targets()
    assert torch.equal(head.scorer().log_probabilities(given), other.scorer().log_probabilities(given))
    assert torch.equal(trained(head, given, targets_TB), trained(other, given, targets_TB))


@every_head
def test_the_same_seed_gives_the_same_head_and_loss(example: Example) -> None:
    losses = [trained(build(example, seed=4), outputs(), targets(), seed=5) for _ in range(2)]
    assert torch.equal(*losses)


@every_head
def test_a_scorer_follows_the_weights(example: Example) -> None:
    head, given = build(example), outputs()
    before = head.scorer().log_probabilities(given)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.mul_(0.5)
    assert not torch.allclose(before, head.scorer().log_probabilities(given))


@every_head
def test_extreme_scores_stay_finite(example: Example) -> None:
    head, given, targets_TB = build(example, dtype=torch.float32, scale=60.0), outputs(dtype=torch.float32), targets()
    for leaf in given.dropped:
        leaf.requires_grad_()
    loss = trained(head, given, targets_TB)
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in head.parameters() if p.grad is not None)
    assert torch.isfinite(head.scorer().target_nats(given, targets_TB)).all()


@every_head
def test_columns_do_not_see_each_other(example: Example) -> None:
    """A batch of one is a column of a larger batch."""
    head, given, targets_TB = build(example), outputs(), targets()
    one = Outputs(tuple(x[:, 1:2] for x in given.raw), tuple(x[:, 1:2] for x in given.dropped))
    scorer = head.scorer()
    torch.testing.assert_close(
        scorer.log_probabilities(one), scorer.log_probabilities(given)[:, 1:2], rtol=0.0, atol=1e-10
    )
    assert torch.isfinite(trained(head, one, targets_TB[:, 1:2]))


@every_head
def test_parameters_are_as_many_as_the_formula_says(example: Example) -> None:
    model = MODEL.model_copy(update={"tied": example.tied, **example.model})
    embedding_VE = embedding(seeded(0))
    added = [p for p in build(example, embedding_VE=embedding_VE).parameters() if p is not embedding_VE]
    assert sum(p.numel() for p in added) == decoder_parameters(model, example.spec, V)


@every_head
def test_measures_are_finite_numbers(example: Example) -> None:
    head, given, targets_TB = build(example), outputs(), targets()
    with torch.no_grad():
        measures = head.measures(head.tallies(head.scorer(), given, targets_TB), targets_TB.numel())
    assert all(isinstance(value, float) and math.isfinite(value) for value in measures.values())


def on(example: Example, device: str) -> tuple[OutputHead, Outputs, Tensor]:
    """The example's head, and outputs to train through with their targets."""
    given = outputs()
    raw, dropped = (tuple(x.to(device).requires_grad_() for x in layers) for layers in (given.raw, given.dropped))
    return build(example).to(device), Outputs(raw, dropped), targets().to(device)


def computed(example: Example, device: str) -> dict[str, Any]:
    """Whatever a head computes without noise."""
    head, given, targets_TB = on(example, device)
    scorer = head.scorer()
    with torch.no_grad():
        found: dict[str, Any] = {
            "log_probabilities": scorer.log_probabilities(given),
            "target_nats": scorer.target_nats(given, targets_TB),
            "measures": head.measures(head.tallies(scorer, given, targets_TB), targets_TB.numel()),
        }
    if not example.sampled:
        found["loss"] = trained(head, given, targets_TB, None)
        leaves = [*head.parameters(), *given.dropped]
        found["gradients"] = torch.autograd.grad(found["loss"], leaves, allow_unused=True)
    return found


@every_head
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_computes_the_same(example: Example) -> None:
    """All that is not drawn; what is drawn is finite."""
    found = {device: computed(example, device) for device in ("cpu", "cuda")}
    torch.testing.assert_close(found["cuda"], found["cpu"], rtol=1e-10, atol=1e-10, check_device=False)
    head, given, targets_TB = on(example, "cuda")
    assert torch.isfinite(head.training_loss(given, targets_TB, seeded(3, "cuda")).nats_TB).all()
