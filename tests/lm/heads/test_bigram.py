"""Every head that trains on its exact loss learns a small chain of words down to its conditional entropy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from lm.heads import Outputs, Words, build_head
from tests.lm.heads.examples import Example
from tests.lm.heads.handmade import random_code
from tests.support.tiny import seeded

V = SIZE = 23  # as many units as words: no head is held back by its rank
BITS = 40  # nearly twice as many as words: the code holds no head back either
ONE_LAYER = {"layers": 1, "embedding_size": SIZE, "hidden_size": SIZE}
HEADS = {
    "softmax": {"kind": "softmax"},
    "adaptive": {"kind": "adaptive", "cutoffs": [4, 10], "divisor": 1.0},
    "classes-random": {"kind": "hierarchical", "tree": {"kind": "two_level", "words_per_class": 5, "assign": "random"}},
    "classes-mass": {"kind": "hierarchical", "tree": {"kind": "two_level", "words_per_class": 5, "assign": "mass"}},
    "classes-unigram": {
        "kind": "hierarchical",
        "tree": {"kind": "two_level", "words_per_class": 5, "assign": "unigram"},
    },
    "huffman": {"kind": "hierarchical", "tree": {"kind": "huffman"}},
    "differentiated": {"kind": "differentiated", "sizes": [3, 8, 12]},  # as many units as words, block by block
    "mixture": {"kind": "mixture", "experts": [0, 2]},
    "ecoc-normalized": {
        "kind": "ecoc",
        "codebook": {"kind": "random", "bits": BITS},
        "loss": {"kind": "normalized"},
    },
}


def chain() -> tuple[np.ndarray, np.ndarray]:
    """The share (V,) of each word, and of each word after each (V, V)."""
    next_VV = np.random.default_rng(0).dirichlet(np.full(V, 0.3), size=V) * 0.95 + 0.05 / V
    share_V = np.full(V, 1 / V)
    for _ in range(1000):
        share_V = share_V @ next_VV
    return share_V, next_VV


@pytest.mark.parametrize("name", HEADS)
def test_an_exact_head_reaches_the_perplexity_of_the_chain(name: str) -> None:
    """An embedding is all there is below the head; every pair of words is trained on, by its probability."""
    share_V, next_VV = chain()
    best = math.exp(-(share_V[:, None] * next_VV * np.log(next_VV)).sum())
    embedding_VE = nn.Parameter(torch.empty(V, SIZE).normal_(generator=seeded(0)))
    head = build_head(
        Example(name, HEADS[name], model=ONE_LAYER).spec,
        sizes=(SIZE, SIZE),
        words=Words((1e6 * share_V).astype(np.int64), random_code(V, BITS)),
        embedding_VE=embedding_VE,
        tied=False,
        init=seeded(1),
    )
    weight_VV = torch.tensor(next_VV.T * share_V, dtype=torch.float32)  # [after, before]
    before_VV, after_VV = torch.arange(V).repeat(V, 1), torch.arange(V)[:, None].repeat(1, V)
    optimizer = torch.optim.Adam([embedding_VE, *head.parameters()], lr=0.03)

    def outputs() -> Outputs:
        embedded = embedding_VE[before_VV]
        return Outputs((embedded, embedded), (embedded, embedded))

    for _ in range(200):
        optimizer.zero_grad()
        (head.training_loss(outputs(), after_VV, None).nats_TB * weight_VV).sum().backward()
        optimizer.step()
    with torch.no_grad():
        perplexity = math.exp(float((head.scorer().target_nats(outputs(), after_VV) * weight_VV).sum()))
    assert best * (1 - 1e-5) < perplexity < best * 1.01
    assert best < 0.6 * math.exp(-(share_V * np.log(share_V)).sum()), "the word before says much"
