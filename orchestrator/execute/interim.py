"""The page while trials still train: made again as soon as another variant can be compared."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from lm.record import Evaluation, Record
from orchestrator.agenda.expand import SweepState
from orchestrator.agenda.trial_source import first_compared
from orchestrator.errors import redacted
from orchestrator.report import Report
from orchestrator.trials.records import Records, is_settled
from orchestrator.trials.trial import Trial

_log = logging.getLogger(__name__)
_REST = 60  # after every look the thread rests so many times as long: at most 1/60 of a core


class Interim:
    """A listener that writes the page, from a thread of its own, once the first comparison stands and then as variants
    are whole.

    It is only a view of what is on disk: an error costs a warning, and the page at the end is made without it.
    """

    def __init__(
        self,
        known: Callable[[], SweepState],
        write: Callable[[SweepState], Report],
        records: Records,
        say: Callable[[str], None],
        rest: float = _REST,
    ) -> None:
        self._known, self._write, self._records, self._say, self._rest = known, write, records, say, rest
        self._whole: set[str] = set()
        self._is_told = False
        self._news, self._end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="interim-page", daemon=True)
        self._thread.start()

    def started(self, trial: Trial) -> None:
        """Nothing to show yet."""

    def evaluated(self, trial: Trial, evaluation: Evaluation) -> None:
        """Nothing to compare yet."""

    def settled(self, trial: Trial, record: Record | None) -> None:
        """A trial of the table may make its variant whole."""
        if record is not None and trial.number is None:
            self._news.set()

    def close(self) -> None:
        """Write no more; return once a page that is being written stands."""
        self._end.set()
        self._news.set()
        self._thread.join()

    def _work(self) -> None:
        try:
            while self._news.wait() and not self._end.is_set():
                self._news.clear()
                began = time.monotonic()
                self._look()
                self._end.wait(self._rest * (time.monotonic() - began))
        except Exception as error:
            _log.warning("no page is written before the end: %s: %s", type(error).__name__, redacted(error))
            _log.debug("interim page", exc_info=True)

    def _look(self) -> None:
        now = self._known()
        settled = {trial.key for trial in now.table if is_settled(trial, self._records.find(trial))}
        whole = {trial.variant for trial in now.table} - {t.variant for t in now.table if t.key not in settled}
        first = first_compared(now.table)
        if first is None or not {now.table[0].variant, first} <= whole or whole <= self._whole:
            return
        if all(trial.key in settled for trial in now.table):  # the page at the end comes now
            return
        self._whole = whole
        report = self._write(now)
        told = first if first in report.changes else next(iter(report.changes), None)
        if not self._is_told and told is not None:
            self._is_told = True
            self._say(f"first comparison: {told}: test perplexity {report.changes[told]}; {report.page}")
