"""Parts of a training spec: text, layers, regularisation, optimization, scoring."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from lm.spec.part import NonNegative, Part, Positive, PositiveInt, Probability

Trigger = Literal["code", "literal", "monotonic"]
Precision = Literal["float32", "bfloat16"]


class Corpus(Part):
    """Which text: a named corpus, or a folder with `train.txt`, `valid.txt` and `test.txt`.

    `train_tokens` cuts the training text to that many tokens from `train_start` on; validation and test stay whole,
    and the vocabulary stays that of the whole training text, so that perplexities keep their meaning.
    """

    name: str = Field(min_length=1)
    train_tokens: PositiveInt | None = Field(default=None)
    train_start: Annotated[int, Field(ge=0, strict=True)] = Field(default=0)


class Model(Part):
    """A stack of recurrent layers. With one `hidden_size`, a tied model's last layer has the embedding's size.

    A list gives every layer's size. `init_range` draws every weight and bias uniformly within it; without one the
    embedding is drawn within 0.1, layers within 1 / sqrt(size). `embedding_norm` keeps every word's vector, or
    every dimension of the embedding, at length 1 from the start and after each step (Inan et al. 2016, section 5.1);
    a running average of such steps is left as it is, a little shorter.
    """

    cell: Literal["lstm", "gru"] = Field(default="lstm")
    layers: PositiveInt = Field(default=3)
    embedding_size: PositiveInt = Field(default=400)
    hidden_size: PositiveInt | tuple[PositiveInt, ...] = Field(default=1150)
    tied: bool = Field(default=True)
    init_range: Positive | None = Field(default=None)
    embedding_norm: Literal["free", "word", "dimension"] = Field(default="free")

    @property
    def hidden_sizes(self) -> tuple[int, ...]:
        """The size of every layer's output, first to last."""
        if isinstance(self.hidden_size, tuple):
            return self.hidden_size
        last = self.embedding_size if self.tied else self.hidden_size
        return (self.hidden_size,) * (self.layers - 1) + (last,)

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if len(self.hidden_sizes) != self.layers:
            raise ValueError(f"hidden_size lists {len(self.hidden_sizes)} sizes for layers = {self.layers}")
        return self


class Dropout(Part):
    """Drop probabilities (Merity et al. 2017, sections 2, 4.2 and 4.3).

    `embedding` drops whole words, `input`, `between` and `output` are locked over time, `weight` is
    DropConnect on the recurrent matrices. With `shared_mask` the mask on a layer's way up, `between` or `output`,
    is also on its way back to itself (VD-LSTM; Inan et al. 2016, section 5).
    """

    embedding: Probability = Field(default=0.0)
    input: Probability = Field(default=0.0)
    between: Probability = Field(default=0.0)
    output: Probability = Field(default=0.0)
    weight: Probability = Field(default=0.0)
    shared_mask: bool = Field(default=False)


class Penalties(Part):
    """Coefficients of AR and TAR on the last layer's output (Merity et al. 2017, section 4.6)."""

    activation: NonNegative = Field(default=0.0)
    temporal_activation: NonNegative = Field(default=0.0)


class VariableBptt(Part):
    """Windows of random length, the learning rate scaled with it (Merity et al. 2017, section 4.1)."""

    kind: Literal["variable"]
    length: Annotated[int, Field(ge=2)] = Field(default=70)
    full_probability: Annotated[float, Field(ge=0.0, le=1.0)] = Field(default=0.95)
    deviation: NonNegative = Field(default=5.0)
    minimum: Annotated[int, Field(ge=2)] = Field(default=5)
    cap_extra: Annotated[int, Field(ge=0)] | None = Field(default=None)
    rescale: bool = Field(default=True)


class FixedBptt(Part):
    """Windows of one length."""

    kind: Literal["fixed"]
    length: Annotated[int, Field(ge=2)] = Field(default=70)


Bptt = Annotated[VariableBptt | FixedBptt, Field(discriminator="kind")]


class _Optimizer(Part):
    learning_rate: Positive
    weight_decay: NonNegative = Field(default=0.0)
    clip: Positive | None = Field(default=None)


class Sgd(_Optimizer):
    """Plain SGD at a constant rate."""

    kind: Literal["sgd"]


class SgdHalving(_Optimizer):
    """SGD whose rate is halved at every non-monotone trigger (Merity et al. 2017, section 5, "- NT-ASGD")."""

    kind: Literal["sgd_halving"]
    nonmonotone_interval: PositiveInt = Field(default=5)
    trigger: Trigger = Field(default="code")
    minimum_learning_rate: Positive = Field(default=1e-3)


class SgdDecay(_Optimizer):
    """SGD at the full rate for `full_epochs`, then `decay` times the last one each epoch (Zaremba et al. 2014).

    With `restart` the rate starts over after that many epochs, the weights going on: the sessions of Inan et al. 2016,
    table 1.
    """

    kind: Literal["sgd_decay"]
    decay: Annotated[float, Field(gt=0.0, le=1.0)]
    full_epochs: PositiveInt
    restart: PositiveInt | None = Field(default=None)


class SgdPlateau(_Optimizer):
    """SGD whose rate is divided after every epoch that does not improve the best validation loss."""

    kind: Literal["sgd_plateau"]
    divisor: Annotated[float, Field(gt=1.0, allow_inf_nan=False)] = Field(default=4.0)


class NtAsgd(_Optimizer):
    """SGD that starts averaging at the non-monotone trigger (Merity et al. 2017, section 3, algorithm 1)."""

    kind: Literal["nt_asgd"]
    nonmonotone_interval: PositiveInt = Field(default=5)
    trigger: Trigger = Field(default="code")


class Adam(_Optimizer):
    """Adam (Kingma & Ba 2015); decay, if any, is coupled."""

    kind: Literal["adam"]
    beta1: Probability = Field(default=0.9)
    beta2: Probability = Field(default=0.999)
    epsilon: Positive = Field(default=1e-8)


Optimizer = Annotated[Sgd | SgdHalving | SgdDecay | SgdPlateau | NtAsgd | Adam, Field(discriminator="kind")]


class Finetune(Part):
    """Averaged SGD once more from the best weights, stopped by the non-monotone rule (Merity et al. 2017, section 5).

    `cap_extra` caps a window at its base length plus that many steps, as the authors' code does here. Without a
    `learning_rate` the optimizer's own is taken.
    """

    epochs: PositiveInt
    nonmonotone_interval: PositiveInt = Field(default=5)
    trigger: Trigger = Field(default="code")
    cap_extra: Annotated[int, Field(ge=0)] | None = Field(default=10)
    learning_rate: Positive | None = Field(default=None)
    repeats: PositiveInt = Field(default=1)


class Leg(Part):
    """A further stretch of training with values of its own, from the best weights before.

    Several make a schedule, such as a population finds (Jaderberg et al. 2017, section 3). Each begins as training
    does: its optimizer has no past, and what it does by the epoch counts from here.
    """

    epochs: PositiveInt
    optimizer: Optimizer
    dropout: Dropout = Field(default=Dropout())
    penalties: Penalties | None = Field(default=None)


class Cache(Part):
    """Neural cache pointer at evaluation (Grave et al. 2017; Merity et al. 2017, section 5).

    A list of values is a grid: the combination best on validation is used on test. Mode `reference` repeats
    the authors' code (no cache before `window` pairs are stored, history cut after each chunk), `full`
    uses whatever the last `window` positions hold.
    """

    window: PositiveInt | Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
    weight: Probability | Annotated[tuple[Probability, ...], Field(min_length=1)]
    flatness: NonNegative | Annotated[tuple[NonNegative, ...], Field(min_length=1)]
    mode: Literal["reference", "full"] = Field(default="reference")
    chunk: PositiveInt = Field(default=5000)


class Scoring(Part):
    """How text is cut for evaluation: parallel columns and the window that bounds memory."""

    valid_columns: PositiveInt = Field(default=10)
    test_columns: PositiveInt = Field(default=1)
    window: PositiveInt = Field(default=70)
