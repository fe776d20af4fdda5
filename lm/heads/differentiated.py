"""Differentiated softmax: rare words see less. T time, B batch, H size of the last layer, V vocabulary.

W words of a block, S its slice of the last layer.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lm.costs import HeadCost
from lm.heads.contract import OutputHead, Outputs
from lm.heads.words import Words
from lm.spec import DifferentiatedHead, differentiated_ends


class Differentiated(OutputHead):
    """logits = D_i h_i + b_i for block i of the frequency order and slice i of h, one softmax (Chen et al. 2016)."""

    rank_V: Tensor

    def __init__(self, spec: DifferentiatedHead, size: int, words: Words, init: torch.Generator) -> None:
        super().__init__()
        self.sizes = list(spec.sizes)
        blocks = pairwise([0, *differentiated_ends(spec, len(words))])
        self.blocks_WS = nn.ParameterList(
            torch.empty(high - low, part).uniform_(-0.1, 0.1, generator=init)
            for (low, high), part in zip(blocks, self.sizes, strict=True)
        )
        self.bias_V = nn.Parameter(torch.zeros(len(words)))
        self.register_buffer("rank_V", torch.from_numpy(words.rank_V), persistent=False)

    def log_probabilities(self, outputs: Outputs) -> Tensor:
        """Exact log-probabilities (T, B, V), normalised over the vocabulary."""
        return self._logits_by_rank(outputs).log_softmax(dim=-1)[..., self.rank_V]

    def target_nats(self, outputs: Outputs, targets_TB: Tensor) -> Tensor:
        """Exact loss of every target (T, B), natural logarithm."""
        logits_NV = self._logits_by_rank(outputs).flatten(0, 1)
        return F.cross_entropy(logits_NV, self.rank_V[targets_TB.flatten()], reduction="none").view_as(targets_TB)

    def cost(self, tokens: int) -> HeadCost:
        """Each word costs its slice of the layer."""
        flops, words = sum(block.numel() for block in self.blocks_WS), len(self.bias_V)
        return HeadCost(
            parameters=flops + words,
            training_flops_per_token=6 * flops,
            evaluation_flops_per_token=2 * flops,
            peak_bytes=4 * (3 * tokens * words + flops + words),
        )

    def scorer(self) -> Differentiated:
        """The head itself."""
        return self

    def _logits_by_rank(self, outputs: Outputs) -> Tensor:
        """Unnormalised scores (T, B, V), the most frequent word first."""
        slices = torch.split(outputs.dropped[-1], self.sizes, dim=-1)
        blocks = zip(slices, self.blocks_WS, strict=True)
        return torch.cat([F.linear(slice_TBS, block_WS) for slice_TBS, block_WS in blocks], dim=-1) + self.bias_V
