"""Error-correcting output codes. T time, B batch, H size of the last layer, C bits, V vocabulary.

The paper leaves the probability of a word open. Here a word's is that of its codeword among all codewords: softmax of
(C - 1/2) z, the inner products of codewords and bit logits, which is a softmax of linear scores like any other. The
paper's own rules are measured under names of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, assert_never

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lm.codebooks import Codebook
from lm.codebooks.distance import minimum_distance
from lm.costs import HeadCost
from lm.heads.codes import Codes
from lm.heads.contract import OutputHead, Outputs, Scorer, TrainingLoss
from lm.heads.cross_entropy import linear_nats_cost
from lm.heads.decoders import decode_owner, middle_rank, nearest
from lm.heads.linear_scorer import LinearScorer
from lm.heads.spans import SpanTable
from lm.heads.words import Words
from lm.spec import EcocHead
from lm.spec.heads import BallDropLoss, BceLoss, NormalizedLoss, SpanMaxLoss, SpanSumLoss


class Ecoc(OutputHead):
    """z = W h + b, a logit for each bit of the word's codeword (O'Neill & Bollegala 2019)."""

    def __init__(self, spec: EcocHead, size: int, words: Words, init: torch.Generator) -> None:
        """Raises ValueError without a codebook of all the words, or without spans where the loss needs them."""
        super().__init__()
        book = words.codebook
        if book is None or len(book) != len(words):
            got = "none" if book is None else f"one of {len(book)}"
            raise ValueError(f"an ecoc head needs a codebook of its {len(words)} words, got {got}")
        if isinstance(spec.loss, SpanMaxLoss | SpanSumLoss) and book.spans is None:
            raise ValueError(f"loss {spec.loss.kind} needs a codebook with spans")
        self.loss = spec.loss
        self.codes = Codes(book)
        self.spans = None if book.spans is None else SpanTable(book.spans)
        self.weight_CH = nn.Parameter(torch.empty(book.bits, size).uniform_(-0.1, 0.1, generator=init))
        self.bias_C = nn.Parameter(torch.zeros(book.bits))
        if not isinstance(spec.loss, NormalizedLoss):
            self.scale = loss_scale(spec.loss.scale, book.bits, len(words))
        if isinstance(spec.loss, BallDropLoss):
            # To find the two nearest of many long codewords takes minutes: a sweep of such codes gives the radius.
            self.radius = default_radius(book) if spec.loss.radius is None else spec.loss.radius

    def training_loss(self, outputs: Outputs, targets_TB: Tensor, noise: torch.Generator | None) -> TrainingLoss:
        """The spec's loss; none of them but `normalized` ever touches V words."""
        if isinstance(self.loss, NormalizedLoss):
            return TrainingLoss(self.scorer().target_nats(outputs, targets_TB))
        logits_TBC = self._logits(outputs)
        margins_TBC = self.codes.signs(targets_TB) * logits_TBC
        match self.loss:
            case BceLoss():
                nats_TB = marginal_nats(margins_TBC)
            case SpanMaxLoss() | SpanSumLoss():
                assert self.spans is not None
                log_class = self.spans.log_max if isinstance(self.loss, SpanMaxLoss) else self.spans.log_sum
                nats_TB = marginal_nats(margins_TBC[..., self.spans.class_bits :]) - log_class(logits_TBC, targets_TB)
            case BallDropLoss():
                nats_TB = ball_nats(margins_TBC, self.radius)
            case _:
                assert_never(self.loss)
        return TrainingLoss(self.scale * nats_TB)

    def scorer(self) -> LinearScorer:
        """A softmax with the matrix (C - 1/2) W and the bias (C - 1/2) b, which cost 2 V C H operations once."""
        folded_XV = self.codes.products(torch.cat((self.weight_CH.t(), self.bias_C[None])))
        return LinearScorer(folded_XV[:-1].t(), folded_XV[-1])

    def cost(self, tokens: int) -> HeadCost:
        """A logistic unit a bit; for `normalized` the folding of the codebook and a softmax. Folding is not counted
        where it is done once an evaluation.
        """
        (bits, size), words = self.weight_CH.shape, self.codes.words
        parameters = bits * (size + 1)
        trained, held = 6.0 * tokens * bits * size, 4 * 4.0 * tokens * bits
        match self.loss:
            case NormalizedLoss():
                trained, held = linear_nats_cost(tokens, size, words)
                trained += 6 * words * bits * (size + 1)
                held += 4 * 2 * words * (size + 1)
            case BallDropLoss():
                held *= 2
            case SpanMaxLoss() | SpanSumLoss():
                assert self.spans is not None
                # Two blocks a level of a span, each with all class bits.
                held += 4 * 7 * tokens * 2 * self.spans.class_bits * (self.spans.class_bits + 1)
            case _:
                pass
        return HeadCost(
            parameters=parameters,
            training_flops_per_token=trained / tokens,
            evaluation_flops_per_token=2 * size * words,
            peak_bytes=held + 4 * parameters,
        )

    def tallies(self, scorer: Scorer, outputs: Outputs, targets_TB: Tensor) -> dict[str, Tensor]:
        """Of every measure, its sum over the targets.

        Hamming distances take 2 T B V C operations: of one CPU thread about a minute for each 100,000 targets with
        10,000 words and 1,000 bits, and twenty with 33,278 words and 5,000 bits.
        """
        logits_TBC = self._logits(outputs)
        signs_TBC = self.codes.signs(targets_TB)
        bits_TBC = logits_TBC > 0
        wrong_TBC = bits_TBC != (signs_TBC > 0)
        scores_TBV = scorer.log_probabilities(outputs)
        distances_TBV = self.codes.distances(bits_TBC)
        per_target = {
            "marginal_nats_per_token": marginal_nats(signs_TBC * logits_TBC),
            "wrong_bits": wrong_TBC.mean(dim=-1, dtype=torch.float64),
            "exact_codes": ~wrong_TBC.any(dim=-1),
            "accuracy_soft": scores_TBV.argmax(dim=-1) == targets_TB,
            "accuracy_hamming": nearest(distances_TBV, scores_TBV) == targets_TB,
            "reciprocal_rank_soft": 1 / middle_rank(scores_TBV, targets_TB),
            "reciprocal_rank_hamming": 1 / middle_rank(-distances_TBV, targets_TB),
        }
        if self.spans is not None:
            per_target["span_nats_per_token"] = -self.spans.log_max(logits_TBC, targets_TB)
            per_target["span_sum_nats_per_token"] = -self.spans.log_sum(logits_TBC, targets_TB)
            per_target["accuracy_owner"] = decode_owner(self.spans, bits_TBC) == targets_TB
        return {name: value_TB.sum(dtype=torch.float64) for name, value_TB in per_target.items()}

    def measures(self, tallies: Mapping[str, Tensor], tokens: int) -> dict[str, float]:
        """Means over the targets; the nats follow other rules than perplexity, and are not to be set beside it.

        `marginal_nats_per_token` is of the codeword as a product of independent bits, which leaves mass to codes of no
        word. `span_nats_per_token` is of the most probable class code in the word's span, the paper's rule, and
        `span_sum_nats_per_token` of the whole span; they and `accuracy_owner` need a codebook with spans.
        `wrong_bits` is the share of bits on the wrong side of 0, `exact_codes` that of targets without any. Accuracies
        and reciprocal ranks (ties in the middle) are named after the way from a code to a word, see `decoders`.
        """
        return {name: float(tally) / tokens for name, tally in tallies.items()}

    def _logits(self, outputs: Outputs) -> Tensor:
        return F.linear(outputs.dropped[-1], self.weight_CH, self.bias_C)


def marginal_nats(margins_XC: Tensor) -> Tensor:
    """Binary cross-entropy (X), summed over bits; a margin is the target bit's sign times its logit."""
    return -F.logsigmoid(margins_XC).sum(dim=-1)


def ball_nats(margins_XC: Tensor, radius: int) -> Tensor:
    """Binary cross-entropy (X) without the up to `radius` bits that are most wrong; those get no gradient."""
    worst, place = margins_XC.detach().topk(radius, dim=-1, largest=False)
    kept_XC = torch.ones_like(margins_XC).scatter(-1, place, (worst >= 0).to(margins_XC.dtype))
    return -(kept_XC * F.logsigmoid(margins_XC)).sum(dim=-1)


def default_radius(book: Codebook) -> int:
    """The number of bit errors that the code corrects for certain, at most a tenth of its bits."""
    return min((minimum_distance(book) - 1) // 2, book.bits // 10)


def loss_scale(scale: Literal["matched", "mean", "sum"], bits: int, vocabulary_size: int) -> float:
    """What a sum over bits is multiplied by; `matched` makes it ln V where all logits are 0, as a softmax's loss."""
    match scale:
        case "sum":
            return 1.0
        case "mean":
            return 1.0 / bits
        case "matched":
            return math.log(vocabulary_size) / (bits * math.log(2))
        case _:
            assert_never(scale)
