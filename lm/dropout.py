"""The dropout forms of AWD-LSTM, each drawn from a generator of its own so that a trial can be repeated.

T time, B batch, F features, V vocabulary. All probabilities are of dropping; kept values are scaled by 1 / (1 - p).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def keep_mask(shape: tuple[int, ...], probability: float, like: Tensor, noise: torch.Generator) -> Tensor:
    """Independent entries, 0 with `probability`, else 1 / (1 - probability)."""
    # Comparing uniforms costs a quarter of bernoulli_ on a CPU, which shows in a step of a small model.
    uniform = torch.empty(shape, dtype=like.dtype, device=like.device).uniform_(generator=noise)
    return uniform.ge_(probability).div_(1.0 - probability)


def locked_dropout(input_TBF: Tensor, probability: float, noise: torch.Generator | None) -> Tensor:
    """Drop units for a whole window, each column its own (variational dropout; Merity et al. 2017, section 4.2).

    Without `noise`, as at evaluation, the input itself.
    """
    if noise is None or probability == 0.0:
        return input_TBF
    _, batch, features = input_TBF.shape
    return input_TBF * keep_mask((1, batch, features), probability, input_TBF, noise)


def embed(tokens_TB: Tensor, embedding_VF: Tensor, probability: float, noise: torch.Generator | None) -> Tensor:
    """Look tokens up, whole words dropped for the window (Merity et al. 2017, section 4.3); (T, B, F).

    The mask is drawn for all V words but gathered for those that occur: the same result and gradient as masking the
    matrix, without a pass over it.
    """
    embedded_TBF = F.embedding(tokens_TB, embedding_VF)
    if noise is None or probability == 0.0:
        return embedded_TBF
    mask_V1 = keep_mask((embedding_VF.shape[0], 1), probability, embedding_VF, noise)
    return embedded_TBF * F.embedding(tokens_TB, mask_V1)


def drop_words(embedding_VF: Tensor, probability: float, noise: torch.Generator | None) -> Tensor:
    """The matrix with whole words dropped, by the mask that `embed` would draw."""
    if noise is None or probability == 0.0:
        return embedding_VF
    return embedding_VF * keep_mask((embedding_VF.shape[0], 1), probability, embedding_VF, noise)


def drop_weights(weight: Tensor, probability: float, noise: torch.Generator | None) -> Tensor:
    """DropConnect: one mask for the window, on every entry (Merity et al. 2017, section 2)."""
    if noise is None or probability == 0.0:
        return weight
    return weight * keep_mask(tuple(weight.shape), probability, weight, noise)
