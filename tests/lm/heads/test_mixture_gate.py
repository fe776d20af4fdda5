"""How a mixture's gate uses the experts: its penalty and its measures. T time, B batch, J experts."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from lm.heads import Outputs
from lm.heads.mixture import Mixture, gate_variation
from tests.lm.heads.examples import B, Example, T, build, outputs, targets
from tests.support.tiny import seeded

tight = {"rtol": 0.0, "atol": 1e-12}


def mixture(experts: list[int], **options: Any) -> Mixture:
    head = build(Example("", {"kind": "mixture", "experts": experts, **options}))
    assert isinstance(head, Mixture)
    return head


def gate(batch: int = 12, experts: int = 20, steps: int = 70) -> Tensor:
    draw = torch.rand(steps, batch, experts, generator=seeded(3), dtype=torch.float64)
    return draw / draw.sum(dim=-1, keepdim=True)


@pytest.mark.parametrize("form", ["paper", "code"])
def test_an_even_gate_varies_by_nothing(form: Any) -> None:
    gate_TBJ = torch.full((7, 3, 5), 0.2, dtype=torch.float64, requires_grad=True)
    variation = gate_variation(gate_TBJ, form)
    variation.backward()
    assert variation.item() == pytest.approx(0.0, abs=1e-12)
    torch.testing.assert_close(gate_TBJ.grad, torch.zeros_like(gate_TBJ), **tight)


@pytest.mark.parametrize("form", ["paper", "code"])
@pytest.mark.parametrize("batch", [1, 3])
def test_one_expert_varies_by_nothing(form: Any, batch: int) -> None:
    gate_TBJ = torch.ones(7, batch, 1, requires_grad=True)
    variation = gate_variation(gate_TBJ, form)
    variation.backward()
    assert variation == 0.0 and torch.equal(gate_TBJ.grad, torch.zeros(7, batch, 1))


def test_a_gate_on_one_expert_varies_most() -> None:
    gate_TBJ = torch.zeros(7, 3, 5, dtype=torch.float64)
    gate_TBJ[..., 2] = 1.0
    assert gate_variation(gate_TBJ, "paper").item() == pytest.approx(4.0, abs=1e-12)


def test_the_paper_pools_the_batch() -> None:
    gate_TBJ = gate()
    sums = [sum(gate_TBJ[t, b, j].item() for t in range(70) for b in range(12)) for j in range(20)]
    mean = sum(sums) / 20
    expected = sum((s - mean) ** 2 for s in sums) / 20 / mean**2
    assert gate_variation(gate_TBJ, "paper").item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("batch", "experts"), [(1, 2), (5, 4), (12, 20)])
def test_the_code_takes_each_column_for_itself(batch: int, experts: int) -> None:
    """B J (J - 1) / (B J - 1) times the columns' mean squared coefficient of variation."""
    gate_TBJ = gate(batch, experts)
    squares = []
    for b in range(batch):
        sums = [sum(gate_TBJ[:, b, j].tolist()) for j in range(experts)]
        mean = sum(sums) / experts
        squares.append(sum((s - mean) ** 2 for s in sums) / experts / mean**2)
    factor = batch * experts * (experts - 1) / (batch * experts - 1)
    assert gate_variation(gate_TBJ, "code").item() == pytest.approx(factor * sum(squares) / batch, rel=1e-6)


@pytest.mark.parametrize("form", ["paper", "code"])
def test_the_prior_penalty_is_of_the_training_gate(form: Any) -> None:
    head, given = mixture([1, 2, 1], prior_penalty=0.25, prior_penalty_form=form, dropout=0.5), outputs()
    terms = head.training_loss(given, targets(), seeded(3)).terms
    gate_TBJ = torch.softmax(given.dropped[-1] @ head.gate_JH.detach().T, dim=-1)
    assert head.term_names == ("prior_penalty",)
    torch.testing.assert_close(terms["prior_penalty"], 0.25 * gate_variation(gate_TBJ, form), **tight)
    assert mixture([1, 2, 1]).term_names == ()


def test_measures_are_of_the_whole_text() -> None:
    """However it is cut into windows; layers without experts have no weight to report."""
    head, given, targets_TB = mixture([1, 0, 3]), outputs(), targets()
    whole = head.tallies(head, given, targets_TB)
    cut = [slice(0, 1), slice(1, T)]
    parts = [head.tallies(head, Outputs((), tuple(x[rows] for x in given.dropped)), targets_TB[rows]) for rows in cut]
    measures = head.measures({name: parts[0][name] + parts[1][name] for name in whole}, T * B)
    gate_TBJ = head.log_gate(given).detach().exp()
    assert measures == pytest.approx(
        {
            "gate_variation_paper": math.sqrt(gate_variation(gate_TBJ, "paper")),
            "gate_variation_code": math.sqrt(gate_variation(gate_TBJ, "code")),
            "gate_layer_0": 4 * gate_TBJ[..., 0].mean().item(),
            "gate_layer_2": 4 * gate_TBJ[..., 1:].mean().item(),
        }
    )
    assert (measures["gate_layer_0"] + 3 * measures["gate_layer_2"]) / 4 == pytest.approx(1.0)
