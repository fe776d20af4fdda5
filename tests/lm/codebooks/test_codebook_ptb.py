"""Codebooks of the Penn Treebank's 10,000 words: what was measured of each kind, within what another seed may move."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lm.codebooks import build_codebook
from lm.codebooks.embeddings import likeness, word_vectors
from lm.codebooks.statistics import CodebookStatistics, codebook_statistics
from lm.data import EncodedCorpus, load
from lm.spec import Corpus, PpmiSvdEmbeddings
from tests.lm.codebooks.made import code


@pytest.fixture(scope="module")
def ptb() -> EncodedCorpus:
    folder = Path(os.environ.get("LM_DATA", ""), "ptb")
    if not os.environ.get("LM_DATA") or not (folder / "train.txt").exists():
        pytest.skip("needs the real ptb: $LM_DATA/ptb/ is not there")
    return load(Corpus(name="ptb"), download=False)


@pytest.fixture(scope="module")
def vectors(ptb: EncodedCorpus) -> NDArray[np.float32]:
    return word_vectors(PpmiSvdEmbeddings(kind="ppmi_svd"), ptb)


def measured(corpus: EncodedCorpus, vectors: NDArray[np.float32] | None = None, **values: Any) -> CodebookStatistics:
    found = codebook_statistics(build_codebook(code(**values), corpus), vectors)
    assert found.words == 10_000 and found.duplicates == 0
    return found


def test_spans_by_inverse_rank(ptb: EncodedCorpus) -> None:
    spans = build_codebook(code("unigram", bits=14), ptb).spans
    assert spans is not None
    widths = np.diff(spans.bounds)
    assert widths[:5].tolist() == [653, 327, 219, 164, 132] and widths[-1] == 1 and widths.sum() == 2**14
    assert [ptb.vocabulary[word] for word in spans.order_V[:3]] == ["the", "<unk>", "<eos>"]


@pytest.mark.parametrize(
    ("bits", "minimum", "mean", "neighbours", "first", "last", "correlation"),
    [
        (14, 1, 6.8, 1.2, 3.2, 1.0, 0.34),
        (40, 2, 19.4, 4.5, 9.7, 4.1, 0.88),
        (100, 4, 49.2, 11.4, 25.0, 10.0, 0.98),
        (1000, 75, 486.0, 115.0, 256.0, 103.0, 1.0),
    ],
)
def test_square_codes_by_frequency(
    ptb: EncodedCorpus,
    bits: int,
    minimum: int,
    mean: float,
    neighbours: float,
    first: float,
    last: float,
    correlation: float,
) -> None:
    """Ordered codes trade the distance of neighbours for order: frequent words are far from theirs, rare ones near."""
    found = measured(ptb, kind="unigram", bits=bits)
    assert found.minimum_distance == pytest.approx(minimum, abs=1 + 0.1 * minimum)
    assert found.mean_distance == pytest.approx(mean, rel=0.03)
    assert found.neighbours is not None
    steps = [found.neighbours.mean, found.neighbours.first, found.neighbours.last]
    assert steps == pytest.approx([neighbours, first, last], rel=0.05)
    assert found.column_correlation == pytest.approx(correlation, abs=0.05)


def test_faster_slowest_waves_separate_rows_and_columns(ptb: EncodedCorpus) -> None:
    found = measured(ptb, kind="unigram", bits=1000, lowest_frequency=8.0)
    assert found.minimum_distance == pytest.approx(111, abs=8)
    assert found.column_correlation == pytest.approx(0.94, abs=0.03)


@pytest.mark.parametrize(
    ("bits", "minimum", "correlation", "ordered_minimum"), [(100, 23, 0.04, 22), (1000, 411, 0.05, 412)]
)
def test_random_bits_keep_rows_and_columns_apart(
    ptb: EncodedCorpus, bits: int, minimum: int, correlation: float, ordered_minimum: int
) -> None:
    """Alone, and as check bits, where only the class bits are correlated."""
    alone = measured(ptb, kind="random", bits=bits)
    ordered = measured(ptb, kind="unigram", bits=bits, checks="random")
    assert alone.minimum_distance == pytest.approx(minimum, abs=2 + bits / 150)
    assert ordered.minimum_distance == pytest.approx(ordered_minimum, abs=2 + bits / 150)
    assert alone.mean_distance == pytest.approx(bits / 2, rel=0.002)
    assert ordered.mean_distance == pytest.approx(bits / 2, rel=0.01)
    assert alone.column_correlation == pytest.approx(correlation, abs=0.01)
    assert ordered.column_correlation == pytest.approx(0.34, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "minimum", "mean", "correlation", "spearman"),
    [
        ({"kind": "unigram", "bits": 100}, 4, 49.2, 0.98, 0.05),
        ({"kind": "unigram", "bits": 1000}, 75, 486, 1.0, 0.07),
        ({"kind": "embedding", "bits": 1000}, 75, 494, 1.0, 0.03),
        ({"kind": "random", "bits": 1000}, 411, 500, 0.05, 0.0),
        ({"kind": "simhash", "bits": 100}, 1, 50, 0.14, 0.33),
        ({"kind": "simhash", "bits": 1000}, 6, 500, 0.19, 0.73),
        ({"kind": "hybrid", "bits": 100}, 15, 50, 0.34, 0.17),
        ({"kind": "hybrid", "bits": 1000}, 231, 500, 0.34, 0.48),
    ],
    ids=str,
)
def test_what_codes_know_of_the_words(
    ptb: EncodedCorpus,
    vectors: NDArray[np.float32],
    values: dict[str, Any],
    minimum: int,
    mean: float,
    correlation: float,
    spearman: float,
) -> None:
    """Only SimHash bits bring words of like company near each other; an order of likeness to one word does not."""
    found = measured(ptb, vectors, **values)
    assert found.minimum_distance == pytest.approx(minimum, abs=2 + 0.04 * minimum)
    assert found.mean_distance == pytest.approx(mean, rel=0.01)
    assert found.column_correlation == pytest.approx(correlation, abs=0.03)
    assert found.rank_correlation == pytest.approx(spearman, abs=0.03)


@pytest.mark.slow
def test_neighbours_in_the_order_of_likeness(ptb: EncodedCorpus, vectors: NDArray[np.float32]) -> None:
    built = build_codebook(code("embedding", bits=1000), ptb)
    found = codebook_statistics(built, pairs=1000).neighbours
    assert found is not None and built.spans is not None
    assert [found.mean, found.first, found.last] == pytest.approx([128, 143, 103], rel=0.03)
    cosine = likeness(vectors, ptb.vocabulary.index("the"))
    assert built.spans.order_V[0] == ptb.vocabulary.index("the") and (np.diff(cosine[built.spans.order_V]) <= 0).all()
