"""Output heads: what turns the layers' outputs into a distribution over the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from lm.heads.outputs import Outputs
from lm.heads.softmax import Softmax
from lm.spec import Head

__all__ = ["Outputs", "Softmax", "build_head"]


def build_head(
    spec: Head,
    *,
    sizes: Sequence[int],
    vocabulary_size: int,
    tied_weight: nn.Parameter | None,
    init: torch.Generator,
) -> Softmax:
    """The head that the spec names, for layers of these sizes; `tied_weight` is the embedding where it is shared."""
    return Softmax(spec, sizes[-1], vocabulary_size, tied_weight, init)
