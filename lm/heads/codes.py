"""Codewords on the device. V vocabulary, C bits, P bytes of a packed codeword, X any leading dimensions."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from lm.codebooks import Codebook

BLOCK_ELEMENTS = 2**24
"""Bits that are unpacked at a time: 64 MiB as float32."""


class Codes(nn.Module):
    """A codebook's bits as signs, -1 for 0 and 1 for 1, unpacked where they are needed.

    Buffers only, and none saved with the weights: the spec, not the checkpoint, says which codebook this is.
    """

    packed_VP: Tensor
    byte_signs: Tensor

    def __init__(self, codebook: Codebook) -> None:
        super().__init__()
        self.bits = codebook.bits
        bytes_as_bits = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
        self.register_buffer("packed_VP", torch.tensor(codebook.packed), persistent=False)
        self.register_buffer("byte_signs", 2.0 * torch.tensor(bytes_as_bits) - 1.0, persistent=False)

    @property
    def words(self) -> int:
        """The number of codewords."""
        return len(self.packed_VP)

    def signs(self, words_X: Tensor) -> Tensor:
        """The words' codewords (X, C)."""
        return self._unpacked(self.packed_VP[words_X])

    def products(self, x_XC: Tensor) -> Tensor:
        """Inner products with every codeword less 1/2, (X, V).

        Of logits: the words' scores, but for a constant of each row. Of signs: half the bits minus the Hamming
        distance. Blocked over words, and unpacked again rather than kept for the backward pass.
        """
        blocks = torch.split(self.packed_VP, max(1, BLOCK_ELEMENTS // self.bits))
        half_XC = x_XC / 2
        return torch.cat(
            [checkpoint(self._inner, half_XC, b, use_reentrant=False, preserve_rng_state=False) for b in blocks], dim=-1
        )

    def distances(self, bits_XC: Tensor) -> Tensor:
        """Hamming distances (X, V) of bits, given as true and false, from every codeword: 2 X V C operations."""
        return self.bits / 2 - self.products(2 * bits_XC.to(self.byte_signs.dtype) - 1)

    def _inner(self, x_XC: Tensor, packed_VP: Tensor) -> Tensor:
        return F.linear(x_XC, self._unpacked(packed_VP).to(x_XC.dtype))

    def _unpacked(self, packed_XP: Tensor) -> Tensor:
        return F.embedding(packed_XP.int(), self.byte_signs).flatten(-2)[..., : self.bits]
