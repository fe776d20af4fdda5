"""What is said of a codebook, against counting, and for codes of which all is known."""

from __future__ import annotations

import math
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from scipy.stats import rankdata

import lm.codebooks.distance
from lm.codebooks import Codebook, build_codebook
from lm.codebooks.distance import distances
from lm.codebooks.plain import identity_code
from lm.codebooks.statistics import codebook_statistics
from tests.lm.codebooks.made import code, distance, random_corpus


@pytest.mark.parametrize("rows", [7, 2048])
@pytest.mark.parametrize(
    "values",
    [{"kind": "unigram", "bits": 30}, {"kind": "simhash", "bits": 33}, {"kind": "random", "bits": 8}],
    ids=str,
)
def test_statistics_by_counting(rows: int, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """In blocks of any size."""
    monkeypatch.setattr(lm.codebooks.distance, "_ROWS", rows)
    corpus = random_corpus(40)
    codebook = build_codebook(code(**values), corpus)
    vectors = np.random.default_rng(0).standard_normal((40, 5)).astype(np.float32)
    found = codebook_statistics(codebook, vectors, pairs=100_000)
    all_pairs = {pair: distance(codebook, *pair) for pair in combinations(range(40), 2)}
    assert (found.words, found.bits, found.duplicates) == (40, values["bits"], 0)
    assert found.minimum_distance == min(all_pairs.values())
    assert found.mean_distance == pytest.approx(np.mean(list(all_pairs.values())), rel=0.01)

    bits = codebook.unpacked().astype(float)
    means = [sum(column) / 40 for column in bits.T]
    assert (found.lowest_column_mean, found.highest_column_mean) == (min(means), max(means))
    correlations = [
        abs(np.mean((a - a.mean()) * (b - b.mean())) / (a.std() * b.std())) for a, b in combinations(bits.T, 2)
    ]
    assert found.column_correlation == pytest.approx(max(correlations), abs=1e-6)

    cosines = [
        float(vectors[a] @ vectors[b] / np.linalg.norm(vectors[a]) / np.linalg.norm(vectors[b])) for a, b in all_pairs
    ]
    spearman = np.corrcoef(rankdata(cosines), rankdata([-d for d in all_pairs.values()]))[0, 1]
    assert found.rank_correlation == pytest.approx(spearman, abs=0.02)
    if codebook.spans is None:
        assert found.neighbours is None
    else:
        order = codebook.spans.order_V.tolist()
        steps = [distance(codebook, a, b) for a, b in pairwise(order)]
        assert found.neighbours is not None and found.neighbours.mean == pytest.approx(np.mean(steps))


def test_the_first_and_last_hundred_neighbours() -> None:
    codebook = build_codebook(code("unigram", bits=60), random_corpus(400, tokens=20_000))
    found = codebook_statistics(codebook).neighbours
    assert codebook.spans is not None and found is not None
    order = codebook.spans.order_V.tolist()
    assert found.first == np.mean([distance(codebook, a, b) for a, b in pairwise(order[:101])])
    assert found.last == np.mean([distance(codebook, a, b) for a, b in pairwise(order[-101:])])


@pytest.mark.parametrize("words", [2, 9, 100])
def test_of_an_identity_code_all_is_known(words: int) -> None:
    vectors = np.random.default_rng(0).standard_normal((words, 3)).astype(np.float32)
    found = codebook_statistics(identity_code(words), vectors)
    assert (found.minimum_distance, found.mean_distance, found.correctable_errors) == (2, 2.0, 0)
    assert found.lowest_column_mean == found.highest_column_mean == 1 / words
    assert found.column_correlation == pytest.approx(1 / (words - 1), abs=1e-5)
    assert found.neighbours is None and found.rank_correlation is None


def test_of_a_code_of_all_words_all_is_known() -> None:
    found = codebook_statistics(build_codebook(code("random", bits=6), random_corpus(64)))
    assert (found.minimum_distance, found.column_correlation, found.duplicates) == (1, 0.0, 0)
    assert found.mean_distance == pytest.approx(6 / 2 * 64 / 63, abs=0.02)
    assert found.lowest_column_mean == found.highest_column_mean == 0.5


def test_repeated_codewords_and_constant_bits() -> None:
    bits = np.array([[1, 0, 1, 1], [1, 1, 1, 0], [1, 0, 1, 1], [1, 0, 1, 1]], dtype=np.uint8)
    found = codebook_statistics(Codebook.from_bits(bits))
    assert (found.duplicates, found.minimum_distance, found.correctable_errors) == (2, 0, 0)
    assert (found.lowest_column_mean, found.highest_column_mean) == (0.25, 1.0)
    assert found.column_correlation == pytest.approx(1.0)


@pytest.mark.parametrize(("apart", "right"), [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 2)])
def test_correctable_errors(apart: int, right: int) -> None:
    bits = np.zeros((2, 9), dtype=np.uint8)
    bits[1, :apart] = 1
    assert codebook_statistics(Codebook.from_bits(bits)).correctable_errors == right


def test_pairs_are_of_different_words() -> None:
    found = codebook_statistics(identity_code(3), pairs=30_000)
    assert found.pairs == 30_000 and found.mean_distance == 2.0
    three = Codebook.from_bits(np.array([[0, 0], [0, 1], [1, 1]], dtype=np.uint8))
    assert codebook_statistics(three, pairs=30_000).mean_distance == pytest.approx(
        4 / 3, abs=4 * 0.5 / math.sqrt(30_000)
    )
    assert distances(three, np.array([0, 0, 1]), np.array([1, 2, 2])).tolist() == [1, 2, 1]
