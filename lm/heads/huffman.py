"""A binary decision for each step down a Huffman tree of words.

T time, B batch, N = T x B, H size of the last layer, J inner nodes, D depth of the deepest word, V vocabulary. Inner
nodes are numbered from the root, level by level; edge 2 j + s leaves node j to the left (s = 0) or right (s = 1).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from lm.costs import HeadCost
from lm.heads.contract import OutputHead, Outputs
from lm.heads.words import Words


class Huffman(OutputHead):
    """p(w) = product of sigma(+-(n_j h + a_j)) over the nodes from the root to w, + where the path goes right.

    Frequent words have short paths (Huffman 1952); a word's decisions as in Morin & Bengio 2005.
    """

    edge_V: Tensor
    edge_J: Tensor
    path_VD: Tensor

    def __init__(self, size: int, words: Words, init: torch.Generator) -> None:
        super().__init__()
        edge_V, edge_J = huffman_edges(words.counts_V)
        path_VD = paths(edge_V, edge_J)
        buffers = {"edge_V": edge_V, "edge_J": edge_J, "path_VD": path_VD}
        for name, values in buffers.items():
            self.register_buffer(name, torch.from_numpy(values), persistent=False)
        self.levels = level_ends(edge_J)
        self.weight_JH = nn.Parameter(torch.empty(len(edge_J), size).uniform_(-0.1, 0.1, generator=init))
        self.bias_J = nn.Parameter(torch.zeros(len(edge_J)))

    def log_probabilities(self, outputs: Outputs) -> Tensor:
        """Exact log-probabilities (T, B, V), normalised over the vocabulary."""
        scores_TBJ = F.linear(outputs.dropped[-1], self.weight_JH, self.bias_J)
        steps = torch.stack((F.logsigmoid(-scores_TBJ), F.logsigmoid(scores_TBJ)), dim=-1).flatten(-2)
        reached_TBJ = torch.zeros_like(scores_TBJ)  # of the root, log 1
        for low, high in pairwise(self.levels):
            edge = self.edge_J[low:high]
            reached_TBJ[..., low:high] = reached_TBJ[..., edge // 2] + steps[..., edge]
        return reached_TBJ[..., self.edge_V // 2] + steps[..., self.edge_V]

    def target_nats(self, outputs: Outputs, targets_TB: Tensor) -> Tensor:
        """Exact loss of every target (T, B), natural logarithm; only the target's path is computed.

        Copies 4 N D H bytes of weights. D grows with the logarithm of the text, to base 1.6 at worst.
        """
        hidden_NH = outputs.dropped[-1].flatten(0, 1)
        path_ND = self.path_VD[targets_TB.flatten()]
        node_ND = path_ND.clamp(min=0) // 2
        scores_ND = torch.bmm(F.embedding(node_ND, self.weight_JH), hidden_NH[:, :, None])[..., 0]
        scores_ND = scores_ND + self.bias_J[node_ND]
        log_steps_ND = F.logsigmoid(torch.where(path_ND % 2 == 1, scores_ND, -scores_ND))
        return -log_steps_ND.masked_fill(path_ND < 0, 0.0).sum(dim=-1).view_as(targets_TB)

    def cost(self, tokens: int) -> HeadCost:
        """A product for each step of the longest path: shorter ones are padded."""
        size, depth = self.weight_JH.shape[1], self.path_VD.shape[1]
        parameters = sum(p.numel() for p in self.parameters())
        return HeadCost(
            parameters=parameters,
            training_flops_per_token=6 * size * depth,
            evaluation_flops_per_token=2 * size * depth,
            peak_bytes=4 * (2 * tokens * depth * size + parameters),
        )

    def scorer(self) -> Huffman:
        """The head itself."""
        return self


def huffman_edges(counts_V: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The edge that leads to each word (V,) and to each inner node (J,), -1 for the root.

    Unseen words count once. Of equal counts, words merge before inner nodes, lower ids first, older nodes first. In
    this order nodes come from the deepest level up, so that reversed they are numbered level by level.
    """
    count = len(counts_V)
    edge = np.full(2 * count - 1, -1)  # words, then inner nodes as they are made
    heap = [(max(int(seen), 1), word) for word, seen in enumerate(counts_V)]
    heapify(heap)
    for made in range(count, 2 * count - 1):
        (less, left), (more, right) = heappop(heap), heappop(heap)
        node = 2 * count - 2 - made
        edge[left], edge[right] = 2 * node, 2 * node + 1
        heappush(heap, (less + more, made))
    return edge[:count], edge[count:][::-1].copy()


def paths(edge_V: NDArray[np.int64], edge_J: NDArray[np.int64]) -> NDArray[np.int64]:
    """Edges (V, D) from each word up to the root, padded with -1."""
    columns, edge = [], edge_V
    while (edge >= 0).any():
        columns.append(edge)
        edge = np.where(edge < 0, -1, edge_J[edge // 2])
    return np.stack(columns, axis=1)


def level_ends(edge_J: NDArray[np.int64]) -> list[int]:
    """Where each level of inner nodes ends, the root's first."""
    ends = [1]
    while ends[-1] < len(edge_J):
        ends.append(int(np.searchsorted(edge_J // 2, ends[-1])))
    return ends
