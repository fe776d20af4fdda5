"""A text read by a model in one column, window by window. R rows, T time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from lm.data.batches import columns
from lm.evaluate import windows
from lm.heads import Outputs
from lm.kept_model import KeptModel

WINDOW = 256
"""Steps of a window: with 10,000 words their log-probabilities take 20 MB in float64."""


@torch.inference_mode()
def read(kept: KeptModel, split: Literal["valid", "test"], most: int | None = None) -> Iterator[tuple[Outputs, Tensor]]:
    """The outputs before each prediction, and its target (T, 1), state carried; of the first `most` predictions."""
    text_R1 = columns(kept.corpus.valid if split == "valid" else kept.corpus.test, 1, kept.device)
    text_R1 = text_R1 if most is None else text_R1[: most + 1]
    for _, outputs, targets_T1 in windows(kept.model, text_R1, WINDOW):
        yield outputs, targets_T1
