"""Losses as functions of tensors: penalties, means of squares as in the authors' code, and the soft target's.

T time, B batch, H layer size, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def activation(dropped_TBH: Tensor) -> Tensor:
    """Mean square of the dropped output, a scalar >= 0 (AR; Merity et al. 2017, section 4.6)."""
    return dropped_TBH.square().mean()


def temporal_activation(raw_TBH: Tensor) -> Tensor:
    """Mean squared change of the raw output between neighbouring steps, a scalar >= 0 (TAR; Merity et al. 2017, 4.6).

    Looks only inside the window, which must have at least two steps.
    """
    return (raw_TBH[1:] - raw_TBH[:-1]).square().mean()


def soft_target(scores_TBV: Tensor, likeness_TBV: Tensor, temperature: float, dtype: torch.dtype) -> Tensor:
    """KL divergence (T, B) of softmax(scores / temperature) from the target softmax(likeness / temperature), in nats.

    J^aug of Inan et al. 2016, section 3, where `likeness` holds the inner products of the target's embedding with all.
    At high temperature it is a small difference of nearly equal numbers: in float32 its error is about 1e-6 however
    small it is, so `dtype` should be float64 where it is scaled up.
    """
    target_TBV = F.log_softmax(likeness_TBV / temperature, dim=-1, dtype=dtype)
    predicted_TBV = F.log_softmax(scores_TBV / temperature, dim=-1, dtype=dtype)
    return (target_TBV.exp() * (target_TBV - predicted_TBV)).sum(dim=-1)
