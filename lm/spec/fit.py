"""Whether a head fits the layers below it and the vocabulary above: what no part can know alone."""

from __future__ import annotations

import math
from collections.abc import Iterator

from lm.spec.codebooks import EmbeddingCode, UnigramCode, class_bits, code_bits, highest_frequency
from lm.spec.heads import (
    AdaptiveHead,
    DifferentiatedHead,
    EcocHead,
    Head,
    HierarchicalHead,
    HuffmanTree,
    MixtureHead,
    SampledHead,
    SoftmaxHead,
    words_of,
)
from lm.spec.losses import BallDropLoss, NceLoss
from lm.spec.training import Model

_LARGEST_LOG = 700.0
"""Of a power of a divisor; the largest that a float holds is a little above."""


def misfits(head: Head, model: Model) -> Iterator[str]:
    """What is wrong between a head and its model, whatever the vocabulary."""
    last = model.hidden_sizes[-1]
    match head:
        case SoftmaxHead() | SampledHead():
            if model.init_range is not None and isinstance(head, SampledHead) and isinstance(head.loss, NceLoss):
                yield "model.init_range would undo what NCE's bias starts from, the logarithm of the noise"
            if isinstance(head, SoftmaxHead) and head.init_range is not None:
                if model.tied:
                    yield "head.init_range is of an output matrix of its own: model.tied must be false"
                elif model.init_range is not None:
                    yield "model.init_range would undo head.init_range: set one of them"
            if model.tied and last != model.embedding_size:
                yield (
                    f"a tied model's last layer must have the embedding's size: "
                    f"{last} is not embedding_size = {model.embedding_size}"
                )
        case MixtureHead():
            if len(head.experts) != model.layers + 1:
                yield (
                    f"head.experts lists {len(head.experts)} counts; the embedding and "
                    f"{model.layers} layers need {model.layers + 1}"
                )
        case AdaptiveHead() | HierarchicalHead() | DifferentiatedHead() | EcocHead():
            if model.tied:
                yield f"a head of kind {head.kind} has no matrix to tie: model.tied must be false"
    match head:
        case AdaptiveHead():
            clusters = len(head.cutoffs)
            if clusters * math.log(head.divisor) > _LARGEST_LOG or int(last / head.divisor**clusters) < 1:
                yield (
                    f"head.divisor {head.divisor:g} leaves nothing of the last layer's {last} units "
                    f"for cluster {clusters}"
                )
        case DifferentiatedHead():
            if sum(head.sizes) != last:
                yield f"head.sizes sum to {sum(head.sizes)}, the last layer has {last} units"
        case _:
            pass


def subspace_misfit(head: Head, model: Model) -> str | None:
    """Why a model has no distance between its embedding and its output matrix, which needs both as (V, E)."""
    if not isinstance(head, SoftmaxHead):
        return f"the distance of subspaces is that of one softmax's output matrix, got a head of kind {head.kind}"
    if model.tied:
        return "a tied model has one matrix for both: its distance of subspaces is 0"
    if model.hidden_sizes[-1] != model.embedding_size:
        sizes = f"last layer {model.hidden_sizes[-1]}, embedding_size {model.embedding_size}"
        return f"subspaces of one size are compared, got {sizes}"
    return None


def vocabulary_misfits(head: Head, vocabulary_size: int) -> Iterator[str]:
    """What is wrong between a head and a vocabulary of this many words."""
    match head:
        case AdaptiveHead():
            ends = [words_of(cutoff, vocabulary_size) for cutoff in head.cutoffs]
            if any(low >= high for low, high in zip([0, *ends], [*ends, vocabulary_size], strict=True)):
                yield f"head.cutoffs must rise strictly between 0 and the {vocabulary_size:,} words, got {ends}"
        case HierarchicalHead(tree=tree):
            if isinstance(tree, HuffmanTree) and vocabulary_size < 2:
                yield "head.tree: a Huffman tree needs two words"
            if not isinstance(tree, HuffmanTree) and tree.words_per_class > vocabulary_size:
                yield f"head.tree.words_per_class {tree.words_per_class:,} is more than the {vocabulary_size:,} words"
        case DifferentiatedHead():
            ends = differentiated_ends(head, vocabulary_size)
            if any(low >= high for low, high in zip([0, *ends], ends, strict=False)):
                yield f"head.shares leave a block without words: blocks end at {ends} of {vocabulary_size:,} words"
        case SampledHead(loss=loss):
            samples = words_of(loss.samples, vocabulary_size)
            if samples < 1:
                yield f"head.loss.samples {loss.samples} of {vocabulary_size:,} words are none"
            if samples > vocabulary_size and not isinstance(loss, NceLoss):
                yield f"head.loss.samples {samples:,} is more than the {vocabulary_size:,} words"
        case EcocHead(codebook=codebook):
            least, bits = class_bits(vocabulary_size), code_bits(codebook, vocabulary_size)
            if bits < least:
                yield f"head.codebook.bits {bits} cannot name {vocabulary_size:,} words: at least {least} are needed"
            if isinstance(codebook, UnigramCode | EmbeddingCode) and codebook.checks == "square":
                lowest, highest = codebook.lowest_frequency, highest_frequency(least)
                if lowest > highest:
                    rule = f"above {highest:g}, the highest that 2^{least} positions show"
                    yield f"head.codebook.lowest_frequency {lowest:g} is {rule}"
            if isinstance(head.loss, BallDropLoss) and (head.loss.radius or 0) >= bits:
                yield f"head.loss.radius {head.loss.radius} leaves none of {bits} bits to train on"
        case SoftmaxHead() | MixtureHead():
            pass


def differentiated_ends(head: DifferentiatedHead, vocabulary_size: int) -> list[int]:
    """Where each block of the frequency order ends, the last one at its end."""
    ends, total = [], 0.0
    for share in head.shares[:-1]:
        total += share
        ends.append(int(total * vocabulary_size + 1e-9))
    return [*ends, vocabulary_size]
