"""What a head costs, by formula: its own parameters, FLOPs a token, bytes. Torch-free.

FLOPs are those of matrix products, a multiply and an add each, as profilers count them; training is the forward pass
and twice as much backward, plus what is computed again. Bytes are the most that a training step holds at once beyond
its weights and what the layers hand it: large intermediate results, and gradients of weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lm.spec import (
    AdaptiveHead,
    DifferentiatedHead,
    EcocHead,
    Head,
    HierarchicalHead,
    MixtureHead,
    Model,
    NceLoss,
    Part,
    SampledHead,
    SoftmaxHead,
    code_bits,
    decoder_parameters,
    words_of,
)

Counts = NDArray[np.int64]


class HeadCost(Part):
    """A head's own parameters, FLOPs a token, and the most bytes a training step of it holds."""

    parameters: int
    training_flops_per_token: float
    evaluation_flops_per_token: float
    peak_bytes: float


def recurrent_flops(model: Model) -> float:
    """Training FLOPs a token of the layers below the head."""
    gates = {"lstm": 4, "gru": 3}[model.cell]
    sizes = (model.embedding_size, *model.hidden_sizes)
    return 3 * 2 * sum(gates * size * (fan_in + size) for fan_in, size in pairwise(sizes))
