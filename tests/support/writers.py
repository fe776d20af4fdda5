"""Models that write: small ones of any head whose next words are far from equally probable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from unittest import mock

import torch
from torch import Tensor

from lm.model import LanguageModel
from lm.spec import Dropout, Model, SoftmaxHead
from tests.lm.heads.examples import EXAMPLES, MODEL, Example, words

HEADS = [
    example
    for example in EXAMPLES
    if example.name
    in (
        "softmax-tied",
        "adaptive",
        "classes-mass",
        "huffman",
        "differentiated",
        "mixture-doc",
        "mixture-contexts",
        "ecoc-temperature",
        "ecoc-span",
        "sampled-softmax",
    )
]
"""One of each way from hidden units to a distribution."""


def vocabulary(count: int) -> tuple[str, ...]:
    return ("<eos>", "<unk>", *(f"w{i}" for i in range(2, count)))


def writer(example: Example, dtype: torch.dtype = torch.float64) -> LanguageModel:
    """Of the examples' 53 words."""
    model = MODEL.model_copy(update={"tied": example.tied, **example.model})
    return _sharp(LanguageModel(model, example.spec, Dropout(), words(codebook=example.codebook), _init()), dtype)


def small_writer(count: int, cell: str | dict[str, object] = "lstm") -> LanguageModel:
    """Of few words, with a softmax."""
    model = Model.model_validate({"cell": cell, "layers": 2, "embedding_size": 4, "hidden_size": 5, "tied": False})
    head = SoftmaxHead(kind="softmax")
    return _sharp(LanguageModel(model, head, Dropout(), words(count), _init()), torch.float64)


@torch.no_grad()
def teacher_forced(model: LanguageModel, context: Sequence[int], ids_NT: Tensor) -> Tensor:
    """Log-probability (N, T) of each word of each text after the context: one pass, by the head's target loss."""
    context_N = torch.tensor(context).expand(len(ids_NT), -1)
    text_TN = torch.cat((context_N, ids_NT), dim=1).t()
    outputs, _ = model(text_TN[:-1], model.initial_state(len(ids_NT)))
    nats_TN = model.head.scorer().target_nats(outputs, text_TN[1:])
    return -nats_TN[len(context) - 1 :].t()


def every_text(count: int, length: int) -> Tensor:
    """All texts of this length, (V^T, T)."""
    return torch.tensor(list(product(range(count), repeat=length)))


@contextmanager
def one_by_one() -> Iterator[None]:
    """Samples are drawn one at a time."""
    with mock.patch("lm.generate._ROWS", 1):
        yield


def _init() -> torch.Generator:
    return torch.Generator().manual_seed(4)


def _sharp(model: LanguageModel, dtype: torch.dtype) -> LanguageModel:
    model, noise = model.to(dtype), _init()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:  # biases stay: those of some heads hold how often words occur
                parameter.copy_(3.0 * torch.rand(parameter.shape, generator=noise) - 1.5)
    return model
