"""Output heads: what turns the layers' outputs into a distribution over the vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import torch
from torch import nn

from lm.heads.adaptive import Adaptive
from lm.heads.contract import OutputHead, Outputs, Scorer, TrainingLoss
from lm.heads.differentiated import Differentiated
from lm.heads.ecoc import Ecoc
from lm.heads.huffman import Huffman
from lm.heads.mixture import Mixture
from lm.heads.sampled import Sampled
from lm.heads.softmax import Softmax
from lm.heads.two_level import TwoLevel
from lm.heads.words import Words
from lm.spec import (
    AdaptiveHead,
    DifferentiatedHead,
    EcocHead,
    Head,
    HierarchicalHead,
    HuffmanTree,
    MixtureHead,
    SampledHead,
    SoftmaxHead,
)

__all__ = ["OutputHead", "Outputs", "Scorer", "TrainingLoss", "Words", "build_head"]


def build_head(
    spec: Head,
    *,
    sizes: Sequence[int],
    words: Words,
    embedding_VE: nn.Parameter,
    tied: bool,
    init: torch.Generator,
) -> OutputHead:
    """The head that the spec names; `sizes` are those of the embedding and of every layer, as in `Outputs`.

    A tied head's matrix is the embedding itself.
    """
    last, tied_weight = sizes[-1], embedding_VE if tied else None
    match spec:
        case SoftmaxHead():
            return Softmax(spec, last, len(words), tied_weight, init, embedding_VE=embedding_VE)
        case MixtureHead():
            return Mixture(spec, sizes, len(words), tied_weight, init)
        case AdaptiveHead():
            return Adaptive(spec, last, words, init)
        case HierarchicalHead(tree=tree):
            return Huffman(last, words, init) if isinstance(tree, HuffmanTree) else TwoLevel(tree, last, words, init)
        case DifferentiatedHead():
            return Differentiated(spec, last, words, init)
        case SampledHead():
            return Sampled(spec, last, words, tied_weight, init)
        case EcocHead():
            return Ecoc(spec, last, words, init)
        case _:
            assert_never(spec)
