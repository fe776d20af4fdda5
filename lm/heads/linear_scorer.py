"""A softmax of linear scores. T time, B batch, H size of the last layer, V vocabulary."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from lm.heads.contract import Outputs
from lm.heads.cross_entropy import linear_nats


@dataclass(frozen=True, eq=False)
class LinearScorer:
    """The distribution softmax(W h + b) of the last layer's dropped output."""

    weight_VH: Tensor
    bias_V: Tensor | None

    def log_probabilities(self, outputs: Outputs) -> Tensor:
        """Log-probabilities (T, B, V), normalised over the vocabulary."""
        return F.log_softmax(self.logits(outputs), dim=-1)

    def target_nats(self, outputs: Outputs, targets_TB: Tensor) -> Tensor:
        """Exact loss of every target (T, B), natural logarithm."""
        hidden_NH = outputs.dropped[-1].flatten(0, 1)
        return linear_nats(hidden_NH, self.weight_VH, self.bias_V, targets_TB.flatten()).view_as(targets_TB)

    def logits(self, outputs: Outputs) -> Tensor:
        """Unnormalised scores (T, B, V)."""
        return F.linear(outputs.dropped[-1], self.weight_VH, self.bias_V)
