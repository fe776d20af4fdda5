"""One temperature for a head's scores, chosen on validation. N targets, H size of the last layer, V vocabulary."""

from __future__ import annotations

import math

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor
from torch.nn import functional as F

from lm.heads.cross_entropy import CACHED_BYTES

FIT_TARGETS = 4096
"""Validation targets to fit on: enough for one number. All 73,760 were better by at most 2e-5 nats."""
MOST_SCORES_BYTES = 512 * 2**20
"""With a large vocabulary fewer targets are taken, so that all their scores fit."""

LOWEST, HIGHEST = 1e-3, 1e5


@torch.no_grad()
def fit_temperature(
    hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor, word_bias_V: Tensor | None, targets_N: Tensor
) -> float:
    """The temperature t with the lowest mean loss of softmax((W h + b) / t + word bias), within 1e-3 and 1e5.

    The loss is convex in 1 / t, so that there is one lowest place (temperature scaling; Guo et al. 2017).
    """
    count = max(1, MOST_SCORES_BYTES // (len(weight_VH) * weight_VH.itemsize))
    scores_NV = F.linear(hidden_NH[:count], weight_VH, bias_V)
    targets_N = targets_N[:count]
    rows = max(1, CACHED_BYTES // (len(weight_VH) * weight_VH.itemsize))
    parts = [(scores_NV[k : k + rows], targets_N[k : k + rows]) for k in range(0, len(targets_N), rows)]

    def mean_nats(log_temperature: float) -> float:
        shrink, total = math.exp(-log_temperature), 0.0
        for scores_RV, targets_R in parts:
            logits_RV = scores_RV * shrink
            if word_bias_V is not None:
                logits_RV += word_bias_V
            total += float(F.cross_entropy(logits_RV, targets_R, reduction="sum"))
        return total / len(targets_N)

    bounds = (math.log(LOWEST), math.log(HIGHEST))
    return math.exp(minimize_scalar(mean_nats, bounds=bounds, method="bounded", options={"xatol": 1e-3}).x)
