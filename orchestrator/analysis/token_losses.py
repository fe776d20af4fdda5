"""Where a trial's test loss lies: along the text, and by how often the training text has the predicted word."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lm.by_token.losses import read_columns
from orchestrator.analysis.noise import BLOCKS, Array

_EDGES = (1, 10, 100, 1_000, 10_000)
CLASSES = ("never", "1–9", "10–99", "100–999", "1,000–9,999", "10,000+")
"""How often the training text has a word: a decade a class."""


@dataclass(frozen=True)
class TokenLosses:
    """Mean losses, nats per token: of consecutive blocks of the test text, and of the words of each class.

    A class without tokens has nan; `shares` are the classes' shares of the tokens.
    """

    blocks: Array
    classes: Array
    shares: Array


class TokenLossReader:
    """Reads losses by token; which words a text has is read once, for all trials scored on it."""

    def __init__(self) -> None:
        self._classes: dict[str, NDArray[np.int64]] = {}

    def read(self, path: Path, text: str) -> TokenLosses | None:
        """A trial's losses on the named text; None where the file is gone, is older than its word counts,
        or has fewer tokens than a text is cut into blocks.

        ValueError names a file that cannot be read.
        """
        try:
            losses = read_columns(path, ["nats"])["nats"].astype(np.float64)
            if text not in self._classes:
                counts = read_columns(path, ["training_count"])["training_count"]
                self._classes[text] = np.searchsorted(_EDGES, counts, side="right")
        except (FileNotFoundError, KeyError):
            return None
        if losses.size < BLOCKS:
            return None
        if losses.size != self._classes[text].size:
            raise ValueError(f"{path}: {losses.size} losses of a text of {self._classes[text].size} tokens")
        edges = np.linspace(0, losses.size, BLOCKS + 1).astype(np.int64)
        sizes = np.bincount(self._classes[text], minlength=len(CLASSES))
        totals = np.bincount(self._classes[text], weights=losses, minlength=len(CLASSES))
        means = np.divide(totals, sizes, out=np.full(len(CLASSES), np.nan), where=sizes > 0)
        return TokenLosses(np.add.reduceat(losses, edges[:-1]) / np.diff(edges), means, sizes / losses.size)
