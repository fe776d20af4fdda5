"""One temperature for a head's scores, chosen on validation. N targets, H size of the last layer, V vocabulary."""

from __future__ import annotations

import math

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from lm.heads.cross_entropy import linear_nats

FIT_TARGETS = 4096
"""Validation targets to fit on: enough for one number. All 73,760 were better by at most 2e-5 nats."""

LOWEST, HIGHEST = 1e-3, 1e5


@torch.no_grad()
def fit_temperature(
    hidden_NH: Tensor, weight_VH: Tensor, bias_V: Tensor, word_bias_V: Tensor | None, targets_N: Tensor
) -> float:
    """The temperature t with the lowest mean loss of softmax((W h + b) / t + word bias), within 1e-3 and 1e5.

    The loss is convex in 1 / t, so that there is one lowest place (temperature scaling; Guo et al. 2017).
    """

    def mean_nats(log_temperature: float) -> float:
        shrink = math.exp(-log_temperature)
        total_V = bias_V * shrink if word_bias_V is None else bias_V * shrink + word_bias_V
        return float(linear_nats(hidden_NH * shrink, weight_VH, total_V, targets_N).mean(dtype=torch.float64))

    bounds = (math.log(LOWEST), math.log(HIGHEST))
    return math.exp(minimize_scalar(mean_nats, bounds=bounds, method="bounded", options={"xatol": 1e-3}).x)
