"""Parts of a training spec: text, layers, regularisation, windows, later stages, scoring."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from lm.spec.optimizers import NonmonotoneInterval, Optimizer, Trigger
from lm.spec.part import NO_SWITCH, Length, NonNegative, Part, Positive, PositiveInt, Probability, Size

Precision = Literal["float32", "bfloat16"]
CapExtra = Annotated[int, Field(ge=0, le=1_000_000, strict=True)] | None


class Corpus(Part):
    """Which text, and how much of its training part.

    Validation and test stay whole, and the vocabulary stays that of the whole training text, so that perplexities keep
    their meaning. With a cap on the vocabulary they have another: the text is another one, by its fingerprint too.
    """

    name: str = Field(
        min_length=1,
        description="One of ptb, wikitext-2, wikitext-103, seinfeld, pydoc, or a folder with train.txt, valid.txt and "
        "test.txt.",
    )
    train_tokens: Annotated[int, Field(ge=1, strict=True)] | None = Field(
        default=None, description="Tokens of the training text to train on, `<eos>` included; null: all of them."
    )
    train_start: Annotated[int, Field(ge=0, strict=True)] = Field(
        default=0, description="The first training token that is used, counted from 0."
    )
    vocabulary_cap: Annotated[int, Field(ge=3, le=100_000_000, strict=True)] | None = Field(
        default=None,
        description="The most words, `<eos>` and `<unk>` among them: those most frequent in the whole training text; "
        "every other word, in validation and test too, is `<unk>`. null: all words.",
    )


class RecurrentHighway(Part):
    """Several highway layers within a step, their carry gates coupled to the transform gates (Zilly et al. 2017)."""

    kind: Literal["rhn"]
    depth: Annotated[int, Field(ge=1, le=100, strict=True)] = Field(
        default=1, description="Highway layers within a step."
    )
    transform_bias: Annotated[float, Field(ge=-100.0, le=100.0), NO_SWITCH] = Field(
        default=-2.0,
        description="Where the transform gates' biases begin: the lower, the more of the state each layer carries on.",
    )


CellName = Literal["lstm", "gru", "peephole_lstm"]
Cell = Annotated[
    Annotated[CellName, Tag("name")] | Annotated[RecurrentHighway, Tag("rhn")],
    Discriminator(lambda value: "rhn" if isinstance(value, RecurrentHighway | dict) or value == "rhn" else "name"),
]


class Model(Part):
    """A stack of recurrent layers. Its embedding is the first matrix, and the output layer's too if they are tied."""

    cell: Cell = Field(
        default="lstm",
        description="The recurrent unit: lstm, gru, an lstm whose gates see its memory (peephole_lstm; Gers & "
        "Schmidhuber 2000), or a recurrent highway such as {kind: rhn, depth: 10}.",
    )
    layers: Annotated[int, Field(ge=1, le=100, strict=True)] = Field(
        default=3, description="The number of recurrent layers, L."
    )
    embedding_size: Size = Field(default=400, description="Dimensions of a word's vector, E.")
    hidden_size: Size | tuple[Size, ...] = Field(
        default=1150,
        description="Units of every layer, H, but a tied model's last layer has the embedding's size; or a list with "
        "the units of each layer.",
    )
    tied: bool = Field(
        default=True,
        strict=True,
        description="Whether the output layer's matrix is the embedding's (Inan et al. 2016).",
    )
    init_range: Positive | None = Field(
        default=None,
        description="Every weight and bias is drawn uniformly between minus and plus this; null: the embedding within "
        "0.1, a layer within 1 / sqrt(H). A highway's transform biases have a value of their own.",
    )
    embedding_norm: Literal["free", "word", "dimension"] = Field(
        default="free",
        description="What of the embedding has length 1 from the start and after each step: nothing, every word's "
        "vector, or every dimension (Inan et al. 2016, section 5.1); a running average is a little shorter.",
    )

    @property
    def hidden_sizes(self) -> tuple[int, ...]:
        """The size of every layer's output, first to last."""
        if isinstance(self.hidden_size, tuple):
            return self.hidden_size
        last = self.embedding_size if self.tied else self.hidden_size
        return (self.hidden_size,) * (self.layers - 1) + (last,)

    @property
    def cell_name(self) -> str:
        """The kind of the recurrent unit."""
        return self.cell if isinstance(self.cell, str) else self.cell.kind

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if len(self.hidden_sizes) != self.layers:
            raise ValueError(f"hidden_size lists {len(self.hidden_sizes)} sizes for layers = {self.layers}")
        return self


class Dropout(Part):
    """Drop probabilities, in training alone; 0: none (Merity et al. 2017, sections 2, 4.2 and 4.3).

    A locked mask is drawn once a window: it drops the same units at every step.
    """

    embedding: Probability = Field(default=0.0, description="Of whole words of the embedding, p_e.")
    input: Probability = Field(default=0.0, description="Of the embedded input's units, locked, p_i.")
    between: Probability = Field(default=0.0, description="Of the units between recurrent layers, locked, p_h.")
    output: Probability = Field(default=0.0, description="Of the last layer's output units, locked, p_o.")
    weight: Probability = Field(default=0.0, description="Of single recurrent weights (DropConnect), p_w.")
    state: Probability = Field(
        default=0.0,
        description="Of a layer's units on their way back to itself, locked, by a mask of their own; of a recurrent "
        "highway the same before each of its layers (Gal & Ghahramani 2016; Zilly et al. 2017).",
    )
    shared_mask: bool = Field(
        default=False,
        strict=True,
        description="Whether the mask on a layer's way up, `between` or `output`, is also on its way back to itself "
        "(VD-LSTM; Inan et al. 2016, section 5).",
    )

    @model_validator(mode="after")
    def _one_mask_of_the_state(self) -> Self:
        if self.shared_mask and self.state:
            raise ValueError(
                f"state = {self.state:g} and shared_mask would both mask a layer's state: give one of them"
            )
        return self


class Penalties(Part):
    """Coefficients of AR and TAR on the last layer's output (Merity et al. 2017, section 4.6)."""

    activation: NonNegative = Field(
        default=0.0, description="On the mean square of the dropped output (AR), alpha; 0: none."
    )
    temporal_activation: NonNegative = Field(
        default=0.0, description="On the mean squared change of the output from step to step (TAR), beta; 0: none."
    )


class VariableBptt(Part):
    """Windows of random length, the learning rate scaled with it (Merity et al. 2017, section 4.1)."""

    kind: Literal["variable"]
    length: Length = Field(default=70, description="The base length, in tokens, T.")
    full_probability: Annotated[float, Field(ge=0.0, le=1.0), NO_SWITCH] = Field(
        default=0.95, description="Probability of a window around the base length, p; others are around half of it."
    )
    deviation: NonNegative = Field(
        default=5.0, description="Standard deviation of the length, in tokens, s; 0: one of two lengths."
    )
    minimum: Length = Field(default=5, description="The shortest window, in tokens, even of a shorter base length.")
    cap_extra: CapExtra = Field(
        default=None, description="The longest window is the base length and this many tokens; null: any length."
    )
    rescale: bool = Field(
        default=True, strict=True, description="Whether the learning rate of a window is in proportion to its length."
    )


class FixedBptt(Part):
    """Windows of one length."""

    kind: Literal["fixed"]
    length: Length = Field(default=70, description="Tokens of a window, T.")


Bptt = Annotated[VariableBptt | FixedBptt, Field(discriminator="kind")]


class Repeats(Part):
    """Fine-tuning until it no longer helps, as of the models "(fin)" of Takase et al. 2018, tables 7 and 8."""

    most: Annotated[int, Field(ge=2, le=1000, strict=True)] = Field(description="The most passes.")
    until: Literal["no_gain"] = Field(
        description="The last pass is the first that does not lower the best validation loss."
    )


class Finetune(Part):
    """Averaged SGD from the best weights on, stopped by the non-monotone rule (Merity et al. 2017, section 5)."""

    epochs: PositiveInt = Field(description="The most epochs of one fine-tuning.")
    nonmonotone_interval: NonmonotoneInterval = Field(default=5)
    trigger: Trigger = Field(default="code")
    cap_extra: CapExtra = Field(
        default=10,
        description="The longest window is the base length and this many tokens, as in the authors' code; null: what "
        "`bptt` says.",
    )
    learning_rate: Positive | None = Field(
        default=None, description="Step size; null: the optimizer's own, which must not be Adam's."
    )
    repeats: Annotated[
        Annotated[int, Field(ge=1, le=1000, strict=True), Tag("number")] | Annotated[Repeats, Tag("until")],
        Discriminator(lambda value: "until" if isinstance(value, Repeats | dict) else "number"),
    ] = Field(
        default=1,
        description="How many times, each from the best weights of the one before: a number, or until validation "
        "shows no gain.",
    )

    @property
    def most_passes(self) -> int:
        """How many times at most."""
        return self.repeats if isinstance(self.repeats, int) else self.repeats.most

    def first(self, passes: int) -> Finetune:
        """The same with this many passes at most; one pass is one, whatever would end them."""
        fixed = isinstance(self.repeats, int) or passes == 1
        return self.model_copy(update={"repeats": passes if fixed else Repeats(most=passes, until="no_gain")})


class Leg(Part):
    """A further stretch of training with values of its own, from the best weights before.

    Several make a schedule, such as a population finds (Jaderberg et al. 2017, section 3). Each begins as training
    does: its optimizer has no past, and what it does by the epoch counts from here.
    """

    epochs: PositiveInt = Field(description="The leg's length.")
    optimizer: Optimizer = Field(description="Of the same kind as the trial's.")
    dropout: Dropout = Field(default=Dropout(), description="Replaces the trial's, whole; not given: none.")
    penalties: Penalties | None = Field(default=None, description="Replace the trial's; null: none.")


class Cache(Part):
    """Neural cache pointer at evaluation (Grave et al. 2017; Merity et al. 2017, section 5).

    A list of values is a grid: the combination best on validation is used on test.
    """

    window: PositiveInt | Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = Field(
        description="Past positions that are looked at, W; or a list of numbers to try."
    )
    weight: Probability | Annotated[tuple[Probability, ...], Field(min_length=1)] = Field(
        description="The cache's share of the mixture with the model, lambda; or a list. 0: the model alone."
    )
    flatness: NonNegative | Annotated[tuple[NonNegative, ...], Field(min_length=1)] = Field(
        description="Factor on the likeness of contexts, theta; or a list. 0: all positions count alike."
    )
    mode: Literal["reference", "full"] = Field(
        default="reference",
        description="Reference repeats the authors' code: no cache before `window` positions are stored, the history "
        "cut after each chunk. Full uses whatever the last `window` positions hold.",
    )
    chunk: PositiveInt = Field(
        default=5000, description="Predictions between two cuts of the history, of mode reference."
    )


class Scoring(Part):
    """How text is cut for evaluation: parallel columns and the window that bounds memory."""

    valid_columns: PositiveInt = Field(
        default=10, description="Columns the validation text is cut into; each starts without context."
    )
    test_columns: PositiveInt = Field(
        default=1, description="Columns the test text is cut into; 1 gives every token its whole context."
    )
    window: PositiveInt = Field(
        default=70, description="Tokens of a column that are scored at once; no number changes."
    )
    raw_iterate: bool = Field(
        default=False,
        strict=True,
        description="Whether, once averaging has begun, the curve also has the validation loss of the last iterate "
        "beside its average's: one more pass over the text each epoch; no other number changes.",
    )
