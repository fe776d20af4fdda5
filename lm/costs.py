"""What a head costs, by formula. Torch-free: a record keeps it.

FLOPs are those of matrix products, a multiply and an add each, as profilers count them; a training step makes the
forward pass and twice as much backward, and whatever is computed again. Bytes are of float32, the most that a step
holds at once beyond the weights and what the layers hand over: large intermediate results, and the weights' gradients.
"""

from __future__ import annotations

from itertools import pairwise

from lm.spec import Model, Part


class HeadCost(Part):
    """A head's own parameters (a shared embedding not counted), FLOPs a token, and the bytes of a training step."""

    parameters: int
    training_flops_per_token: float
    evaluation_flops_per_token: float
    peak_bytes: float


def recurrent_flops(model: Model) -> float:
    """Training FLOPs a token of the layers below the head."""
    gates = {"lstm": 4, "gru": 3}[model.cell]
    sizes = (model.embedding_size, *model.hidden_sizes)
    return 3 * 2 * sum(gates * size * (fan_in + size) for fan_in, size in pairwise(sizes))
