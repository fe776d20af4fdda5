"""A trial under way: what it keeps at a checkpoint, and how it goes on from one or from another trial's stages."""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from lm.checkpoint import Checkpoint, load_checkpoint, load_weights, save_checkpoint
from lm.data import EncodedCorpus
from lm.files import DamagedError, atomic, in_a_line, sha256
from lm.hashes import CURVE, NEEDED_BY_A_MODEL, READ_BY_REPORTS, check_hashes
from lm.heads import Words
from lm.model import LanguageModel
from lm.record import (
    Evaluation,
    StageResult,
    curve_table,
    read_curve,
    read_record,
    stage_files,
    weights_path,
    write_curve,
)
from lm.spec import NUMERICS_VERSION, TrainSpec, stage_keys
from lm.stage import DivergedError, Stage, from_checkpoint, to_checkpoint

_log = logging.getLogger(__name__)


@dataclass
class TrialState:
    """A trial under way: what all of its stages share."""

    spec: TrainSpec
    out: Path
    corpus: EncodedCorpus
    device: torch.device
    threads: int
    words: Words
    model: LanguageModel
    keys: dict[str, str]
    test: bool
    shared_stages: Path | None
    done: list[StageResult] = field(default_factory=list)
    curve: list[Evaluation] = field(default_factory=list)
    hashes: dict[str, str] = field(default_factory=dict)
    """The SHA-256 of what finished stages left, by its path in `out`, as the last checkpoint has it."""

    @property
    def key(self) -> str:
        """The trial's own key, that of its last stage."""
        return self.keys[list(self.keys)[-1]]

    @property
    def codebook(self) -> str | None:
        """The fingerprint of the head's codebook, None where it has none."""
        return None if self.words.codebook is None else self.words.codebook.fingerprint


def save(trial: TrialState, stage: Stage) -> None:
    """Write a checkpoint of the trial in this stage."""
    checkpoint = to_checkpoint(stage)
    left = {str(path.relative_to(trial.out)): path for result in trial.done for path in stage_files(trial.out, result)}
    trial.hashes = {name: trial.hashes.get(name) or sha256(path) for name, path in left.items()}
    state = checkpoint.state | {
        "key": trial.key,
        "codebook": trial.codebook,
        "device": trial.device.type,
        "done": [result.model_dump_json() for result in trial.done],
        "files": trial.hashes,
        "curve": curve_hash(trial.curve),
    }
    save_checkpoint(trial.out, Checkpoint(checkpoint.weights, state))


def resume(trial: TrialState) -> Stage | None:
    """The stage that the last checkpoint holds, None where there is none; the trial's curve and results with it."""
    checkpoint = load_checkpoint(trial.out, trial.device, lambda state: _missing(trial.out, state))
    if checkpoint is None:
        return None
    if checkpoint.state["key"] != trial.key:
        raise ValueError(f"{trial.out}: its checkpoint is of trial {checkpoint.state['key']}, this spec is {trial.key}")
    if (codebook := checkpoint.state.get("codebook")) != trial.codebook:
        raise ValueError(f"{trial.out}: its checkpoint needs codebook {codebook}, the one at hand is {trial.codebook}")
    if (device := checkpoint.state.get("device", trial.device.type)) != trial.device.type:  # its random numbers differ
        where = f"{device}, this run is on {trial.device.type}"
        raise ValueError(
            f"{trial.out}: its checkpoint is of a run on {where}; ask for {device}, or remove checkpoints/"
        )
    stage = from_checkpoint(trial.spec, trial.model, trial.device, checkpoint)
    trial.done = [StageResult.model_validate_json(text) for text in checkpoint.state["done"]]
    if not trial.test:
        trial.done = [result.without_test() for result in trial.done]
    trial.curve = [point for point in read_curve(trial.out) if point.epoch <= stage.at.epoch]
    trial.hashes = checkpoint.state.get("files", {})
    return stage


def curve_hash(points: Iterable[Evaluation]) -> str:
    """A hash of these epochs, whether or not the file has later ones."""
    # Through Arrow's types, so that a curve read from disk has the same hash.
    return hashlib.sha256(repr(curve_table(points).to_pylist()).encode()).hexdigest()


def _missing(out: Path, state: dict[str, Any]) -> str | None:
    """What of a trial is not as it was at a checkpoint with this state, which does not hold it itself."""
    for name, expected in state.get("files", {}).items():
        try:
            if sha256(out / name) != expected:
                return f"{name} is not the file that the trial wrote"
        except OSError as error:
            return in_a_line(error)
    epoch = state["position"]["epoch"]
    hashed = curve_hash(point for point in read_curve(out) if point.epoch <= epoch)
    return None if state.get("curve", hashed) == hashed else f"{CURVE} does not have its {epoch} epochs as they were"


def take_over(trial: TrialState, source: Path) -> None:
    """Adopt the stages that another settled trial shares with this one, its divergence in a shared stage included.

    Their files are copied, so that this folder is whole without the other. Nothing is taken from one that is damaged.
    """
    try:
        record = read_record(source)
        if record is None or record.numerics_version != NUMERICS_VERSION:
            return
        check_hashes(source, record.hashes, READ_BY_REPORTS + NEEDED_BY_A_MODEL)
        curve = read_curve(source)
    except ValueError as error:
        _log.warning("%s; %s trains all its stages itself", error, trial.out)
        return
    recorded = stage_keys(record.spec, record.corpus.fingerprint)
    shared = [result for result in record.stages if trial.keys.get(result.name) == result.key]
    if not trial.test:
        shared = [result.without_test() for result in shared]
    if lost := [path for result in shared for path in stage_files(source, result) if not path.exists()]:
        _log.warning("%s is no longer there: %s trains all its stages itself", lost[0], trial.out)
        return
    names = [result.name for result in shared]
    divergence = record.divergence
    if divergence is not None and trial.keys.get(divergence.stage) == recorded[divergence.stage]:
        names.append(divergence.stage)
    else:
        divergence = None
    if names and record.codebook != trial.codebook:
        _log.warning("%s has another codebook than %s: nothing is taken over", source, trial.out)
        return
    trained = [result for result in shared if result.name != "cache"]
    try:
        for result in shared:
            copy_stage(source, trial.out, result, record.hashes or None)
    except DamagedError as error:  # since it was checked
        _log.warning("%s; %s trains all its stages itself", error, trial.out)
        return
    trial.done = shared
    trial.curve = [point for point in curve if point.stage in names]
    if trial.curve:
        write_curve(trial.out, trial.curve)
    if divergence is not None:
        raise DivergedError(divergence, record.reason, record.unfinished_seconds)
    if trained:
        trial.model.load_weights(load_weights(weights_path(source, trained[-1].name), trial.device))
        trial.model.head.use_fitted(trained[-1].fitted)


def copy_stage(source: Path, folder: Path, result: StageResult, hashes: Mapping[str, str] | None = None) -> None:
    """Copy what a finished stage left in one trial's folder to another's.

    With `hashes`, by its path in `source`, DamagedError names a file that is not what the trial wrote.
    """
    for path in stage_files(source, result):
        name = path.relative_to(source)
        with atomic(folder / name) as temporary:
            shutil.copyfile(path, temporary)
            if hashes is not None and sha256(temporary) != hashes.get(str(name)):
                raise DamagedError(path, "is not the file that the trial wrote")
