"""The unigram model of a training text: what guessing by the words' frequencies is worth. V vocabulary."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def log_unigram(counts_V: NDArray[np.int64]) -> NDArray[np.float64]:
    """Every word's log-probability: its share of the training text, with one added to each count."""
    more_V = counts_V + 1.0
    result: NDArray[np.float64] = np.log(more_V / more_V.sum())
    return result
