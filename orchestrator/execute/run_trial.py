"""What a worker does with one trial; the same in a Ray worker and in this process."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from lm.checkout import commit
from lm.data import load
from lm.files import DamagedError
from lm.record import Evaluation, Record, read_record, write_record
from lm.spec import NUMERICS_VERSION
from orchestrator.errors import redacted
from orchestrator.execute.watchdog import forget_reason, recorded_stall, stall_limit, write_reason
from orchestrator.trials.disk import set_aside_damaged
from orchestrator.trials.records import Records
from orchestrator.trials.storage import Storage, borrowed
from orchestrator.trials.trial import Trial

OUT_OF_MEMORY = "out of memory"
TRAINED_ALONE = "ran out of memory, or its worker died, beside other trials; trained alone"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Allotment:
    """Where a trial's folder lies, and what the trial may use.

    With a `storage`, a worker keeps the folder there, and `runs` is the driver's, who fetches what a report needs.
    """

    runs: Path
    cpus: float
    gpus: float
    checkpoint_seconds: float
    storage: str | None = None
    stall_seconds: float | None = None
    alone: bool = False  # no other trial runs meanwhile: the second try of one that ran out of memory beside others

    @property
    def threads(self) -> int:
        """One torch thread for each whole CPU, at least one."""
        return max(1, int(self.cpus))


def run_trial(trial: Trial, allotment: Allotment, report: Callable[[Evaluation], None]) -> str | None:
    """Train a trial to its record; an exception becomes a record with status `failed`, so that neighbours go on.

    A settled trial returns at once: whoever asks again reads its record. Only what is no Exception, such as the
    SystemExit that stops a worker, leaves this function. What it returns is why there could be no record, since the
    storage was lost: the driver keeps it.
    """
    if allotment.storage is None:
        _train_or_fail(trial, allotment, report)
        return None
    try:
        source = Records(allotment.runs).source(trial)  # here already another trial's that holds the stage, if one does
        taken = None if source is None else source.name
        storage = Storage(allotment.storage)
        with borrowed(storage, trial.key, taken, allotment.checkpoint_seconds) as (runs, push):

            def kept(evaluation: Evaluation) -> None:
                push()
                report(evaluation)

            _train_or_fail(replace(trial, starts_from=taken), replace(allotment, runs=runs), kept)
    except (OSError, ValueError) as error:
        return f"{type(error).__name__}: {redacted(error)}"
    return None


def fetch(trial: Trial, allotment: Allotment) -> None:
    """Bring what the report needs of a trial from the storage to `runs`, if there is one; an OSError is only logged."""
    if allotment.storage is not None:
        try:
            Storage(allotment.storage).pull(trial.key, allotment.runs, checkpoints=False, weights=False)
        except OSError as error:
            _log.warning("%s: %s", trial.title, error)


def settled_record(trial: Trial, allotment: Allotment) -> Record | None:
    """A trial's record, brought from the storage if there is one; None if it has none or it cannot be read."""
    fetch(trial, allotment)
    try:
        return Records(allotment.runs).find(trial)
    except (OSError, ValueError) as error:  # Tune would end the whole sweep if its searcher raised
        _log.warning("%s: %s", trial.title, error)
        return None


def _train_or_fail(trial: Trial, allotment: Allotment, report: Callable[[Evaluation], None]) -> None:
    """Train to a record, that of a failure where an exception ended it. What stalled before is not tried again.

    Files that are not what the trial wrote are set aside with its folder, and it is trained from its beginning.
    """
    folder = allotment.runs / trial.key
    try:
        set_aside_damaged(folder)
        if (stall := recorded_stall(folder, allotment.stall_seconds)) is not None:
            write_failure(trial, allotment, *stall)
            return
        forget_reason(folder)
        try:
            _train_within_limit(trial, allotment, report)
        except DamagedError:  # in what is read only where it is needed, as weights are to score them on test
            set_aside_damaged(folder, weights=True)
            _train_within_limit(trial, allotment, report)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__}: {redacted(error)} ({Path(last.filename).name}:{last.lineno})"
        if ran_out_of_memory(error):
            reason = f"{OUT_OF_MEMORY}{' alone' if allotment.alone else ''}: {reason}"
        _log.debug("%s, seed %d failed", trial.variant, trial.seed, exc_info=True)
        write_failure(trial, allotment, reason, redacted("".join(traceback.format_exception(error))))
    finally:
        _release_gpu(allotment)


def _train_within_limit(trial: Trial, allotment: Allotment, report: Callable[[Evaluation], None]) -> None:
    folder = allotment.runs / trial.key
    with stall_limit(folder, allotment.stall_seconds):
        _train(trial, allotment, report)
        if allotment.alone:
            _note(folder, TRAINED_ALONE)


def ran_out_of_memory(error: Exception) -> bool:
    """Whether an allocation failed, on the GPU or the CPU, where torch has no type of its own for it."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and "DefaultCPUAllocator: " in str(error)


def _release_gpu(allotment: Allotment) -> None:
    """Give back what torch keeps for later: an idle worker must not hold a neighbour's memory."""
    if allotment.gpus and "torch" in sys.modules:
        sys.modules["torch"].cuda.empty_cache()


def _note(folder: Path, note: str) -> None:
    record = read_record(folder)
    if record is not None:
        write_record(folder, record.model_copy(update={"note": note}))


def _train(trial: Trial, allotment: Allotment, report: Callable[[Evaluation], None]) -> None:
    # Torch and its seconds of start-up belong to the worker, not to the driver that imports this module.
    from lm.train import train

    evaluations = train(
        trial.spec,
        out=allotment.runs / trial.key,
        resume_from=Records(allotment.runs).source(trial),
        shared_stages=allotment.runs / ".stages",
        test=trial.opens_test,
        device="cuda" if allotment.gpus else "cpu",
        threads=allotment.threads,
        checkpoint_seconds=allotment.checkpoint_seconds,
    )
    with closing(evaluations):
        for evaluation in evaluations:
            report(evaluation)


def write_failure(trial: Trial, allotment: Allotment, reason: str, details: str = "") -> None:
    """The record of a trial that could not be finished, and the details beside it; the next command tries it again.

    Where not even that can be written (the corpus gone, the disk full) the log says so, and the trial is as if killed.
    """
    folder = allotment.runs / trial.key
    try:
        write_reason(folder, f"{reason}\n\n{details}")
        write_record(folder, _failed_record(trial, allotment, reason))
    except (OSError, ValueError) as error:
        _log.warning("%s, seed %d failed (%s), which cannot be recorded: %s", trial.variant, trial.seed, reason, error)


def _failed_record(trial: Trial, allotment: Allotment, reason: str) -> Record:
    return Record(
        key=trial.key,
        status="failed",
        reason=reason,
        divergence=None,
        spec=trial.spec,
        stages=(),
        parameters=trial.parameters,
        corpus=load(trial.spec.corpus).facts,
        seconds=0.0,
        tokens_per_second=0.0,
        peak_memory_bytes=0,
        device="gpu" if allotment.gpus else "cpu",
        threads=allotment.threads,
        versions={},
        commit=commit(),
        numerics_version=NUMERICS_VERSION,
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
