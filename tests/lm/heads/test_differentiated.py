"""Differentiated softmax against loops over words."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from lm.heads import Outputs, Words
from lm.heads.differentiated import Differentiated
from lm.spec import DifferentiatedHead
from tests.support.tiny import seeded

WORDS = Words(np.array([3, 9, 0, 3, 1, 7, 3, 2, 5]))
BY_FREQUENCY = [1, 5, 8, 0, 3, 6, 7, 4, 2]  # ties 0, 3, 6 by id


def given() -> Outputs:
    hidden = torch.randn(2, 3, 8, generator=seeded(1), dtype=torch.float64)
    return Outputs((hidden,), (hidden,))


def test_every_word_by_loops() -> None:
    """Nine words in shares of 0.25, 0.25, 0.5 are 2, 2 and 5; they see units 0-3, 4-6 and 7."""
    spec = DifferentiatedHead(kind="differentiated", shares=(0.25, 0.25, 0.5), sizes=(4, 3, 1))
    head, outputs = Differentiated(spec, 8, WORDS, seeded(0)).double(), given()
    with torch.no_grad():
        head.bias_V.uniform_(-1, 1, generator=seeded(2))
    h = outputs.dropped[-1][1, 2].tolist()
    first, seen = [0, 2, 4], [range(0, 4), range(4, 7), range(7, 8)]
    power = {}
    for rank, word in enumerate(BY_FREQUENCY):
        block = 0 if rank < 2 else 1 if rank < 4 else 2
        row = head.blocks_WS[block][rank - first[block]].tolist()
        score = sum(weight * h[unit] for weight, unit in zip(row, seen[block], strict=True))
        power[word] = math.exp(score + head.bias_V[rank].item())
    got = head.log_probabilities(outputs)[1, 2].exp()
    for word in range(9):
        assert got[word].item() == pytest.approx(power[word] / sum(power.values()), rel=1e-12)


def test_parameters_shrink_with_the_slices() -> None:
    words = Words(np.arange(10_000))
    spec = DifferentiatedHead(kind="differentiated", sizes=(200, 125, 75))
    head = Differentiated(spec, 400, words, seeded(0))
    assert sum(parameter.numel() for parameter in head.parameters()) == 1500 * 201 + 3500 * 126 + 5000 * 76
    assert all(0.099 < block_WS.abs().max() <= 0.1 for block_WS in head.blocks_WS) and not head.bias_V.any()
