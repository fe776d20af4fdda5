"""What stands between Tune and us: our source as its searcher and scheduler, its callbacks as our events."""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from lm.record import Evaluation
from lm.spec import TrainSpec
from orchestrator.agenda.trial_source import TrialSource
from orchestrator.execute.ray.memory import filled_by_others
from orchestrator.execute.run_trial import OUT_OF_MEMORY, Allotment, settled_record, write_failure
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Listener, Trial

MOST_WORKER_DEATHS = 3
_WAIT_SECONDS = (60, 300, 900)
_log = logging.getLogger(__name__)


def pack(trial: Trial) -> dict[str, Any]:
    """A trial as plain data."""
    return dataclasses.asdict(trial) | {"spec": trial.spec.model_dump_json()}


def unpack(packed: dict[str, Any]) -> Trial:
    """The trial again."""
    return Trial(**packed | {"spec": TrainSpec.model_validate_json(packed["spec"])})


class Queue(Searcher):
    """Hands Tune the source's trials, and the source what Tune says of them.

    Tune gives a trial up at once, whatever its retries, when the idle worker it reuses turns out dead: such a trial
    is handed out again, as often as a worker may die. One that ran out of memory beside others, or whose worker died
    for the last time there, which may have been for want of memory, is kept until nothing else can run, and then runs
    alone, once. One whose worker Ray killed because other programs fill the memory waits some minutes; if they still do
    after the last wait, it has no record, and the next command tries it again.
    """

    def __init__(
        self, source: TrialSource, allotment: Allotment, listener: Listener, now: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self.source, self.allotment, self.listener = source, allotment, listener
        self.records = Records(allotment.runs)
        self.running: dict[str, Trial] = {}
        self.stopped_early: set[str] = set()
        self.deaths: dict[str, str] = {}
        self._again: list[Trial] = []
        self._beside: set[str] = set()  # keys of trials that ran at the same time as another
        self._held: list[Trial] = []  # wait until they can run alone
        self._alone: str | None = None  # the Tune trial that runs alone
        self._died: Counter[str] = Counter()
        self._now = now
        self._later: list[tuple[float, Trial]] = []  # when they may be tried again
        self._waits: Counter[str] = Counter()

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles its searcher for a restore that is never asked for: the next command plans anew

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """The next trial that can start; None while none can."""
        if self._alone is not None:
            return None
        if self._later and self._now() >= self._later[0][0]:
            self._again.append(self._later.pop(0)[1])
        trial, allotment = self._again.pop() if self._again else self.source.next(), self.allotment
        if trial is None and self._held and not self.running:
            trial, self._alone = self._held.pop(0), trial_id
            allotment = dataclasses.replace(allotment, alone=True)
        if trial is None:
            finished: Any = Searcher.FINISHED  # a word among dictionaries, by Ray's own convention
            return finished if self.source.ended() and not self.running and not self._later else None
        self.running[trial_id] = trial
        if len(self.running) > 1:
            self._beside |= {one.key for one in self.running.values()}
        source = self.records.source(trial)  # a longer trial's folder, it may be, which a worker elsewhere cannot know
        sent = dataclasses.replace(trial, starts_from=None if source is None else source.name)
        return {"trial": pack(sent), "allotment": dataclasses.asdict(allotment)}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """It ended, or was stopped, or its workers died too often: only its record knows."""
        trial, deaths = self.running.pop(trial_id), self.deaths.pop(trial_id, "")
        if (lost := (result or {}).get("lost")) is not None:
            write_failure(trial, self.allotment, lost)
        record = settled_record(trial, self.allotment)
        was_alone, self._alone = self._alone == trial_id, None
        holds = trial.key in self._beside and not was_alone
        if holds and record is not None and (record.reason or "").startswith(OUT_OF_MEMORY):
            _log.warning("%s ran out of memory beside others; it will be tried again alone", trial.title)
            self._held.append(trial)
            return
        filled = filled_by_others(deaths) if error and record is None else None
        if filled is not None and self._waits[trial.key] < len(_WAIT_SECONDS):
            seconds = _WAIT_SECONDS[self._waits[trial.key]]
            self._waits[trial.key] += 1
            _log.warning("%s waits %d minutes for memory: %s", trial.title, seconds // 60, filled)
            self._later = sorted([*self._later, (self._now() + seconds, trial)], key=lambda waiting: waiting[0])
            return
        if filled is not None:
            _log.warning("%s stops for want of memory, and the same command goes on: %s", trial.title, filled)
        elif error and record is None:
            self._died[trial.key] += max(1, deaths.count("Failure # "))
            if self._died[trial.key] <= MOST_WORKER_DEATHS:
                self._again.append(trial)
                return
            if holds:
                self._held.append(trial)
                return
            reason = f"its worker died {self._died[trial.key]} times without a Python error (killed, or out of memory)"
            write_failure(trial, self.allotment, reason, deaths)
            record = settled_record(trial, self.allotment)
        self.source.settled(trial, record)
        if record is not None or trial_id in self.stopped_early or filled is not None:
            self.listener.settled(dataclasses.replace(trial, stopped_early=trial_id in self.stopped_early), record)

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: object
    ) -> bool:
        """What is searched, the source knows."""
        return True

    def save(self, checkpoint_path: str) -> None:
        """Nothing to save: the next command plans anew from the records."""

    def restore(self, checkpoint_path: str) -> None:
        """Never asked: see `save`."""


class EarlyStop(FIFOScheduler):
    """Stops the trials that the source wants no more of."""

    def __init__(self, queue: Queue) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.queue = queue

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def on_trial_result(self, tune_controller: object, trial: Any, result: dict[str, Any]) -> str:
        """Whether it goes on."""
        ours = self.queue.running.get(trial.trial_id)
        evaluation = evaluation_in(result)
        if ours is None or evaluation is None or self.queue.source.goes_on(ours, evaluation):
            return str(TrialScheduler.CONTINUE)
        self.queue.stopped_early.add(trial.trial_id)
        return str(TrialScheduler.STOP)

    def on_trial_error(self, tune_controller: object, trial: Any) -> None:
        """What Ray knows of how its workers died; Tune says it here just before it tells the queue."""
        if trial.error_file is not None:
            self.queue.deaths[trial.trial_id] = Path(trial.error_file).read_text(encoding="utf-8", errors="replace")


class Events(TrialProgressCallback):
    """Passes what Tune reports on to the listener, in the place of Tune's own progress printer."""

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self.queue = queue

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: object) -> None:
        """A worker took it up."""
        if (ours := self.queue.running.get(trial.trial_id)) is not None:
            self.queue.listener.started(ours)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: object
    ) -> None:
        """A new point of its curve."""
        ours, evaluation = self.queue.running.get(trial.trial_id), evaluation_in(result)
        if ours is not None and evaluation is not None:
            self.queue.listener.evaluated(ours, evaluation)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: object) -> None:
        """Nothing to print: the queue has told of it."""

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: object) -> None:
        """Nothing to print: the queue has told of it."""


def as_result(evaluation: Evaluation) -> dict[str, str]:
    """An evaluation as Tune takes it, in one piece: Tune flattens what is nested, and splits names at slashes."""
    return {"evaluation": json.dumps(dataclasses.asdict(evaluation))}


def evaluation_in(result: dict[str, Any]) -> Evaluation | None:
    """The evaluation that a worker reported; None in the result by which Tune says that a trial returned."""
    return Evaluation(**json.loads(result["evaluation"])) if "evaluation" in result else None
