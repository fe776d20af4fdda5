"""A trial: one variant with one seed, and where its numbers come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from lm.record import Evaluation, Record
from lm.spec import TrainSpec


@dataclass(frozen=True)
class Trial:
    """One row of the plan.

    `change` says in words what the variant changes. `reads_from` is the key of the planned trial whose record holds
    this one's stages, so that nothing is trained; `starts_from` the key of the one whose last shared stage this one
    continues; at most one of them is set. A trial of a search has its `number` there, leaves the test set closed, and
    may be `stopped_early`, which has no record and does not go on.
    """

    variant: str
    change: str
    seed: int
    spec: TrainSpec
    key: str
    parameters: int
    reads_from: str | None = None
    starts_from: str | None = None
    number: int | None = None
    opens_test: bool = True
    stopped_early: bool = False

    @property
    def title(self) -> str:
        """How it is called: `full, seed 1`; of a search `full, trial 12`."""
        return f"{self.variant}, " + (f"seed {self.seed}" if self.number is None else f"trial {self.number}")

    @property
    def tried(self) -> str:
        """Its title; of a search with what it tries: `full, trial 12 (dropout.output 0.29)`."""
        return self.title if self.number is None else f"{self.title} ({self.change})"


class Listener(Protocol):
    """Hears of trials while they run, in the driver. An exception in a listener never stops a trial."""

    def started(self, trial: Trial) -> None:
        """A worker took the trial up, for the first time or again."""

    def evaluated(self, trial: Trial, evaluation: Evaluation) -> None:
        """A new point of its curve."""

    def settled(self, trial: Trial, record: Record | None) -> None:
        """It ended: complete, diverged or failed with its record; without one stopped, and resumable unless early."""


def stage_epochs(spec: TrainSpec) -> dict[str, int]:
    """The most epochs of every stage, in order."""
    tuned = 0 if spec.finetune is None else spec.finetune.epochs
    most = {name: tuned if name.startswith("finetune") else spec.during(name).epochs for name in spec.stages()}
    return most | ({"cache": 0} if spec.cache is not None else {})


def budget_of(spec: TrainSpec) -> tuple[int, int | None, int]:
    """What a trial may train on: epochs over all stages, and the stretch of the training text, its length and start."""
    return spec.most_epochs, spec.corpus.train_tokens, spec.corpus.train_start


def stages_to_train(trial: Trial, specs: Mapping[str, TrainSpec]) -> dict[str, int]:
    """The most epochs of each stage that the trial does not take over; `specs` holds its source by key."""
    epochs = stage_epochs(trial.spec)
    source = specs.get(trial.starts_from or "")
    shared = {} if source is None else source.stages()
    return {name: epochs[name] for name, spec in trial.spec.stages().items() if shared.get(name) != spec}


def epochs_after(stages: Mapping[str, int], curve: Sequence[Evaluation]) -> int:
    """The most epochs of these stages that follow the curve; a stage that others follow has ended, maybe early."""
    names = list(stages)
    at = names.index(curve[-1].stage) if curve and curve[-1].stage in stages else 0
    begun = [point for point in curve if names[at:] and point.stage == names[at]]
    return sum(stages[name] for name in names[at:]) - len(begun)


def epochs_to_train(trial: Trial, specs: Mapping[str, TrainSpec]) -> int:
    """The most epochs the trial may take, those of stages it takes over left out."""
    return sum(stages_to_train(trial, specs).values())
