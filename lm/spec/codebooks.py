"""Codebooks of the ECOC head: which word gets which bits (O'Neill & Bollegala 2019)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from lm.spec.part import Part, Positive, PositiveInt, Seed, Size

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Bits = Annotated[
    PositiveInt, Field(description="Bits of a codeword, c in the paper; at least ceil(log2 V) for V words.")
]


class PpmiSvdEmbeddings(Part):
    """Word vectors of the training text itself: truncated SVD of its positive pointwise mutual information."""

    kind: Literal["ppmi_svd"]
    window: PositiveInt = Field(default=5, description="Words on either side that count as neighbours.")
    size: Size = Field(default=300, description="Dimensions of the vectors: the singular values that are kept.")


class CheckpointEmbeddings(Part):
    """The input embedding among a trained model's weights, `weights/<stage>.safetensors` of a model of this corpus.

    The hash, not the place, decides what is meant.
    """

    kind: Literal["checkpoint"]
    path: str = Field(min_length=1, description="Where the weights lie; no part of a trial's key.")
    sha256: Sha256 = Field(description="SHA-256 of the file, 64 hexadecimal digits; another file is refused.")


class FileEmbeddings(Part):
    """Word vectors from a text file, a word and its numbers a line; every word of the corpus must have one.

    The hash, not the place, decides what is meant.
    """

    kind: Literal["file"]
    path: str = Field(min_length=1, description="Where the vectors lie; no part of a trial's key.")
    sha256: Sha256 = Field(description="SHA-256 of the file, 64 hexadecimal digits; another file is refused.")


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
    bits: Bits
    seed: Seed = Field(default=0, description="Of the coin flips.")


class _RankCode(Part):
    bits: Bits
    checks: Literal["square", "random"] = Field(
        default="square",
        description="The bits after the class bits: square waves over the order, so that words near in it have near "
        "codewords, or coin flips.",
    )
    lowest_frequency: Positive = Field(
        default=0.5, description="Periods of the slowest square wave over the whole order; of checks square."
    )
    seed: Seed = Field(default=0, description="Of the waves' phases, or of the coin flips.")


class UnigramCode(_RankCode):
    """Gray code of the place in the order of frequency, then check bits; `weight` shares out the redundant codes."""

    kind: Literal["unigram"]
    weight: Literal["inverse_rank", "count", "uniform"] = Field(
        default="inverse_rank",
        description="Which words get the redundant class codes: in proportion to 1 / rank, to their counts in the "
        "training text, or all alike.",
    )


class EmbeddingCode(_RankCode):
    """Gray code of the place in the order of likeness to the most frequent word, then check bits."""

    kind: Literal["embedding"]
    weight: Literal["similarity", "inverse_rank"] = Field(
        default="similarity",
        description="Which words get the redundant class codes: in proportion to their likeness to the most frequent "
        "word, or to 1 / place in the order.",
    )
    embeddings: Embeddings = Field(
        default=PpmiSvdEmbeddings(kind="ppmi_svd"), description="The word vectors that say which words are alike."
    )


class SimHashCode(Part):
    """Signs of random projections of the centred word vectors: Hamming distance follows the angle between words."""

    kind: Literal["simhash"]
    bits: Bits
    seed: Seed = Field(default=0, description="Of the random projections.")
    embeddings: Embeddings = Field(
        default=PpmiSvdEmbeddings(kind="ppmi_svd"), description="The word vectors that say which words are alike."
    )


class HybridCode(Part):
    """Gray class bits by frequency, then half SimHash, half random check bits: unique, semantic, well separated."""

    kind: Literal["hybrid"]
    bits: Bits
    seed: Seed = Field(default=0, description="Of the random projections and the coin flips.")
    embeddings: Embeddings = Field(
        default=PpmiSvdEmbeddings(kind="ppmi_svd"), description="The word vectors that say which words are alike."
    )


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


def highest_frequency(class_bits: int) -> float:
    """Periods of the fastest square wave over a whole order: half a period a position."""
    return 2.0 ** (class_bits - 1)
