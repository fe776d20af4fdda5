"""AR and TAR (Merity et al. 2017, section 4.6). T time, B batch, H layer size."""

from __future__ import annotations

import pytest
import torch

from lm.dropout import locked_dropout
from lm.losses import activation, temporal_activation
from lm.model import LanguageModel
from lm.spec import Dropout, Model, SoftmaxHead
from tests.support.tiny import even


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_against_loops() -> None:
    output_TBH = normal(5, 3, 4)
    squares = [x**2 for x in output_TBH.flatten().tolist()]
    changes = [
        (output_TBH[t + 1, b, k] - output_TBH[t, b, k]).item() ** 2
        for t in range(4)
        for b in range(3)
        for k in range(4)
    ]
    assert activation(output_TBH).item() == pytest.approx(sum(squares) / 60, rel=1e-12)
    assert temporal_activation(output_TBH).item() == pytest.approx(sum(changes) / 48, rel=1e-12)


def test_nothing_to_penalise() -> None:
    assert temporal_activation(normal(1, 3, 4).expand(6, 3, 4)).item() == 0.0
    assert activation(torch.zeros(6, 3, 4)).item() == 0.0


def test_scaling_the_output_scales_both_by_the_square() -> None:
    output_TBH = normal(6, 3, 4)
    for penalty in (activation, temporal_activation):
        torch.testing.assert_close(penalty(3.0 * output_TBH), 9.0 * penalty(output_TBH))


def test_a_steady_rise_of_one_costs_one() -> None:
    steps = torch.arange(9, dtype=torch.float64)[:, None, None]
    assert temporal_activation(steps.expand(9, 4, 5)).item() == 1.0


def test_the_inverted_scale_inflates_the_activation_penalty() -> None:
    """A factor of 1 / (1 - 0.4) on average."""
    output_TBH = normal(70, 40, 400).float()
    noise = torch.Generator().manual_seed(1)
    factors = [activation(locked_dropout(output_TBH, 0.4, noise)) / activation(output_TBH) for _ in range(4)]
    assert sum(factors).item() / 4 == pytest.approx(1 / 0.6, rel=0.01)


def test_only_the_activation_penalty_sees_the_output_mask() -> None:
    """The output mask is drawn last, so that a model with another rate has the same raw output."""

    def penalties(rate: float) -> tuple[float, float]:
        model = LanguageModel(
            Model(layers=2, embedding_size=6, hidden_size=8),
            SoftmaxHead(kind="softmax"),
            Dropout(input=0.2, between=0.3, weight=0.4, output=rate),
            even(11),
            torch.Generator().manual_seed(0),
        )
        tokens_TB = torch.arange(24).view(8, 3) % 11
        outputs, _ = model(tokens_TB, model.initial_state(3), torch.Generator().manual_seed(1))
        return activation(outputs.dropped[-1]).item(), temporal_activation(outputs.raw[-1]).item()

    (weak, weak_temporal), (strong, strong_temporal) = penalties(0.2), penalties(0.6)
    assert weak_temporal == strong_temporal and abs(weak - strong) > 1e-3 * weak
