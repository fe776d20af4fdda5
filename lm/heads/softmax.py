"""One softmax over the vocabulary. T time, B batch, E embedding, H size of the last layer, V vocabulary."""

from __future__ import annotations

from typing import assert_never

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lm.costs import HeadCost
from lm.heads.augmented import augmented_nats
from lm.heads.blocks import MOST_NATS
from lm.heads.contract import OutputHead, Outputs, TrainingLoss
from lm.heads.cross_entropy import linear_nats_cost
from lm.heads.linear_scorer import LinearScorer
from lm.losses import soft_target
from lm.spec import AddedAugmentedLoss, AugmentedLoss, BlendedAugmentedLoss, SoftmaxHead

DIFFERENT_TARGETS = 0.57
"""The share of a window's targets that are no repeats: 0.58 in 400 words of the Penn Treebank, 0.51 in 700."""


class Softmax(OutputHead):
    """logits = D h + b, where D is the embedding itself if tied (Inan et al. 2016; Press & Wolf 2017).

    An augmented loss acts on training alone, and compares words by the undropped embedding, tied or not.
    """

    def __init__(
        self,
        spec: SoftmaxHead,
        size: int,
        vocabulary_size: int,
        tied_weight: nn.Parameter | None,
        init: torch.Generator,
        *,
        embedding_VE: nn.Parameter,
    ) -> None:
        super().__init__()
        self.tied = tied_weight is not None
        if tied_weight is None:
            bound = spec.init_range or 0.1
            tied_weight = nn.Parameter(torch.empty(vocabulary_size, size).uniform_(-bound, bound, generator=init))
        self.weight_VH = tied_weight
        self.bias_V = nn.Parameter(torch.zeros(vocabulary_size)) if spec.bias else None
        self.augmented = spec.augmented
        if spec.augmented is not None:
            self.embedding_VE = embedding_VE
            self.term_names = ("augmented",)

    def training_loss(self, outputs: Outputs, targets_TB: Tensor, noise: torch.Generator | None) -> TrainingLoss:
        """The exact loss; where it is augmented, what the spec makes of it and of the KL from the soft target.

        Kind `added`: the exact loss, and the term weight x temperature x KL. Kind `blended`: `nats_TB` is what is
        trained of the exact loss, (1 - share) of it, and the term share x temperature^2 x V x KL.
        """
        if self.augmented is None:
            return super().training_loss(outputs, targets_TB, noise)
        nats_TB, divergence_TB = self._both_losses(self.augmented, outputs, targets_TB)
        match self.augmented:
            case AddedAugmentedLoss(weight=weight, temperature=temperature):
                return TrainingLoss(nats_TB, {"augmented": weight * temperature * divergence_TB})
            case BlendedAugmentedLoss(share=share, temperature=temperature):
                scale = share * temperature**2 * len(self.embedding_VE)
                return TrainingLoss((1.0 - share) * nats_TB, {"augmented": scale * divergence_TB})
            case _:
                assert_never(self.augmented)

    def _both_losses(self, spec: AugmentedLoss, outputs: Outputs, targets_TB: Tensor) -> tuple[Tensor, Tensor]:
        """The exact loss and the KL (T, B) from one product of logits, in float32 at least, or as `precision` says."""
        hidden_TBH = outputs.dropped[-1]
        wide = torch.promote_types(hidden_TBH.dtype, torch.float32)
        embedding_VE = self.embedding_VE.detach() if spec.target_gradient == "stop" else self.embedding_VE
        if self._in_blocks(spec, hidden_TBH):
            given = (hidden_TBH.flatten(0, 1), self.weight_VH, self.bias_V, embedding_VE)
            nats_N, divergence_N = augmented_nats(*given, targets_TB.flatten(), spec.temperature)
            if (nats_N < MOST_NATS).all() and divergence_N.isfinite().all():
                return nats_N.view_as(targets_TB), divergence_N.view_as(targets_TB)
        # A blended KL is scaled by temperature^2 x V, millions: the rounding of float32 would come out as whole nats.
        precise = torch.float64 if spec.kind == "blended" else wide
        with torch.autocast(self.weight_VH.device.type, enabled=False):
            embedding_VE = embedding_VE.to(wide)
            likeness_TBV = F.linear(F.embedding(targets_TB, embedding_VE), embedding_VE)
            scores_TBV = F.linear(hidden_TBH.to(wide), self.weight_VH.to(wide))
            logits_TBV = scores_TBV if self.bias_V is None else scores_TBV + self.bias_V.to(wide)
            softened_TBV = logits_TBV if spec.bias == "include" else scores_TBV
            nats_N = F.cross_entropy(logits_TBV.flatten(0, 1), targets_TB.flatten(), reduction="none")
            return nats_N.view_as(targets_TB), soft_target(softened_TBV, likeness_TBV, spec.temperature, precise)

    def _in_blocks(self, spec: AugmentedLoss, like: Tensor) -> bool:
        """Whether the loss is one that a CPU computes block by block."""
        includes = self.bias_V is None or spec.bias == "include"
        precise = like.dtype in (torch.float32, torch.float64)
        return spec.kind == "added" and includes and precise and not like.is_cuda

    def cost(self, tokens: int) -> HeadCost:
        """One product with the whole vocabulary, and one of embeddings where the loss is augmented."""
        (words, size), biases = self.weight_VH.shape, 0 if self.bias_V is None else len(self.bias_V)
        trained, logits_bytes = linear_nats_cost(tokens, size, words, on_gpu=self.weight_VH.is_cuda)
        if self.augmented is not None:
            # As if all targets differed, unless a gradient flows into them in blocks. In blocks three numbers are kept
            # where a plain loss keeps one; else, as counted, as many tensors of the logits' size, half of the blended
            # ones in float64.
            blocks, flows = self._in_blocks(self.augmented, self.weight_VH), self.augmented.target_gradient == "flow"
            width = self.embedding_VE.shape[1] * (3 if flows else 1)
            if blocks and flows:
                width = round(DIFFERENT_TARGETS * (4 * self.embedding_VE.shape[1] + size))
            trained = 2 * tokens * words * (3 * size + width)
            logits_bytes = 4 * tokens * words * (3 if blocks else 9 if self.augmented.kind == "added" else 14)
        return HeadCost(
            parameters=biases + (0 if self.tied else words * size),
            training_flops_per_token=trained / tokens,
            evaluation_flops_per_token=2 * size * words,
            peak_bytes=logits_bytes + 4 * (words * size + biases),
        )

    def scorer(self) -> LinearScorer:
        """The softmax of all scores."""
        return LinearScorer(self.weight_VH, self.bias_V)
