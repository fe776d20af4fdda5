"""How training inputs are mixed with the model's own predictions, against exposure bias."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from lm.spec.codebooks import IdentityCode, RandomCode, SimHashCode
from lm.spec.heads import EcocHead, Head, HierarchicalHead, HuffmanTree
from lm.spec.part import NO_SWITCH, Part, Positive, PositiveInt

UpToOne = Annotated[float, Field(gt=0.0, le=1.0), NO_SWITCH]
Gradient = Annotated[
    Literal["flow", "stop"],
    Field(description="Whether gradients flow through the prediction that is fed back; it takes twice the memory."),
]
Sharpness = Annotated[
    Positive, Field(description="What the scores are multiplied by before their softmax, alpha; large: the best alone.")
]


class SigmoidSchedule(Part):
    """From 0 along a logistic curve to sigmoid(tau_max), 0.924 for 2.5 (after O'Neill & Bollegala 2019, equation 2)."""

    kind: Literal["sigmoid"]
    tau_max: Positive = Field(default=2.5, description="The logit of the last epoch's probability.")
    slope: Positive = Field(default=1.0, description="How steep the middle is, delta.")


class LinearSchedule(Part):
    """From 0 to 1 in equal steps."""

    kind: Literal["linear"]


class ExponentialSchedule(Part):
    """From 0 to 1, fast at first: 1 - (1 - x) exp(-x) after a share x of the epochs (after Bengio et al. 2015)."""

    kind: Literal["exponential"]


class InverseSigmoidSchedule(Part):
    """From 0 to 1 along an inverse sigmoid decay of the teacher's part (Bengio et al. 2015)."""

    kind: Literal["inverse_sigmoid"]
    offset: Annotated[float, Field(ge=1.0, le=1e6), NO_SWITCH] = Field(
        default=50.0, description="How late the curve rises; its speed is fixed."
    )


class ConstantSchedule(Part):
    """The same from the first epoch to the last."""

    kind: Literal["constant"]
    probability: UpToOne = Field(description="Of feeding the model's own prediction.")


Schedule = Annotated[
    SigmoidSchedule | LinearSchedule | ExponentialSchedule | InverseSigmoidSchedule | ConstantSchedule,
    Field(discriminator="kind"),
]


class _Feedback(Part):
    schedule: Schedule = Field(
        default=SigmoidSchedule(kind="sigmoid"),
        description="The probability of feeding the model's own prediction, p, by epoch; later stages have the last.",
    )
    most: UpToOne = Field(default=1.0, description="The highest probability, whatever the schedule says.")
    passes: PositiveInt | Literal["sequential"] = Field(
        default=1,
        description="How often a window is predicted before it is trained on. The first pass reads the text alone, so "
        "that its predictions do not see what is fed back before them; each further pass mends one more position. "
        "sequential: one step at a time, exact and slow.",
    )


class ScheduledSampling(_Feedback):
    """Each input word is, with probability p, the model's own word in place of the text's (Bengio et al. 2015)."""

    kind: Literal["scheduled_sampling"]
    pick: Literal["argmax", "sample"] = Field(
        default="argmax", description="The most probable word, or one drawn from the model's distribution."
    )


class SoftScheduledSampling(_Feedback):
    """As scheduled sampling, with the mean vector of the most probable words (O'Neill & Bollegala 2019, equation 3)."""

    kind: Literal["soft_scheduled_sampling"]
    sharpness: Sharpness = 1.0
    top_words: PositiveInt = Field(default=30, description="How many of the most probable words are in the mean.")
    gradient: Gradient = "flow"


class _OfCodes(_Feedback):
    decoder: Literal["owner", "hamming"] | None = Field(
        default=None,
        description="How bits become a word: owner, by the class bits alone; hamming, by the nearest codeword, which "
        "corrects errors. null: owner if the codebook has spans.",
    )


class Clms(_OfCodes):
    """Curriculum latent mixture sampling (O'Neill & Bollegala 2019): bits of the word's code are the model's own.

    Of a two-level hierarchical head: the class, and the word within the class.
    """

    kind: Literal["clms"]
    bit_offset: Annotated[float, Field(ge=0.0, le=1.0), NO_SWITCH] = Field(
        default=0.0,
        description="How much later than the last class bit the first is mixed, as a share of the epochs, omega.",
    )


class Lsms(_OfCodes):
    """Latent soft-mixture sampling (O'Neill & Bollegala 2019): the mean vector of the predicted code's neighbours."""

    kind: Literal["lsms"]
    flips: PositiveInt = Field(
        default=8, description="Neighbours at p = 1, each with one of the least certain bits flipped."
    )
    sharpness: Sharpness = 1.0
    gradient: Gradient = "flow"


class Dlms(_Feedback):
    """Differentiable latent mixture sampling (after O'Neill & Bollegala 2019, equations 4 and 5): relaxed samples.

    Of a code's bits (Binary Concrete), of the classes and words of a two-level hierarchical head, or of words (Gumbel).
    """

    kind: Literal["dlms"]
    first_temperature: Positive = Field(default=0.1, description="Of the first epoch's samples, tau.")
    last_temperature: Positive = Field(default=2.5, description="Of the last epoch's; between, a logistic curve.")
    top_words: PositiveInt = Field(
        default=30,
        description="How many of the likeliest words are in the mean, beside the text's own; of a tree all of them.",
    )
    by_bits: bool = Field(
        default=True,
        strict=True,
        description="Whether a code's scores are also divided by sqrt(bits / class bits), so that tau means the same "
        "for codes of any length.",
    )
    straight_through: bool = Field(
        default=False,
        strict=True,
        description="Whether the likeliest word alone is fed, with the gradient of the mean; of a tree the likeliest "
        "class, if it is not the text's by the mean of its words.",
    )
    gradient: Gradient = "flow"


Feedback = Annotated[
    ScheduledSampling | SoftScheduledSampling | Clms | Lsms | Dlms,
    Field(discriminator="kind"),
]


def feedback_misfits(feedback: Feedback, head: Head) -> Iterator[str]:
    """What is wrong between the mixing of inputs and the head whose predictions are mixed in."""
    two_level = isinstance(head, HierarchicalHead) and not isinstance(head.tree, HuffmanTree)
    match feedback:
        case Clms() if not (two_level or isinstance(head, EcocHead)):
            yield "feedback clms mixes the bits of codes or the classes of a two-level tree: head.kind must be " + (
                f"ecoc or hierarchical with such a tree, got {head.kind}"
            )
        case Lsms() if not isinstance(head, EcocHead):
            yield f"feedback lsms mixes the bits of codes: head.kind must be ecoc, got {head.kind}"
        case _:
            pass
    if isinstance(feedback, Clms) and two_level and (feedback.decoder or feedback.bit_offset):
        yield "feedback.decoder and feedback.bit_offset are of codes, a tree has none: leave them out"
    if isinstance(feedback, Clms) and feedback.bit_offset and isinstance(feedback.schedule, ConstantSchedule):
        yield "feedback.bit_offset shifts a schedule that rises, got a constant one"
    if isinstance(feedback, Dlms) and not feedback.by_bits and not isinstance(head, EcocHead):
        yield f"feedback.by_bits is of codes, got a head of kind {head.kind}: leave it out"
    if isinstance(feedback, Clms | Lsms) and isinstance(head, EcocHead):
        spanless = isinstance(head.codebook, IdentityCode | RandomCode | SimHashCode)
        if spanless and feedback.decoder == "owner":
            yield f"feedback.decoder owner needs a codebook with spans, {head.codebook.kind} has none: take hamming"
        if spanless and isinstance(feedback, Clms) and feedback.bit_offset:
            yield f"feedback.bit_offset is of class bits, a codebook of kind {head.codebook.kind} has none"
