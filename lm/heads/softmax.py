"""One softmax over the vocabulary. T time, B batch, H size of the last layer, V vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lm.costs import HeadCost
from lm.heads.contract import OutputHead, Outputs, TrainingLoss
from lm.heads.cross_entropy import linear_nats, linear_nats_cost
from lm.spec import SoftmaxHead


class Softmax(OutputHead):
    """logits = D h + b, where D is the embedding itself if tied (Inan et al. 2016; Press & Wolf 2017)."""

    def __init__(
        self,
        spec: SoftmaxHead,
        size: int,
        vocabulary_size: int,
        tied_weight: nn.Parameter | None,
        init: torch.Generator,
    ) -> None:
        super().__init__()
        self.tied = tied_weight is not None
        if tied_weight is None:
            tied_weight = nn.Parameter(torch.empty(vocabulary_size, size).uniform_(-0.1, 0.1, generator=init))
        self.weight_VH = tied_weight
        self.bias_V = nn.Parameter(torch.zeros(vocabulary_size)) if spec.bias else None

    def logits(self, outputs: Outputs) -> Tensor:
        """Unnormalised scores (T, B, V) from the last layer's dropped output."""
        return F.linear(outputs.dropped[-1], self.weight_VH, self.bias_V)

    def log_probabilities(self, outputs: Outputs) -> Tensor:
        """Exact log-probabilities (T, B, V), normalised over the vocabulary."""
        return F.log_softmax(self.logits(outputs), dim=-1)

    def target_nats(self, outputs: Outputs, targets_TB: Tensor) -> Tensor:
        """Exact loss of every target (T, B), natural logarithm."""
        hidden_NH = outputs.dropped[-1].flatten(0, 1)
        return linear_nats(hidden_NH, self.weight_VH, self.bias_V, targets_TB.flatten()).view_as(targets_TB)

    def training_loss(self, outputs: Outputs, targets_TB: Tensor, noise: torch.Generator | None) -> TrainingLoss:
        """The exact loss."""
        return TrainingLoss(self.target_nats(outputs, targets_TB))

    def cost(self, tokens: int) -> HeadCost:
        """One product with the whole vocabulary."""
        (words, size), biases = self.weight_VH.shape, 0 if self.bias_V is None else len(self.bias_V)
        trained, logits_bytes = linear_nats_cost(tokens, size, words)
        return HeadCost(
            parameters=biases + (0 if self.tied else words * size),
            training_flops_per_token=trained / tokens,
            evaluation_flops_per_token=2 * size * words,
            peak_bytes=logits_bytes + 4 * (words * size + biases),
        )

    def scorer(self) -> Softmax:
        """The head itself."""
        return self
