"""Adaptive softmax: a head of frequent words, clusters of rare ones.

T time, B batch, N = T x B, H size of the last layer, P projected size, C entries of the head, W words of a cluster,
K clusters, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lm.costs import HeadCost
from lm.heads.contract import OutputHead, Outputs
from lm.heads.cross_entropy import linear_nats
from lm.heads.words import Words
from lm.spec import AdaptiveHead, words_of


class Adaptive(OutputHead):
    """p(w) = p_head(w), or p_head(cluster) p_cluster(w), where cluster i sees int(H / divisor^i) projected units.

    Grave et al. 2017, section 4; without biases, as in torch's AdaptiveLogSoftmaxWithLoss, to which it is equal
    by test. That module is not used: it draws its weights from the global generator, reads from the device once a
    cluster, and leaves clusters that a window does not touch without gradient, so that they escape weight decay.
    """

    rank_V: Tensor
    ends_K: Tensor

    def __init__(self, spec: AdaptiveHead, size: int, words: Words, init: torch.Generator) -> None:
        super().__init__()
        ends = [words_of(cutoff, len(words)) for cutoff in spec.cutoffs]
        self.bounds = list(pairwise([*ends, len(words)]))
        self.head_words = ends[0]
        falling_V = words.counts_V[words.by_frequency_V]
        self.shares = [float(falling_V[low:high].sum() / falling_V.sum()) for low, high in self.bounds]
        self.head_weight_CH = _uniform(ends[0] + len(ends), size, init)
        projected = [int(size / spec.divisor**cluster) for cluster in range(1, len(ends) + 1)]
        self.projections_PH = nn.ParameterList(_uniform(count, size, init) for count in projected)
        self.clusters_WP = nn.ParameterList(
            _uniform(high - low, count, init) for (low, high), count in zip(self.bounds, projected, strict=True)
        )
        self.register_buffer("rank_V", torch.from_numpy(words.rank_V), persistent=False)
        self.register_buffer("ends_K", torch.tensor(ends), persistent=False)

    def log_probabilities(self, outputs: Outputs) -> Tensor:
        """Exact log-probabilities (T, B, V), normalised over the vocabulary."""
        hidden_TBH = outputs.dropped[-1]
        head_TBC = F.linear(hidden_TBH, self.head_weight_CH).log_softmax(dim=-1)
        parts = [head_TBC[..., : self.head_words]]
        for entry, (projection_PH, cluster_WP) in enumerate(self._clusters(), self.head_words):
            scores_TBW = F.linear(F.linear(hidden_TBH, projection_PH), cluster_WP)
            parts.append(head_TBC[..., entry, None] + scores_TBW.log_softmax(dim=-1))
        return torch.cat(parts, dim=-1)[..., self.rank_V]

    def target_nats(self, outputs: Outputs, targets_TB: Tensor) -> Tensor:
        """Exact loss of every target (T, B), natural logarithm; a cluster is computed only for its own targets."""
        hidden_NH = outputs.dropped[-1].flatten(0, 1)
        rank_N = self.rank_V[targets_TB.flatten()]
        cluster_N = torch.bucketize(rank_N, self.ends_K, right=True)  # 0 is the head
        entry_N = torch.where(cluster_N == 0, rank_N, self.head_words - 1 + cluster_N)
        head_nats_N = linear_nats(hidden_NH, self.head_weight_CH, None, entry_N)
        order_N = cluster_N.argsort(stable=True)
        # Read from the device, once a window. Nothing need be read if every cluster is computed for every token, but
        # that takes a whole softmax's memory and was measured 4 to 5 times slower on a CPU.
        counts = torch.bincount(cluster_N, minlength=len(self.bounds) + 1).tolist()
        hidden, ranks = torch.split(hidden_NH[order_N], counts), torch.split(rank_N[order_N], counts)
        nats = [torch.zeros_like(hidden[0][:, 0])]
        for cluster, (projection_PH, cluster_WP) in enumerate(self._clusters(), 1):
            low, _ = self.bounds[cluster - 1]
            nats.append(linear_nats(F.linear(hidden[cluster], projection_PH), cluster_WP, None, ranks[cluster] - low))
        return (head_nats_N + torch.cat(nats)[order_N.argsort()]).view_as(targets_TB)

    def scorer(self) -> Adaptive:
        """The head itself."""
        return self

    def cost(self, tokens: int) -> HeadCost:
        """The head for every token, a cluster for the share of tokens that lie in it."""
        entries, size = self.head_weight_CH.shape
        flops, logits = float(entries * size), float(entries)
        for share, (projection_PH, cluster_WP) in zip(self.shares, self._clusters(), strict=True):
            flops += share * (projection_PH.numel() + cluster_WP.numel())
            logits += share * len(cluster_WP)
        parameters = sum(p.numel() for p in self.parameters())
        held = 3 if self.head_weight_CH.is_cuda else 1  # tensors of the logits' size
        return HeadCost(
            parameters=parameters,
            training_flops_per_token=6 * flops,
            evaluation_flops_per_token=2 * flops,
            peak_bytes=4 * (held * tokens * logits + parameters),
        )

    def _clusters(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(self.projections_PH, self.clusters_WP, strict=True)


def _uniform(rows: int, columns: int, init: torch.Generator) -> nn.Parameter:
    """As torch's module and the field have it: uniform within 1 / sqrt(fan-in)."""
    return nn.Parameter(torch.empty(rows, columns).uniform_(-(columns**-0.5), columns**-0.5, generator=init))
