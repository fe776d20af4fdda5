"""Probabilities of spans of class codes. K class bits, V vocabulary, X any leading dimensions, J blocks of a span."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lm.codebooks import Spans
from lm.heads.contract import Outputs


class SpanTable(nn.Module):
    """Each word's span on the line of all 2^K class codes, and the word of every code (O'Neill & Bollegala 2019).

    The class bits are independent: q(code) is the product of their probabilities, and all q sum to one.
    """

    low_V: Tensor
    high_V: Tensor
    owner_Q: Tensor

    def __init__(self, spans: Spans) -> None:
        super().__init__()
        self.class_bits = spans.class_bits
        rank_V = np.argsort(spans.order_V)
        self.register_buffer("low_V", torch.tensor(spans.bounds[:-1][rank_V]), persistent=False)
        self.register_buffer("high_V", torch.tensor(spans.bounds[1:][rank_V]), persistent=False)
        self.register_buffer("owner_Q", torch.tensor(spans.owner), persistent=False)

    def log_sum(self, logits_XC: Tensor, words_X: Tensor) -> Tensor:
        """Log-probability (X) that the code lies in the word's span; over all words it sums to one."""
        class_XK = logits_XC[..., : self.class_bits]
        return self._log_blocks(class_XK, torch.zeros_like(class_XK), words_X).logsumexp(dim=-1)

    def log_sums(self, logits_XC: Tensor) -> Tensor:
        """As `log_sum`, of every word (X, V): all 2^K codes are gone through."""
        class_XK = logits_XC[..., : self.class_bits]
        place_Q = torch.arange(len(self.owner_Q), device=class_XK.device)
        shift_K = torch.arange(self.class_bits - 1, -1, -1, device=class_XK.device)
        signs_QK = 2 * (((place_Q ^ (place_Q >> 1))[:, None] >> shift_K) & 1) - 1
        # log sigmoid(+-z) = +-z/2 - log(2 cosh(z/2)), so that a product with the signs gives all codes at once.
        half_XK = class_XK / 2
        constant_X1 = torch.logaddexp(half_XK, -half_XK).sum(dim=-1, keepdim=True)
        log_q_XQ = F.linear(half_XK, signs_QK.to(half_XK.dtype)) - constant_X1
        owner_XQ = self.owner_Q.expand(log_q_XQ.shape)
        shape = (*log_q_XQ.shape[:-1], len(self.low_V))
        top_XV = log_q_XQ.new_full(shape, -math.inf).scatter_reduce(-1, owner_XQ, log_q_XQ.detach(), "amax")
        shares_XQ = (log_q_XQ - top_XV.gather(-1, owner_XQ)).exp()
        return top_XV + log_q_XQ.new_zeros(shape).scatter_add(-1, owner_XQ, shares_XQ).log()

    def log_max(self, logits_XC: Tensor, words_X: Tensor) -> Tensor:
        """Log-probability (X) of the most probable code in the word's span."""
        class_XK = logits_XC[..., : self.class_bits]
        return self._log_blocks(class_XK, F.logsigmoid(class_XK.abs()), words_X).amax(dim=-1)

    def _log_blocks(self, logits_XK: Tensor, free_XK: Tensor, words_X: Tensor) -> Tensor:
        """Log-probabilities (X, J) of the blocks that make up the words' spans, -inf for those that a span lacks.

        A span is a union of blocks of 2^j positions, each starting at a multiple of 2^j, at most two for each j. In
        Gray code all positions of such a block agree in their first K - j bits, and run through every value of the
        other j, for which `free` counts. So a span costs K^2 operations instead of 2^K.
        """
        level_J = torch.arange(self.class_bits + 1, device=logits_XK.device)
        shift_K = torch.arange(self.class_bits - 1, -1, -1, device=logits_XK.device)
        # Blocks first .. end - 1 lie within the span. Those that no block of the next level holds: an odd first one,
        # and an even last one.
        first_XJ = (self.low_V[words_X][..., None] + (1 << level_J) - 1) >> level_J
        end_XJ = self.high_V[words_X][..., None] >> level_J
        lone_X2J = torch.stack((first_XJ % 2 == 1, end_XJ % 2 == 1), -2) & (first_XJ < end_XJ)[..., None, :]
        start_X2J = torch.stack((first_XJ, end_XJ - 1), -2) << level_J
        code_X2J = start_X2J ^ (start_X2J >> 1)
        signs_X2JK = 2 * ((code_X2J[..., None] >> shift_K) & 1) - 1
        log_bits_X2JK = torch.where(
            shift_K >= level_J[:, None],
            F.logsigmoid(signs_X2JK * logits_XK[..., None, None, :]),
            free_XK[..., None, None, :],
        )
        return log_bits_X2JK.sum(dim=-1).masked_fill(~lone_X2J, -math.inf).flatten(-2)


@dataclass(frozen=True, eq=False)
class SpanScorer:
    """The distribution of words by the spans of their class codes, whose bits are independent."""

    spans: SpanTable
    weight_KH: Tensor
    bias_K: Tensor

    def log_probabilities(self, outputs: Outputs) -> Tensor:
        """Log-probabilities (T, B, V), normalised over the vocabulary."""
        return self.spans.log_sums(self._logits(outputs))

    def target_nats(self, outputs: Outputs, targets_TB: Tensor) -> Tensor:
        """Exact loss of every target (T, B), natural logarithm."""
        return -self.spans.log_sum(self._logits(outputs), targets_TB)

    def _logits(self, outputs: Outputs) -> Tensor:
        return F.linear(outputs.dropped[-1], self.weight_KH, self.bias_K)
