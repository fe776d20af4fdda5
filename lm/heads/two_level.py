"""A softmax over classes of words, and one over the words of a class.

T time, B batch, N = T x B, H size of the last layer, C classes, M words of the largest class, V vocabulary. Leaves are
stored class by class, without padding: a word's row is its place there.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from lm.costs import HeadCost
from lm.heads.contract import OutputHead, Outputs
from lm.heads.words import Words
from lm.spec import TwoLevelTree

GATHERED_NUMBERS_ON_GPU = 2**28
"""The most weights that a GPU copies for one window: 1 GiB in float32."""


class TwoLevel(OutputHead):
    """p(w) = p(class of w) p(w | class of w), a softmax each (Goodman 2001)."""

    row_V: Tensor
    class_V: Tensor
    start_C: Tensor
    size_C: Tensor
    share_V: Tensor

    def __init__(self, spec: TwoLevelTree, size: int, words: Words, init: torch.Generator) -> None:
        super().__init__()
        order_V, size_C = assign(spec, words)
        self.sizes = size_C.tolist()
        mass_C = np.add.reduceat(words.counts_V[order_V], np.cumsum(size_C) - size_C)
        self.mean_size = float((mass_C * size_C).sum() / mass_C.sum())
        row_V = np.argsort(order_V)
        class_V = np.repeat(np.arange(len(size_C)), size_C)[row_V]
        counts_V = np.maximum(words.counts_V, 1)
        buffers = {
            "row_V": row_V,
            "class_V": class_V,
            "share_V": (counts_V / np.bincount(class_V, counts_V)[class_V]).astype(np.float32),  # within its class
            "start_C": np.cumsum(size_C) - size_C,
            "size_C": size_C,
        }
        for name, values in buffers.items():
            self.register_buffer(name, torch.from_numpy(values), persistent=False)
        self.class_weight_CH = nn.Parameter(torch.empty(len(size_C), size).uniform_(-0.1, 0.1, generator=init))
        self.class_bias_C = nn.Parameter(torch.zeros(len(size_C)))
        self.leaf_weight_VH = nn.Parameter(torch.empty(len(words), size).uniform_(-0.1, 0.1, generator=init))
        self.leaf_bias_V = nn.Parameter(torch.zeros(len(words)))

    def log_probabilities(self, outputs: Outputs) -> Tensor:
        """Exact log-probabilities (T, B, V), normalised over the vocabulary."""
        class_TBC, leaf_TBV = self.log_parts(outputs)
        return class_TBC[..., self.class_V] + leaf_TBV

    def log_parts(self, outputs: Outputs) -> tuple[Tensor, Tensor]:
        """The log-probability of each class (T, B, C), and of each word within its class (T, B, V)."""
        hidden_TBH = outputs.dropped[-1]
        class_TBC = F.linear(hidden_TBH, self.class_weight_CH, self.class_bias_C).log_softmax(dim=-1)
        leaf_TBV = F.linear(hidden_TBH, self.leaf_weight_VH, self.leaf_bias_V)
        leaf_TBV = torch.cat([part.log_softmax(dim=-1) for part in torch.split(leaf_TBV, self.sizes, dim=-1)], dim=-1)
        return class_TBC, leaf_TBV[..., self.row_V]

    def target_nats(self, outputs: Outputs, targets_TB: Tensor) -> Tensor:
        """Exact loss of every target (T, B), natural logarithm; only the target's class is computed.

        Leaf weights are copied, target by target, where those are no more rows than there are, else used in place,
        class by class; either way gives the same numbers.
        """
        hidden_NH = outputs.dropped[-1].flatten(0, 1)
        targets_N = targets_TB.flatten()
        class_N = self.class_V[targets_N]
        position_N = self.row_V[targets_N] - self.start_C[class_N]
        class_scores_NC = F.linear(hidden_NH, self.class_weight_CH, self.class_bias_C)
        class_nats_N = F.cross_entropy(class_scores_NC, class_N, reduction="none")
        # Milliseconds, forward and backward, of copies / in place / a whole softmax on one CPU core, V = 10,000:
        # 11 / 17 / 190 (10 words a class, N = 700, H = 400), 280 / 24 / 310 (100 words a class, the same N and H),
        # 7 / 3 / 24 (100 words, N = 350, H = 64). Not measured on a GPU: in place it waits to read the sizes and starts
        # many small products, while it has bandwidth for copies, so that there only memory is a limit.
        leaf_nats = self._gathered_nats if self._gathers(len(class_N)) else self._in_place_nats
        return (class_nats_N + leaf_nats(hidden_NH, class_N, position_N)).view_as(targets_TB)

    def scorer(self) -> TwoLevel:
        """The head itself."""
        return self

    def cost(self, tokens: int) -> HeadCost:
        """A softmax over classes and one over a class, padded to the largest where the weights are gathered."""
        (classes, size), largest = self.class_weight_CH.shape, max(self.sizes)
        gathered = self._gathers(tokens)
        leaves = largest if gathered else self.mean_size
        parameters = sum(p.numel() for p in self.parameters())
        return HeadCost(
            parameters=parameters,
            training_flops_per_token=6 * size * (classes + leaves),
            evaluation_flops_per_token=2 * size * (classes + leaves),
            peak_bytes=4 * (3 * tokens * classes + (2 * tokens * largest * size if gathered else 0) + parameters),
        )

    def _gathers(self, tokens: int) -> bool:
        """Whether the weights of this many targets are copied, rather than used in place."""
        words, size = self.leaf_weight_VH.shape
        rows = GATHERED_NUMBERS_ON_GPU // size if self.leaf_weight_VH.is_cuda else words
        return bool(tokens * max(self.sizes) <= rows)

    def _gathered_nats(self, hidden_NH: Tensor, class_N: Tensor, position_N: Tensor) -> Tensor:
        """Loss of each target within its class: the rows of its class copied, short classes padded."""
        member_M = torch.arange(max(self.sizes), device=class_N.device)
        row_NM = (self.start_C[class_N, None] + member_M).clamp(max=len(self.leaf_weight_VH) - 1)
        scores_NM = torch.bmm(F.embedding(row_NM, self.leaf_weight_VH), hidden_NH[:, :, None])[..., 0]
        scores_NM = scores_NM + self.leaf_bias_V[row_NM]
        scores_NM = scores_NM.masked_fill(member_M >= self.size_C[class_N, None], -math.inf)
        return F.cross_entropy(scores_NM, position_N, reduction="none")

    def _in_place_nats(self, hidden_NH: Tensor, class_N: Tensor, position_N: Tensor) -> Tensor:
        """Loss of each target within its class: targets sorted by class, one product a class that occurs."""
        order_N = class_N.argsort(stable=True)
        counts = torch.bincount(class_N, minlength=len(self.sizes)).tolist()
        groups = zip(
            torch.split(hidden_NH[order_N], counts),
            torch.split(position_N[order_N], counts),
            torch.split(self.leaf_weight_VH, self.sizes),
            torch.split(self.leaf_bias_V, self.sizes),
            strict=True,
        )
        nats = [
            F.cross_entropy(F.linear(hidden, weight, bias), position, reduction="none")
            for hidden, position, weight, bias in groups
            if len(position)
        ]
        return torch.cat(nats)[order_N.argsort()]


def assign(spec: TwoLevelTree, words: Words) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Word ids (V,) class by class, and the number of words (C,) in each, C = V / `words_per_class`, rounded up."""
    count, each = -(-len(words) // spec.words_per_class), spec.words_per_class
    order_V = words.by_frequency_V
    if spec.assign == "random":
        order_V = np.random.default_rng(spec.seed).permutation(len(words))
    if spec.assign == "mass":
        return order_V, equal_mass(words.counts_V[order_V], count)
    return order_V, np.diff(np.minimum(np.arange(count + 1) * each, len(words)))


def equal_mass(falling_V: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Sizes of `count` consecutive blocks of words, each with about its share of what the ones before it left over.

    A word more frequent than that share is a block of its own; no block is empty. Unseen words count once.
    """
    before = np.concatenate(([0], np.cumsum(np.maximum(falling_V, 1))))
    ends = [0]
    for blocks_left in range(count, 0, -1):
        start = ends[-1]
        goal = before[start] + (before[-1] - before[start]) / blocks_left
        end = int(np.searchsorted(before, goal))
        nearest = end - 1 if goal - before[end - 1] < before[end] - goal else end
        ends.append(min(max(nearest, start + 1), len(falling_V) - blocks_left + 1))
    return np.diff(np.array(ends))
