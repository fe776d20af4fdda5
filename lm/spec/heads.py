"""Output heads: a closed union, tagged by `kind`."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from lm.spec.codebooks import CodebookSpec, IdentityCode, RandomCode, SimHashCode
from lm.spec.losses import (
    AugmentedLoss,
    BallDropLoss,
    BceLoss,
    CodewordProbability,
    Count,
    NceLoss,
    NormalizedLoss,
    SampledSoftmaxLoss,
    SpanMaxLoss,
    SpanProbability,
    SpanSumLoss,
)
from lm.spec.part import NO_SWITCH, NonNegative, Part, Positive, PositiveInt, Probability, Seed, Share, Size


class SoftmaxHead(Part):
    """One softmax over the vocabulary, tied to the embedding where the model says so."""

    kind: Literal["softmax"]
    bias: bool = Field(default=True, strict=True, description="Whether every word has a learned bias, b.")
    init_range: Positive | None = Field(
        default=None,
        description="An output matrix of its own is drawn uniformly between minus and plus this; null: within "
        "model.init_range, or 0.1 without it.",
    )
    augmented: AugmentedLoss | None = Field(
        default=None, description="Soft targets from the embedding; null: cross-entropy alone."
    )


class MixtureHead(Part):
    """A mixture of softmaxes (Yang et al. 2018) whose experts may come from any layer (Takase et al. 2018, DOC)."""

    kind: Literal["mixture"]
    experts: tuple[Annotated[int, Field(ge=0, le=10_000, strict=True)], ...] = Field(
        min_length=2,
        description="Softmaxes from each layer, i_n, the embedding first: [0, 0, 5, 15] is five from the second of "
        "three layers and fifteen from the last.",
    )
    dropout: Probability = Field(default=0.0, description="Drop probability on the experts' vectors; 0: none.")
    mask: Literal["shared", "independent"] = Field(
        default="shared", description="Whether all experts have one dropout mask a window, or each its own."
    )
    mixture: Literal["softmaxes", "contexts"] = Field(
        default="softmaxes", description="What is mixed: the experts' softmaxes, or their vectors below one softmax."
    )
    gate: Literal["learned", "uniform"] = Field(
        default="learned", description="The experts' weights, pi: computed from the last layer, or all alike."
    )
    prior_penalty: NonNegative = Field(
        default=0.0, description="Coefficient of the penalty on an uneven gate, lambda_beta; 0: none."
    )
    prior_penalty_form: Literal["code", "paper"] = Field(
        default="code", description="How uneven the gate is, beta: as the authors' code or as the paper computes it."
    )

    @model_validator(mode="after")
    def _some_expert(self) -> Self:
        if not sum(self.experts):
            raise ValueError(f"experts {list(self.experts)} are none: at least one layer needs one")
        if self.gate == "uniform" and self.prior_penalty:
            raise ValueError(f"prior_penalty {self.prior_penalty:g} has nothing to act on: the gate is uniform")
        return self


class AdaptiveHead(Part):
    """Adaptive softmax (Grave et al. 2017): frequent words first, rare ones in clusters of ever smaller projections."""

    kind: Literal["adaptive"]
    cutoffs: tuple[Count, ...] = Field(
        default=(0.05, 0.15, 0.3),
        min_length=1,
        description="Where the frequent words and each cluster but the last end in the order of frequency, in words or "
        "shares of the vocabulary.",
    )
    divisor: Annotated[float, Field(ge=1.0, le=1_000_000.0), NO_SWITCH] = Field(
        default=4.0, description="Each cluster's projection is this many times smaller than the last one's."
    )


class TwoLevelTree(Part):
    """Classes of words, then words of a class (Goodman 2001)."""

    kind: Literal["two_level"]
    words_per_class: PositiveInt = Field(
        default=10, description="The vocabulary divided by this, rounded up, is the number of classes."
    )
    assign: Literal["random", "unigram", "mass"] = Field(
        default="unigram",
        description="Which words share a class: random ones, or neighbours in the order of frequency, as many to a "
        "class (unigram) or with about the same share of the training text (mass).",
    )
    seed: Seed = Field(default=0, description="Of the random assignment.")


class HuffmanTree(Part):
    """A binary tree by word frequency (Huffman 1952; Morin & Bengio 2005)."""

    kind: Literal["huffman"]


class HierarchicalHead(Part):
    """A softmax for each step along a tree from all words to one."""

    kind: Literal["hierarchical"]
    tree: Annotated[TwoLevelTree | HuffmanTree, Field(discriminator="kind")] = Field(
        description="How the words are split, step by step."
    )


class DifferentiatedHead(Part):
    """Differentiated softmax (Chen et al. 2016): frequent words see a large slice of the layer, rare ones a small."""

    kind: Literal["differentiated"]
    shares: tuple[Share, ...] = Field(
        default=(0.15, 0.35, 0.5),
        min_length=1,
        description="Shares of the vocabulary that the blocks hold, frequent words first; they sum to 1.",
    )
    sizes: tuple[Size, ...] = Field(
        min_length=1, description="Units of the last layer that each block sees; they sum to the layer's size."
    )

    @model_validator(mode="after")
    def _blocks(self) -> Self:
        if len(self.shares) != len(self.sizes):
            raise ValueError(f"{len(self.shares)} shares for {len(self.sizes)} sizes: a block has one of each")
        if abs(sum(self.shares) - 1.0) > 1e-9:
            raise ValueError(f"shares {list(self.shares)} sum to {sum(self.shares):g}, not 1")
        return self


class SampledHead(Part):
    """A softmax that is trained on a sample of the vocabulary, and evaluated whole; tied where the model says so."""

    kind: Literal["sampled"]
    loss: Annotated[SampledSoftmaxLoss | NceLoss, Field(discriminator="kind")] = Field(
        description="How the sample stands for the vocabulary."
    )


class EcocHead(Part):
    """Error-correcting output codes: a word is its codeword, each bit a logistic unit (O'Neill & Bollegala 2019)."""

    kind: Literal["ecoc"]
    codebook: CodebookSpec = Field(description="Which word has which bits.")
    loss: Annotated[
        BceLoss | SpanMaxLoss | SpanSumLoss | BallDropLoss | NormalizedLoss,
        Field(discriminator="kind"),
    ] = Field(default=BceLoss(kind="bce"), description="What the bits are trained on.")
    probability: Annotated[CodewordProbability | SpanProbability, Field(discriminator="kind")] | None = Field(
        default=None,
        description="How a word's probability follows from its bits; null: codewords, with temperature 1 if the loss "
        "is normalized, otherwise a fitted one.",
    )
    word_bias: Literal["none", "unigram", "learned"] = Field(
        default="none",
        description="Added to every word's score after the temperature: nothing, the logarithm of its share of the "
        "training text (each count raised by one), or a learned number (only with loss normalized).",
    )

    @property
    def temperature(self) -> Literal["fit"] | float:
        """What divides the codewords' scores, a number or `fit`."""
        if isinstance(self.probability, CodewordProbability):
            return self.probability.temperature
        return 1.0 if isinstance(self.loss, NormalizedLoss) else "fit"

    @model_validator(mode="after")
    def _spans(self) -> Self:
        by_span = isinstance(self.probability, SpanProbability)
        needs = f"loss {self.loss.kind}" if isinstance(self.loss, SpanMaxLoss | SpanSumLoss) else "probability span"
        if (by_span or needs != "probability span") and isinstance(
            self.codebook, IdentityCode | RandomCode | SimHashCode
        ):
            raise ValueError(f"{needs} needs a codebook with spans, {self.codebook.kind} has none")
        if by_span and isinstance(self.loss, NormalizedLoss):
            raise ValueError("loss normalized trains the codewords' probability, got probability span: take span_sum")
        if by_span and self.word_bias != "none":
            raise ValueError(f"probability span has no place for a bias: word_bias must be none, got {self.word_bias}")
        if self.word_bias == "learned" and not isinstance(self.loss, NormalizedLoss):
            raise ValueError(f"word_bias learned needs loss normalized, {self.loss.kind} gives it no gradient")
        return self


Head = Annotated[
    SoftmaxHead | MixtureHead | AdaptiveHead | HierarchicalHead | DifferentiatedHead | SampledHead | EcocHead,
    Field(discriminator="kind"),
]


def words_of(count: Count, vocabulary_size: int) -> int:
    """A count as a number of words, a share of the vocabulary rounded down."""
    return count if isinstance(count, int) else int(count * vocabulary_size + 1e-9)
