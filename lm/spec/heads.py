"""Output heads: a closed union, tagged by `kind`."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from lm.spec.codebooks import CodebookSpec, IdentityCode, RandomCode, SimHashCode
from lm.spec.part import NonNegative, Part, Positive, PositiveInt, Probability, Seed, Share

Count = PositiveInt | Share
"""A number of words, or a share of the vocabulary."""


class _Augmented(Part):
    temperature: Positive = Field(default=20.0)
    target_gradient: Literal["stop", "flow"] = Field(default="stop")
    bias: Literal["include", "exclude"] = Field(default="include")


class AddedAugmentedLoss(_Augmented):
    """Cross-entropy plus weight x temperature x KL from the soft target of the embedding (Inan et al. 2016, section 3).

    `weight` is the gamma of alpha = gamma x temperature.
    """

    kind: Literal["added"]
    weight: NonNegative = Field(default=0.65)


class BlendedAugmentedLoss(_Augmented):
    """share x temperature^2 x V x KL + (1 - share) x cross-entropy: the theory experiment (Inan et al. 2016, 5.1)."""

    kind: Literal["blended"]
    share: Annotated[float, Field(ge=0.0, le=1.0)]


AugmentedLoss = Annotated[AddedAugmentedLoss | BlendedAugmentedLoss, Field(discriminator="kind")]


class SoftmaxHead(Part):
    """One softmax over the vocabulary, tied to the embedding where the model says so."""

    kind: Literal["softmax"]
    bias: bool = Field(default=True)
    augmented: AugmentedLoss | None = Field(default=None)


class MixtureHead(Part):
    """A mixture of softmaxes (Yang et al. 2018) whose experts may come from any layer (Takase et al. 2018, DOC).

    `experts` counts them layer by layer, the embedding first: [0, 0, 5, 15] is five from the second of three layers
    and fifteen from the last. `prior_penalty` is lambda_beta, `prior_penalty_form` whether beta is that of the
    paper or of the authors' code. `mixture: contexts` mixes the experts' vectors instead of their softmaxes.
    """

    kind: Literal["mixture"]
    experts: tuple[Annotated[int, Field(ge=0, strict=True)], ...] = Field(min_length=2)
    dropout: Probability = Field(default=0.0)
    mask: Literal["shared", "independent"] = Field(default="shared")
    mixture: Literal["softmaxes", "contexts"] = Field(default="softmaxes")
    gate: Literal["learned", "uniform"] = Field(default="learned")
    prior_penalty: NonNegative = Field(default=0.0)
    prior_penalty_form: Literal["code", "paper"] = Field(default="code")

    @model_validator(mode="after")
    def _some_expert(self) -> Self:
        if not sum(self.experts):
            raise ValueError(f"experts {list(self.experts)} are none: at least one layer needs one")
        if self.gate == "uniform" and self.prior_penalty:
            raise ValueError(f"prior_penalty {self.prior_penalty:g} has nothing to act on: the gate is uniform")
        return self


class AdaptiveHead(Part):
    """Adaptive softmax (Grave et al. 2017): frequent words first, rare ones in clusters of ever smaller projections.

    `cutoffs` end the head and all clusters but the last, in words or shares of the vocabulary.
    """

    kind: Literal["adaptive"]
    cutoffs: tuple[Count, ...] = Field(default=(0.05, 0.15, 0.3), min_length=1)
    divisor: Annotated[float, Field(ge=1.0, allow_inf_nan=False)] = Field(default=4.0)


class TwoLevelTree(Part):
    """Classes of words, then words of a class (Goodman 2001).

    `words_per_class` fixes the number of classes; `mass` gives each about the same share of the training text.
    """

    kind: Literal["two_level"]
    words_per_class: PositiveInt = Field(default=10)
    assign: Literal["random", "unigram", "mass"] = Field(default="unigram")
    seed: Seed = Field(default=0, description="of the random assignment")


class HuffmanTree(Part):
    """A binary tree by word frequency (Huffman 1952; Morin & Bengio 2005)."""

    kind: Literal["huffman"]


class HierarchicalHead(Part):
    """A softmax for each step along a tree from all words to one."""

    kind: Literal["hierarchical"]
    tree: Annotated[TwoLevelTree | HuffmanTree, Field(discriminator="kind")]


class DifferentiatedHead(Part):
    """Differentiated softmax (Chen et al. 2016): frequent words see a large slice of the layer, rare ones a small one.

    `shares` divide the vocabulary by frequency, `sizes` the last layer.
    """

    kind: Literal["differentiated"]
    shares: tuple[Share, ...] = Field(default=(0.15, 0.35, 0.5), min_length=1)
    sizes: tuple[PositiveInt, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _blocks(self) -> Self:
        if len(self.shares) != len(self.sizes):
            raise ValueError(f"{len(self.shares)} shares for {len(self.sizes)} sizes: a block has one of each")
        if abs(sum(self.shares) - 1.0) > 1e-9:
            raise ValueError(f"shares {list(self.shares)} sum to {sum(self.shares):g}, not 1")
        return self


class SampledSoftmaxLoss(Part):
    """Sampled softmax by importance sampling (Bengio & Senecal 2008): the partition function from `samples` words.

    `correct_target` subtracts the target's own log expected count as well, and with replacement keeps samples that are
    the target, which are else left out.
    """

    kind: Literal["softmax"]
    samples: Count = Field(default=0.1)
    proposal: Literal["uniform", "unigram", "log_uniform"] = Field(default="unigram")
    power: Annotated[float, Field(ge=0.0, le=1.0)] = Field(default=1.0, description="of the counts, where unigram")
    replacement: bool = Field(default=True)
    correct_target: bool = Field(default=False)

    @model_validator(mode="after")
    def _expected_counts(self) -> Self:
        if not self.replacement and self.proposal != "uniform":
            raise ValueError(
                f"without replacement only proposal uniform has known expected counts, got {self.proposal}"
            )
        return self


class NceLoss(Part):
    """Noise-contrastive estimation (Gutmann & Hyvarinen 2010; Mnih & Teh 2012) with unigram noise.

    `samples` is the number of noise words a window, or a share of the vocabulary (the noise ratio);
    `log_partition` the fixed log Z, ln V where `auto`.
    """

    kind: Literal["nce"]
    samples: Count = Field(default=0.1)
    log_partition: Literal["auto"] | Annotated[float, Field(allow_inf_nan=False)] = Field(default="auto")


class SampledHead(Part):
    """A softmax that is trained on a sample of the vocabulary, and evaluated whole; tied where the model says so."""

    kind: Literal["sampled"]
    loss: Annotated[SampledSoftmaxLoss | NceLoss, Field(discriminator="kind")]


class _BitLoss(Part):
    scale: Literal["matched", "mean", "sum"] = Field(
        default="matched", description="sum over bits in nats; mean over them; or ln V at the start, as a softmax"
    )


class BceLoss(_BitLoss):
    """Binary cross-entropy with the word's codeword."""

    kind: Literal["bce"]


class SpanMaxLoss(_BitLoss):
    """Binary cross-entropy with the code that is now most probable among those of the word's span."""

    kind: Literal["span_max"]


class SpanSumLoss(_BitLoss):
    """The probability of the word's whole span in place of its class bits."""

    kind: Literal["span_sum"]


class BallDropLoss(_BitLoss):
    """Binary cross-entropy without the up to `radius` most wrong bits.

    The radius is what the code can correct, at most a tenth of its bits, if not given: none where it corrects nothing.
    """

    kind: Literal["ball_drop"]
    radius: Annotated[int, Field(ge=0, strict=True)] | None = Field(default=None)


class NormalizedLoss(Part):
    """Cross-entropy of the exact distribution over words: costs what a softmax costs."""

    kind: Literal["normalized"]


class CodewordProbability(Part):
    """A word's probability is that of its codeword among all: softmax of (C - 1/2) z / temperature.

    Bits trained one by one are far too sure when their product is taken as a distribution, so one temperature is
    fitted on the validation text with `fit`; it is kept in the record. A number is taken as it is.
    """

    kind: Literal["codewords"]
    temperature: Literal["fit"] | Positive = Field(default="fit")


class SpanProbability(Part):
    """A word's probability is that of all class codes in its span, which sums to one over the words."""

    kind: Literal["span"]


class EcocHead(Part):
    """Error-correcting output codes: a word is its codeword, each bit a logistic unit (O'Neill & Bollegala 2019).

    `probability` and `word_bias` say how words are scored. The bias is added to every word's score, after the
    temperature: the logarithm of its share of the training text (add one), or learned, which only loss `normalized`
    can do.
    """

    kind: Literal["ecoc"]
    codebook: CodebookSpec
    loss: Annotated[
        BceLoss | SpanMaxLoss | SpanSumLoss | BallDropLoss | NormalizedLoss,
        Field(discriminator="kind"),
    ] = Field(default=BceLoss(kind="bce"))
    probability: Annotated[CodewordProbability | SpanProbability, Field(discriminator="kind")] | None = Field(
        default=None, description="null: codewords, with temperature 1 if the loss is normalized, else a fitted one"
    )
    word_bias: Literal["none", "unigram", "learned"] = Field(default="none")

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
    """A count as a number of words."""
    return count if isinstance(count, int) else int(count * vocabulary_size + 1e-9)
