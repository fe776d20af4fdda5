"""Two-level softmax against loops over words; who shares a class with whom."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lm.heads import Outputs, Words
from lm.heads.two_level import TwoLevel, assign, equal_mass
from lm.spec import TwoLevelTree
from tests.support.tiny import even, seeded

SIZE = 6
ASSIGNMENTS = ("random", "unigram", "mass")


def tree(words_per_class: int, assignment: str = "unigram", **changes: Any) -> TwoLevelTree:
    parts = {"kind": "two_level", "words_per_class": words_per_class, "assign": assignment}
    return TwoLevelTree.model_validate(parts | changes)


def zipf(count: int, seed: int = 0) -> Words:
    counts_V = (5000 / np.arange(1, count + 1)).astype(np.int64)
    return Words(np.random.default_rng(seed).permutation(counts_V))


def build(spec: TwoLevelTree, words: Words) -> TwoLevel:
    head = TwoLevel(spec, SIZE, words, seeded(0)).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.uniform_(-1, 1, generator=seeded(4))
    return head


def given(steps: int, seed: int = 1) -> Outputs:
    hidden = torch.randn(steps, 1, SIZE, generator=seeded(seed), dtype=torch.float64)
    return Outputs((hidden,), (hidden,))


def share(weight: Tensor, bias: Tensor, h: Tensor, chosen: int) -> float:
    powers = [math.exp((w @ h + b).item()) for w, b in zip(weight, bias, strict=True)]
    return powers[chosen] / sum(powers)


@pytest.mark.parametrize("assignment", ASSIGNMENTS)
@pytest.mark.parametrize(("count", "words_per_class"), [(2, 1), (2, 2), (3, 2), (3, 3), (23, 5), (24, 6)])
def test_every_word_by_loops(assignment: str, count: int, words_per_class: int) -> None:
    """The last class is short where the vocabulary cannot be divided."""
    spec, words, outputs = tree(words_per_class, assignment), zipf(count), given(3)
    head, (order, sizes) = build(spec, words), assign(spec, words)
    assert len(sizes) == math.ceil(count / words_per_class) and sizes.min() > 0 and sizes.sum() == count
    h, row = outputs.dropped[-1][1, 0], 0
    got = head.log_probabilities(outputs)[1, 0].exp()
    for k, size in enumerate(sizes.tolist()):
        leaves = slice(row, row + size)
        for place in range(size):
            expected = share(head.class_weight_CH, head.class_bias_C, h, k)
            expected *= share(head.leaf_weight_VH[leaves], head.leaf_bias_V[leaves], h, place)
            assert got[order[row + place]].item() == pytest.approx(expected, rel=1e-10)
        row += size


@pytest.mark.parametrize("assignment", ASSIGNMENTS)
def test_one_class_or_one_word_a_class_is_a_softmax(assignment: str) -> None:
    words, outputs = zipf(17), given(5)
    for words_per_class in (1, 17):
        spec = tree(words_per_class, assignment)
        head, (order, _) = build(spec, words), assign(spec, words)
        weight, bias = head.leaf_weight_VH, head.leaf_bias_V
        if words_per_class == 1:
            weight, bias = head.class_weight_CH, head.class_bias_C
        softmax = (outputs.dropped[-1] @ weight.T + bias).log_softmax(dim=-1)
        torch.testing.assert_close(head.log_probabilities(outputs)[..., order], softmax, rtol=0, atol=1e-12)


@pytest.mark.parametrize("assignment", ASSIGNMENTS)
def test_gathered_and_in_place_are_one_loss_and_gradient(assignment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window of one target gathers its class; a long window uses the classes in place."""
    words, steps = zipf(101), 60
    head, outputs = build(tree(10, assignment), words), given(steps)
    assert max(head.sizes) <= 101 < steps * max(head.sizes)
    assert len(set(head.sizes)) > 1, "some class is padded"
    hidden = outputs.dropped[-1].requires_grad_()
    targets_T1 = torch.randint(101, (steps, 1), generator=seeded(2))
    tensors = [hidden, *head.parameters()]
    with monkeypatch.context() as without:
        without.setattr(head, "_gathered_nats", None)
        long_T1 = head.target_nats(outputs, targets_T1)
    with monkeypatch.context() as without:
        without.setattr(head, "_in_place_nats", None)
        short_T1 = torch.cat(
            [head.target_nats(Outputs((), (hidden[t : t + 1],)), targets_T1[t : t + 1]) for t in range(steps)]
        )
    torch.testing.assert_close(long_T1, short_T1, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        torch.autograd.grad(long_T1.square().sum(), tensors), torch.autograd.grad(short_T1.square().sum(), tensors)
    )
    expected = -head.log_probabilities(outputs).gather(-1, targets_T1[..., None])[..., 0]
    torch.testing.assert_close(long_T1, expected, rtol=0, atol=1e-12)


def test_a_class_holds_words_of_about_one_frequency_ties_by_id() -> None:
    order, sizes = assign(tree(2), Words(np.array([4, 9, 4, 9, 1, 4, 0])))
    assert order.tolist() == [1, 3, 0, 2, 5, 4, 6]
    assert sizes.tolist() == [2, 2, 2, 1]


def test_random_classes_follow_their_seed_alone() -> None:
    first, again, other = (assign(tree(10, "random", seed=seed), even(100))[0] for seed in (3, 3, 4))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert np.array_equal(np.sort(first), np.arange(100))
    assert np.array_equal(first, assign(tree(10, "random", seed=3), zipf(100))[0]), "frequency plays no part"


def test_equal_mass_by_hand() -> None:
    assert equal_mass(np.array([8, 1, 1, 1, 1, 1, 1, 1, 1]), 3).tolist() == [1, 4, 4]
    assert equal_mass(np.full(12, 7), 4).tolist() == [3, 3, 3, 3]
    assert equal_mass(np.array([100, 50, 1, 1]), 4).tolist() == [1, 1, 1, 1], "none is empty"
    assert equal_mass(np.array([5, 4, 0, 0, 0, 0, 0, 0]), 3).tolist() == [1, 2, 5], "unseen words count once"


def test_classes_of_equal_mass_weigh_about_the_same() -> None:
    words = zipf(2000)
    order, sizes = assign(tree(20, "mass"), words)
    blocks = np.split(words.counts_V[order], np.cumsum(sizes)[:-1])
    assert len(blocks) == 100 and all(len(block) for block in blocks)
    shared = np.array([block.sum() for block in blocks if len(block) > 1])
    alone = np.array([block.sum() for block in blocks if len(block) == 1])
    assert len(shared) > 60 and shared.max() < 2 * shared.min()
    assert alone.min() > 0.5 * shared.mean(), "a word alone is frequent enough to be"
    assert sizes[-1] > 20 > sizes[0]


def test_parameters_are_those_of_classes_and_words_without_padding() -> None:
    head = TwoLevel(tree(10), 400, even(10_003), seeded(0))
    assert sum(parameter.numel() for parameter in head.parameters()) == 401 * (1001 + 10_003)
    for weight, bias in ((head.class_weight_CH, head.class_bias_C), (head.leaf_weight_VH, head.leaf_bias_V)):
        assert 0.099 < weight.abs().max() <= 0.1 and not bias.any()
