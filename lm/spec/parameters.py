"""Trainable numbers of a model and of its decoder alone, from the spec."""

from __future__ import annotations

from itertools import pairwise

from lm.spec.codebooks import code_bits
from lm.spec.fit import differentiated_ends
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
from lm.spec.training import Cell, Model, RecurrentHighway


def parameter_count(model: Model, head: Head, vocabulary_size: int) -> int:
    """Trainable numbers of the model, a tied matrix counted once; equal to the built model's by test."""
    sizes = pairwise((model.embedding_size, *model.hidden_sizes))
    recurrent = sum(_layer_parameters(model.cell, fan_in, size) for fan_in, size in sizes)
    return vocabulary_size * model.embedding_size + recurrent + decoder_parameters(model, head, vocabulary_size)


def _layer_parameters(cell: Cell, fan_in: int, size: int) -> int:
    if isinstance(cell, RecurrentHighway):
        return 2 * size * (fan_in + cell.depth * (size + 1))
    gates = {"lstm": 4, "gru": 3, "peephole_lstm": 4}[cell]
    return gates * size * (fan_in + size + 2) + 3 * size * (cell == "peephole_lstm")


def decoder_parameters(model: Model, head: Head, vocabulary_size: int) -> int:
    """Trainable numbers that the head adds: all of it, but for the embedding where that is shared."""
    words, size = vocabulary_size, model.hidden_sizes[-1]
    match head:
        case SoftmaxHead():
            return (0 if model.tied else words * size) + words * head.bias
        case SampledHead():
            return (0 if model.tied else words * size) + words
        case MixtureHead():
            width = model.embedding_size
            sizes = (model.embedding_size, *model.hidden_sizes)
            experts = sum(count * width * (fan_in + 1) for count, fan_in in zip(head.experts, sizes, strict=True))
            gate = size * sum(head.experts) if head.gate == "learned" else 0
            return (0 if model.tied else words * width) + words + experts + gate
        case AdaptiveHead():
            ends = [*(words_of(cutoff, words) for cutoff in head.cutoffs), words]
            total = size * (ends[0] + len(head.cutoffs))
            for cluster, (low, high) in enumerate(pairwise(ends), 1):
                projected = int(size / head.divisor**cluster)
                total += projected * (size + high - low)
            return total
        case HierarchicalHead(tree=tree):
            inner = words - 1 if isinstance(tree, HuffmanTree) else words + -(-words // tree.words_per_class)
            return (size + 1) * inner
        case DifferentiatedHead():
            ends = differentiated_ends(head, words)
            blocks = zip([0, *ends], ends, head.sizes, strict=False)
            return sum((high - low) * (slice_size + 1) for low, high, slice_size in blocks)
        case EcocHead():
            return (size + 1) * code_bits(head.codebook, words) + words * (head.word_bias == "learned")
