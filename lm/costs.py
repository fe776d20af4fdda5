"""What a head costs, by formula. Torch-free: a record keeps it.

FLOPs are those of matrix products, a multiply and an add each, as profilers count them; a training step makes the
forward pass and twice as much backward, and whatever is computed again. Bytes are of float32, the most that a step
holds at once beyond the weights and what the layers hand over: large intermediate results, and the weights' gradients.
"""

from __future__ import annotations

from lm.spec import Part


class HeadCost(Part):
    """A head's own parameters (a shared embedding not counted), FLOPs a token, and the bytes of a training step."""

    parameters: int
    training_flops_per_token: float
    evaluation_flops_per_token: float
    peak_bytes: float
