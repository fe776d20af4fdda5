"""The Huffman tree against textbook constructions, its softmax against a walk down the tree."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lm.heads import Outputs, Words
from lm.heads.huffman import Huffman, huffman_edges, level_ends, paths
from tests.support.tiny import even, seeded

SIZE = 5
FIBONACCI = [1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144]
some_counts = st.lists(st.integers(0, 30), min_size=2, max_size=40)


def built(counts: list[int]) -> Huffman:
    head = Huffman(SIZE, Words(np.array(counts)), seeded(0)).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.uniform_(-1, 1, generator=seeded(4))
    return head


def depths(counts: list[int]) -> list[int]:
    return (paths(*huffman_edges(np.array(counts))) >= 0).sum(axis=1).tolist()


def hidden(steps: int) -> Outputs:
    drawn = torch.randn(steps, 1, SIZE, generator=seeded(1), dtype=torch.float64)
    return Outputs((drawn,), (drawn,))


def least_cost(counts: list[int]) -> int:
    """Merge the two smallest until one is left; every merge costs its sum."""
    left, cost = sorted(max(count, 1) for count in counts), 0
    while len(left) > 1:
        merged = left.pop(0) + left.pop(0)
        cost += merged
        left = sorted([*left, merged])
    return cost


@given(some_counts)
@settings(max_examples=60)
def test_the_tree_is_the_cheapest(counts: list[int]) -> None:
    """Total depth is the least; the expected one lies between the entropy and one bit more."""
    floored = [max(count, 1) for count in counts]
    cost, total = sum(c * d for c, d in zip(floored, depths(counts), strict=True)), sum(floored)
    assert cost == least_cost(counts)
    entropy = -sum(c / total * math.log2(c / total) for c in floored)
    assert entropy - 1e-9 <= cost / total < entropy + 1


@given(some_counts)
@settings(max_examples=60)
def test_nodes_are_numbered_level_by_level(counts: list[int]) -> None:
    edge_V, edge_J = huffman_edges(np.array(counts))
    assert sorted([*edge_V, *edge_J]) == list(range(-1, 2 * len(counts) - 2)), "each edge leads to one node or word"
    depth = [0]
    for node in range(1, len(counts) - 1):
        assert edge_J[node] // 2 < node
        depth.append(depth[edge_J[node] // 2] + 1)
    assert depth == sorted(depth)
    assert level_ends(edge_J) == [sum(d <= level for d in depth) for level in range(depth[-1] + 1)]


def test_ties_fall_by_id() -> None:
    """0 and 1 merge, 2 and 3 merge, then the word 4 and the older pair."""
    assert depths([7, 7, 7, 7, 7]) == [3, 3, 2, 2, 2]
    assert depths([0, 1, 1, 0]) == [2, 2, 2, 2], "an unseen word counts as one seen once"


def test_the_deepest_tree() -> None:
    assert depths(FIBONACCI) == [11, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1]


@pytest.mark.parametrize("counts", [[1, 1], [5, 0, 2], [7, 7, 7, 7, 7], FIBONACCI, list(range(40))])
def test_every_word_by_a_walk_from_the_root(counts: list[int]) -> None:
    head, outputs, count = built(counts), hidden(3), len(counts)
    edge_V, edge_J = huffman_edges(np.array(counts))
    leads_to = {int(edge): ("word", w) for w, edge in enumerate(edge_V)}
    leads_to |= {int(edge): ("node", j) for j, edge in enumerate(edge_J)}
    h = outputs.dropped[-1][2, 0]
    found: dict[int, float] = {}

    def walk(kind: str, number: int, probability: float) -> None:
        if kind == "word":
            found[number] = probability
            return
        right = 1 / (1 + math.exp(-(head.weight_JH[number] @ h + head.bias_J[number]).item()))
        walk(*leads_to[2 * number], probability * (1 - right))
        walk(*leads_to[2 * number + 1], probability * right)

    walk("node", 0, 1.0)
    got = head.log_probabilities(outputs)[2, 0].exp()
    assert sum(found.values()) == pytest.approx(1.0) and len(found) == count
    assert got.tolist() == pytest.approx([found[word] for word in range(count)], rel=1e-10)
    every_word = torch.arange(count)[None]
    repeated = Outputs((), (h.expand(1, count, SIZE),))
    assert head.target_nats(repeated, every_word)[0].tolist() == pytest.approx(
        [-math.log(found[word]) for word in range(count)], rel=1e-10
    )


def test_two_words_are_one_logistic_unit() -> None:
    head, outputs = built([1, 3]), hidden(4)
    score = outputs.dropped[-1] @ head.weight_JH[0] + head.bias_J[0]
    torch.testing.assert_close(head.log_probabilities(outputs)[..., 1].exp(), torch.sigmoid(score))


def test_parameters_are_those_of_one_node_less_than_words() -> None:
    head = Huffman(400, even(10_000), seeded(0))
    assert sum(parameter.numel() for parameter in head.parameters()) == 401 * 9_999
    assert 0.099 < head.weight_JH.abs().max() <= 0.1 and not head.bias_J.any()
