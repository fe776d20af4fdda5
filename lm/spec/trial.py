"""One trial's whole spec, its stages, and the keys that name them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Literal, Self

from pydantic import Field, model_validator

from lm.spec.feedback import Feedback, feedback_misfits
from lm.spec.fit import misfits, subspace_misfit
from lm.spec.heads import Head, SoftmaxHead
from lm.spec.optimizers import Optimizer
from lm.spec.part import Part, PositiveInt, Seed
from lm.spec.training import (
    Bptt,
    Cache,
    Corpus,
    Dropout,
    Finetune,
    FixedBptt,
    Leg,
    Model,
    Penalties,
    Precision,
    Scoring,
)

NUMERICS_VERSION = 3
"""Raised whenever the same spec, seed and corpus would give other numbers; part of every key."""


class TrainSpec(Part):
    """One trial of one model, whole: everything that decides its numbers but the corpus's text."""

    corpus: Corpus = Field(description="The text.")
    model: Model = Field(default=Model(), description="Embedding and recurrent layers.")
    head: Head = Field(default=SoftmaxHead(kind="softmax"), description="The output layer.")
    dropout: Dropout = Field(default=Dropout(), description="Drop probabilities; not given: none.")
    penalties: Penalties | None = Field(default=None, description="AR and TAR; null: none.")
    bptt: Bptt = Field(
        default=FixedBptt(kind="fixed"), description="The windows that gradients flow through, back in time."
    )
    optimizer: Optimizer = Field(description="How the weights are changed.")
    batch_size: PositiveInt = Field(
        default=20, description="Columns that the training text is cut into and that are trained side by side, B."
    )
    small_batch: PositiveInt | None = Field(
        default=None,
        description="Columns of the batch that are computed at once; the gradients of the parts are summed. It needs "
        "less memory, and masks are drawn for each part; null: all.",
    )
    precision: Precision = Field(
        default="float32",
        description="Of the factors of training's large matrix products on a CPU, which for bfloat16 needs AVX-512 or "
        "ARM's bf16; weights and scores stay in float32.",
    )
    loss_reduction: Literal["mean", "sum_over_time"] = Field(
        default="mean",
        description="The training loss: the mean over a window's tokens, or the sum over its steps of the mean over "
        "the columns (Zaremba et al. 2014). The penalties of activations are means with either.",
    )
    feedback: Feedback | None = Field(
        default=None,
        description="The model's own predictions among the training inputs; null: the text alone (teacher forcing).",
    )
    epochs: PositiveInt = Field(description="The most passes over the training text, before legs and fine-tuning.")
    early_stop: PositiveInt | None = Field(
        default=None, description="Training ends after this many epochs without a better validation loss; null: never."
    )
    legs: tuple[Leg, ...] = Field(default=(), description="What follows the first `epochs`, before fine-tuning.")
    finetune: Finetune | None = Field(default=None, description="Averaged SGD once more; null: none.")
    cache: Cache | None = Field(default=None, description="A neural cache at the end, a stage of its own; null: none.")
    scoring: Scoring = Field(default=Scoring(), description="How the text is cut when it is scored.")
    epoch_measures: tuple[Literal["subspace"], ...] = Field(
        default=(),
        description="What of the weights is measured at each epoch's end, into the curve's terms: subspace, the "
        "distance of the output matrix from the embedding and the mean cosine of word vectors (Inan et al. 2016).",
    )
    seed: Seed = Field(default=1, description="Of all that is drawn: weights, masks, windows. A sweep lists its seeds.")

    @model_validator(mode="after")
    def _head_fits(self) -> Self:
        for problem in misfits(self.head, self.model):
            raise ValueError(problem)
        for problem in () if self.feedback is None else feedback_misfits(self.feedback, self.head):
            raise ValueError(problem)
        return self

    @model_validator(mode="after")
    def _small_batch_is_small(self) -> Self:
        if self.small_batch is not None and self.small_batch > self.batch_size:
            raise ValueError(f"small_batch {self.small_batch} is more than the {self.batch_size} columns of batch_size")
        return self

    @model_validator(mode="after")
    def _measures_fit(self) -> Self:
        if self.epoch_measures and (why := subspace_misfit(self.head, self.model)) is not None:
            raise ValueError(f"epoch_measures: {why}")
        return self

    @model_validator(mode="after")
    def _legs_go_on(self) -> Self:
        for number, leg in enumerate(self.legs):
            kinds = leg.optimizer.kind, self.optimizer.kind
            if kinds[0] != kinds[1]:
                raise ValueError(f"legs.{number}.optimizer.kind: a leg keeps the optimizer {kinds[1]}, got {kinds[0]}")
            if leg.dropout.shared_mask != self.dropout.shared_mask:
                raise ValueError(
                    f"legs.{number}.dropout.shared_mask: a leg keeps {self.dropout.shared_mask}, "
                    f"got {leg.dropout.shared_mask}"
                )
        return self

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
        stages = {"train": bare.model_copy(update={"legs": ()})}
        for k in range(1, len(self.legs) + 1):
            stages[f"train-{k + 1}"] = bare.model_copy(update={"legs": self.legs[:k]})
        if self.finetune is not None:
            for k in range(1, self.finetune.most_passes + 1):
                stages[f"finetune-{k}"] = bare.model_copy(update={"finetune": self.finetune.first(k)})
        if self.cache is not None:
            stages["cache"] = self
        return stages

    def stages_left(self, best_epochs: Mapping[str, int]) -> list[str]:
        """The stages still to come after those named, in order, each with the trial's best epoch at its end.

        If fine-tuning is repeated until there is no gain, a pass that left the best epoch where it was is the last.
        """
        left = [name for name in self.stages() if name not in best_epochs]
        gains = [after > before for before, after in pairwise(best_epochs.values())]
        passes = [gain for name, gain in zip(list(best_epochs)[1:], gains, strict=True) if name.startswith("finetune")]
        if self.finetune is None or isinstance(self.finetune.repeats, int) or all(passes):
            return left
        return [name for name in left if not name.startswith("finetune")]

    @property
    def most_epochs(self) -> int:
        """The most epochs over all stages."""
        tuned = 0 if self.finetune is None else self.finetune.most_passes * self.finetune.epochs
        return self.epochs + sum(leg.epochs for leg in self.legs) + tuned

    def during(self, stage: str) -> TrainSpec:
        """The spec with the values that hold in a stage: those of its leg; after the legs, those of the last one."""
        begun = self.legs[: list(self.stages()).index(stage)]
        return self.model_copy(update=dict(begun[-1])) if begun else self


def trial_key(spec: TrainSpec, fingerprint: str) -> str:
    """16 hexadecimal digits that name a trial: a hash of its spec, its corpus's text and the numerics version.

    Values at their defaults are left out, so that a field added later, whose default keeps the old behaviour,
    leaves old keys as they are. The corpus counts by its fingerprint, not by its name or place.
    """
    decides = spec.model_dump(mode="json", exclude_defaults=True)
    decides["corpus"].pop("name")
    decides.get("head", {}).get("codebook", {}).get("embeddings", {}).pop("path", None)  # its hash counts
    payload = {"numerics": NUMERICS_VERSION, "corpus": fingerprint, "spec": decides}
    return hashlib.sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest()[:16]


def stage_keys(spec: TrainSpec, fingerprint: str) -> dict[str, str]:
    """The key of the trial that ends at each stage; the last one is the trial's own key."""
    return {name: trial_key(prefix, fingerprint) for name, prefix in spec.stages().items()}
