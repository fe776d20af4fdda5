"""What decides a trial's numbers, as frozen, torch-free types that refuse unknown keys."""

from __future__ import annotations

import difflib
import hashlib
import json
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

NUMERICS_VERSION = 1
"""Raised whenever the same spec, seed and corpus would give other numbers; part of every key."""

Probability = Annotated[float, Field(ge=0.0, lt=1.0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
PositiveInt = Annotated[int, Field(ge=1, strict=True)]
Trigger = Literal["code", "literal", "monotonic"]


class Part(BaseModel):
    """A part of a spec: immutable, closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Corpus(Part):
    """Which text: a named corpus, or a folder with `train.txt`, `valid.txt` and `test.txt`.

    `train_tokens` cuts the training text to its first tokens; validation and test stay whole, and the
    vocabulary stays that of the whole training text, so that perplexities keep their meaning.
    """

    name: str = Field(min_length=1)
    train_tokens: PositiveInt | None = Field(default=None)


class Model(Part):
    """A stack of recurrent layers. With one `hidden_size`, a tied model's last layer has the embedding's size.

    A list gives every layer's size. Tying needs the last layer's size to equal the embedding's
    (Merity et al. 2017, section 4.5).
    """

    cell: Literal["lstm", "gru"] = Field(default="lstm")
    layers: PositiveInt = Field(default=3)
    embedding_size: PositiveInt = Field(default=400)
    hidden_size: PositiveInt | tuple[PositiveInt, ...] = Field(default=1150)
    tied: bool = Field(default=True)

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
        if self.tied and self.hidden_sizes[-1] != self.embedding_size:
            raise ValueError(
                f"a tied model's last layer must have the embedding's size: "
                f"{self.hidden_sizes[-1]} is not embedding_size = {self.embedding_size}"
            )
        return self


class SoftmaxHead(Part):
    """One softmax over the vocabulary, tied to the embedding where the model says so."""

    kind: Literal["softmax"]
    bias: bool = Field(default=True)


Head = SoftmaxHead
"""Every output head; a union tagged by `kind` as soon as there are two."""


class Dropout(Part):
    """Drop probabilities (Merity et al. 2017, sections 2, 4.2 and 4.3).

    `embedding` drops whole words, `input`, `between` and `output` are locked over time, `weight` is
    DropConnect on the recurrent matrices.
    """

    embedding: Probability = Field(default=0.0)
    input: Probability = Field(default=0.0)
    between: Probability = Field(default=0.0)
    output: Probability = Field(default=0.0)
    weight: Probability = Field(default=0.0)


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


Optimizer = Annotated[Sgd | SgdHalving | NtAsgd | Adam, Field(discriminator="kind")]


class Finetune(Part):
    """Averaged SGD once more from the best weights, stopped by the non-monotone rule (Merity et al. 2017, section 5).

    `cap_extra` caps a window at its base length plus so many steps, as the authors' code does here. Without a
    `learning_rate` the optimizer's own is taken.
    """

    epochs: PositiveInt
    nonmonotone_interval: PositiveInt = Field(default=5)
    trigger: Trigger = Field(default="code")
    cap_extra: Annotated[int, Field(ge=0)] | None = Field(default=10)
    learning_rate: Positive | None = Field(default=None)
    repeats: PositiveInt = Field(default=1)


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


class TrainSpec(Part):
    """One trial of one model, whole: everything that decides its numbers but the corpus's text."""

    corpus: Corpus
    model: Model = Field(default=Model())
    head: Head = Field(default=SoftmaxHead(kind="softmax"))
    dropout: Dropout = Field(default=Dropout())
    penalties: Penalties | None = Field(default=None)
    bptt: Bptt = Field(default=FixedBptt(kind="fixed"))
    optimizer: Optimizer
    batch_size: PositiveInt = Field(default=20)
    epochs: PositiveInt
    early_stop: PositiveInt | None = Field(default=None, description="epochs without a better validation loss")
    finetune: Finetune | None = Field(default=None)
    cache: Cache | None = Field(default=None)
    scoring: Scoring = Field(default=Scoring())
    seed: Annotated[int, Field(ge=0, lt=2**63, strict=True)] = Field(default=1)

    @model_validator(mode="after")
    def _finetune_rate(self) -> Self:
        if self.finetune is not None and self.finetune.learning_rate is None and self.optimizer.kind == "adam":
            raise ValueError(
                "finetune.learning_rate: averaged SGD cannot take over Adam's rate; give one (such as 30.0)"
            )
        return self

    def stages(self) -> dict[str, TrainSpec]:
        """The trial's stages in order: each name with the spec of a trial that ends there.

        A stage's weights depend on nothing that comes later, so two trials whose specs agree up to a stage
        share it: one of them trains it, the other reads it.
        """
        bare = self.model_copy(update={"finetune": None, "cache": None})
        stages = {"train": bare}
        if self.finetune is not None:
            for k in range(1, self.finetune.repeats + 1):
                stages[f"finetune-{k}"] = bare.model_copy(
                    update={"finetune": self.finetune.model_copy(update={"repeats": k})}
                )
        if self.cache is not None:
            stages["cache"] = self
        return stages


def explain(error: ValidationError) -> list[str]:
    """What is wrong with a spec, a line each: dotted key, rule, what was got; of an unknown key the nearest one."""
    schema = TrainSpec.model_json_schema()
    known = sorted({name for part in (schema, *schema["$defs"].values()) for name in part["properties"]})
    lines = []
    for found in error.errors():
        *above, last = [str(part) for part in found["loc"]] or [""]
        line = f"{'.'.join((*above, last))}: {found['msg']}, got {found['input']!r}"
        if found["type"] == "extra_forbidden":
            near = difflib.get_close_matches(last, known, n=1)
            line = f"{'.'.join((*above, last))}: unknown key" + (f" (did you mean {near[0]!r}?)" if near else "")
        lines.append(line)
    return lines


def trial_key(spec: TrainSpec, fingerprint: str) -> str:
    """16 hexadecimal digits that name a trial: a hash of its spec, its corpus's text and the numerics version.

    Values at their defaults are left out, so that a field added later, whose default keeps the old behaviour,
    leaves old keys as they are. The corpus counts by its fingerprint, not by its name or place.
    """
    decides = spec.model_dump(mode="json", exclude_defaults=True)
    decides["corpus"].pop("name")
    payload = {"numerics": NUMERICS_VERSION, "corpus": fingerprint, "spec": decides}
    return hashlib.sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest()[:16]


def stage_keys(spec: TrainSpec, fingerprint: str) -> dict[str, str]:
    """The key of the trial that ends at each stage; the last one is the trial's own key."""
    return {name: trial_key(prefix, fingerprint) for name, prefix in spec.stages().items()}


def parameter_count(model: Model, head: Head, vocabulary_size: int) -> int:
    """Trainable numbers of the model, a tied matrix counted once; equal to the built model's by test."""
    gates = {"lstm": 4, "gru": 3}[model.cell]
    inputs = (model.embedding_size, *model.hidden_sizes[:-1])
    recurrent = sum(gates * size * (fan_in + size + 2) for fan_in, size in zip(inputs, model.hidden_sizes, strict=True))
    decoder = 0 if model.tied else vocabulary_size * model.hidden_sizes[-1]
    return vocabulary_size * model.embedding_size + recurrent + decoder + vocabulary_size * head.bias
