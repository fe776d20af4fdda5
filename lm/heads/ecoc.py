"""Error-correcting output codes. T time, B batch, H size of the last layer, C bits, V vocabulary.

The paper leaves the probability of a word open. The spec says which of two normalised ones is scored: that of the
codeword among all codewords, a softmax of (C - 1/2) z divided by a temperature, where z are the bits' logits; or that
of all codes in the word's span. The paper's own rules are measured under names of their own.
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
from lm.data.unigram import log_unigram
from lm.heads.codes import Codes
from lm.heads.contract import OutputHead, Outputs, Scorer, TrainingLoss
from lm.heads.cross_entropy import CACHED_BYTES, SAME_BITS_ROWS, linear_nats_cost
from lm.heads.decoders import decode_hamming, decode_owner, middle_rank, nearest_codeword
from lm.heads.linear_scorer import LinearScorer
from lm.heads.spans import SpanScorer, SpanTable
from lm.heads.temperature import fit_temperature
from lm.heads.words import Words
from lm.spec import EcocHead, SpanProbability
from lm.spec.losses import BallDropLoss, BceLoss, NormalizedLoss, SpanMaxLoss, SpanSumLoss


class Ecoc(OutputHead):
    """z = W h + b, a logit for each bit of the word's codeword (O'Neill & Bollegala 2019)."""

    word_bias_V: Tensor | None

    def __init__(self, spec: EcocHead, size: int, words: Words, init: torch.Generator) -> None:
        """Raises ValueError without a codebook of all the words, or without spans where the loss needs them."""
        super().__init__()
        book = words.codebook
        if book is None or len(book) != len(words):
            got = "none" if book is None else f"one of {len(book)}"
            raise ValueError(f"an ecoc head needs a codebook of its {len(words)} words, got {got}")
        self.by_span = isinstance(spec.probability, SpanProbability)
        if (self.by_span or isinstance(spec.loss, SpanMaxLoss | SpanSumLoss)) and book.spans is None:
            needs = "probability span" if self.by_span else f"loss {spec.loss.kind}"
            raise ValueError(f"{needs} needs a codebook with spans")
        self.loss = spec.loss
        self.needs_fit = spec.temperature == "fit" and not self.by_span
        self.temperature = 1.0 if spec.temperature == "fit" else spec.temperature
        # Every other loss is of bits, which have no temperature: it is for scoring alone.
        self.trained_temperature = self.temperature if isinstance(spec.loss, NormalizedLoss) else 1.0
        self.codes = Codes(book)
        self.spans = None if book.spans is None else SpanTable(book.spans)
        self.weight_CH = nn.Parameter(torch.empty(book.bits, size).uniform_(-0.1, 0.1, generator=init))
        self.bias_C = nn.Parameter(torch.zeros(book.bits))
        if spec.word_bias == "learned":
            self.word_bias_V = nn.Parameter(torch.zeros(len(words)))
        else:
            fixed_V = torch.tensor(log_unigram(words.counts_V)).float() if spec.word_bias == "unigram" else None
            self.register_buffer("word_bias_V", fixed_V, persistent=False)
        if not isinstance(spec.loss, NormalizedLoss):
            self.scale = loss_scale(spec.loss.scale, book.bits, len(words))
        if isinstance(spec.loss, BallDropLoss):
            # To find the two nearest of many long codewords takes minutes: a sweep of such codes gives the radius.
            self.radius = default_radius(book) if spec.loss.radius is None else spec.loss.radius

    def training_loss(self, outputs: Outputs, targets_TB: Tensor, noise: torch.Generator | None) -> TrainingLoss:
        """The spec's loss; none of them but `normalized` ever touches V words."""
        if isinstance(self.loss, NormalizedLoss):
            scorer = self._codeword_scorer(*self._folded(), self.trained_temperature)
            return TrainingLoss(scorer.target_nats(outputs, targets_TB))
        logits_TBC = self.logits(outputs)
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

    def scorer(self) -> Scorer:
        """By span, or a softmax with the matrix (C - 1/2) W / t and the bias (C - 1/2) b / t + word bias."""
        if self.by_span:
            assert self.spans is not None
            bits = self.spans.class_bits
            return SpanScorer(self.spans, self.weight_CH[:bits], self.bias_C[:bits])
        return self._codeword_scorer(*self._folded_exactly(), self.temperature)

    def word_scores(self, outputs: Outputs) -> Tensor:
        """(C - 1/2) z / t at the training temperature, and the word bias if the loss has it: not what validation fits.

        Of span probability, its log-probabilities.
        """
        if self.by_span:
            return self.scorer().log_probabilities(outputs)
        scores_TBV = self.codes.products(self.logits(outputs)) / self.trained_temperature
        in_loss = isinstance(self.loss, NormalizedLoss) or isinstance(self.word_bias_V, nn.Parameter)
        return scores_TBV + self.word_bias_V if in_loss and self.word_bias_V is not None else scores_TBV

    def logits(self, outputs: Outputs) -> Tensor:
        """z, the logit of each bit (T, B, C)."""
        return F.linear(outputs.dropped[-1], self.weight_CH, self.bias_C)

    def decode(self, bits_XC: Tensor, logits_XC: Tensor, decoder: Literal["owner", "hamming"] | None) -> Tensor:
        """The words (X) of bits, given as true and false, by this decoder; None: owner if the codebook has spans."""
        if decoder == "hamming" or self.spans is None:
            return decode_hamming(self.codes, bits_XC, logits_XC)
        return decode_owner(self.spans, bits_XC)

    def fit(self, outputs: Outputs, targets_TB: Tensor) -> dict[str, float]:
        """Choose the temperature on these targets of validation, if the spec leaves it to them."""
        if not self.needs_fit:
            return {}
        hidden_NH = outputs.dropped[-1].flatten(0, 1)
        self.temperature = fit_temperature(hidden_NH, *self._folded_exactly(), self.word_bias_V, targets_TB.flatten())
        return {"temperature": self.temperature}

    def use_fitted(self, fitted: Mapping[str, float]) -> None:
        """Score with the temperature that was chosen before."""
        self.temperature = fitted.get("temperature", self.temperature)

    def cost(self, tokens: int) -> HeadCost:
        """A logistic unit a bit; for `normalized` the folding of the codebook and a softmax. Folding is not counted
        where it is done once an evaluation.
        """
        (bits, size), words = self.weight_CH.shape, self.codes.words
        parameters = bits * (size + 1) + (words if isinstance(self.word_bias_V, nn.Parameter) else 0)
        trained, held = 6.0 * tokens * bits * size, 4 * 4.0 * tokens * bits
        match self.loss:
            case NormalizedLoss():
                trained, held = linear_nats_cost(tokens, size, words, on_gpu=self.weight_CH.is_cuda)
                trained += 4 * words * bits * (size + 1)  # one product forward, one backward
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
            evaluation_flops_per_token=2 * size * (self.spans.class_bits if self.by_span and self.spans else words),
            peak_bytes=held + 4 * parameters,
        )

    def tallies(self, scorer: Scorer, outputs: Outputs, targets_TB: Tensor) -> dict[str, Tensor]:
        """Of every measure, its sum over the targets.

        Hamming distances take 2 T B V C operations: of one CPU thread about a minute for each 100,000 targets with
        10,000 words and 1,000 bits, and twenty with 33,278 words and 5,000 bits.
        """
        hidden_NH, targets_N = outputs.dropped[-1].flatten(0, 1), targets_TB.flatten()
        rows = max(SAME_BITS_ROWS, CACHED_BYTES // (self.codes.words * hidden_NH.itemsize))
        sums: dict[str, Tensor] = {}
        for hidden_RH, targets_R in zip(torch.split(hidden_NH, rows), torch.split(targets_N, rows), strict=True):
            for name, tally in self._tallies(scorer, Outputs((), (hidden_RH[None],)), targets_R[None]).items():
                sums[name] = sums[name] + tally if name in sums else tally
        return sums

    def _tallies(self, scorer: Scorer, outputs: Outputs, targets_TB: Tensor) -> dict[str, Tensor]:
        logits_TBC = self.logits(outputs)
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
            "accuracy_hamming": nearest_codeword(distances_TBV, scores_TBV) == targets_TB,
            "reciprocal_rank_soft": 1 / middle_rank(scores_TBV, targets_TB),
            "reciprocal_rank_hamming": 1 / middle_rank(-distances_TBV, targets_TB),
        }
        if not self.by_span and (self.temperature != 1.0 or self.word_bias_V is not None):
            per_target["temperature_1_nats_per_token"] = self._nats_at_temperature_1(scores_TBV, targets_TB)
        if self.spans is not None:
            per_target["span_nats_per_token"] = -self.spans.log_max(logits_TBC, targets_TB)
            per_target["span_sum_nats_per_token"] = -self.spans.log_sum(logits_TBC, targets_TB)
            per_target["accuracy_owner"] = decode_owner(self.spans, bits_TBC) == targets_TB
        return {name: value_TB.sum(dtype=torch.float64) for name, value_TB in per_target.items()}

    def measures(self, tallies: Mapping[str, Tensor], tokens: int) -> dict[str, float]:
        """Means over the targets; the nats follow other rules than the head's own perplexity.

        `marginal_nats_per_token` is of the codeword as a product of independent bits, which leaves mass to codes of no
        word. `span_nats_per_token` is of the most probable class code in the word's span, the paper's rule; it too sums
        to less than one. `span_sum_nats_per_token` is of the whole span, a distribution over the words; these and
        `accuracy_owner` need a codebook with spans. Another distribution is that of the codewords with neither a fitted
        temperature nor a bias, `temperature_1_nats_per_token`, where the head is scored otherwise.
        `wrong_bits` is the share of bits on the wrong side of 0, `exact_codes` that of targets without any. Accuracies
        and reciprocal ranks (ties in the middle) are named after the way from a code to a word, see `decoders`.
        """
        return {name: float(tally) / tokens for name, tally in tallies.items()}

    def _folded(self) -> tuple[Tensor, Tensor]:
        """The matrix (C - 1/2) W and the bias (C - 1/2) b of the codewords' scores, which cost 2 V C H operations."""
        folded_XV = self.codes.products(torch.cat((self.weight_CH.t(), self.bias_C[None])))
        return folded_XV[:-1].t(), folded_XV[-1]

    def _folded_exactly(self) -> tuple[Tensor, Tensor]:
        """As `_folded`, summed in float64 and less the mean over words, which no probability depends on.

        With a bit for every word that mean is thousands of times the rest, and would cost float32 its last digits.
        """
        folded_XV = self.codes.products(torch.cat((self.weight_CH.t(), self.bias_C[None])).double())
        folded_XV = (folded_XV - folded_XV.mean(dim=-1, keepdim=True)).to(self.weight_CH.dtype)
        return folded_XV[:-1].t(), folded_XV[-1]

    def _codeword_scorer(self, weight_VH: Tensor, bias_V: Tensor, temperature: float) -> LinearScorer:
        bias_V = bias_V / temperature
        return LinearScorer(weight_VH / temperature, bias_V if self.word_bias_V is None else bias_V + self.word_bias_V)

    def _nats_at_temperature_1(self, log_p_TBV: Tensor, targets_TB: Tensor) -> Tensor:
        """What the codewords' distribution would lose without temperature and bias, from the one with them."""
        if self.word_bias_V is not None:
            log_p_TBV = log_p_TBV - self.word_bias_V
        scores_NV = (log_p_TBV * self.temperature).flatten(0, 1)
        return F.cross_entropy(scores_NV, targets_TB.flatten(), reduction="none")


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
