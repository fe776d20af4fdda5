"""What a sweep says while it runs: a live table on a terminal, plain lines elsewhere; both on stderr."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from types import TracebackType
from typing import Literal, Self

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

ShownState = Literal["done", "running", "waiting", "stopped early", "failed"]
_STATES: tuple[ShownState, ...] = ("done", "running", "waiting", "stopped early", "failed")
_MOST_RUNNING = 16
_LATEST = 4
_FRAMES_A_SECOND = 2


class Progress:
    """Hears of trials and shows those that run, the latest that settled, the counts, and the time left.

    `done` are the keys that were complete before, `records` what earlier commands left, by which the time left is known
    sooner; `expected` is how many more trials than these may come, as a search proposes them. Without a terminal a
    trial says a line when it starts, at most one every `line_seconds` while it runs, and one when it ends. Calls only
    note what happened: cheap, however many trials there are, and safe from several threads.
    """

    def __init__(
        self,
        trials: Sequence[Trial],
        *,
        done: Collection[str] = (),
        expected: int = 0,
        records: Records | None = None,
        console: Console | None = None,
        line_seconds: float = 30.0,
    ) -> None:
        self._clock = Clock(trials, done, expected=expected)
        if records is not None:
            self._clock_of_before(trials, done, records)
        self._console = console or Console(stderr=True)
        self._line_seconds = line_seconds
        self._lock = threading.Lock()
        self._states: dict[str, ShownState] = dict.fromkeys(done, "done")
        self._counts: Counter[ShownState] = Counter()
        self._standing: defaultdict[str, list[Trial]] = defaultdict(list)  # key -> trials whose state depends on it
        for trial in trials:
            self._add(trial)
        self._rows: dict[str, tuple[Trial, Evaluation | None]] = {}
        self._latest: list[tuple[Trial, str]] = []
        self._spoke: dict[str, float] = {}
        self._live: Live | None = None

    def _clock_of_before(self, trials: Sequence[Trial], done: Collection[str], records: Records) -> None:
        for trial in trials:
            if trial.key in done:
                if (record := records.find(trial)) is not None:
                    self._clock.settled_before(record)
            elif trial.reads_from is None and (curve := records.curve(trial)):
                self._clock.went_before(trial, curve[-1])

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(
                get_renderable=self._table,
                console=self._console,
                redirect_stdout=False,
                refresh_per_second=_FRAMES_A_SECOND,
            )
            self._live.start()
        elif self._counts["waiting"]:
            self._say(self.summary())  # workers take some seconds to start, and say nothing meanwhile
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        else:
            self._say(self.summary())

    def started(self, trial: Trial) -> None:
        """Its row appears."""
        with self._lock:
            self._known(trial)
            self._set(trial.key, "running")
            self._rows[trial.key] = trial, None
            self._clock.started(trial)
        self._say(f"{trial.title}: started")

    def evaluated(self, trial: Trial, evaluation: Evaluation) -> None:
        """Its row moves on."""
        now = time.monotonic()
        with self._lock:
            self._rows[trial.key] = trial, evaluation
            self._clock.evaluated(trial, evaluation)
            if now - self._spoke.get(trial.key, -self._line_seconds) < self._line_seconds:
                return
            self._spoke[trial.key] = now
            left = self._time_left()
        cells = _cells(evaluation, self._clock.epochs_left(trial))
        where = f"{cells[0]}, epoch {cells[1]}, validation perplexity {cells[2]}, {cells[3]} tokens/s"
        self._say(f"{trial.title}: {where}; {left}")

    def settled(self, trial: Trial, record: Record | None) -> None:
        """Its row goes, and how it ended is said."""
        word = _ending(trial, record)
        with self._lock:
            self._known(trial)
            self._rows.pop(trial.key, None)
            state = _state(trial, record)
            self._clock.settled(trial, resumable=state == "waiting")
            self._set(trial.key, state)
            self._latest = [*self._latest, (trial, word)][-_LATEST:]
        self._say(f"{trial.title}: {word}; {self.summary()}")

    def say(self, line: str) -> None:
        """Print a line of somebody else's."""
        self._console.print(Text(line), soft_wrap=True)

    def counts(self) -> dict[ShownState, int]:
        """How many trials are in each state; one that is read from another's record settles with that one."""
        with self._lock:
            return {state: self._counts[state] + (state == "waiting") * self._clock.expected for state in _STATES}

    def _known(self, trial: Trial) -> None:
        """A trial that a search proposed while it ran is counted from here on."""
        if trial.key not in self._standing:
            self._add(trial)
            self._clock.add(trial)

    def _add(self, trial: Trial) -> None:
        for key in {trial.key, trial.reads_from or trial.key}:
            self._standing[key].append(trial)
        self._counts[self._state(trial)] += 1

    def _set(self, key: str, state: ShownState) -> None:
        concerned = self._standing[key]
        self._counts.subtract(self._state(trial) for trial in concerned)
        self._states[key] = state
        self._counts.update(self._state(trial) for trial in concerned)

    def _state(self, trial: Trial) -> ShownState:
        source = self._states.get(trial.reads_from or "", "waiting")
        return self._states.get(trial.key) or ("waiting" if source == "running" else source)

    def summary(self) -> str:
        """The counts and the time left, in a line."""
        counts = self.counts()
        words = ", ".join(f"{count} {state}" for state, count in counts.items() if count or state == "done")
        if not counts["running"] and not counts["waiting"]:
            return words
        with self._lock:
            return f"{words}; {self._time_left()}"

    def _time_left(self) -> str:
        left = self._clock.seconds_left()
        return f"time left: {'unknown' if left is None else f'about {in_words(left)}'}"

    def _say(self, line: str) -> None:
        if self._live is None and not self._console.is_terminal:
            self._console.print(Text(f"{time.strftime('%H:%M:%S')} {line}"), soft_wrap=True)

    def _table(self) -> RenderableType:
        with self._lock:
            rows, latest = list(self._rows.values()), list(self._latest)
        table = Table("variant", "seed", "stage", box=None, pad_edge=False, header_style="bold")
        for heading in ("epoch", "validation perplexity", "tokens/s"):
            table.add_column(heading, justify="right")
        for trial, evaluation in rows[:_MOST_RUNNING]:
            cells = ("starts",) if evaluation is None else _cells(evaluation, self._clock.epochs_left(trial))
            table.add_row(Text(trial.variant), str(trial.seed), *cells)
        more = len(rows) - _MOST_RUNNING
        lines = [Text(f"and {more} more running")] if more > 0 else []
        lines += [Text(f"{trial.title}: {word}", "dim", no_wrap=True, overflow="ellipsis") for trial, word in latest]
        return Group(*([table] if rows else []), *lines, Text(self.summary()))


class Listeners:
    """Several listeners as one. An exception in one of them is told once; it stops no trial and no other listener."""

    def __init__(self, *listeners: Listener) -> None:
        self._listeners = listeners
        self._told: set[int] = set()

    def started(self, trial: Trial) -> None:
        """Tell all of them."""
        self._tell(lambda listener: listener.started(trial))

    def evaluated(self, trial: Trial, evaluation: Evaluation) -> None:
        """Tell all of them."""
        self._tell(lambda listener: listener.evaluated(trial, evaluation))

    def settled(self, trial: Trial, record: Record | None) -> None:
        """Tell all of them."""
        self._tell(lambda listener: listener.settled(trial, record))

    def _tell(self, tell: Callable[[Listener], None]) -> None:
        for listener in self._listeners:
            try:
                tell(listener)
            except Exception as error:
                if id(listener) not in self._told:
                    self._told.add(id(listener))
                    _log.warning("%s: %s: %s", type(listener).__name__, type(error).__name__, error)
                _log.debug("%s", type(listener).__name__, exc_info=True)


def _cells(evaluation: Evaluation, epochs_left: int) -> tuple[str, str, str, str]:
    return (
        evaluation.stage,
        f"{evaluation.epoch}/{evaluation.epoch + epochs_left}",
        f"{evaluation.valid_perplexity:.2f}",
        f"{evaluation.tokens_per_second:,.0f}",
    )


def _state(trial: Trial, record: Record | None) -> ShownState:
    if trial.stopped_early:
        return "stopped early"
    if record is None:
        return "waiting"
    return "done" if record.status == "complete" else "failed"


def _ending(trial: Trial, record: Record | None) -> str:
    if trial.stopped_early:
        return "stopped early"
    if record is None:
        return "stopped, can be resumed"
    if record.status != "complete":
        reason = (record.reason or "no reason given").strip().splitlines()
        return f"{record.status}: {reason[-1][:200]}"
    last = record.stages[-1]
    test = "not yet opened" if last.test is None else f"{last.test.perplexity:.2f}"
    return f"complete, perplexity {last.valid.perplexity:.2f} validation, {test} test"
