"""What a sweep says while it runs: a live table on a terminal, plain lines elsewhere; both on stderr."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from typing import Literal, Self, get_args

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lm.record import Evaluation, Record
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Listener, Trial
from orchestrator.watch.clock import Clock
from orchestrator.words import in_words

_log = logging.getLogger(__name__)

TrialState = Literal["done", "running", "waiting", "stopped early", "failed"]
_MOST_ROWS = 16
_MOST_ENDINGS = 4
_FRAMES_A_SECOND = 2


class Progress:
    """A listener that shows the trials that run, the latest that ended, the counts, and the time left.

    `done` are the keys of trials that were complete before; `records` show how long earlier commands took. Without a
    terminal, a trial prints a line when it starts, at most one every `line_seconds` while it runs, and one when it
    ends. Safe from several threads.
    """

    def __init__(
        self,
        trials: Sequence[Trial],
        *,
        done: Collection[str] = (),
        records: Records | None = None,
        console: Console | None = None,
        line_seconds: float = 30.0,
    ) -> None:
        self._clock = Clock(trials, done, records)
        self._console = console or Console(stderr=True)
        self._line_seconds = line_seconds
        self._lock = threading.RLock()
        self._sharing = Counter(trial.reads_from or trial.key for trial in trials)  # a record's key -> its trials
        self._states: dict[str, TrialState] = dict.fromkeys(done, "done")
        self._running: dict[str, tuple[Trial, Evaluation | None]] = {}
        self._endings: deque[str] = deque(maxlen=_MOST_ENDINGS)
        self._printed: dict[str, float] = {}
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(
                get_renderable=self._table,
                console=self._console,
                redirect_stdout=False,
                refresh_per_second=_FRAMES_A_SECOND,
            )
            self._live.start()
        elif self.counts()["waiting"]:
            self._print(self.summary())  # workers take some seconds to start, and print nothing meanwhile
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        self._print(self.summary())

    def started(self, trial: Trial) -> None:
        """Its row appears."""
        with self._lock:
            self._set(trial, "running")
            self._running[trial.key] = trial, None
            self._clock.started(trial)
        self._print(f"{trial.title}: started")

    def evaluated(self, trial: Trial, evaluation: Evaluation) -> None:
        """Its row moves on."""
        at = time.monotonic()
        with self._lock:
            self._running[trial.key] = trial, evaluation
            self._clock.evaluated(trial, evaluation)
            if at - self._printed.get(trial.key, -self._line_seconds) < self._line_seconds:
                return
            self._printed[trial.key] = at
            stage, epoch, perplexity, speed = self._cells(trial, evaluation)
            left = self._time_left()
        self._print(
            f"{trial.title}: {stage}, epoch {epoch}, validation perplexity {perplexity}, {speed} tokens/s; {left}"
        )

    def settled(self, trial: Trial, record: Record | None) -> None:
        """Its row goes, and a line says how it ended."""
        state, ending = _ending(trial, record)
        with self._lock:
            self._set(trial, state)
            self._running.pop(trial.key, None)
            self._clock.settled(trial, resumable=state == "waiting")
            self._endings.append(f"{trial.title}: {ending}")
        self._print(f"{trial.title}: {ending}", summarized=True)

    def say(self, line: str) -> None:
        """Print a line above the table, or among the lines."""
        self._console.print(Text(line), soft_wrap=True)

    def counts(self) -> dict[TrialState, int]:
        """How many trials are in each state; a trial that is read from another's record settles with the other."""
        counts: dict[TrialState, int] = dict.fromkeys(get_args(TrialState), 0)
        with self._lock:
            for key, trials in self._sharing.items():
                state = self._states.get(key, "waiting")
                readers = trials - 1 if state == "running" else 0
                counts[state] += trials - readers
                counts["waiting"] += readers
        return counts

    def summary(self) -> str:
        """The counts and the time left, in a line."""
        with self._lock:
            counts = self.counts()
            words = ", ".join(f"{count} {state}" for state, count in counts.items() if count or state == "done")
            return f"{words}; {self._time_left()}" if counts["running"] or counts["waiting"] else words

    def _set(self, trial: Trial, state: TrialState) -> None:
        self._sharing[trial.key] = self._sharing[trial.key] or 1  # a search may just have proposed it
        self._states[trial.key] = state

    def _time_left(self) -> str:
        left = self._clock.seconds_left()
        return f"time left: {'unknown' if left is None else f'about {in_words(left)}'}"

    def _print(self, line: str, *, summarized: bool = False) -> None:
        if not self._console.is_terminal:
            line = f"{line}; {self.summary()}" if summarized else line
            self._console.print(Text(f"{time.strftime('%H:%M:%S')} {line}"), soft_wrap=True)

    def _table(self) -> RenderableType:
        with self._lock:
            running, endings = list(self._running.values()), list(self._endings)
        table = Table("variant", "seed", "stage", box=None, pad_edge=False, header_style="bold")
        for heading in ("epoch", "validation perplexity", "tokens/s"):
            table.add_column(heading, justify="right")
        for trial, evaluation in running[:_MOST_ROWS]:
            cells = ("starts",) if evaluation is None else self._cells(trial, evaluation)
            table.add_row(Text(trial.variant), str(trial.seed), *cells)
        more = len(running) - _MOST_ROWS
        lines = [Text(f"and {more} more running")] if more > 0 else []
        lines += [Text(ending, "dim", no_wrap=True, overflow="ellipsis") for ending in endings]
        return Group(*([table] if running else []), *lines, Text(self.summary()))

    def _cells(self, trial: Trial, evaluation: Evaluation) -> tuple[str, str, str, str]:
        return (
            evaluation.stage,
            f"{evaluation.epoch}/{evaluation.epoch + self._clock.epochs_left(trial)}",
            f"{evaluation.valid_perplexity:.2f}",
            f"{evaluation.tokens_per_second:,.0f}",
        )


class Listeners:
    """Several listeners as one. An exception in one of them is logged once; it stops no trial and no other listener."""

    def __init__(self, *listeners: Listener) -> None:
        self._listeners = listeners
        self._failed: set[int] = set()

    def started(self, trial: Trial) -> None:
        """Call all of them."""
        self._call(lambda listener: listener.started(trial))

    def evaluated(self, trial: Trial, evaluation: Evaluation) -> None:
        """Call all of them."""
        self._call(lambda listener: listener.evaluated(trial, evaluation))

    def settled(self, trial: Trial, record: Record | None) -> None:
        """Call all of them."""
        self._call(lambda listener: listener.settled(trial, record))

    def _call(self, call: Callable[[Listener], None]) -> None:
        for listener in self._listeners:
            try:
                call(listener)
            except Exception as error:
                if id(listener) not in self._failed:
                    self._failed.add(id(listener))
                    _log.warning("%s: %s: %s", type(listener).__name__, type(error).__name__, error)
                _log.debug("%s", type(listener).__name__, exc_info=True)


def _ending(trial: Trial, record: Record | None) -> tuple[TrialState, str]:
    """The state of a trial that ended, and how it ended."""
    if trial.stopped_early:
        return "stopped early", "stopped early"
    if record is None:
        return "waiting", "stopped, can be resumed"
    if record.status != "complete":
        reason = (record.reason or "no reason given").strip().splitlines()
        return "failed", f"{record.status}: {reason[-1][:200]}"
    last = record.stages[-1]
    test = "not yet opened" if last.test is None else f"{last.test.perplexity:.2f}"
    return "done", f"complete, perplexity {last.valid.perplexity:.2f} validation, {test} test"
