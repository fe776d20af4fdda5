"""Made-up trials, curves and records, on disk where a test of tracking or progress needs them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

from lm.record import CorpusFacts, Evaluation, Record, Score, StageResult, write_curve, write_record
from lm.spec import Corpus, Finetune, Model, NtAsgd, TrainSpec, stage_keys, trial_key
from orchestrator.sweep import Sweep
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from orchestrator.watch.mlflow.tracker import Tracker

FINGERPRINT = "f" * 64
EPOCHS = 3


def trial(
    variant: str = "full", seed: int = 1, *, finetune: int = 0, reads_from: str | None = None, **spec: Any
) -> Trial:
    """A trial of three epochs, and of `finetune` more in a second stage."""
    whole = TrainSpec(
        corpus=Corpus(name="pydoc"),
        model=Model(layers=2, embedding_size=8, hidden_size=(16, 8)),
        optimizer=NtAsgd(kind="nt_asgd", learning_rate=30.0),
        epochs=spec.pop("epochs", EPOCHS),
        finetune=Finetune(epochs=finetune) if finetune else None,
        seed=seed,
        **({"batch_size": 1 + crc32(variant.encode()) % 9999} | spec),
    )
    return Trial(variant, f"changes {variant}", seed, whole, trial_key(whole, FINGERPRINT), 1234, reads_from)


def point(epoch: int, stage: str = "train", **changed: Any) -> Evaluation:
    """An evaluation whose perplexity falls with the epoch."""
    numbers: dict[str, Any] = {
        "step": 10 * epoch,
        "tokens": 1000 * epoch,
        "seconds": 1.5 * epoch,
        "tokens_per_second": 700.0,
        "train_nats_per_token": 6.0 / epoch,
        "valid_nats_per_token": 6.6 / epoch,
        "learning_rate": 30.0,
        "gradient_norm": 0.25,
        "averaging": False,
        "best": True,
    }
    return Evaluation(stage=stage, epoch=epoch, **(numbers | changed))


def curve(of: Trial) -> list[Evaluation]:
    """The whole curve of a trial, over all its stages."""
    tuned = of.spec.finetune.epochs if of.spec.finetune else 0
    points = [point(epoch) for epoch in range(1, of.spec.epochs + 1)]
    return points + [point(of.spec.epochs + epoch, "finetune-1") for epoch in range(1, tuned + 1)]


def score(perplexity: float) -> Score:
    return Score(
        nats_per_token=math.log(perplexity),
        predicted_tokens=100,
        columns=1,
        perplexity=perplexity,
        perplexity_reference=perplexity + 0.5,
    )


def record(of: Trial, status: str = "complete", reason: str | None = None) -> Record:
    """What the trial leaves; a diverged or failed one has no finished stage."""
    stages = [
        StageResult(
            name=name,
            key=key,
            epochs=EPOCHS,
            best_epoch=2,
            steps=30,
            train_seconds=3.0,
            evaluation_seconds=1.0,
            tokens_per_second=700.0,
            averaging_from_epoch=None,
            stopped_early=False,
            valid=score(90.0 - index),
            test=score(80.0 - index),
            cache=None,
        )
        for index, (name, key) in enumerate(stage_keys(of.spec, FINGERPRINT).items())
    ]
    return Record.model_validate(
        {
            "key": of.key,
            "status": status,
            "reason": reason,
            "divergence": None,
            "spec": of.spec,
            "stages": stages if status == "complete" else [],
            "parameters": of.parameters,
            "corpus": CorpusFacts(
                name="pydoc",
                fingerprint=FINGERPRINT,
                train_tokens=1000,
                valid_tokens=100,
                test_tokens=100,
                vocabulary_size=50,
                vocabulary_rule="all words",
            ),
            "seconds": 4.0 * len(stages),
            "tokens_per_second": 700.0,
            "peak_memory_bytes": 5_000_000,
            "device": "cpu (test)",
            "threads": 1,
            "versions": {"python": "3.11"},
            "commit": "abc123",
            "numerics_version": 1,
            "finished_at": "2026-01-02T03:04:05+00:00",
        }
    )


def leave(records: Records, of: Trial, settled: Record | None = None, epochs: int | None = None) -> Record | None:
    """Write the trial's curve, cut after so many epochs, and its record where it has one."""
    folder: Path = records.folder(of.key)
    write_curve(folder, curve(of)[:epochs])
    if settled is not None:
        write_record(folder, settled)
    return settled


TRACKERS: list[Tracker] = []
"""Those that a test has made, for the fixture that ends them whatever became of it."""


def tracker(trials: list[Trial], records: Records, *, scale: str = "laptop") -> Tracker:
    """A tracker of a sweep named `parts`."""
    sweep = Sweep(name="parts", question="Which parts matter?", base=trial().spec, seeds=(1,)).at("paper")
    sweep = replace(sweep, scale=scale, has_scales=True)
    TRACKERS.append(Tracker(sweep, trials, records, commit="abc123", source="sweeps/parts.yaml"))
    return TRACKERS[-1]
