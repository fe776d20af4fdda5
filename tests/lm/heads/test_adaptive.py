"""Adaptive softmax against torch's own module, and against loops over words."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lm.heads import Outputs, Words
from lm.heads.adaptive import Adaptive
from lm.spec import AdaptiveHead
from tests.support.tiny import even, seeded

SIZE, V = 12, 40
SPEC = AdaptiveHead(kind="adaptive", cutoffs=(6, 0.4), divisor=2.5)  # 6 words, then 10, then 24
ENDS, PROJECTED = [6, 16, 40], [4, 1]


def counted(seed: int = 3) -> Words:
    return Words(np.random.default_rng(seed).integers(0, 9, V))


def given(seed: int = 1) -> Outputs:
    hidden = torch.randn(9, 5, SIZE, generator=seeded(seed), dtype=torch.float64).requires_grad_()
    return Outputs((hidden,), (hidden,))


def by_frequency(words: Words) -> list[int]:
    return sorted(range(len(words)), key=lambda word: (-words.counts_V[word], word))


def torchs(head: Adaptive) -> nn.AdaptiveLogSoftmaxWithLoss:
    with torch.random.fork_rng():
        module = nn.AdaptiveLogSoftmaxWithLoss(SIZE, V, ENDS[:-1], div_value=2.5).double()
    with torch.no_grad():
        module.head.weight.copy_(head.head_weight_CH)
        for tail, projection, cluster in zip(module.tail, head.projections_PH, head.clusters_WP, strict=True):
            tail[0].weight.copy_(projection)
            tail[1].weight.copy_(cluster)
    return module


@pytest.mark.parametrize("frequent_only", [False, True])
def test_it_is_torchs_module_with_words_in_order_of_frequency(frequent_only: bool) -> None:
    words, outputs = counted(), given()
    head = Adaptive(SPEC, SIZE, words, seeded(0)).double()
    module, order = torchs(head), by_frequency(words)
    ranks_TB = torch.randint(6 if frequent_only else V, (9, 5), generator=seeded(2))
    targets_TB = torch.tensor(order)[ranks_TB]

    expected = module(outputs.dropped[-1].flatten(0, 1), ranks_TB.flatten())
    nats_TB = head.target_nats(outputs, targets_TB)
    torch.testing.assert_close(nats_TB.flatten(), -expected.output)
    log_probabilities = head.log_probabilities(outputs).flatten(0, 1)
    torch.testing.assert_close(log_probabilities[:, order], module.log_prob(outputs.dropped[-1].flatten(0, 1)))

    expected.loss.backward()
    nats_TB.mean().backward()
    theirs = [module.head.weight, *(tail[0].weight for tail in module.tail), *(tail[1].weight for tail in module.tail)]
    assert len(theirs) == len(list(head.parameters()))
    for own, other in zip(head.parameters(), theirs, strict=True):
        assert own.grad is not None, "a cluster without targets gets a gradient of zero, so that decay reaches it"
        torch.testing.assert_close(own.grad, torch.zeros_like(own) if other.grad is None else other.grad)


def test_every_word_by_loops() -> None:
    words, outputs = counted(), given()
    head = Adaptive(SPEC, SIZE, words, seeded(0)).double()
    h = outputs.dropped[-1][2, 3]

    def share(weights: list[Tensor], seen: Tensor, chosen: int) -> float:
        powers = [math.exp((weight @ seen).item()) for weight in weights]
        return powers[chosen] / sum(powers)

    got = head.log_probabilities(outputs)[2, 3].exp()
    for rank, word in enumerate(by_frequency(words)):
        if rank < 6:
            expected = share(list(head.head_weight_CH), h, rank)
        else:
            cluster = 0 if rank < 16 else 1
            seen = head.projections_PH[cluster] @ h
            expected = share(list(head.head_weight_CH), h, 6 + cluster)
            expected *= share(list(head.clusters_WP[cluster]), seen, rank - ENDS[cluster])
        assert got[word].item() == pytest.approx(expected, rel=1e-12)


def test_weights_lie_within_the_inverse_root_of_their_fan_in_and_leave_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    head = Adaptive(SPEC, SIZE, counted(), seeded(0))
    assert torch.equal(before, torch.random.get_rng_state())
    assert [tuple(parameter.shape) for parameter in head.parameters()] == [(8, 12), (4, 12), (1, 12), (10, 4), (24, 1)]
    for parameter in head.parameters():
        bound = parameter.shape[1] ** -0.5
        assert 0.8 * bound < parameter.abs().max() <= bound


def test_parameters_on_penn_treebank_and_wikitext_2() -> None:
    """Shares end at 500, 1500, 3000 of 10,000 words and at 1663, 4991, 9983 of 33,278, projections are 100, 25, 6."""
    spec = AdaptiveHead(kind="adaptive")
    counts = []
    for vocabulary_size in (10_000, 33_278):
        head = Adaptive(spec, 400, even(vocabulary_size), seeded(0))
        counts.append(sum(parameter.numel() for parameter in head.parameters()))
    penn = 400 * 503 + 100 * (400 + 1000) + 25 * (400 + 1500) + 6 * (400 + 7000)
    wikitext = 400 * 1666 + 100 * (400 + 3328) + 25 * (400 + 4992) + 6 * (400 + 23_295)
    assert counts == [penn, wikitext]
    assert penn == 433_100
