"""One stage of training: its state, from beginning to checkpoint.

A stage's numbers depend on nothing but the weights it starts from, the best loss and epoch before it, its part of the
spec and the seed: generators and the recurrent state begin again in each, so that a stage trained by another trial can
be taken over bit for bit.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lm.checkpoint import Checkpoint
from lm.model import LanguageModel
from lm.optimizers import RunningAverage, build_optimizer
from lm.record import Divergence
from lm.recurrent import State
from lm.spec import Finetune, Sgd, TrainSpec


class DivergedError(Exception):
    """A loss stopped being finite, or too large for a perplexity; its message is the record's reason.

    `seconds` were spent in the stage that it ended.
    """

    def __init__(self, divergence: Divergence, reason: str | None = None, seconds: float = 0.0) -> None:
        at = f"{divergence.stage}, epoch {divergence.epoch}, step {divergence.step}"
        super().__init__(reason or f"not finite in {at}")
        self.divergence = divergence
        self.seconds = seconds


def too_large(split: str, nats: float, stage: str) -> str:
    """Why a finite loss is no result: e to its power is beyond the largest number."""
    return f"{split} loss of {nats:.3g} nats a token, too large for a perplexity, in {stage}"


@dataclass
class Position:
    """Where a stage stands: plain numbers, whole in every checkpoint. Epochs, steps and tokens count over the trial."""

    stage: str
    epoch: int
    step: int
    tokens: int
    learning_rate: float
    best_nats: float
    best_epoch: int
    seconds_before: float
    train_seconds: float = 0.0
    evaluation_seconds: float = 0.0
    stage_epochs: int = 0
    stage_steps: int = 0
    stage_tokens: int = 0
    row: int = 0
    epoch_steps: int = 0
    epoch_tokens: int = 0
    epoch_seconds: float = 0.0
    averaging_from_epoch: int | None = None
    trigger_log: list[float] = field(default_factory=list)
    ended: bool = False

    @property
    def seconds(self) -> float:
        """Spent in this stage so far, in training and in scoring on validation."""
        return self.train_seconds + self.epoch_seconds + self.evaluation_seconds


@dataclass
class Stage:
    """A stage under way: the spec with the values that hold in it, the position, and what lives on the device."""

    spec: TrainSpec
    at: Position
    model: LanguageModel
    optimizer: torch.optim.Optimizer
    average: RunningAverage | None
    best: dict[str, Tensor]
    windows: torch.Generator
    noise: torch.Generator
    hidden: list[State]
    sums: Tensor  # nats, gradient norms, then each of `term_names`, of the running epoch
    failure: Tensor  # step, learning rate, gradient norm of the first step that was not finite; step -1 while none was

    @property
    def finetune(self) -> Finetune | None:
        """The spec of fine-tuning where this stage is a repetition of it."""
        return self.spec.finetune if self.at.stage.startswith("finetune") else None

    @property
    def progress(self) -> float:
        """How far training has come: 0 in its first epoch, 1 in its last and in all later stages."""
        trains = self.at.stage == "train" and self.spec.epochs > 1
        return self.at.stage_epochs / (self.spec.epochs - 1) if trains else float(self.at.stage != "train")

    @property
    def epochs(self) -> int:
        """The most epochs the stage may take."""
        return self.spec.epochs if self.finetune is None else self.finetune.epochs


def begin_stage(spec: TrainSpec, model: LanguageModel, device: torch.device, at: Position) -> Stage:
    """The first stage from the model's initial weights, a later one from the best weights before, already loaded."""
    index = list(spec.stages()).index(at.stage)
    spec = spec.during(at.stage)
    model.set_dropout(spec.dropout)
    # The 1 tells nothing any more, but every number of a trial depends on it.
    windows_seed, noise_seed = np.random.SeedSequence([spec.seed, index, 1]).generate_state(2, np.uint64).tolist()
    finetuning = spec.finetune if at.stage.startswith("finetune") else None
    optimizer = spec.optimizer
    if finetuning is not None:
        rate = finetuning.learning_rate or spec.optimizer.learning_rate
        optimizer = Sgd(kind="sgd", learning_rate=rate, weight_decay=optimizer.weight_decay, clip=optimizer.clip)
    at.learning_rate = optimizer.learning_rate
    if finetuning is not None:
        at.averaging_from_epoch = at.epoch + 1
    return Stage(
        spec=spec,
        at=at,
        model=model,
        optimizer=build_optimizer(optimizer, list(model.parameters())),
        average=None if finetuning is None else RunningAverage(model.weights()),
        best={name: weight.clone() for name, weight in model.weights().items()},
        windows=torch.Generator().manual_seed(windows_seed >> 1),
        noise=torch.Generator(device).manual_seed(noise_seed >> 1),
        hidden=model.initial_state(spec.batch_size),
        sums=torch.zeros(2 + len(term_names(spec, model)), dtype=torch.float64, device=device),
        failure=torch.tensor([-1.0, 0.0, 0.0], dtype=torch.float64, device=device),
    )


def term_names(spec: TrainSpec, model: LanguageModel) -> tuple[str, ...]:
    """What an epoch sums besides the loss and the gradient's norm: the head's terms, and the share of mixed inputs."""
    return model.head.term_names + (() if spec.feedback is None else ("changed_inputs",))


def to_checkpoint(stage: Stage) -> Checkpoint:
    """All of the stage's state, for `from_checkpoint`."""
    weights = {"weights": stage.model.weights(), "best": stage.best}
    state: dict[str, Any] = {
        "position": asdict(stage.at),
        "optimizer": stage.optimizer.state_dict(),
        "average_steps": None,
        "windows": stage.windows.get_state(),
        "noise": stage.noise.get_state(),
        "hidden": [list(layer) for layer in stage.hidden],
        "sums": stage.sums,
        "failure": stage.failure,
    }
    if stage.average is not None:
        weights["average"] = stage.average.weights
        state["average_steps"] = stage.average.steps
    return Checkpoint(weights, state)


def from_checkpoint(spec: TrainSpec, model: LanguageModel, device: torch.device, checkpoint: Checkpoint) -> Stage:
    """The stage exactly as it was when saved."""
    state = checkpoint.state
    stage = begin_stage(spec, model, device, Position(**state["position"]))
    stage.at = Position(**state["position"])
    model.load_weights(checkpoint.weights["weights"])
    stage.best = checkpoint.weights["best"]
    stage.optimizer.load_state_dict(state["optimizer"])
    stage.average = None
    if state["average_steps"] is not None:
        stage.average = RunningAverage(checkpoint.weights["average"], state["average_steps"])
    stage.windows.set_state(state["windows"])
    stage.noise.set_state(state["noise"])
    stage.hidden = [tuple(part.to(device) for part in layer) for layer in state["hidden"]]
    stage.sums = state["sums"].to(device)
    stage.failure = state["failure"].to(device)
    return stage
