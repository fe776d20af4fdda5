"""Neural cache pointer: recently seen words, weighted by how alike their contexts were (Grave et al. 2017).

N predictions of one column, H size of the last layer, Q queries of a block, S slots they may look at.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lm.data.batches import columns
from lm.evaluate import TokenNats, hidden_and_nats, in_text_order
from lm.model import LanguageModel
from lm.record import Split
from lm.spec import Cache

T = TypeVar("T")
_BLOCK = 512
"""Queries scored at once: bounds memory, changes no result."""


@dataclass(frozen=True)
class CacheValues:
    """One choice of the cache's three values."""

    window: int
    weight: float
    flatness: float


def active_positions(
    count: int, window: int, mode: Literal["reference", "full"], chunk: int, device: torch.device
) -> Tensor:
    """Which of `count` predictions use the cache, (N,) of bool.

    `full`: all but the first. `reference`: as in the AWD-LSTM authors' code, only once more than `window` pairs are
    stored; and since it cuts the history to `window` after each chunk, not the first prediction of a later chunk.
    """
    index_N = torch.arange(count, device=device)
    if mode == "full":
        return index_N > 0
    return (index_N > window) & (index_N % chunk != 0)


def cache_probability(hidden_NH: Tensor, targets_N: Tensor, window: int, flatness: float) -> Tensor:
    """Probability (N,) that the cache alone gives each target; 0 for the first, which has nothing to look at.

    p(w_t) = sum over the last `window` positions i of softmax_i(flatness * h_t . h_i) [target_i = target_t].
    """
    count = len(targets_N)
    found_N = torch.zeros(count, dtype=hidden_NH.dtype, device=hidden_NH.device)
    for start in range(1, count, _BLOCK):
        stop = min(start + _BLOCK, count)
        first = max(0, start - window)
        scores_QS = flatness * hidden_NH[start:stop] @ hidden_NH[first : stop - 1].T
        query_Q1 = torch.arange(start, stop, device=hidden_NH.device)[:, None]
        slot_S = torch.arange(first, stop - 1, device=hidden_NH.device)
        scores_QS.masked_fill_((slot_S >= query_Q1) | (slot_S < query_Q1 - window), -torch.inf)
        same_QS = targets_N[first : stop - 1] == targets_N[start:stop, None]
        found_N[start:stop] = (scores_QS.softmax(dim=1) * same_QS).sum(dim=1)
    return found_N


def cache_nats(
    hidden_NH: Tensor,
    targets_N: Tensor,
    plain_nats_N: Tensor,
    values: CacheValues,
    *,
    mode: Literal["reference", "full"],
    chunk: int,
) -> Tensor:
    """Loss (N,) of weight * p_cache + (1 - weight) * p_model where the cache is active, else the model's."""
    probability_N = cache_probability(hidden_NH, targets_N, values.window, values.flatness)
    active_N = active_positions(len(targets_N), values.window, mode, chunk, targets_N.device)
    return _mix(probability_N, plain_nats_N, active_N, values.weight)


@torch.inference_mode()
def choose_values(hidden_NH: Tensor, targets_N: Tensor, plain_nats_N: Tensor, spec: Cache) -> CacheValues:
    """The combination of the spec's values with the lowest mean loss; to be asked of the validation text only."""
    best: tuple[float, CacheValues] | None = None
    for window, flatness in itertools.product(_listed(spec.window), _listed(spec.flatness)):
        probability_N = cache_probability(hidden_NH, targets_N, window, flatness)
        active_N = active_positions(len(targets_N), window, spec.mode, spec.chunk, targets_N.device)
        for weight in _listed(spec.weight):
            nats = float(_mix(probability_N, plain_nats_N, active_N, weight).mean(dtype=torch.float64))
            if best is None or nats < best[0]:
                best = nats, CacheValues(window, weight, flatness)
    assert best is not None, "a spec lists at least one value of each"
    return best[1]


def score_with_cache(
    model: LanguageModel,
    texts: dict[Split, npt.NDArray[np.int32]],
    spec: Cache,
    window: int,
    device: torch.device,
    values: CacheValues | None = None,
) -> tuple[CacheValues, dict[Split, TokenNats], dict[Split, TokenNats]]:
    """The values, chosen on validation where none are given, then each split's losses without and with the cache.

    In one column; `window` cuts the pass to bound memory. The cache reads the history it is scored on, so these numbers
    stand beside the plain ones of the same pass, never beside another model's.
    """
    assert values is not None or "valid" in texts, "values are chosen on validation"
    plain: dict[Split, TokenNats] = {}
    mixed: dict[Split, TokenNats] = {}
    for split in sorted(texts, reverse=True):  # validation first
        text_R1 = columns(texts[split], 1, device)
        targets_N = text_R1[1:, 0]
        hidden_NH, nats_N = hidden_and_nats(model, text_R1, window)
        values = values or choose_values(hidden_NH, targets_N, nats_N, spec)
        mixed_N = cache_nats(hidden_NH, targets_N, nats_N, values, mode=spec.mode, chunk=spec.chunk)
        plain[split] = in_text_order(nats_N[:, None], text_R1)
        mixed[split] = in_text_order(mixed_N[:, None], text_R1)
    assert values is not None, "there is a text"
    return values, plain, mixed


def _mix(probability_N: Tensor, plain_nats_N: Tensor, active_N: Tensor, weight: float) -> Tensor:
    # In logarithms: a model's probability below the smallest float would else make the loss infinite.
    mixed_N = -torch.logaddexp((weight * probability_N).log(), math.log1p(-weight) - plain_nats_N)
    return torch.where(active_N, mixed_N, plain_nats_N)


def _listed(value: T | tuple[T, ...]) -> tuple[T, ...]:
    return value if isinstance(value, tuple) else (value,)
