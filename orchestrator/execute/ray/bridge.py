"""What stands between Tune and the driver: the trial source as a searcher, its wishes as a scheduler."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray import tune
from ray.air.execution._internal import RayActorManager
from ray.exceptions import OutOfMemoryError, RayActorError
from ray.tune.execution import tune_controller
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from orchestrator.agenda.trial_source import TrialSource
from orchestrator.execute.run_trial import (
    OUT_OF_MEMORY,
    Allotment,
    forget_failure,
    run_trial,
    settled_record,
    write_failure,
)
from orchestrator.trials.records import Records, is_settled
from orchestrator.trials.trial import Listener, Trial

PAUSES = (0.0, 10.0, 60.0)
"""Seconds that a trial waits after each death of its worker: what filled the memory may pass."""
_log = logging.getLogger(__name__)


class ActorManager(RayActorManager):
    """Tune's, to which a worker that Ray ended because memory ran out has died like any other.

    Tune (seen in Ray 2.60) takes it for an error of its own, and ends the whole sweep.
    """

    def _actor_task_failed(self, tracked_actor_task: Any, exception: Exception) -> None:
        if isinstance(exception, OutOfMemoryError):
            exception = RayActorError(error_msg=str(exception))
        super()._actor_task_failed(tracked_actor_task, exception)


tune_controller.RayActorManager = ActorManager  # type: ignore[attr-defined]


def fit(queue: Queue, trainable: Callable[[dict[str, Any]], None], *, session: Path, at_once: int) -> None:
    """Give every trial of the queue to `trainable` in a worker, at most `at_once` at a time."""
    config = tune.TuneConfig(
        search_alg=queue, scheduler=Scheduler(queue), num_samples=-1, max_concurrent_trials=at_once, reuse_actors=True
    )
    run = tune.RunConfig(name="sweep", storage_path=str(session / "tune"), verbose=0, callbacks=[Starts(queue)])
    resources = {"cpu": queue.allotment.cpus, "gpu": queue.allotment.gpus}
    tune.Tuner(tune.with_resources(trainable, resources), tune_config=config, run_config=run).fit()


def train_in_worker(config: dict[str, Any]) -> None:
    """Train one trial in a Ray worker; RuntimeError once a failure is recorded, so that Ray replaces the worker.

    A process that is broken, as by an error of CUDA that stays, would fail all trials that follow.
    """
    trial, allotment = config["trial"], dataclasses.replace(config["allotment"], in_worker=True)
    failure = run_trial(trial, allotment, lambda point: tune.report({"evaluation": point}))
    if failure is not None and failure.recorded:
        raise RuntimeError(failure.reason)
    if failure is not None:
        tune.report({"failure": failure.reason})


class Queue(Searcher):
    """Hands Tune the source's trials, and the source what became of them.

    A trial whose worker died is handed out again, after each of the `PAUSES`. One that ran out of memory beside others,
    or whose workers died too often beside others, is kept until nothing else can run, and runs alone, once.
    """

    def __init__(
        self,
        source: TrialSource,
        allotment: Allotment,
        listener: Listener,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.source, self.allotment, self.listener, self._clock = source, allotment, listener, clock
        self.records = Records(allotment.runs)
        self.running: dict[str, Trial] = {}
        self.stopped_early: set[str] = set()
        self.deaths: dict[str, str] = {}
        self._again: list[tuple[float, Trial]] = []  # with the time from which it may run
        self._had_company: set[str] = set()  # keys of trials that ran at the same time as another
        self._held: list[Trial] = []  # wait until they can run alone
        self._alone: str | None = None  # the Tune trial that runs alone
        self._died: Counter[str] = Counter()

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles its searcher for a restore that is never asked for: the next command plans again

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """The next trial that can start; None while none can."""
        if self._alone is not None:
            return None
        if not self.source.may_start():  # what waits here is left to the next command
            self._again, self._held = [], []
        trial, allotment = self._due() or self.source.next(), self.allotment
        if trial is None and self._held and not (self.running or self._again):
            trial, self._alone = self._held.pop(0), trial_id
            allotment = dataclasses.replace(allotment, alone=True)
        if trial is None:
            finished: Any = Searcher.FINISHED  # a word among dictionaries, by Ray's own convention
            return None if self.running or self._again else finished
        forget_failure(trial, self.allotment)
        self.running[trial_id] = trial
        if len(self.running) > 1:
            self._had_company |= {each.key for each in self.running.values()}
        source = self.records.source(trial)  # may be a longer trial's folder, which a worker elsewhere cannot find
        sent = dataclasses.replace(trial, starts_from=None if source is None else source.name)
        return {"trial": sent, "allotment": allotment}

    def _due(self) -> Trial | None:
        """A trial whose worker died and whose pause is over."""
        due = next((each for each in self._again if each[0] <= self._clock()), None)
        if due is None:
            return None
        self._again.remove(due)
        return due[1]

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """It ended, or was stopped, or its workers died too often: only its record knows."""
        trial, deaths = self.running.pop(trial_id), self.deaths.pop(trial_id, "")
        may_hold = trial.key in self._had_company and self._alone != trial_id
        self._alone = None
        if (failure := (result or {}).get("failure")) is not None:
            write_failure(trial, self.allotment, failure)
        record = settled_record(trial, self.allotment)
        if may_hold and record is not None and (record.reason or "").startswith(OUT_OF_MEMORY):
            self._try_again(trial, "ran out of memory beside others; it will be tried again alone")
            self._held.append(trial)
            return
        if error and (record is None or not (record.status == "failed" or is_settled(trial, record))):
            self._died[trial.key] += 1
            if (deaths_so_far := self._died[trial.key]) <= len(PAUSES):
                pause = PAUSES[deaths_so_far - 1]
                self._try_again(trial, f"lost its worker; it will be tried again{f' in {pause:g} s' * bool(pause)}")
                self._again.append((self._clock() + pause, trial))
                return
            if may_hold:
                self._try_again(trial, "lost its worker once more; it will be tried again alone")
                self._held.append(trial)
                return
            reason = f"its worker died {self._died[trial.key]} times without a Python error (killed, or out of memory)"
            write_failure(trial, self.allotment, reason, deaths)
            record = settled_record(trial, self.allotment)
        self.source.settled(trial, record)
        if record is not None or trial_id in self.stopped_early:
            self.listener.settled(dataclasses.replace(trial, stopped_early=trial_id in self.stopped_early), record)

    def _try_again(self, trial: Trial, why: str) -> None:
        _log.warning("%s %s", trial.title, why)
        self.listener.settled(trial, None)  # until it starts again, it does not run

    def save(self, checkpoint_path: str) -> None:
        """Save nothing: the next command plans again from the records."""


class Scheduler(FIFOScheduler):
    """Passes what Tune says of running trials on, and stops those that the source wants no more of."""

    def __init__(self, queue: Queue) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.queue = queue

    def on_trial_result(self, tune_controller: object, trial: Any, result: dict[str, Any]) -> str:
        """Whether it goes on after this point of its curve; Tune also sends a result without one."""
        running, evaluation = self.queue.running.get(trial.trial_id), result.get("evaluation")
        if running is None or evaluation is None:
            return str(TrialScheduler.CONTINUE)
        self.queue.listener.evaluated(running, evaluation)
        if self.queue.source.goes_on(running, evaluation):
            return str(TrialScheduler.CONTINUE)
        self.queue.stopped_early.add(trial.trial_id)
        return str(TrialScheduler.STOP)

    def on_trial_error(self, tune_controller: object, trial: Any) -> None:
        """Keep what Ray knows of how its worker died, just before Tune calls the queue."""
        if trial.error_file is not None:
            self.queue.deaths[trial.trial_id] = Path(trial.error_file).read_text(encoding="utf-8", errors="replace")


class Starts(tune.Callback):
    """Passes on which trials a worker has taken up."""

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self.queue = queue

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: object) -> None:
        """A worker took it up."""
        if (running := self.queue.running.get(trial.trial_id)) is not None:
            self.queue.listener.started(running)
