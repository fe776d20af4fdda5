"""From a code's bits and logits to words. V vocabulary, C bits, K class bits, X any leading dimensions.

A bit is 1 where its logit is above 0.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lm.heads.codes import Codes
from lm.heads.spans import SpanTable


def decode_hamming(codes: Codes, bits_XC: Tensor, logits_XC: Tensor) -> Tensor:
    """The word (X) whose codeword is nearest to the bits, given as true and false (minimum-distance decoding)."""
    return nearest_codeword(codes.distances(bits_XC), codes.products(logits_XC))


def decode_owner(spans: SpanTable, bits_XC: Tensor) -> Tensor:
    """The word (X) in whose span the class bits lie: an inverse Gray code and a look-up."""
    shift_K = torch.arange(spans.class_bits - 1, -1, -1, device=bits_XC.device)
    position_X = (bits_XC[..., : spans.class_bits].long() << shift_K).sum(dim=-1)
    shift = 1
    while shift < spans.class_bits:
        position_X = position_X ^ (position_X >> shift)
        shift *= 2
    return spans.owner_Q[position_X]


def nearest_codeword(distance_XV: Tensor, scores_XV: Tensor) -> Tensor:
    """The word (X) at the least distance; ties go to the higher score, then to the lower id."""
    farther_XV = distance_XV > distance_XV.amin(dim=-1, keepdim=True)
    return scores_XV.masked_fill(farther_XV, -math.inf).argmax(dim=-1)


def middle_rank(scores_XV: Tensor, words_X: Tensor) -> Tensor:
    """The words' ranks (X) by descending score: one, plus the number above, plus half of the others level with it."""
    own_X1 = scores_XV.gather(-1, words_X[..., None])
    return (scores_XV.shape[-1] + 1 + (scores_XV - own_X1).sign().sum(dim=-1)) / 2
