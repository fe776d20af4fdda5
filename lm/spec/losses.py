"""What output heads are trained on: augmented targets, samples of the vocabulary, bits of codewords."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from lm.spec.part import NO_SWITCH, NonNegative, Part, Positive, Share

Count = Annotated[int, Field(ge=1, le=100_000_000, strict=True)] | Share
"""A number of words, or a share of the vocabulary."""


class _Augmented(Part):
    temperature: Positive = Field(
        default=20.0, description="Softens both the prediction and the target, tau; 1 leaves them as they are."
    )
    target_gradient: Literal["stop", "flow"] = Field(
        default="stop",
        description="Whether the gradient also flows through the soft target into the embedding. With `stop`, some "
        "models with a tied embedding ran away at a learning rate of 1 (sweeps/tying_target.yaml).",
    )
    bias: Literal["include", "exclude"] = Field(
        default="include", description="Whether the softened prediction has the output layer's bias."
    )


class AddedAugmentedLoss(_Augmented):
    """Cross-entropy plus weight x temperature x KL from the embedding's soft target (Inan et al. 2016, section 3)."""

    kind: Literal["added"]
    weight: NonNegative = Field(
        default=0.65, description="The gamma of alpha = gamma x tau; 0 leaves cross-entropy alone."
    )


class BlendedAugmentedLoss(_Augmented):
    """share x temperature^2 x V x KL + (1 - share) x cross-entropy: the theory experiment (Inan et al. 2016, 5.1)."""

    kind: Literal["blended"]
    share: Annotated[float, Field(ge=0.0, le=1.0), NO_SWITCH] = Field(
        description="Share of the augmented loss, beta; 0 is cross-entropy alone, 1 the soft target alone."
    )


AugmentedLoss = Annotated[AddedAugmentedLoss | BlendedAugmentedLoss, Field(discriminator="kind")]


class SampledSoftmaxLoss(Part):
    """Sampled softmax by importance sampling (Bengio & Senecal 2008): the partition function from `samples` words."""

    kind: Literal["softmax"]
    samples: Count = Field(
        default=0.1,
        description="Words drawn for a window: a number, or a share of the vocabulary (below 1), rounded down.",
    )
    proposal: Literal["uniform", "unigram", "log_uniform"] = Field(
        default="unigram",
        description="How words are drawn: all alike, by their counts in the training text, or by the logarithm of the "
        "rank, as Zipf's law has it.",
    )
    power: Annotated[float, Field(ge=0.0, le=1.0), NO_SWITCH] = Field(
        default=1.0, description="Exponent of the counts, of proposal unigram; 0 draws all words alike."
    )
    replacement: bool = Field(
        default=True, strict=True, description="Whether a word may be drawn twice; false only with proposal uniform."
    )
    correct_target: bool = Field(
        default=False,
        strict=True,
        description="Subtract the target's own log expected count too, and with replacement keep samples that are the "
        "target, where TensorFlow leaves them out; false leaves them out.",
    )

    @model_validator(mode="after")
    def _expected_counts(self) -> Self:
        if not self.replacement and self.proposal != "uniform":
            raise ValueError(
                f"without replacement only proposal uniform has known expected counts, got {self.proposal}"
            )
        return self


class NceLoss(Part):
    """Noise-contrastive estimation (Gutmann & Hyvarinen 2010; Mnih & Teh 2012) with unigram noise."""

    kind: Literal["nce"]
    samples: Count = Field(
        default=0.1,
        description="Noise words drawn for a window, k: a number, or a share of the vocabulary (the noise ratio), "
        "rounded down.",
    )
    log_partition: Literal["auto"] | Annotated[float, Field(ge=-1000.0, le=1000.0), NO_SWITCH] = Field(
        default="auto", description="The fixed ln Z in nats; auto is ln V, that of a uniform distribution."
    )


class _BitLoss(Part):
    scale: Literal["matched", "mean", "sum"] = Field(
        default="matched",
        description="How the bits' losses add up: their sum in nats, their mean, or matched: scaled so that a model "
        "that knows nothing starts at ln V, as a softmax does.",
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
    """Binary cross-entropy without the up to `radius` most wrong bits."""

    kind: Literal["ball_drop"]
    radius: Annotated[int, Field(ge=0, strict=True)] | None = Field(
        default=None,
        description="The most bits that are left out; 0: none. null: as many as the code can correct, at most a tenth "
        "of its bits.",
    )


class NormalizedLoss(Part):
    """Cross-entropy of the exact distribution over words: costs what a softmax costs."""

    kind: Literal["normalized"]


class CodewordProbability(Part):
    """A word's probability is that of its codeword among all: softmax of (C - 1/2) z / temperature.

    Bits trained one by one are far too sure when their product is taken as a distribution, so their scores are divided
    by a temperature.
    """

    kind: Literal["codewords"]
    temperature: Literal["fit"] | Annotated[float, Field(gt=0.0, allow_inf_nan=False), NO_SWITCH] = Field(
        default="fit",
        description="A number, or fit: chosen on the validation text, and kept in the record.",
    )


class SpanProbability(Part):
    """A word's probability is that of all class codes in its span, which sums to one over the words."""

    kind: Literal["span"]
