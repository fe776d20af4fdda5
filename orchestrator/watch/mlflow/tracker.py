"""The listener that keeps MLflow up to date while a sweep runs, from a thread of its own."""

from __future__ import annotations

import logging
import math
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ParamSpec

from lm.record import Evaluation, Record
from orchestrator.errors import redacted
from orchestrator.sweep import ScaledSweep
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from orchestrator.watch.mlflow.contents import findings
from orchestrator.watch.mlflow.mirror import Mirror, Planned
from orchestrator.watch.mlflow.store import Store, how_to_mend, tracking_uri

_log = logging.getLogger(__name__)
P = ParamSpec("P")

_SYNC_SECONDS = 2.0
_LONGEST_REST_SECONDS = 60.0
_REST = 60  # after writing the thread rests 60 times as long, so that it takes at most 1/60 of the sweep's time
_MOST_FAILURES = 2  # after one, another trial's run may still be written; after two it is the server
_FILL_SECONDS = 45.0
_FINISH_SECONDS = 60.0


@dataclass
class _Heard:
    """A trial as it was last heard of. Until it `is_settled` in MLflow, it is looked at again at the end."""

    trial: Trial
    running: bool = False
    points: list[Evaluation] = field(default_factory=list)
    is_new: bool = True
    is_settled: bool = False


class Tracker:
    """A listener that keeps MLflow up to date; a failing or slow MLflow costs the sweep a warning and a minute at most.

    Building it creates a local database, so build it before any worker starts. What MLflow lacks of the records is
    written by the thread, by `finish`, or by the next command's tracker. A trial gets its run when it starts or has a
    record or curve; a search may propose it while the sweep runs. `uri` is MLflow's tracking URI, by default
    `MLFLOW_TRACKING_URI`, else the one that a plain `mlflow ui` in the working directory shows.
    """

    def __init__(
        self,
        sweep: ScaledSweep,
        trials: Sequence[Trial],
        records: Records,
        *,
        commit: str | None = None,
        uri: str | None = None,
    ) -> None:
        self._heard = {(trial.key, trial.variant): _Heard(trial) for trial in trials}
        self._warned = False
        self._given_up = False
        self._is_whole = False
        self._ending = threading.Event()
        self._close: Callable[[], None] = lambda: None
        self._uri = tracking_uri(uri)
        self._thread = threading.Thread(target=self._work, name="mlflow-mirror", daemon=True)
        try:
            self._mirror = Mirror(Store(self._uri), sweep, commit, records)
        except Exception as error:
            self._warn(error)
        else:
            self._thread.start()

    def started(self, trial: Trial) -> None:
        """Its run is RUNNING."""
        self._hear(trial, running=True)

    def evaluated(self, trial: Trial, evaluation: Evaluation) -> None:
        """A new point of its curve, written within seconds."""
        self._hear(trial, running=True, points=[evaluation])

    def settled(self, trial: Trial, record: Record | None) -> None:
        """Its run is FINISHED, FAILED, or, stopped early or without a record, KILLED."""
        self._hear(trial, running=False)

    def _hear(self, trial: Trial, *, running: bool, points: Sequence[Evaluation] = ()) -> None:
        heard = self._heard.setdefault((trial.key, trial.variant), _Heard(trial))
        heard.trial, heard.running, heard.is_settled = trial, running, False
        heard.points = [*heard.points, *points]
        heard.is_new = True  # last: the thread takes this away before it looks at the others

    def finish(
        self,
        report: Path | None,
        outcome: str,
        answer: str = "",
        verdicts: Mapping[str, str] | None = None,
        planned: Planned | None = None,
    ) -> bool:
        """Fill in what is missing, upload the report's folder, tag its answer and verdicts, and end the parent run.

        `outcome` is `complete` (FINISHED), `failed` (FAILED) or another word (KILLED). Runs whose trials are not
        `planned` are tagged `superseded` and leave the parent. Waits for a minute at most. Returns whether MLflow has
        everything then.
        """
        if self._thread.is_alive():
            self._close = partial(self._mirror.close, outcome, report, findings(answer, verdicts or {}), planned)
            self._ending.set()
            self._thread.join(_FINISH_SECONDS)
            if self._thread.is_alive():
                self._given_up = True
                self._warn("it takes too long")
        return self._is_whole and not self._given_up

    def _work(self) -> None:
        rest = _SYNC_SECONDS
        while not self._ending.wait(rest):
            began = time.monotonic()
            self._sync([heard for heard in list(self._heard.values()) if heard.is_new])
            rest = min(_LONGEST_REST_SECONDS, max(_SYNC_SECONDS, _REST * (time.monotonic() - began)))
        for heard in self._heard.values():
            heard.running = False
        unsettled = [heard for heard in self._heard.values() if heard.is_new or not heard.is_settled]
        is_filled = self._sync(unsettled, until=time.monotonic() + _FILL_SECONDS)
        self._is_whole = self._attempt(self._close) and is_filled

    def _sync(self, trials: Sequence[_Heard], until: float = math.inf) -> bool:
        """Whether MLflow has all of these trials now."""
        failures = 0
        for heard in trials:
            if failures == _MOST_FAILURES or time.monotonic() > until:
                return False
            heard.is_new = False
            if not self._attempt(self._write, heard):
                heard.is_new = True
                failures += 1
        return not failures

    def _write(self, heard: _Heard) -> None:
        heard.is_settled = self._mirror.sync(heard.trial, heard.points, running=heard.running)
        if heard.is_settled:
            heard.points = []

    def _attempt(self, action: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> bool:
        """Whether it was done."""
        if self._given_up:
            return False
        try:
            action(*args, **kwargs)
        except Exception as error:
            self._warn(error)
            self._mirror.forget()
            return False
        return True

    def _warn(self, reason: Exception | str) -> None:
        details = traceback.format_exception(reason) if isinstance(reason, Exception) else [reason]
        _log.debug("MLflow: %s", redacted("".join(details)))  # no exc_info: a tracking URI may hold a password
        if isinstance(reason, Exception) and (mend := how_to_mend(reason, self._uri)) is not None:
            self._given_up = True
            _log.warning("MLflow's database %s. The sweep goes on without MLflow", mend)
        elif not self._warned:
            self._warned = True
            first = redacted((str(reason).splitlines() or [repr(reason)])[0])[:300]
            _log.warning(
                "MLflow is behind (%s); the sweep goes on, and the next command fills in what is missing", first
            )
