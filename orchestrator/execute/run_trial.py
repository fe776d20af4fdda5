"""Train a trial to its record, in a Ray worker or in this process; in this process also one after the other."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

import lm
from lm.checkout import commit
from lm.data import fingerprint_of, load
from lm.files import DamagedError, LostWeightsError, atomic, disk_is_full, make_folder, ran_out_of_memory, write_text
from lm.hashes import RECORD, UNSCORED
from lm.record import Evaluation, Record, read_record, write_record
from lm.spec import NUMERICS_VERSION, trial_key
from lm.trial_log import captured
from orchestrator.agenda.trial_source import TrialSource
from orchestrator.errors import redacted
from orchestrator.execute.interrupt import Interrupt
from orchestrator.execute.watchdog import recorded_stall, stall_limit
from orchestrator.trials.disk import FAILURE, STALLED, set_aside_damaged
from orchestrator.trials.records import DISK_FULL, STORAGE_LOST, TEXT_CHANGED, Records, is_settled
from orchestrator.trials.storage import (
    ONLY_TRAINING,
    FinishedElsewhereError,
    Storage,
    StorageError,
    borrowed,
    patiently,
)
from orchestrator.trials.trial import Listener, Trial

OUT_OF_MEMORY = "out of memory"
TRAINED_ALONE = "ran out of memory, or its worker died, beside other trials; trained alone"
_LONGEST_WRITE_SECONDS = 10.0
OnEvaluation = Callable[[Evaluation], None]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Allotment:
    """Where a trial's folder lies, and what the trial may use.

    With a `storage`, a worker keeps the folder there, and `runs` is the driver's, which fetches what a report needs.
    `alone`: no other trial runs meanwhile, because the trial ran out of memory beside others before. `in_worker`: what
    the process prints goes to the trial's log.
    """

    runs: Path
    cpus: float
    gpus: float
    checkpoint_seconds: float
    storage: str | None = None
    stall_seconds: float | None = None
    alone: bool = False
    in_worker: bool = False

    @property
    def threads(self) -> int:
        """One torch thread for each whole CPU, at least one."""
        return max(1, int(self.cpus))


@dataclass(frozen=True)
class Failure:
    """Why an exception ended a trial; if it could not be `recorded`, the driver tries to."""

    reason: str
    recorded: bool = True


def run_trial(trial: Trial, allotment: Allotment, report: OnEvaluation) -> Failure | None:
    """Train a trial to its record; an exception becomes a record with status `failed`, so that other trials go on.

    Only what is no Exception, like the SystemExit that stops a worker, leaves this function.
    """
    forget_failure(trial, allotment)
    if allotment.storage is None:
        return _train_or_fail(trial, allotment, report)
    try:
        source = Records(allotment.runs).source(trial)  # may be another trial's folder that holds the same stage
        key = None if source is None else source.name
        storage = patiently(partial(Storage, allotment.storage))
        with borrowed(storage, trial.key, key, allotment.checkpoint_seconds) as (runs, push):

            def push_and_report(evaluation: Evaluation) -> None:
                push()
                report(evaluation)

            return _train_or_fail(replace(trial, starts_from=key), replace(allotment, runs=runs), push_and_report)
    except FinishedElsewhereError as error:
        _log.warning("%s: %s, whose record counts", trial.title, error)
        return None
    except (OSError, ValueError) as error:
        return Failure(_reason(error, allotment), recorded=False)


class _StoppedEarly(BaseException):
    """The source wants no more of a trial; no Exception, so that the trial does not count as failed."""


def run_inline(source: TrialSource, allotment: Allotment, listener: Listener, interrupt: Interrupt) -> None:
    """Train what the source says; the first interrupt ends the epoch under way, unfinished."""
    os.environ["OMP_NUM_THREADS"] = str(allotment.threads)
    while interrupt.signal is None and (trial := source.next()) is not None:
        listener.started(trial)

        def report(evaluation: Evaluation, trial: Trial = trial) -> None:
            listener.evaluated(trial, evaluation)
            if not source.goes_on(trial, evaluation):
                raise _StoppedEarly

        stopped_early = False
        try:
            with interrupt.stopping():
                failure = run_trial(trial, allotment, report)
                if failure is not None and not failure.recorded:
                    write_failure(trial, allotment, failure.reason)
        except _StoppedEarly:
            stopped_early = True
        record = settled_record(trial, allotment)
        source.settled(trial, record)
        listener.settled(replace(trial, stopped_early=stopped_early), record)


def settled_record(trial: Trial, allotment: Allotment, waits: Sequence[float] = (2.0,)) -> Record | None:
    """A trial's record; None if it has none or it cannot be read.

    What the report needs of the trial is brought from the storage first, if there is one. A silent one is asked again
    after each of the `waits`, during which nothing starts; an OSError is only logged.
    """
    if (uri := allotment.storage) is not None:
        try:
            patiently(lambda: Storage(uri).pull(trial.key, allotment.runs, without=ONLY_TRAINING), waits)
        except OSError as error:
            _log.warning("%s: %s", trial.title, error)
    try:
        return Records(allotment.runs).find(trial)
    except (OSError, ValueError) as error:  # Tune would end the whole sweep if its searcher raised
        _log.warning("%s: %s", trial.title, error)
        return None


def forget_failure(trial: Trial, allotment: Allotment) -> None:
    """Remove the record of a trial's earlier failure, which would be the result of an attempt that leaves none."""
    try:
        record = Records(allotment.runs).read(trial.key)
        if record is not None and record.status == "failed":
            (allotment.runs / trial.key / RECORD).unlink(missing_ok=True)
            storage = None if allotment.storage is None else Storage(allotment.storage)
            if storage is not None and (stored := storage.record(trial.key)) is not None and stored.status == "failed":
                storage.remove(f"{trial.key}/{RECORD}")
    except (OSError, ValueError) as error:
        _log.warning("%s: the record of its earlier failure stays: %s", trial.title, redacted(error))


def _train_or_fail(trial: Trial, allotment: Allotment, report: OnEvaluation) -> Failure | None:
    """Train to a record, that of a failure if an exception ended it; from the beginning if files are damaged."""
    folder = allotment.runs / trial.key
    try:
        set_aside_damaged(folder)
        if (stall := recorded_stall(folder, allotment.stall_seconds)) is not None:
            write_failure(trial, allotment, *stall)
            return None
        if trial_key(trial.spec, fingerprint_of(trial.spec.corpus)) != trial.key:
            again = "run the command again, which plans with the text as it is then"
            write_failure(trial, allotment, f"{TEXT_CHANGED} since the command began: {again}")
            return None
        (folder / FAILURE).unlink(missing_ok=True)
        try:
            _train(trial, allotment, report)
        except DamagedError:  # in a file that is rarely read, like the weights of a trial that is only scored on test
            set_aside_damaged(folder, weights=True)
            _train(trial, allotment, report)
    except FinishedElsewhereError:
        raise
    except Exception as error:
        reason = _reason(error, allotment)
        _log.debug("%s failed", trial.title, exc_info=True)
        details = redacted("".join(traceback.format_exception(error)))
        for_good = isinstance(error, LostWeightsError)
        return Failure(reason, recorded=write_failure(trial, allotment, reason, details, train_again=for_good))
    finally:
        if allotment.gpus and "torch" in sys.modules:  # an idle worker must not hold memory that others need
            sys.modules["torch"].cuda.empty_cache()
    return None


def _reason(error: Exception, allotment: Allotment) -> str:
    """Why a trial failed, with the place in the code; it begins with what sets the failure apart from others."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    reason = f"{type(error).__name__}: {redacted(error)} ({Path(last.filename).name}:{last.lineno})"
    if disk_is_full(error):
        return f"{DISK_FULL}: {reason}"
    if isinstance(error, StorageError):
        return f"{STORAGE_LOST}: {reason}"
    if ran_out_of_memory(error):
        return f"{OUT_OF_MEMORY}{' alone' if allotment.alone else ''}: {reason}"
    return reason


def _train(trial: Trial, allotment: Allotment, report: OnEvaluation) -> None:
    # The worker imports torch, which takes seconds; the driver imports this module without it.
    from lm.train import train

    folder = allotment.runs / trial.key
    with stall_limit(folder, allotment.stall_seconds), captured(folder) if allotment.in_worker else nullcontext():
        evaluations = train(
            trial.spec,
            out=folder,
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
        if allotment.alone and (record := read_record(folder)) is not None:
            write_record(folder, record.model_copy(update={"note": TRAINED_ALONE}))


@contextmanager
def _held(lock: Path) -> Iterator[None]:
    """Hold a trial's lock; if its file cannot be opened, which may be why the trial failed, go on without.

    OSError if another process holds it for longer than a record takes to be written: it trains the trial.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(FileLock(lock, timeout=_LONGEST_WRITE_SECONDS))
        except Timeout:
            raise OSError(f"{lock.parent}: another process trains this trial") from None
        except OSError as error:
            _log.debug("%s: %s", lock, error)
        yield


def write_failure(
    trial: Trial, allotment: Allotment, reason: str, details: str = "", *, train_again: bool = False
) -> bool:
    """Write the record of a trial that failed, and the details in `failure.txt`; the log says if that fails too.

    The record of a trial that has nothing left to do stays: another command may have written it meanwhile. That of a
    trial that has only to be scored on test is kept beside the failure, for the next attempt, unless it has to
    `train_again`. Whether the trial has a record now.
    """
    folder = allotment.runs / trial.key
    try:
        make_folder(folder)
        record = Record(
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
            versions={"lm-ablation": lm.__version__},
            commit=commit(),
            numerics_version=NUMERICS_VERSION,
            finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        with _held(folder / ".lock"):
            with suppress(DamagedError):
                before = read_record(folder)
                if is_settled(trial, before):
                    _log.warning("%s failed (%s); its record, of another command, stays", trial.title, reason)
                    return True
                if train_again:
                    (folder / UNSCORED).unlink(missing_ok=True)
                elif before is not None and before.status != "failed":
                    with atomic(folder / UNSCORED) as temporary:
                        shutil.copyfile(folder / RECORD, temporary)
            write_text(folder / FAILURE, f"{reason}\n\n{details}".rstrip() + "\n")
            (folder / STALLED).unlink(missing_ok=True)
            write_record(folder, record)
            return True
    except (OSError, ValueError) as error:
        _log.warning("%s failed (%s), which cannot be recorded: %s", trial.title, reason, error)
        return False
