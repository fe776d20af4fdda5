"""Stages that several trials share, trained once, also by trials that start at the same moment.

<runs>/.stages/<stage key>.lock    held while a trial trains the stage
               <stage key>.json    its result, and where its files lie; written when they are kept

A trial holds the lock of its own folder first, then that of one stage at most: none waits for one that waits for it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from lm.files import WriteError, read_regular, sha256, write_text
from lm.hashes import CURVE
from lm.record import Evaluation, StageResult, read_curve, stage_files, write_curve
from lm.resume import TrialState, copy_stage, curve_hash
from lm.scoring import load_chosen
from lm.spec import NUMERICS_VERSION, Part

_SIGN_SECONDS = 2.0
_log = logging.getLogger(__name__)


class SharedStage(Part):
    """A finished stage as its trial left it: the trial's folder, seen from `.stages`, and each file's SHA-256.

    `curve` is that of the stage's own epochs, since the file grows with the trial's later stages.
    """

    folder: str
    codebook: str | None
    numerics_version: int
    files: dict[str, str]
    result: StageResult
    curve: str | None = None


@contextmanager
def holding(trial: TrialState, name: str) -> Iterator[None]:
    """No other trial trains this stage meanwhile; waits for one that does. Nothing where stages are not shared."""
    if trial.shared_stages is None:
        yield
        return
    trial.shared_stages.mkdir(parents=True, exist_ok=True)
    lock = FileLock(trial.shared_stages / f"{trial.keys[name]}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        _log.info("%s: another trial trains stage %s; waiting for it", trial.out, name)
        _wait(lock, trial.out / ".waits")
    try:
        yield
    finally:
        lock.release()


def _wait(lock: FileLock, sign: Path) -> None:
    """Take the lock however long it is held; meanwhile renew a sign of life for a process that watches the folder."""
    try:
        while not lock.is_locked:
            sign.touch()
            with suppress(Timeout):
                lock.acquire(timeout=_SIGN_SECONDS)
    finally:
        sign.unlink(missing_ok=True)


def adopt(trial: TrialState, name: str) -> bool:
    """Take over a stage that another trial has finished, its files copied; False where none has, or they are gone."""
    found = _read(trial, name)
    if found is None:
        return False
    assert trial.shared_stages is not None
    source = trial.shared_stages / found.folder
    if source.resolve() == trial.out.resolve() and not (source / CURVE).exists():  # of its folder, now set aside
        return False
    result = found.result if trial.test else found.result.without_test()
    try:
        points = _points(source, found)
        copy_stage(source, trial.out, result, found.files)
    except WriteError:  # of this trial's own folder, in which it could not train either
        raise
    except (OSError, ValueError) as error:
        _log.warning("%s: stage %s of %s is not taken over: %s", trial.out, name, source, error)
        return False
    trial.done.append(result)
    trial.curve = [point for point in trial.curve if point.stage != name] + points
    write_curve(trial.out, trial.curve)
    if name != "cache":
        load_chosen(trial, result)
    return True


def publish(trial: TrialState) -> None:
    """Let other trials take over the stage that this one has just finished."""
    if trial.shared_stages is None:
        return
    result = trial.done[-1]
    shared = SharedStage(
        folder=os.path.relpath(trial.out.resolve(), trial.shared_stages.resolve()),
        codebook=trial.codebook,
        numerics_version=NUMERICS_VERSION,
        files={str(path.relative_to(trial.out)): sha256(path) for path in stage_files(trial.out, result)},
        result=result,
        curve=curve_hash(point for point in trial.curve if point.stage == result.name),
    )
    note = trial.shared_stages / f"{result.key}.json"
    try:
        write_text(note, shared.model_dump_json(indent=1) + "\n")
    except OSError as error:  # the trial has its stage; others train it themselves
        _log.warning("%s: stage %s is not shared: %s", trial.out, result.name, error)


def _read(trial: TrialState, name: str) -> SharedStage | None:
    if trial.shared_stages is None:
        return None
    path = trial.shared_stages / f"{trial.keys[name]}.json"
    try:
        found = SharedStage.model_validate_json(read_regular(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        _log.warning("%s: not of this version: %s", path, str(error).splitlines()[0])
        return None
    same = found.codebook == trial.codebook and found.numerics_version == NUMERICS_VERSION
    return found if same and found.result.key == trial.keys[name] else None


def _points(source: Path, found: SharedStage) -> list[Evaluation]:
    points = [point for point in read_curve(source) if point.stage == found.result.name]
    if len(points) != found.result.epochs:
        raise ValueError(f"{len(points)} of its {found.result.epochs} epochs are in the curve")
    if found.curve is not None and curve_hash(points) != found.curve:
        raise ValueError("its epochs in the curve are not what they were")
    return points
