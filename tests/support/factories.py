"""Made-up trials and the records they would leave, for tests of what reads records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lm.costs import HeadCost
from lm.record import (
    CacheResult,
    CorpusFacts,
    Divergence,
    Evaluation,
    Record,
    Score,
    StageResult,
    token_nats_path,
    write_curve,
    write_record,
)
from lm.spec import NUMERICS_VERSION, Cache, Dropout, Finetune, Model, NtAsgd, TrainSpec, stage_keys, trial_key
from lm.tables import write_table
from orchestrator.analysis.noise import Array, Losses
from orchestrator.sweep.published import Number
from orchestrator.trials.trial import Trial

CORPUS = CorpusFacts(
    name="pydoc",
    fingerprint="0123456789abcdef" * 4,
    train_tokens=100_000,
    valid_tokens=10_000,
    test_tokens=12_000,
    vocabulary_size=6_000,
    vocabulary_rule="words seen twice or more in the training text",
)
COST = HeadCost(parameters=1, training_flops_per_token=6e6, evaluation_flops_per_token=2e6, peak_bytes=50 * 2**20)
FULL = TrainSpec(
    corpus={"name": "pydoc"},  # type: ignore[arg-type]
    model=Model(layers=2, embedding_size=100, hidden_size=200),
    dropout=Dropout(embedding=0.1, input=0.4, between=0.25, output=0.4, weight=0.5),
    optimizer=NtAsgd(kind="nt_asgd", learning_rate=30.0, clip=0.25),
    epochs=12,
    finetune=Finetune(epochs=4),
)


def make_trial(variant: str = "full", seed: int = 1, *, change: str = "", **update: Any) -> Trial:
    """A planned trial: the full model with some parts replaced."""
    spec = FULL.model_copy(update={"seed": seed, **update})
    key = trial_key(spec, CORPUS.fingerprint)
    return Trial(variant, change or f"changes {variant}", seed, spec, key, parameters=1_234_567)


def seeded(nats: Sequence[float] | Array) -> Losses:
    """Losses of seeds 1, 2, … without any of single tokens."""
    return Losses(tuple(range(1, len(nats) + 1)), np.asarray(nats, dtype=np.float64))


def make_score(perplexity: float, *, predicted: int = 10_000) -> Score:
    nats = math.log(perplexity)
    reference = math.exp(nats * predicted / (predicted + 1))
    return Score(
        nats_per_token=nats,
        predicted_tokens=predicted,
        columns=1,
        perplexity=perplexity,
        perplexity_reference=reference,
    )


def make_curve(spec: TrainSpec, last: float, *, epochs: int | None = None, noise: int = 0) -> list[Evaluation]:
    """A curve that falls from some thousands to `last`, switches to averaging at two thirds, then fine-tunes."""
    rng = np.random.default_rng(noise)
    total = spec.epochs + (spec.finetune.epochs if spec.finetune else 0)
    points = []
    for epoch in range(1, (epochs or total) + 1):
        stage = "train" if epoch <= spec.epochs else "finetune-1"
        nats = math.log(last) + 3.5 * math.exp(-epoch / (0.12 * spec.epochs)) + 0.004 * rng.standard_normal()
        nats -= 0.02 if epoch > 2 * spec.epochs / 3 else 0.0
        points.append(
            Evaluation(
                stage=stage,
                epoch=epoch,
                step=100 * epoch,
                tokens=100_000 * epoch,
                seconds=10.0 * epoch,
                tokens_per_second=10_000.0,
                train_nats_per_token=nats - 0.3,
                valid_nats_per_token=nats,
                learning_rate=30.0,
                gradient_norm=0.2,
                averaging=epoch > 2 * spec.epochs / 3,
                best=True,
            )
        )
    return points


def make_record(
    trial: Trial,
    test: float,
    *,
    status: str = "complete",
    reason: str | None = None,
    train_seconds: float = 100.0,
    measures: dict[str, float] | None = None,
    corpus: CorpusFacts = CORPUS,
    fitted: dict[str, float] | None = None,
) -> Record:
    """The record of a trial whose final test perplexity is `test`; a diverged or failed one finished no stage.

    A stage takes `train_seconds`, and its head's own `measures` are a tenth larger on validation.
    """
    own = (
        {} if measures is None else {"valid": {name: 1.1 * value for name, value in measures.items()}, "test": measures}
    )
    stages = []
    for name, key in stage_keys(trial.spec, CORPUS.fingerprint).items():
        final = test * (1.02 if name == "train" and trial.spec.finetune else 1.0)
        plain = make_score(test * 1.1)
        cache = CacheResult(window=500, weight=0.1, flatness=1.0, plain_valid=plain, plain_test=plain)
        stages.append(
            StageResult(
                name=name,
                key=key,
                epochs=trial.spec.epochs,
                best_epoch=trial.spec.epochs - 1,
                steps=1000,
                train_seconds=train_seconds,
                evaluation_seconds=5.0,
                tokens_per_second=10_000.0,
                averaging_from_epoch=8,
                stopped_early=False,
                valid=make_score(1.05 * final, predicted=9_000),
                test=make_score(final),
                cache=cache if name == "cache" else None,
                measures=own,  # type: ignore[arg-type]
                fitted=fitted or {},
            )
        )
    diverged = Divergence(stage="train", epoch=3, step=321, learning_rate=30.0, gradient_norm=1234.5)
    return Record(
        key=trial.key,
        status=status,  # type: ignore[arg-type]
        reason=reason,
        divergence=diverged if status == "diverged" else None,
        spec=trial.spec,
        stages=tuple(stages) if status == "complete" else (),
        parameters=trial.parameters,
        corpus=corpus,
        seconds=105.0 * len(stages),
        tokens_per_second=10_000.0,
        head_cost=COST,
        peak_memory_bytes=300 * 2**20,
        device="cpu",
        threads=1,
        versions={"python": "3.11.7", "torch": "2.13.0"},
        commit="abc1234",
        numerics_version=NUMERICS_VERSION,
        finished_at="2020-01-01T00:00:00Z",
    )


def settle(runs: Path, trial: Trial, test: float, **how: Any) -> None:
    """Leave a trial's record and curve on disk."""
    folder = runs / trial.key
    stopped = how.get("status") in ("diverged", "failed")
    write_curve(folder, make_curve(trial.spec, 1.05 * test, epochs=3 if stopped else None, noise=trial.seed))
    write_record(folder, make_record(trial, test, **how))


def write_tokens(runs: Path, trial: Trial, *, harder: float = 0.0, often: int = 1) -> None:
    """Leave the losses by token of a settled trial: the text's, its own noise, and `harder` on rare words.

    Its training text has every word so many times as `often`.
    """
    rng, text = np.random.default_rng(trial.seed), np.random.default_rng(0)
    counts = text.choice([0, 3, 40, 500, 7_000, 20_000], 4_000)
    nats = text.exponential(4.0, 4_000) + 0.1 * rng.normal(size=4_000) + harder * (counts < 10)
    columns = {"position": np.arange(1, 4_001, dtype=np.int32), "token": np.arange(4_000, dtype=np.int32)}
    table = pa.table(columns | {"training_count": often * counts, "nats": nats.astype(np.float32)})
    write_table(token_nats_path(runs / trial.key, list(trial.spec.stages())[-1], "test"), table)


def begin(runs: Path, trial: Trial, test: float, epochs: int) -> None:
    """Leave what an unfinished trial leaves after so many epochs."""
    write_curve(runs / trial.key, make_curve(trial.spec, test, epochs=epochs, noise=trial.seed))


CACHE = Cache(window=500, weight=0.1, flatness=1.0)


def number(perplexity: float, certainty: str = "seed", std: float | None = None, note: str | None = None) -> Number:
    """A published perplexity."""
    known = {"paper": "a paper", "table": "1", "metric": "perplexity"}
    return Number(**known, perplexity=perplexity, std=std, certainty=certainty, note=note)
