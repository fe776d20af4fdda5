"""What stands between Tune and us: our trials as its suggestions, its callbacks as our events."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from typing import Any

from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.search import Searcher

from lm.record import Evaluation
from lm.spec import TrainSpec
from orchestrator.records import Records
from orchestrator.trial import Listener, Trial
from orchestrator.work import Grant, write_failure

MOST_WORKER_DEATHS = 3
_FIELDS = [field.name for field in dataclasses.fields(Evaluation)]
_log = logging.getLogger(__name__)


def pack(trial: Trial) -> dict[str, Any]:
    """A trial as plain data."""
    return dataclasses.asdict(trial) | {"spec": trial.spec.model_dump_json()}


def unpack(packed: dict[str, Any]) -> Trial:
    """The trial again."""
    return Trial(**packed | {"spec": TrainSpec.model_validate_json(packed["spec"])})


class Queue(Searcher):
    """Hands Tune the trials in order; one that continues another's stages waits until that one has ended."""

    def __init__(self, trials: Sequence[Trial], grant: Grant) -> None:
        super().__init__()
        self.waiting = list(trials)
        self.unsettled = {trial.key for trial in trials}
        self.running: dict[str, str] = {}
        self.grant = grant

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """The next trial that can start; None while all that are left wait for another."""
        for trial in self.waiting:
            if trial.starts_from not in self.unsettled:
                self.waiting.remove(trial)
                self.running[trial_id] = trial.key
                return {"trial": pack(trial), "grant": dataclasses.asdict(self.grant)}
        finished: Any = Searcher.FINISHED  # a word among dictionaries, by Ray's own convention
        return None if self.waiting else finished

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Trials that waited for it may start; if it left no record, they are left for the next round."""
        key = self.running.pop(trial_id, "")
        self.unsettled.discard(key)
        if not (self.grant.runs / key / "record.json").exists():
            self.waiting = [trial for trial in self.waiting if trial.starts_from != key]

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: object
    ) -> bool:
        """Nothing is searched."""
        return True

    def save(self, checkpoint_path: str) -> None:
        """Nothing to save: the next command plans anew from the records."""

    def restore(self, checkpoint_path: str) -> None:
        """Never asked: see `save`."""


class Events(TrialProgressCallback):
    """Passes what Tune reports on to the listener, with our trials in place of Tune's.

    It takes the place of Tune's own progress printer, which Tune adds where there is none. `begun` gathers the keys
    of trials that a worker took up.
    """

    def __init__(self, trials: Sequence[Trial], grant: Grant, listener: Listener, begun: set[str]) -> None:
        super().__init__()
        self.trials = {trial.key: trial for trial in trials}
        self.grant, self.listener, self.begun = grant, listener, begun
        self.records = Records(grant.runs)

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles its callbacks for a restore that is never asked for

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: object) -> None:
        """A worker took it up."""
        ours = self._ours(trial)
        self.begun.add(ours.key)
        self.listener.started(ours)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: object
    ) -> None:
        """A new point of its curve."""
        if "stage" in result:
            self.listener.evaluated(self._ours(trial), Evaluation(**{name: result[name] for name in _FIELDS}))

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: object) -> None:
        """It ended, or was stopped: only its record knows."""
        self._settled(self._ours(trial))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: object) -> None:
        """Its worker died: once too often, the one failure that no worker could record, or else it is tried again."""
        ours = self._ours(trial)
        if trial.num_failures > MOST_WORKER_DEATHS and not (self.grant.runs / ours.key / "record.json").exists():
            reason = f"its worker died {trial.num_failures} times without a Python error (killed, or out of memory)"
            write_failure(ours, self.grant, reason)
        self._settled(ours)

    def _settled(self, trial: Trial) -> None:
        try:
            record = self.records.find(trial)
        except (OSError, ValueError) as error:  # Tune ends the whole sweep when a callback raises
            _log.warning("%s, seed %d: %s", trial.variant, trial.seed, error)
            return
        if record is not None:
            self.listener.settled(trial, record)

    def _ours(self, trial: Any) -> Trial:
        return self.trials[trial.config["trial"]["key"]]
