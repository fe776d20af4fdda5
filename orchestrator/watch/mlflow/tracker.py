"""The listener that mirrors a running sweep in MLflow, from a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Literal, NamedTuple, ParamSpec

from lm.record import Evaluation, Record
from orchestrator.errors import redacted
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from orchestrator.watch.mlflow.contents import findings
from orchestrator.watch.mlflow.mirror import Mirror, Title
from orchestrator.watch.mlflow.planned import Planned
from orchestrator.watch.mlflow.store import Store, tracking_uri
from orchestrator.watch.mlflow.unusable import what_to_do

_log = logging.getLogger(__name__)
P = ParamSpec("P")

_FLUSH_SECONDS = 2.0
_LONGEST_REST_SECONDS = 60.0
_REST = 60  # after every write the thread rests so many times as long: at most 1/60 of the sweep's time
_FAILURES_IN_A_ROW = 2  # after one, another trial's run may still do; after two it is the server
_QUIET_SECONDS = 60.0
_STALLED_SECONDS = 8.0
_FILL_SECONDS = 45.0
_FINISH_SECONDS = 60.0


_Heard = Evaluation | Record | Literal["running", "stopped", "stopped early"]


class _Event(NamedTuple):
    trial: Trial
    what: _Heard


@dataclass(frozen=True)
class _Finish:
    report: Path | None
    outcome: str
    findings: Mapping[str, str]
    planned: Planned | None


class Tracker:
    """Hears of trials and keeps MLflow up to date; a failing or slow MLflow costs the sweep nothing but a warning.

    Building it creates or migrates a local database, so build it before any worker starts. Records are the
    truth: what MLflow missed is filled in from `records` by `finish`, or by the next command's tracker. A trial
    gets its run when it starts or has a record or curve; one that is not among `trials` is taken up as it is heard
    of. `uri` is MLflow's tracking URI, by default that of
    `MLFLOW_TRACKING_URI` or else the one a plain `mlflow ui` in the working directory shows.
    """

    def __init__(
        self,
        *,
        sweep: str,
        question: str,
        scale: str,
        trials: Sequence[Trial],
        records: Records,
        commit: str | None = None,
        uri: str | None = None,
    ) -> None:
        self._trials = {_name(trial): trial for trial in trials}
        self._queue: SimpleQueue[_Event | _Finish] = SimpleQueue()
        self._warned = False
        self._failures = 0
        self._quiet_until = 0.0
        self._progress = 0.0
        self._give_up = threading.Event()
        self._is_whole = False
        self._uri = tracking_uri(uri)
        self._thread = threading.Thread(target=self._work, name="mlflow-mirror", daemon=True)
        try:
            self._mirror = Mirror(Store(self._uri), Title(sweep, question, scale, commit), trials, records)
        except Exception as error:
            self._warn(error)
        else:
            self._thread.start()

    def started(self, trial: Trial) -> None:
        """Its run is RUNNING."""
        self._queue.put(_Event(trial, "running"))

    def evaluated(self, trial: Trial, evaluation: Evaluation) -> None:
        """A new point of its curve, written within seconds."""
        self._queue.put(_Event(trial, evaluation))

    def settled(self, trial: Trial, record: Record | None) -> None:
        """Its run is FINISHED, FAILED, or, stopped early or without a record, KILLED."""
        stopped: _Heard = "stopped early" if trial.stopped_early else "stopped"
        self._queue.put(_Event(trial, stopped if record is None or trial.stopped_early else record))

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
        `planned` are tagged `superseded` and leave the parent. Waits for as long as MLflow takes writes, at most a
        minute; a few seconds where it does not answer. Whether MLflow has all of it then.
        """
        self._queue.put(_Finish(report, outcome, findings(answer, verdicts or {}), planned))
        began = time.monotonic()
        while self._thread.is_alive():
            self._thread.join(0.1)
            now = time.monotonic()
            if now - max(began, self._progress) > _STALLED_SECONDS or now - began > _FINISH_SECONDS:
                self._give_up.set()
                self._warn("it takes too long")
                return False
        return self._is_whole

    def _work(self) -> None:
        backlog = deque(self._trials.values())
        finish, rest = None, _FLUSH_SECONDS
        while finish is None:
            while backlog and self._queue.empty():
                self._attempt(self._mirror.catch_up, backlog.popleft(), final=False)
            events, finish = self._collect(rest)
            began = time.monotonic()
            for trial, heard in _by_trial(events):
                self._trials[_name(trial)] = trial
                self._write(trial, heard)
            rest = min(_LONGEST_REST_SECONDS, max(_FLUSH_SECONDS, _REST * (time.monotonic() - began)))
        self._complete(finish)

    def _collect(self, seconds: float) -> tuple[list[_Event], _Finish | None]:
        """What is heard within the time, cut short by the end of the sweep."""
        events: list[_Event] = []
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                item = self._queue.get(timeout=left)
            except Empty:
                break
            if isinstance(item, _Finish):
                return events, item
            events.append(item)
        return events, None

    def _write(self, trial: Trial, heard: Sequence[_Heard]) -> None:
        points = [what for what in heard if isinstance(what, Evaluation)]
        states = [what for what in heard if not isinstance(what, Evaluation)]
        state = states[-1] if states else "running"
        if isinstance(state, Record):
            self._attempt(self._mirror.write, trial, state.status, points, state)
        else:
            self._attempt(self._mirror.write, trial, state, points)

    def _complete(self, finish: _Finish) -> None:
        until = time.monotonic() + _FILL_SECONDS
        self._quiet_until, self._failures = 0.0, min(self._failures, 1)  # one more try, however it went before
        filled = [
            time.monotonic() < until and self._attempt(self._mirror.catch_up, trial, final=True)
            for trial in self._trials.values()
        ]
        closed = self._attempt(self._mirror.close, finish.outcome, finish.report, finish.findings, finish.planned)
        self._is_whole = closed and all(filled)

    def _attempt(self, action: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> bool:
        """Whether it was done."""
        if self._give_up.is_set() or time.monotonic() < self._quiet_until:
            return False
        try:
            action(*args, **kwargs)
        except Exception as error:
            self._warn(error)
            self._mirror.forget()
            self._failures += 1
            if self._failures >= _FAILURES_IN_A_ROW:
                self._quiet_until = time.monotonic() + _QUIET_SECONDS
            return False
        self._failures = 0
        self._progress = time.monotonic()
        return True

    def _warn(self, reason: object) -> None:
        told = traceback.format_exception(reason) if isinstance(reason, Exception) else [str(reason)]
        _log.debug("MLflow: %s", redacted("".join(told)))  # no exc_info: a tracking URI may hold a password
        if isinstance(reason, Exception) and (mend := what_to_do(reason, self._uri)) is not None:
            self._give_up.set()
            _log.warning("MLflow's database %s. The sweep goes on without MLflow", redacted(mend))
        elif not self._warned:
            self._warned = True
            first = redacted((str(reason).splitlines() or [repr(reason)])[0])[:300]
            _log.warning(
                "MLflow is behind (%s); the sweep goes on, and the next command fills in what is missing", first
            )


def _by_trial(events: Sequence[_Event]) -> list[tuple[Trial, list[_Heard]]]:
    heard: dict[tuple[str, str], tuple[Trial, list[_Heard]]] = {}
    for event in events:
        _, before = heard.get(_name(event.trial), (event.trial, []))
        heard[_name(event.trial)] = event.trial, [*before, event.what]  # the trial as it was last told of
    return list(heard.values())


def _name(trial: Trial) -> tuple[str, str]:
    return trial.key, trial.variant
