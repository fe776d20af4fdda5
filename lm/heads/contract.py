"""What every output head is, to the model, the trainer and the evaluation. T time, B batch, V vocabulary."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn

from lm.costs import HeadCost


@dataclass(frozen=True)
class Outputs:
    """The embedding's (index 0) and every layer's output (T, B, H), before and after its locked dropout."""

    raw: tuple[Tensor, ...]
    dropped: tuple[Tensor, ...]


@dataclass(frozen=True)
class TrainingLoss:
    """What a head trains on: `nats_TB`, its own estimate of each target's loss, and named extra terms.

    A term is one number, or a number for each target (T, B); the trainer adds them all to the loss, those of targets
    reduced as it is.
    """

    nats_TB: Tensor
    terms: Mapping[str, Tensor] = field(default_factory=dict)


class Scorer(Protocol):
    """The exact distribution that a head's weights stand for at one moment."""

    def log_probabilities(self, outputs: Outputs) -> Tensor:
        """Log-probabilities (T, B, V), normalised over the vocabulary."""
        ...

    def target_nats(self, outputs: Outputs, targets_TB: Tensor) -> Tensor:
        """Exact loss of every target (T, B), natural logarithm."""
        ...


class OutputHead(nn.Module, ABC):
    """Turns the layers' outputs into a training loss, and into an exact distribution over the vocabulary.

    Perplexity always comes from the `scorer`; whatever else a head measures has a name of its own.
    """

    needs_fit = False
    """Whether something of the distribution is left to validation."""

    term_names: tuple[str, ...] = ()
    """The names of the training loss's extra terms, known beforehand so that an epoch can sum them on the device."""

    def training_loss(self, outputs: Outputs, targets_TB: Tensor, noise: torch.Generator | None) -> TrainingLoss:
        """The loss to train on, the exact one unless a head has another.

        Whatever is drawn is drawn from `noise`, and without it nothing is dropped. Heads that sample words raise
        ValueError without noise.
        """
        return TrainingLoss(self.scorer().target_nats(outputs, targets_TB))

    @abstractmethod
    def scorer(self) -> Scorer:
        """The exact form for the weights as they now are; it must not outlive a change of them."""

    def word_scores(self, outputs: Outputs) -> Tensor:
        """Scores (T, B, V) whose softmax is the distribution that is trained, with their gradient."""
        return self.scorer().log_probabilities(outputs)

    def fit(self, outputs: Outputs, targets_TB: Tensor) -> dict[str, float]:
        """Choose the settings that the spec leaves to validation, use them from now on, and return them by name.

        The outputs are those of undropped validation text. Most heads leave nothing to it.
        """
        return {}

    def use_fitted(self, fitted: Mapping[str, float]) -> None:
        """Score with what `fit` chose before."""

    @abstractmethod
    def cost(self, tokens: int) -> HeadCost:
        """What a window of this many tokens costs, by formula; its targets are as frequent as in the training text."""

    def tallies(self, scorer: Scorer, outputs: Outputs, targets_TB: Tensor) -> dict[str, Tensor]:
        """Sums over the targets, one tensor a name, from which `measures` are computed; asked without gradient.

        `scorer` is this head's own, for the weights as they now are.
        """
        return {}

    def measures(self, tallies: Mapping[str, Tensor], tokens: int) -> dict[str, float]:
        """What the head reports besides perplexity, by name, from the sums over a text of this many targets."""
        return {}
