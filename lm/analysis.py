"""What trained weights say beyond perplexity. N rows, C columns."""

from __future__ import annotations

import math

import torch
from torch import Tensor


@torch.no_grad()
def subspace_distance(x_NC: Tensor, y_NC: Tensor) -> float:
    """How far apart two matrices' column spaces are: 0 where they are equal, 1 where orthogonal, symmetric.

    d = ||U - Q Q^T U||_F / sqrt(C) with U, Q orthonormal bases of the two (Inan et al. 2016, appendix B): the root
    mean square of the sines of the principal angles. Independent random spaces have about sqrt(1 - C / N). Both must
    have full column rank. In float64, without an N x N matrix. Raises ValueError where the shapes differ.
    """
    if x_NC.shape != y_NC.shape:
        raise ValueError(f"subspaces of one size are compared, got {tuple(x_NC.shape)} and {tuple(y_NC.shape)}")
    u_NC, _ = torch.linalg.qr(x_NC.double())
    q_NC, _ = torch.linalg.qr(y_NC.double())
    residual_NC = u_NC - q_NC @ (q_NC.T @ u_NC)
    return float(residual_NC.norm()) / math.sqrt(x_NC.shape[1])
