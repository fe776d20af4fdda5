"""A folder with a corpus and a sweep whose trials take a fraction of a second, and commands in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lm.data import fingerprint_of
from lm.spec import TrainSpec, trial_key
from lm.train import train
from orchestrator.__main__ import app
from orchestrator.api import load_sweep
from orchestrator.trials.plan import plan
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from tests.support.pictures import draw_nothing
from tests.support.tiny import write_corpus

SWEEP = """\
name: toy
question: Does it matter?
base:
  corpus: {name: corpus}
  model: {layers: 1, embedding_size: 6, hidden_size: 10}
  dropout: {weight: 0.3}
  optimizer: {kind: sgd, learning_rate: 2.0, clip: 0.5}
  bptt: {kind: fixed, length: 12}
  batch_size: 4
  epochs: 2
  finetune: {epochs: 1}
components:
  weight-dropping: {off: {dropout.weight: 0.0}}
  fine-tuning: {off: {finetune: null}}
variants:
  neural cache: {cache: {window: 5, weight: 0.1, flatness: 1.0}}
seeds: [1]
scales:
  mini: {base: {epochs: 3}}
"""


def make_place(folder: Path) -> Path:
    """The folder with `toy.yaml` and the text it names, to be worked in."""
    write_corpus(folder / "corpus")
    (folder / "toy.yaml").write_text(SWEEP, encoding="utf-8")
    return folder


@contextmanager
def working_in(place: Path, *, pictures: bool = False) -> Iterator[None]:
    """The folder is the working directory, with a cache of its own; if `pictures` is not set, pages have none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("LM_CACHE", str(place / "cache"))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        if not pictures:
            draw_nothing(patch)
        yield


def trials() -> dict[str, Trial]:
    """The trials of `toy.yaml` in the working directory, by variant."""
    return {trial.variant: trial for trial in plan(load_sweep("toy.yaml", "paper"))}


def settle(trial: Trial, runs: Path = Path("runs")) -> Path:
    """Train a trial; its folder."""
    return settle_spec(trial.spec, runs / trial.key, Records(runs).source(trial))


def settle_spec(spec: TrainSpec, out: Path, source: Path | None = None) -> Path:
    for _ in train(spec, out=out, resume_from=source, device="cpu"):
        pass
    return out


def folder_of(spec: TrainSpec) -> Path:
    """Where a sweep looks for the trial of this spec."""
    return Path("runs") / trial_key(spec, fingerprint_of(spec.corpus))


def start(spec: TrainSpec, out: Path) -> Iterator[object]:
    """A trial under way, after its first epoch; its folder is held as long as what is returned is."""
    running = train(spec, out=out, device="cpu")
    next(running)
    return running


def command(*arguments: str, answer: str | None = None) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command in this process; `answer` is typed when it asks."""
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"}, input=answer)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def fake_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A stand-in for NVIDIA's program, first on the PATH."""
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def process(folder: Path, *line: str) -> subprocess.CompletedProcess[str]:
    """A Python of its own in that folder, so that MLflow and torch are its own too."""
    environment = os.environ | {"LM_CACHE": str(folder / "cache")}
    environment.pop("MLFLOW_TRACKING_URI", None)
    return subprocess.run(
        [sys.executable, *line], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
