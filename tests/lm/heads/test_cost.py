"""Every head's cost formula against what a training step and an evaluation really do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from lm.heads import OutputHead, Outputs, Words, build_head
from lm.spec import decoder_parameters
from tests.lm.heads.examples import EXAMPLES, MODEL, Example
from tests.lm.heads.handmade import random_code, rank_code
from tests.lm.heads.live import LiveBytes
from tests.support.tiny import seeded

V, E, H, T, B = 2003, 16, 16, 20, 20
every_head = pytest.mark.parametrize("example", EXAMPLES, ids=[example.name for example in EXAMPLES])


COUNTS_V = (40_000 / np.arange(1, V + 1)).astype(np.int64)


def words(example: Example) -> Words:
    """Words of falling frequency, with a code like the example's where it has one."""
    code = example.codebook
    if code is not None:
        code = random_code(V, code.bits) if code.spans is None else rank_code(V, code.bits)
    return Words(COUNTS_V, code)


def build(example: Example) -> OutputHead:
    embedding_VE = nn.Parameter(torch.empty(V, E).uniform_(-0.1, 0.1, generator=seeded(0)))
    given = {"sizes": (E, 10, H), "embedding_VE": embedding_VE, "tied": example.tied, "init": seeded(0)}
    return build_head(example.spec, words=words(example), **given)


def window() -> tuple[Outputs, torch.Tensor]:
    """Outputs to train through, and targets as frequent as in the counts, evenly spread instead of drawn."""
    share_V = np.cumsum(COUNTS_V) / COUNTS_V.sum()
    targets_N = np.searchsorted(share_V, (np.arange(T * B) + 0.5) / (T * B))
    states = tuple(torch.randn(T, B, size, generator=seeded(1)).requires_grad_() for size in (E, 10, H))
    return Outputs(states, states), torch.from_numpy(targets_N).view(T, B)


def train(head: OutputHead, given: Outputs, targets_TB: torch.Tensor) -> None:
    loss = head.training_loss(given, targets_TB, seeded(2))
    (loss.nats_TB.mean() + sum(term.mean() for term in loss.terms.values())).backward()


@every_head
def test_flops(example: Example) -> None:
    head, (given, targets_TB) = build(example), window()
    cost = head.cost(targets_TB.numel())
    with FlopCounterMode(display=False) as counted:
        train(head, given, targets_TB)
    assert cost.training_flops_per_token * targets_TB.numel() == pytest.approx(counted.get_total_flops(), rel=0.02)
    scorer = head.scorer()
    with torch.no_grad(), FlopCounterMode(display=False) as counted:
        scorer.target_nats(given, targets_TB)
    assert cost.evaluation_flops_per_token * targets_TB.numel() == pytest.approx(counted.get_total_flops(), rel=0.02)


def test_flops_of_folding_a_long_code() -> None:
    """The examples' codes are short, so that folding is a small part of their step; here it is most of it."""
    short = next(example for example in EXAMPLES if example.name == "ecoc-normalized-random")
    head, (given, targets_TB) = build(replace(short, codebook=random_code(V, 400))), window()
    first = Outputs(*(tuple(state[:1] for state in states) for states in (given.raw, given.dropped)))
    with FlopCounterMode(display=False) as counted:
        train(head, first, targets_TB[:1])
    assert head.cost(B).training_flops_per_token * B == pytest.approx(counted.get_total_flops(), rel=0.02)


@every_head
def test_peak_bytes(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a third: what is small beside logits and gradients is left out of the formula."""
    monkeypatch.setattr("lm.heads.blocks._spare", {})  # what a step before left over is not seen to be taken
    head, (given, targets_TB) = build(example), window()
    with LiveBytes() as live:
        train(head, given, targets_TB)
    assert head.cost(targets_TB.numel()).peak_bytes == pytest.approx(live.peak, rel=0.33)


@every_head
def test_parameters(example: Example) -> None:
    model = MODEL.model_copy(update={"tied": example.tied, "hidden_size": (10, H), "embedding_size": E})
    assert build(example).cost(1).parameters == decoder_parameters(model, example.spec, V)
