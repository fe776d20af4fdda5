"""Searches whose training is a formula: the loss of a trial is a bowl over its values, sinking with every epoch."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lm.record import Evaluation, Record
from lm.spec import Corpus, Dropout, Model, Penalties, Sgd, TrainSpec
from orchestrator.search.events import SearchTrial
from orchestrator.search.ledger import SearchState, ledger_path, read_search_trials
from orchestrator.search.task import SearchTask
from orchestrator.search.trial_source import SearchTrialSource
from orchestrator.sweep.searches import Search
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from tests.support.factories import make_record

EPOCHS = 9
BASE = TrainSpec(
    corpus=Corpus(name="made-up"),
    model=Model(layers=1, embedding_size=16, hidden_size=16, tied=False),
    dropout=Dropout(input=0.4, output=0.4),
    penalties=Penalties(),
    optimizer=Sgd(kind="sgd", learning_rate=10.0),
    epochs=EPOCHS,
    seed=0,
)
SPACE: dict[str, Any] = {
    "optimizer.learning_rate": {"kind": "log_uniform", "low": 1.0, "high": 100.0},
    "dropout.input": {"kind": "uniform", "low": 0.0, "high": 0.8},
    "batch_size": {"kind": "integer", "low": 4, "high": 64, "log": True},
}
CONDITIONAL: dict[str, Any] = {
    "optimizer.learning_rate": SPACE["optimizer.learning_rate"],
    "layers": {
        "kind": "change",
        "among": {"plain": {}, "mixture": {"head": {"kind": "mixture", "experts": [0, 3]}}},
    },
    "head.dropout": {"kind": "uniform", "low": 0.0, "high": 0.6, "when": {"head.kind": "mixture"}},
}


class Facts:
    """Of a text that nobody has to read."""

    def fingerprint(self, corpus: Corpus) -> str:
        return "0123456789abcdef" * 4

    def vocabulary_size(self, corpus: Corpus) -> int:
        return 1000

    def parameters(self, spec: TrainSpec) -> int:
        return 1000 * spec.model.embedding_size


class Shelf(Records):
    """Records and curves in memory; the ledger lies on the disk."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.records: dict[str, Record] = {}
        self.curves: dict[str, list[Evaluation]] = {}
        self.trained: list[str] = []

    def find(self, trial: Trial) -> Record | None:
        return self.records.get(trial.key)

    def curve(self, trial: Trial) -> list[Evaluation]:
        return self.curves.get(trial.key, [])


def task(variant: str = "full", base: TrainSpec = BASE, fixed: tuple[str, ...] = (), **update: Any) -> SearchTask:
    described = {
        "space": SPACE,
        "sampler": {"kind": "tpe", "startup_trials": 3},
        "scheduler": {"kind": "asha"},
        "trials": 12,
    } | update
    return SearchTask(variant, base, Search.model_validate(described), fixed)


def loss(spec: TrainSpec, epoch: int) -> float:
    """Lowest at rate 10, dropout 0.3, batches of 16 and with a mixture; a rate above 80 diverges."""
    if spec.optimizer.learning_rate > 80.0:
        return math.nan
    bowl = math.log(spec.optimizer.learning_rate / 10.0) ** 2 + 4.0 * (spec.dropout.input - 0.3) ** 2
    bowl += 0.1 * math.log(spec.batch_size / 16) ** 2 + (0.2 if spec.head.kind == "softmax" else 0.0)
    return 4.0 + bowl + 2.0 / epoch


def point(spec: TrainSpec, epoch: int) -> Evaluation:
    nats = loss(spec, epoch)
    return Evaluation("train", epoch, epoch, epoch, 10.0 * epoch, 1.0, nats, nats, 1.0, 1.0, False, True)


def train(trial: Trial, shelf: Shelf, goes_on: Callable[[Evaluation], bool]) -> Record | None:
    """Train from where the curve ends; None where it is stopped. An input dropout above 0.75 fails."""
    shelf.trained.append(trial.key)
    if trial.spec.dropout.input > 0.75:
        shelf.records[trial.key] = made(trial, "failed")
        return shelf.records[trial.key]
    curve = shelf.curves.setdefault(trial.key, [])
    for epoch in range(len(curve) + 1, trial.spec.epochs + 1):
        evaluation = point(trial.spec, epoch)
        if math.isnan(evaluation.valid_nats_per_token):
            shelf.records[trial.key] = made(trial, "diverged")
            return shelf.records[trial.key]
        curve.append(evaluation)
        if not goes_on(evaluation):
            return None
    shelf.records[trial.key] = made(trial, "complete", curve)
    return shelf.records[trial.key]


def made(trial: Trial, status: str, curve: Sequence[Evaluation] = ()) -> Record:
    if status != "complete":
        return make_record(trial, 100.0, status=status, reason="as the formula says")
    record = make_record(trial, 100.0)
    last = record.stages[-1]
    valid = last.valid.model_copy(update={"nats_per_token": curve[-1].valid_nats_per_token})
    stages = (*record.stages[:-1], last.model_copy(update={"valid": valid}))
    return record.model_copy(update={"stages": stages, "seconds": 10.0 * len(curve)})


def search(tasks: list[SearchTask], shelf: Shelf) -> list[list[SearchTrial]]:
    """Run a source to its end, one trial at a time; what each task found."""
    source = SearchTrialSource(tasks, shelf, Facts())  # type: ignore[arg-type]
    while (trial := source.next()) is not None:
        source.settled(trial, train(trial, shelf, lambda evaluation, trial=trial: source.goes_on(trial, evaluation)))
    return [found(one, shelf.root) for one in tasks]


def found(one: SearchTask, root: Path) -> list[SearchTrial]:
    return read_search_trials(path_of(one, root))


def state(one: SearchTask, trials: Sequence[SearchTrial]) -> SearchState:
    return SearchState(one, Path("no ledger"), trials)


def path_of(one: SearchTask, root: Path) -> Path:
    return ledger_path(root, one.key(Facts().fingerprint(one.base.corpus)))


def events(one: SearchTask, root: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path_of(one, root).read_text().splitlines()]
