"""Every construction, against slow forms, closed forms and what a code must be."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm.codebooks import Codebook, build_codebook
from lm.codebooks.distance import minimum_distance
from lm.codebooks.gray import from_gray, to_gray
from lm.codebooks.packing import repeated
from lm.codebooks.plain import binary_code, identity_code, random_code
from lm.codebooks.rank import cut_spans, largest_remainder, rank_code, square_waves
from lm.spec import class_bits
from lm.spec.codebooks import UnigramCode
from tests.lm.codebooks.made import code, corpus_of, distance, nearest, order_of, random_corpus

WEIGHTS = st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=40)


def reflected(bits: int) -> list[str]:
    """The Gray code by its definition: the list, then the list backwards."""
    if bits == 0:
        return [""]
    shorter = reflected(bits - 1)
    return ["0" + row for row in shorter] + ["1" + row for row in reversed(shorter)]


def text_of(bits: Any) -> str:
    return "".join(map(str, bits.tolist()))


def test_gray_code_is_the_reflected_one() -> None:
    for bits in (1, 2, 3, 7):
        rows = reflected(bits)
        numbers = to_gray(np.arange(2**bits))
        assert [format(number, f"0{bits}b") for number in numbers.tolist()] == rows
        assert all(sum(a != b for a, b in zip(*pair, strict=True)) == 1 for pair in pairwise(rows))


@given(st.lists(st.integers(0, 2**40), min_size=1))
def test_gray_code_has_its_inverse(numbers: list[int]) -> None:
    positions = np.array(numbers)
    assert from_gray(to_gray(positions)).tolist() == numbers == to_gray(from_gray(positions)).tolist()


@given(total=st.integers(0, 500), weights=WEIGHTS)
def test_largest_remainders(total: int, weights: list[float]) -> None:
    shares = largest_remainder(total, np.array(weights))
    quotas = [Fraction(weight) * total / sum(map(Fraction, weights)) for weight in weights]
    assert shares.sum() == total
    over = {0: [Fraction(0)], 1: [Fraction(1)]}  # remainders of the shares rounded down, and of those rounded up
    for share, quota in zip(shares.tolist(), quotas, strict=True):
        over[share - math.floor(quota + Fraction(1, 10**9))].append(quota - math.floor(quota + Fraction(1, 10**9)))
    assert max(over[0]) <= min(over[1]) + Fraction(1, 10**6)


def test_remainders_that_tie_go_to_the_first() -> None:
    assert largest_remainder(5, np.array([1.0, 1.0, 1.0, 1.0])).tolist() == [2, 1, 1, 1]
    assert largest_remainder(7, np.array([3.0, 2.0, 1.0])).tolist() == [4, 2, 1]  # quotas 3.5, 2.33, 1.17


@given(weights=WEIGHTS, seed=st.integers(0, 9))
def test_spans_cut_the_whole_line(weights: list[float], seed: int) -> None:
    words = len(weights)
    spans = cut_spans(np.random.default_rng(seed).permutation(words), np.array(weights))
    widths = np.diff(spans.bounds)
    assert 2**spans.class_bits >= words > 2 ** (spans.class_bits - 1)
    assert widths.min() >= 1 and widths.sum() == 2**spans.class_bits == len(spans.owner)
    for rank, word in enumerate(spans.order_V.tolist()):
        assert set(spans.owner[spans.bounds[rank] : spans.bounds[rank + 1]]) == {word}


RANKED: list[dict[str, Any]] = [
    {"kind": "unigram", "bits": 40},
    {"kind": "unigram", "bits": 6},
    {"kind": "unigram", "bits": 41, "checks": "random", "weight": "count"},
    {"kind": "unigram", "bits": 37, "weight": "uniform", "lowest_frequency": 4.0},
    {"kind": "embedding", "bits": 40, "embeddings": {"kind": "ppmi_svd", "size": 8}},
    {"kind": "embedding", "bits": 30, "weight": "inverse_rank", "checks": "random"},
    {"kind": "hybrid", "bits": 45},
    {"kind": "hybrid", "bits": 6},
]
OTHERS: list[dict[str, Any]] = [
    {"kind": "identity"},
    {"kind": "binary"},
    {"kind": "random", "bits": 6},
    {"kind": "random", "bits": 24, "seed": 3},
    {"kind": "random", "bits": 75},
    {"kind": "simhash", "bits": 60},
    {"kind": "simhash", "bits": 8},
]


@pytest.mark.parametrize("values", RANKED + OTHERS, ids=str)
def test_a_code_is_one_codeword_a_word(values: dict[str, Any]) -> None:
    """Distinct, as long as asked, and the same each time."""
    corpus = random_corpus(53)
    codebook = build_codebook(code(**values), corpus)
    rows = codebook.unpacked()
    assert rows.shape == (53, values.get("bits", {"identity": 53, "binary": 6}.get(values["kind"])))
    assert len({text_of(row) for row in rows}) == 53 == len(codebook) and not len(repeated(codebook.packed))
    assert np.array_equal(Codebook.from_bits(rows).packed, codebook.packed)
    assert build_codebook(code(**values), random_corpus(53)).fingerprint == codebook.fingerprint


@pytest.mark.parametrize("values", [values for values in RANKED + OTHERS if values.get("bits", 0) >= 24], ids=str)
def test_a_code_is_right_again_after_as_many_wrong_bits_as_it_corrects(values: dict[str, Any]) -> None:
    """The most that is below half its minimum distance: one at least, where bits are many more than needed."""
    codebook = build_codebook(code(**values), random_corpus(53))
    rows, rng = codebook.unpacked(), np.random.default_rng(0)
    corrected = (minimum_distance(codebook) - 1) // 2
    assert corrected > 0
    for word in range(53):
        received = rows[word].copy()
        received[rng.choice(len(received), size=corrected, replace=False)] ^= 1
        assert nearest(codebook, received) == word


@pytest.mark.parametrize("values", [*RANKED, {"kind": "binary"}], ids=str)
def test_class_bits_lead_to_their_word(values: dict[str, Any]) -> None:
    """The first K bits are the Gray code of a position in the word's own span."""
    codebook = build_codebook(code(**values), random_corpus(53))
    spans = codebook.spans
    assert spans is not None and spans.class_bits == class_bits(53) == 6
    assert sorted(spans.order_V.tolist()) == list(range(53))
    place = {row: position for position, row in enumerate(reflected(6))}
    for word, row in enumerate(codebook.unpacked()):
        assert spans.owner[place[text_of(row[:6])]] == word


def test_codes_follow_their_seed() -> None:
    corpus = random_corpus(53)
    for values in (RANKED[0], RANKED[2], RANKED[6], OTHERS[2], OTHERS[4], OTHERS[5]):
        found = {build_codebook(code(**values | {"seed": seed}), corpus).fingerprint for seed in range(3)}
        assert len(found) == 3, values


@pytest.mark.parametrize(("words", "bits"), [(300, 40), (300, 9), (129, 9)])
def test_a_square_code_word_by_word(words: int, bits: int) -> None:
    spec = UnigramCode(kind="unigram", bits=bits, lowest_frequency=0.75, seed=7)
    order = np.random.default_rng(1).permutation(words)
    weights = np.sort(np.random.default_rng(2).exponential(size=words))[::-1]
    built = rank_code(spec, order, weights)
    rows, spans, k = built.unpacked(), built.spans, class_bits(words)
    assert spans is not None
    checks, phases = bits - k, np.random.default_rng(7)
    phase = [phases.uniform(0, 2) for _ in range(checks)]
    start = 0
    for rank, word in enumerate(order.tolist()):
        width = int(np.diff(spans.bounds)[rank])
        middle = start + (width - 1) // 2
        expected = reflected(k)[middle]
        u = (middle + 0.5) / 2**k
        for i in range(checks):
            frequency = 0.75 * (2 ** (k - 1) / 0.75) ** (i / (checks - 1) if checks > 1 else 0)
            expected += str(math.floor(2 * frequency * u + phase[i]) % 2)
        assert text_of(rows[word]) == expected
        start += width


@pytest.mark.parametrize(("apart", "expected"), [(1, 0.25), (3, 0.75), (5, 0.75), (8, 0.0), (12, 1.0)])
def test_a_square_wave_differs_as_the_triangle_does(apart: int, expected: float) -> None:
    """Words `apart` of 16 positions from each other differ with probability tri(2 f apart / 16), over the phases."""
    positions, rng = np.arange(16), np.random.default_rng(0)
    waves = [next(square_waves(positions, 4, 1, 2.0, rng)) for _ in range(4000)]
    differ = np.mean([wave[0] != wave[apart] for wave in waves])
    assert abs(differ - expected) < 0.03  # four standard errors


def test_no_check_bit_is_the_same_for_all_words() -> None:
    """Of three words, a quarter of random columns would be, and most slow waves."""
    corpus = corpus_of([0, 0, 0, 1, 1, 2], ["a", "b", "c"])
    for checks in ("square", "random"):
        rows = build_codebook(code("unigram", bits=200, checks=checks), corpus).unpacked()
        assert set(rows.sum(axis=0).tolist()) == {1, 2}


def test_orders_and_weights() -> None:
    """Ties by id; the spans of 5 words on 8 places, three of them shared out."""
    corpus = corpus_of([4, 4, 4, 4, 4, 4, 1, 1, 2, 2, 0], ["a", "b", "c", "d", "e"])  # counts 1, 2, 2, 0, 6
    # Quotas 1.31 0.66 0.44 0.33 0.26; 1.64 0.55 0.55 0.27 0; 0.6 each.
    widths = {"inverse_rank": [2, 2, 2, 1, 1], "count": [3, 2, 1, 1, 1], "uniform": [2, 2, 2, 1, 1]}
    for weight, expected in widths.items():
        spans = build_codebook(code("unigram", bits=3, weight=weight), corpus).spans
        assert spans is not None and spans.order_V.tolist() == [4, 1, 2, 0, 3]
        assert np.diff(spans.bounds).tolist() == expected


def test_identity() -> None:
    for words in (2, 7, 8, 53):
        assert np.array_equal(identity_code(words).unpacked(), np.eye(words))


@pytest.mark.parametrize("words", [2, 3, 5, 8, 53, 64])
def test_binary(words: int) -> None:
    corpus = random_corpus(words)
    rows = build_codebook(code("binary"), corpus).unpacked()
    for rank, word in enumerate(order_of(corpus)):
        assert text_of(rows[word]) == format(rank, f"0{class_bits(words)}b")


def test_every_place_of_a_binary_code_has_an_owner() -> None:
    """Its words' own, and of the codes that no word has, the word before."""
    spans = binary_code(np.array([4, 2, 0, 1, 3])).spans
    assert spans is not None
    order, owners = {4: 0, 2: 1, 0: 2, 1: 3, 3: 4}, spans.owner.tolist()
    ranks = [int(row, 2) for row in reflected(3)]  # 0 1 3 2 6 7 5 4
    last = -1
    for position, rank in enumerate(ranks):
        last = rank if rank < 5 else last
        assert order[owners[position]] == last


@pytest.mark.parametrize("bits", [6, 14, 24, 25, 100, 1000])
def test_random_codes_are_distinct_fair_and_padded_with_zeros(bits: int) -> None:
    words = 64 if bits == 6 else 10_000
    codebook = random_code(words, bits, np.random.default_rng(0))
    assert not len(repeated(codebook.packed))
    assert np.array_equal(np.packbits(codebook.unpacked(), axis=1), codebook.packed)
    if bits == 6:
        assert sorted(codebook.packed[:, 0].tolist()) == list(range(0, 256, 4))  # all there are
    else:
        assert abs(codebook.unpacked().mean() - 0.5) < 5 * 0.5 / math.sqrt(words * bits)


def test_a_random_code_s_repeated_rows_are_drawn_again() -> None:
    """At 25 bits some of 20,000 rows meet; whole draws of them would hardly ever not."""
    first = np.random.default_rng(0).integers(256, size=(20_000, 4), dtype=np.uint8)
    first[:, -1] &= 0x80
    assert len({row.tobytes() for row in first}) < 20_000
    codebook = random_code(20_000, 25, np.random.default_rng(0))
    assert len({row.tobytes() for row in codebook.packed}) == 20_000
    same = (codebook.packed == first).all(axis=1)
    seen: set[bytes] = set()
    for row, kept in zip(first, same.tolist(), strict=True):
        assert kept == (row.tobytes() not in seen)
        seen.add(row.tobytes())


def test_a_long_random_code_is_as_far_apart_as_the_binomial_says() -> None:
    codebook = random_code(10_000, 1000, np.random.default_rng(1))
    assert 400 <= minimum_distance(codebook) <= 425
    rng = np.random.default_rng(0)
    left, right = rng.integers(10_000, size=(2, 2000))
    differ = np.unpackbits(codebook.packed[left] ^ codebook.packed[right], axis=1).sum(axis=1)[left != right]
    assert abs(differ.mean() - 500) < 1.5 and abs(differ.std() - math.sqrt(250)) < 1


def test_neighbours_in_a_longer_square_code_are_nearer_than_strangers() -> None:
    codebook = build_codebook(code("unigram", bits=200, weight="uniform"), random_corpus(128))
    assert codebook.spans is not None
    order = codebook.spans.order_V.tolist()
    means = [np.mean([distance(codebook, order[r], order[r + gap]) for r in range(0, 60, 3)]) for gap in (1, 4, 16, 64)]
    assert all(near < far for near, far in pairwise(means))


@pytest.mark.parametrize(
    ("values", "words", "said"),
    [
        ({"kind": "random", "bits": 5}, 53, "bits 5 cannot name 53 words: at least 6 are needed"),
        ({"kind": "hybrid", "bits": 3}, 53, "bits 3 cannot name 53 words"),
        ({"kind": "unigram", "bits": 40, "lowest_frequency": 33.0}, 53, "33 is above 32, the highest that 2.6 pos"),
        ({"kind": "unigram", "bits": 40, "lowest_frequency": 1e-9}, 53, "lowest_frequency 1e-09, .* constant over"),
        ({"kind": "unigram", "bits": 40}, 1, "at least two words, corpus 'made' has 1"),
    ],
)
def test_what_is_refused(values: dict[str, Any], words: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        build_codebook(code(**values), random_corpus(words))
