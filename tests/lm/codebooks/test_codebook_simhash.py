"""SimHash codes: angles as distances, and words that would share a codeword."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lm.codebooks import build_codebook
from lm.codebooks.distance import distances
from lm.codebooks.embeddings import word_vectors
from lm.codebooks.simhash import hybrid_code, simhash_code
from lm.spec import PpmiSvdEmbeddings
from lm.spec.codebooks import HybridCode, SimHashCode
from tests.lm.codebooks.made import code, distance, random_corpus


def vectors(words: int, size: int, seed: int = 0) -> NDArray[np.float32]:
    """Clusters, all of them off the origin."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((words // 20 + 1, size))
    near = centres[rng.integers(len(centres), size=words)] + 0.7 * rng.standard_normal((words, size)) + 2.0
    return near.astype(np.float32)


def signs(bits: int, seed: int, embedding: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """The definition: bit i of word w is whether r_i . (e_w - mean) is positive; and those products."""
    r = np.random.default_rng(seed).standard_normal((bits, embedding.shape[1]), dtype=np.float32).astype(float)
    centred = embedding.astype(float) - embedding.astype(float).mean(axis=0)
    products = np.array([[r_i @ e_w for r_i in r] for e_w in centred])
    return (products > 0).astype(np.uint8), products


def test_bits_are_the_signs_of_projections() -> None:
    embedding = vectors(60, 7)
    built = simhash_code(SimHashCode(kind="simhash", bits=70, seed=4), np.arange(60), embedding)
    assert np.array_equal(built.unpacked(), signs(70, 4, embedding)[0])
    assert built.spans is None


@pytest.mark.parametrize("bits", [100, 1000])
def test_distances_are_angles(bits: int) -> None:
    """Without bias, and as near as so many independent bits can be."""
    embedding = vectors(3000, 50)
    built = simhash_code(SimHashCode(kind="simhash", bits=bits), np.arange(3000), embedding)
    rng = np.random.default_rng(1)
    left = rng.integers(3000, size=100_000)
    right = (left + rng.integers(1, 3000, size=100_000)) % 3000
    centred = embedding.astype(float) - embedding.astype(float).mean(axis=0)
    unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    angle = np.arccos((unit[left] * unit[right]).sum(axis=1)) / math.pi
    error = distances(built, left, right) / bits - angle
    assert abs(error.mean()) < 1e-3
    # The mean absolute value of a normal variable is sqrt(2 / pi) = 0.8 of its deviation.
    assert np.abs(error).mean() == pytest.approx(np.sqrt(2 / math.pi * angle * (1 - angle) / bits).mean(), rel=0.05)


def test_of_words_with_one_codeword_the_first_in_the_order_keeps_it() -> None:
    """Each of the others flips the bit that is nearest to the other sign and leads to a free codeword."""
    embedding = vectors(40, 6)
    same = [3, 11, 20, 35]
    embedding[same] = embedding[3] * np.array([[1.0], [1.0], [1.001], [1.0]], dtype=np.float32)
    order = np.random.default_rng(3).permutation(40)
    built = simhash_code(SimHashCode(kind="simhash", bits=64, seed=2), order, embedding).unpacked()
    raw, products = signs(64, 2, embedding)
    others = [word for word in order.tolist() if word in same][1:]
    assert (raw[same] == raw[3]).all()
    apart = [word for word in range(40) if word not in others]
    assert len({row.tobytes() for row in raw[apart]}) == len(apart)
    assert np.array_equal(built[apart], raw[apart])
    taken: set[int] = set()
    for word in others:
        flipped = np.flatnonzero(built[word] != raw[word]).tolist()
        nearest = [bit for bit in np.argsort(np.abs(products[word])).tolist() if bit not in taken]
        assert flipped == nearest[:1]
        taken.update(flipped)


def test_more_words_with_one_vector_than_bits() -> None:
    """They get the codewords one, then two flips away; a thousand of them in no time."""
    embedding = vectors(1000, 6)
    embedding[100:] = 0.0
    built = simhash_code(SimHashCode(kind="simhash", bits=60), np.arange(1000), embedding).unpacked()
    assert len({row.tobytes() for row in built}) == 1000
    flips = (built[100:] != built[100]).sum(axis=1)
    assert flips[0] == 0 and set(flips.tolist()) == {0, 1, 2} and (np.diff(flips) >= 0).all()
    assert 50 <= (flips == 1).sum() <= 60


def test_a_hybrid_is_class_bits_then_simhash_then_coin_flips() -> None:
    embedding, order = vectors(300, 7), np.random.default_rng(0).permutation(300)
    built = hybrid_code(HybridCode(kind="hybrid", bits=210, seed=5), order, embedding)
    rows = built.unpacked()
    semantic = signs(100, 5, embedding)[0]  # 9 class bits, and 201 // 2
    assert np.array_equal(rows[:, 9:109], semantic)
    assert built.spans is not None and built.spans.order_V.tolist() == order.tolist()
    assert abs(rows[:, 109:].mean() - 0.5) < 0.02
    correlation = np.corrcoef(rows[:, 109:].T.astype(float), semantic.T.astype(float))[:101, 101:]
    assert np.abs(correlation).max() < 0.4


def test_words_in_like_company_are_near_each_other() -> None:
    """The code's distances follow the angles of the text's own vectors."""
    corpus = random_corpus(60, tokens=30_000)
    values: dict[str, Any] = {"bits": 400, "embeddings": {"kind": "ppmi_svd", "size": 20}}
    built = build_codebook(code("simhash", **values), corpus)
    embedding = word_vectors(PpmiSvdEmbeddings(kind="ppmi_svd", size=20), corpus).astype(float)
    embedding -= embedding.mean(axis=0)
    unit = embedding / np.linalg.norm(embedding, axis=1, keepdims=True)
    pairs = [(left, right) for left in range(60) for right in range(left)]
    found = [distance(built, left, right) / 400 for left, right in pairs]
    expected = [math.acos(unit[left] @ unit[right]) / math.pi for left, right in pairs]
    assert np.ptp(expected) > 0.3 and np.corrcoef(found, expected)[0, 1] > 0.9
