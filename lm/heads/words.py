"""What a head may know of the words it predicts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lm.codebooks import Codebook


@dataclass(frozen=True, eq=False)
class Words:
    """How often each of V words occurs in the training text, and its code where the head needs one."""

    counts_V: NDArray[np.int64]
    codebook: Codebook | None = None

    def __len__(self) -> int:
        return len(self.counts_V)

    @cached_property
    def by_frequency_V(self) -> NDArray[np.int64]:
        """Word ids, most frequent first; ties by id."""
        return np.argsort(-self.counts_V, kind="stable")

    @cached_property
    def rank_V(self) -> NDArray[np.int64]:
        """Each word's place in the order of frequency, 0 the most frequent."""
        rank_V = np.empty(len(self), dtype=np.int64)
        rank_V[self.by_frequency_V] = np.arange(len(self))
        return rank_V
