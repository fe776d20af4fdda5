"""From bits to words: the code corrects what its distance promises. V words, C bits, N rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lm.codebooks import Codebook
from lm.codebooks.distance import minimum_distance
from lm.heads.codes import Codes
from lm.heads.decoders import decode_hamming, decode_owner, middle_rank, nearest_codeword
from lm.heads.spans import SpanTable
from tests.lm.heads.handmade import full_code, gray_rows, random_code, rank_code


@pytest.mark.parametrize("book", [random_code(40, 31), rank_code(40, 36)], ids=["random", "rank"])
def test_as_many_errors_as_the_minimum_distance_allows_are_corrected(book: Codebook) -> None:
    """Any floor((d - 1) / 2) bits of any codeword may flip, whatever the logits say."""
    draw = np.random.default_rng(1)
    codes = Codes(book)
    correctable = (minimum_distance(book) - 1) // 2
    assert correctable >= 2
    for errors in range(correctable + 1):
        bits_VC = book.unpacked().astype(bool)
        for row in bits_VC:
            row[draw.choice(book.bits, errors, replace=False)] ^= True
        logits_VC = torch.tensor(draw.normal(size=bits_VC.shape), dtype=torch.float32)
        assert decode_hamming(codes, torch.tensor(bits_VC), logits_VC).tolist() == list(range(len(book)))


def test_hamming_breaks_ties_by_score_then_by_id() -> None:
    """With few bits most minima are shared; the order is that of (distance, -score, id)."""
    book = random_code(20, 6)
    logits_NC = torch.randint(-2, 3, (200, 6), generator=torch.Generator().manual_seed(0)).float()
    bits_NC = logits_NC > 0
    found = decode_hamming(Codes(book), bits_NC, logits_NC).tolist()
    shared = 0
    for bits, logits, word in zip(bits_NC.numpy(), logits_NC.numpy(), found, strict=True):
        order = sorted((int((code != bits).sum()), -float(code @ logits), w) for w, code in enumerate(book.unpacked()))
        assert word == order[0][2]
        shared += order[0][:2] == order[1][:2]
    assert shared > 0


def test_hamming_takes_the_word_of_the_greatest_product_where_logits_are_signs() -> None:
    book = random_code(20, 15)
    signs_NC = torch.randn(50, 15, generator=torch.Generator().manual_seed(0)).sign()
    codes = Codes(book)
    assert torch.equal(codes.products(signs_NC).argmax(dim=-1), decode_hamming(codes, signs_NC > 0, signs_NC))


@pytest.mark.parametrize(("count", "class_bits"), [(1, 1), (5, 6), (37, 6), (90, 7)])
def test_owner_looks_every_code_up_in_its_span(count: int, class_bits: int) -> None:
    book = rank_code(count, class_bits + 3, class_bits)
    assert book.spans is not None
    bits = np.pad(gray_rows(class_bits), ((0, 0), (0, 3)), constant_values=1).astype(bool)
    lengths = np.diff(book.spans.bounds)
    expected = [int(word) for word, length in zip(book.spans.order_V, lengths, strict=True) for _ in range(length)]
    assert decode_owner(SpanTable(book.spans), torch.tensor(bits)).tolist() == expected


def test_owner_reads_every_codeword_back() -> None:
    book = rank_code(37, 12)
    assert book.spans is not None
    assert decode_owner(SpanTable(book.spans), torch.tensor(book.unpacked()) > 0).tolist() == list(range(37))


def test_every_pattern_of_a_full_code_is_its_own_word() -> None:
    book = full_code(5)
    bits_VC = torch.tensor(book.unpacked()) > 0
    assert decode_hamming(Codes(book), bits_VC, torch.zeros(32, 5)).tolist() == list(range(32))


def test_the_nearest_word_need_not_score_highest() -> None:
    distance, scores = torch.tensor([[2.0, 1.0, 1.0, 1.0]]), torch.tensor([[9.0, 3.0, 4.0, 4.0]])
    assert nearest_codeword(distance, scores).tolist() == [2]


def test_ranks_count_ties_in_the_middle() -> None:
    scores = torch.tensor([[0.5, 2.0, 0.5, 0.5, -1.0]]).expand(5, 5)
    assert middle_rank(scores, torch.arange(5)).tolist() == [3.0, 1.0, 3.0, 3.0, 5.0]
