"""Codebooks of the ECOC head: which word gets which bits (O'Neill & Bollegala 2019)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from lm.spec.part import Part, Positive, PositiveInt, Seed

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class PpmiSvdEmbeddings(Part):
    """Word vectors of the training text itself: truncated SVD of its positive pointwise mutual information."""

    kind: Literal["ppmi_svd"]
    window: PositiveInt = Field(default=5)
    size: PositiveInt = Field(default=300)


class CheckpointEmbeddings(Part):
    """The input embedding among a trained model's weights, `weights/<stage>.safetensors` of a model of this corpus.

    The hash, not the place, decides what is meant.
    """

    kind: Literal["checkpoint"]
    path: str = Field(min_length=1)
    sha256: Sha256


class FileEmbeddings(Part):
    """Word vectors from a text file, a word and its numbers a line; every word of the corpus must have one.

    The hash, not the place, decides what is meant.
    """

    kind: Literal["file"]
    path: str = Field(min_length=1)
    sha256: Sha256


Embeddings = Annotated[
    PpmiSvdEmbeddings | CheckpointEmbeddings | FileEmbeddings,
    Field(discriminator="kind"),
]


class IdentityCode(Part):
    """One bit a word, as many bits as words: ECOC becomes one-vs-rest."""

    kind: Literal["identity"]


class BinaryCode(Part):
    """The frequency rank as a binary number, in as few bits as can name every word."""

    kind: Literal["binary"]


class RandomCode(Part):
    """Fair coin flips, all codewords distinct."""

    kind: Literal["random"]
    bits: PositiveInt
    seed: Seed = Field(default=0)


class _RankCode(Part):
    bits: PositiveInt
    checks: Literal["square", "random"] = Field(default="square")
    lowest_frequency: Positive = Field(default=0.5, description="periods of the slowest square wave over all ranks")
    seed: Seed = Field(default=0)


class UnigramCode(_RankCode):
    """Gray code of the place in the order of frequency, then check bits; `weight` shares out the redundant codes."""

    kind: Literal["unigram"]
    weight: Literal["inverse_rank", "count", "uniform"] = Field(default="inverse_rank")


class EmbeddingCode(_RankCode):
    """Gray code of the place in the order of likeness to the most frequent word, then check bits."""

    kind: Literal["embedding"]
    weight: Literal["similarity", "inverse_rank"] = Field(default="similarity")
    embeddings: Embeddings = Field(default=PpmiSvdEmbeddings(kind="ppmi_svd"))


class SimHashCode(Part):
    """Signs of random projections of the centred word vectors: Hamming distance follows the angle between words."""

    kind: Literal["simhash"]
    bits: PositiveInt
    seed: Seed = Field(default=0)
    embeddings: Embeddings = Field(default=PpmiSvdEmbeddings(kind="ppmi_svd"))


class HybridCode(Part):
    """Gray class bits by frequency, then half SimHash, half random check bits: unique, semantic, well separated."""

    kind: Literal["hybrid"]
    bits: PositiveInt
    seed: Seed = Field(default=0)
    embeddings: Embeddings = Field(default=PpmiSvdEmbeddings(kind="ppmi_svd"))


CodebookSpec = Annotated[
    IdentityCode | BinaryCode | RandomCode | UnigramCode | EmbeddingCode | SimHashCode | HybridCode,
    Field(discriminator="kind"),
]


def code_bits(codebook: CodebookSpec, vocabulary_size: int) -> int:
    """The number of bits of a code of this many words."""
    match codebook:
        case IdentityCode():
            return vocabulary_size
        case BinaryCode():
            return class_bits(vocabulary_size)
        case _:
            return codebook.bits


def class_bits(vocabulary_size: int) -> int:
    """The fewest bits that give every word a code of its own: ceil(log2 V)."""
    return max(1, (vocabulary_size - 1).bit_length())
