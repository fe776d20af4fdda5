"""A softmax trained on a sample of words. T time, B batch, N = T x B, S samples, H last layer's size, V vocabulary."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, assert_never

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from lm.costs import HeadCost
from lm.heads.contract import OutputHead, Outputs, Scorer, TrainingLoss
from lm.heads.linear_scorer import LinearScorer
from lm.heads.words import Words
from lm.spec import NceLoss, SampledHead, SampledSoftmaxLoss, words_of


class Sampled(OutputHead):
    """s = W h + b, where W is the embedding itself if tied; a training window draws S words that its targets share.

    Sampled softmax (Bengio & Senecal 2008) estimates the partition function from them; noise-contrastive estimation
    (Gutmann & Hyvarinen 2010; Mnih & Teh 2012) tells them from the targets, with exp(s) / Z_0 for a probability.
    """

    cumulative_V: Tensor
    shift_V: Tensor

    def __init__(
        self, spec: SampledHead, size: int, words: Words, tied_weight: nn.Parameter | None, init: torch.Generator
    ) -> None:
        super().__init__()
        self.tied = tied_weight is not None
        if tied_weight is None:
            tied_weight = nn.Parameter(torch.empty(len(words), size).uniform_(-0.1, 0.1, generator=init))
        self.weight_VH = tied_weight
        self.loss = spec.loss
        self.samples = words_of(spec.loss.samples, len(words))
        proposal_V = proposal(spec.loss, words)
        shift_V, bias_V = np.log(self.samples * proposal_V), np.zeros(len(words))
        self.log_partition: float | None = None
        if isinstance(spec.loss, NceLoss):
            fixed = spec.loss.log_partition
            self.log_partition = math.log(len(words)) if fixed == "auto" else fixed
            shift_V, bias_V = shift_V + self.log_partition, np.log(proposal_V) + self.log_partition
        self.bias_V = nn.Parameter(torch.from_numpy(bias_V).float())
        self.register_buffer("shift_V", torch.from_numpy(shift_V).float(), persistent=False)
        # In float64: float32 could not tell the rare words of a large vocabulary apart. The last must be exactly 1.
        cumulative_V = np.cumsum(proposal_V)
        self.register_buffer("cumulative_V", torch.from_numpy(cumulative_V / cumulative_V[-1]), persistent=False)

    def draw(self, noise: torch.Generator) -> Tensor:
        """Ids (S,) of a window's words, drawn on the weights' device, which nothing waits for."""
        device = self.cumulative_V.device
        if isinstance(self.loss, SampledSoftmaxLoss) and not self.loss.replacement:
            return torch.randperm(len(self.cumulative_V), generator=noise, device=device)[: self.samples]
        at_S = torch.rand(self.samples, generator=noise, dtype=self.cumulative_V.dtype, device=device)
        return torch.searchsorted(self.cumulative_V, at_S, right=True)

    def training_loss(self, outputs: Outputs, targets_TB: Tensor, noise: torch.Generator | None) -> TrainingLoss:
        """Sampled softmax is ln(1 + sum over samples w != y of exp(s_w - s_y) / m(w)), on average below the exact loss.

        Here m(w) = S Q(w) is the expected count of w among the samples. Where `correct_target`, s_y is less ln m(y):
        then it is a classification of the target among target and samples, whose optimum is the true distribution for
        any S (the ranking objective of Ma & Collins 2018); with replacement, if a target that is drawn again stays.
        NCE is -ln sigmoid(d_y) - sum over samples of ln sigmoid(-d_w), where d_w = s_w - ln Z_0 - ln m(w).
        """
        if noise is None:
            raise ValueError("a sampled head draws words to train on: noise must be a generator, got None")
        ids_S, targets_N = self.draw(noise), targets_TB.flatten()
        target_N, sampled_NS = self._shifted_scores(outputs.dropped[-1].flatten(0, 1), targets_N, ids_S)
        match self.loss:
            case SampledSoftmaxLoss(correct_target=correct_target, replacement=replacement):
                if not correct_target:
                    target_N = target_N + self.shift_V[targets_N]
                if not (correct_target and replacement):
                    sampled_NS = sampled_NS.masked_fill(ids_S == targets_N[:, None], -math.inf)
                scores_NS = torch.cat([target_N[:, None], sampled_NS], dim=-1)
                nats_N = F.cross_entropy(scores_NS, torch.zeros_like(targets_N), reduction="none")
            case NceLoss():
                nats_N = F.softplus(-target_N) + F.softplus(sampled_NS).sum(dim=-1)
            case _:
                assert_never(self.loss)
        return TrainingLoss(nats_N.view_as(targets_TB))

    def scorer(self) -> LinearScorer:
        """The softmax of all scores, whatever the training loss."""
        return LinearScorer(self.weight_VH, self.bias_V)

    def cost(self, tokens: int) -> HeadCost:
        """A product with the sampled words in training, with all of them in evaluation; the targets' own is not one."""
        (words, size), drawn = self.weight_VH.shape, self.samples
        held = 2 if isinstance(self.loss, NceLoss) else 3  # the target's score among the samples' is a copy
        return HeadCost(
            parameters=words + (0 if self.tied else words * size),
            training_flops_per_token=6 * size * drawn,
            evaluation_flops_per_token=2 * size * words,
            peak_bytes=4 * (held * tokens * drawn + words * (size + 1)),
        )

    def tallies(self, scorer: Scorer, outputs: Outputs, targets_TB: Tensor) -> dict[str, Tensor]:
        """Of NCE, sums of ln Z(h) - ln Z_0 and of its square."""
        if self.log_partition is None:
            return {}
        excess_TB = self.scorer().logits(outputs).logsumexp(dim=-1).double() - self.log_partition
        return {"log_partition": excess_TB.sum(), "log_partition_squared": excess_TB.square().sum()}

    def measures(self, tallies: Mapping[str, Tensor], tokens: int) -> dict[str, float]:
        """Of NCE, how far from normalised the scores are: mean and standard deviation of ln Z(h) - ln Z_0, nats."""
        if not tallies:
            return {}
        mean = float(tallies["log_partition"]) / tokens
        variance = float(tallies["log_partition_squared"]) / tokens - mean**2
        return {"log_partition_mean": mean, "log_partition_deviation": math.sqrt(max(variance, 0.0))}

    def _shifted_scores(self, hidden_NH: Tensor, targets_N: Tensor, ids_S: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of the targets (N,) and of the samples (N, S), less ln m(w), and of NCE less ln Z_0."""
        # One gather for both: the gradient is then one dense matrix (V, H), not the sum of two, in half the time.
        ids, parts = torch.cat([targets_N, ids_S]), [len(targets_N), len(ids_S)]
        rows_NH, rows_SH = torch.split(F.embedding(ids, self.weight_VH), parts)
        bias_N, bias_S = torch.split((self.bias_V - self.shift_V).index_select(0, ids), parts)
        return (hidden_NH * rows_NH).sum(dim=-1) + bias_N, F.linear(hidden_NH, rows_SH, bias_S)


def proposal(loss: SampledSoftmaxLoss | NceLoss, words: Words) -> NDArray[np.float64]:
    """The distribution Q (V,) that words are drawn from, never zero: a word that never occurs counts as if once.

    `log_uniform` is ln((r + 2) / (r + 1)) / ln(V + 1) at frequency rank r, 0 the most frequent; noise is unigram.
    """
    kind: Literal["uniform", "unigram", "log_uniform"] = "unigram" if isinstance(loss, NceLoss) else loss.proposal
    power = 1.0 if isinstance(loss, NceLoss) else loss.power
    mass_V: NDArray[np.float64]
    match kind:
        case "uniform":
            mass_V = np.ones(len(words))
        case "unigram":
            mass_V = np.maximum(words.counts_V, 1).astype(np.float64) ** power
        case "log_uniform":
            mass_V = np.log1p(1.0 / (words.rank_V + 1.0))
        case _:
            assert_never(kind)
    return mass_V / float(mass_V.sum())
