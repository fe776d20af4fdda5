"""Embedding and output matrix compared as spaces (Inan et al. 2016, section 4, appendix B). N rows, C columns."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from lm.analyzed import SubspaceFound
from lm.heads.softmax import Softmax
from lm.model import LanguageModel


def subspace(model: LanguageModel) -> SubspaceFound:
    """Distance, its level of independent random spaces, mean cosine of word vectors. ValueError but for a softmax."""
    (words, size), head = model.embedding_VE.shape, model.head
    if not isinstance(head, Softmax):
        raise ValueError(f"the distance of subspaces is that of one softmax's output matrix, got {type(head).__name__}")
    return SubspaceFound(
        kind="subspace",
        distance=subspace_distance(model.embedding_VE, head.weight_VH),
        random=math.sqrt(max(0.0, 1 - size / words)),
        mean_cosine=mean_cosine(model.embedding_VE),
    )


def subspace_measures(model: LanguageModel) -> dict[str, float]:
    """The distance and the mean cosine by name, for the curve of an epoch."""
    measured = subspace(model)
    return {"subspace_distance": measured.distance, "mean_cosine": measured.mean_cosine}


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


@torch.no_grad()
def mean_cosine(embedding_VE: Tensor) -> float:
    """Mean cosine of two different words' vectors: near 1, they have collapsed to one direction."""
    words = len(embedding_VE)
    unit_VE = F.normalize(embedding_VE.double(), dim=1)
    return float(unit_VE.sum(dim=0).square().sum() - words) / (words * (words - 1))
