"""The listener that keeps MLflow up to date while a sweep runs, from a thread of its own."""

from __future__ import annotations

import logging
import math
import shlex
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from lm.record import Evaluation, Record
from orchestrator.errors import redacted
from orchestrator.sweep import ScaledSweep
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from orchestrator.watch.mlflow.mirror import Mirror, Planned
from orchestrator.watch.mlflow.store import findings, sqlite_file, tracking_uri

_log = logging.getLogger(__name__)

_SYNC_SECONDS = 2.0
_LONGEST_REST_SECONDS = 60.0
_REST = 60  # after writing the thread rests 60 times as long, so that it takes at most 1/60 of the sweep's time
_MOST_FAILURES = 2  # after one, another trial's run may still be written; after two it is the server
_OPEN_SECONDS = 45.0
_FILL_SECONDS = 45.0
_FINISH_SECONDS = 60.0
_LONGEST_REASON = 400


def link(uri: str, experiment: str) -> str:
    """How a browser gets to an experiment's runs: the address, after the command that serves a database."""
    # As charts: MLflow's list shows no number until the reader chooses its columns.
    place = f"#/experiments/{experiment}/runs?workflowType=machine_learning&compareRunsMode=CHART"
    if uri.startswith(("http://", "https://")):
        return f"{redacted(uri).rstrip('/')}/{place}"
    is_default = sqlite_file(uri) == Path.cwd() / "mlflow.db"
    command = "mlflow ui" if is_default else f"mlflow ui --backend-store-uri {shlex.quote(redacted(uri))}"
    return f"{command}, then http://127.0.0.1:5000/{place}"


@dataclass
class _Pending:
    """A trial as last heard of: `changed` since MLflow was written."""

    trial: Trial
    running: bool = False
    points: list[Evaluation] = field(default_factory=list)
    changed: bool = True


class Tracker:
    """A listener that keeps MLflow up to date; if a server fails or is slow, the sweep loses two minutes at most.

    Building it creates a local database, so build it before any worker starts. What MLflow lacks of the records is
    written by the thread, by `finish`, or by the next command's tracker. `source` is the sweep file.
    """

    def __init__(
        self, sweep: ScaledSweep, trials: Sequence[Trial], records: Records, *, commit: str | None, source: str
    ) -> None:
        self._pending = {(trial.key, trial.variant): _Pending(trial) for trial in trials}
        self._uri = tracking_uri()
        self.link = ""
        """How a browser gets to the sweep, once `finish` has reached MLflow."""
        self._warned = self._is_whole = False
        self._opened, self._ending, self._until = threading.Event(), threading.Event(), math.inf
        self._open = partial(Mirror, self._uri, sweep, commit, records, source)
        self._thread = threading.Thread(target=self._work, name="mlflow", daemon=True)
        self._thread.start()
        if not self._opened.wait(_OPEN_SECONDS if sqlite_file(self._uri) is None else None):
            self._warn(TimeoutError(f"it has not answered for {_OPEN_SECONDS:g} seconds"))

    def started(self, trial: Trial) -> None:
        """Its run is RUNNING."""
        self._note(trial, running=True)

    def evaluated(self, trial: Trial, evaluation: Evaluation) -> None:
        """A new point of its curve, written within seconds."""
        self._note(trial, evaluation, running=True)

    def settled(self, trial: Trial, record: Record | None) -> None:
        """Its run is FINISHED, also if a scheduler stopped it early, FAILED, or without a record KILLED."""
        self._note(trial, running=False)

    def _note(self, trial: Trial, *points: Evaluation, running: bool) -> None:
        pending = self._pending.setdefault((trial.key, trial.variant), _Pending(trial))
        pending.trial, pending.running = trial, running
        pending.points.extend(points)
        pending.changed = True  # last, because the thread takes it away before it reads the others

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
        `planned` are tagged `superseded` and leave the parent. Returns whether MLflow has everything.
        """
        for trial in () if planned is None else planned.known:  # some may have become known without being started
            self._pending.setdefault((trial.key, trial.variant), _Pending(trial))
        self._closing = outcome, report, findings(answer, verdicts or {}), planned
        self._until = time.monotonic() + _FILL_SECONDS
        self._ending.set()
        if self._opened.is_set():
            self._thread.join(_FINISH_SECONDS)
            if self._thread.is_alive():
                self._warn(TimeoutError("it takes too long"))
        return self._is_whole

    def _work(self) -> None:
        try:
            self._mirror = self._open()
        except Exception as error:
            self._warn(error, is_open=False)
            return
        finally:
            self._opened.set()
        rest = _SYNC_SECONDS
        while not self._ending.wait(rest):
            began = time.monotonic()
            changed = [pending for pending in list(self._pending.values()) if pending.changed]
            self._sync(sorted(changed, key=lambda pending: not pending.running))
            rest = min(_LONGEST_REST_SECONDS, max(_SYNC_SECONDS, _REST * (time.monotonic() - began)))
        self._mirror.forget()  # of a sweep with this name, in another folder, a driver may have written too
        everything = list(self._pending.values())
        for pending in everything:
            pending.running, pending.changed = False, True
        # Only an error shows that a run was deleted by hand: the second pass makes it again.
        is_filled = self._sync(everything) or self._sync([pending for pending in everything if pending.changed])
        try:
            self._mirror.close(*self._closing)
            self._is_whole, self.link = is_filled, link(self._uri, self._mirror.experiment)
        except Exception as error:
            self._warn(error)

    def _sync(self, trials: Sequence[_Pending]) -> bool:
        """Write what MLflow lacks of these trials; whether it has all of them then."""
        failures = 0
        for pending in trials:
            if failures == _MOST_FAILURES or time.monotonic() > self._until:
                return False
            pending.changed = False
            try:
                self._mirror.sync(pending.trial, pending.points, running=pending.running)
                if pending is trials[-1]:
                    self._mirror.sum_up()
            except Exception as error:
                pending.changed = True
                failures += 1
                self._mirror.forget()
                self._warn(error)
        return failures == 0

    def _warn(self, error: Exception, *, is_open: bool = True) -> None:
        details = "".join(traceback.format_exception(error))
        _log.debug("MLflow: %s", redacted(details))  # no exc_info: a tracking URI may hold a password
        if not self._warned:
            self._warned = True
            reason = (str(error).splitlines() or [repr(error)])[0].partition(" NOTE: ")[0]
            reason = redacted(reason.replace("<database_uri>", self._uri))[:_LONGEST_REASON]
            file = sqlite_file(self._uri)
            if is_open:
                goes_on = "the sweep goes on, and the next command fills in what is missing"
                goes_on += "" if file is None else f", or makes a new {file} if you move a damaged one away"
            else:  # nor may the next command
                goes_on = "the sweep goes on without it; a command that can open it fills in what is missing"
                goes_on += (
                    "" if file is None else f". If {file} is damaged, move it away: the next command makes a new one"
                )
            _log.warning("MLflow %s (%s); %s", "is behind" if is_open else "cannot be opened", reason, goes_on)
