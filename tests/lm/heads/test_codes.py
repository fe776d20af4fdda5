"""Codewords on the device against the codebook's own bits. V words, C bits, N rows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lm.heads import codes as codes_module
from lm.heads.codes import Codes
from tests.lm.heads.handmade import random_code


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("bits", [7, 8, 9, 21])
def test_signs_are_the_codebooks_bits(bits: int) -> None:
    book = random_code(13, bits)
    words = torch.tensor([[3, 0], [12, 3]])
    signs = Codes(book).signs(words)
    assert signs.tolist() == [[[2.0 * bit - 1.0 for bit in book.unpacked()[w]] for w in row] for row in words.tolist()]


@pytest.mark.parametrize("block", [1, 60, 2**24], ids=["a word a block", "a few", "all"])
def test_products_and_their_gradient_do_not_depend_on_blocks(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes_module, "BLOCK_ELEMENTS", block)
    book, x_NC = random_code(13, 21), normal(2, 5, 21).requires_grad_()
    products = Codes(book).double().products(x_NC)
    expected = x_NC @ (torch.tensor(book.unpacked()).double() - 0.5).T
    torch.testing.assert_close(products, expected, rtol=0.0, atol=1e-12)
    weights = normal(2, 5, 13, seed=1)
    (gradient,) = torch.autograd.grad((products * weights).sum(), x_NC)
    torch.testing.assert_close(gradient, torch.autograd.grad((expected * weights).sum(), x_NC)[0])


def test_distances_count_the_bits_that_differ() -> None:
    book, bits_NC = random_code(13, 21), normal(5, 21) > 0
    counted = [[sum(a != b for a, b in zip(row, word, strict=True)) for word in book.unpacked()] for row in bits_NC]
    assert Codes(book).distances(bits_NC).tolist() == [[float(count) for count in row] for row in counted]


def test_nothing_of_a_codebook_is_saved_or_trained() -> None:
    codes = Codes(random_code(13, 21))
    assert not codes.state_dict() and not list(codes.parameters())
