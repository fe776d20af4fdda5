"""What a sweep says while it runs: live lines on a terminal, printed ones elsewhere, both on stderr; the time left."""

from __future__ import annotations

import logging
import statistics
import sys
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, Self, get_args

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.text import Text

from lm.kept import say_once
from lm.record import Evaluation, Record
from orchestrator.trials.records import Records, is_settled
from orchestrator.trials.trial import Listener, Trial, epochs_to_train, stage_epochs
from orchestrator.words import in_words, number

ProgressState = Literal["done", "running", "waiting", "stopped early", "diverged", "failed"]
_MOST_ROWS = 16
_log = logging.getLogger(__name__)


@dataclass
class _Unsettled:
    """How far a trial has come, by its last evaluation, and the most epochs that it may still take."""

    trial: Trial
    epochs_left: int
    stage: str = ""
    epoch: int = 0
    seconds: float = 0.0

    def count(self, evaluation: Evaluation) -> None:
        if evaluation.stage == self.stage:
            self.epochs_left -= evaluation.epoch - self.epoch
        else:  # the stages before it may have ended early
            planned = stage_epochs(self.trial.spec)
            rest = sum(list(planned.values())[list(planned).index(evaluation.stage) :])
            self.epochs_left = min(rest - 1, sum(planned.values()) - evaluation.epoch)
        self.stage, self.epoch, self.seconds = evaluation.stage, evaluation.epoch, evaluation.seconds


class Clock:
    """Counts the epochs that are left and the seconds that one takes, by the clock `wall`. For one thread.

    An epoch takes the mean of its variant's epochs; before one has ended, that of all, and before any has, that of the
    curves in `records`. A stage that may end early counts in full. `to_come` are stand-ins for trials not yet known.
    """

    def __init__(
        self,
        trials: Sequence[Trial],
        done: Collection[str] = (),
        records: Records | None = None,
        wall: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall = wall
        self._specs = {trial.key: trial.spec for trial in trials}
        self._unsettled: dict[str, _Unsettled] = {}
        self._epoch_began: dict[str, float] = {}  # of the trials that run
        self._most_running = 0
        self._took = defaultdict[str, list[float]](list)  # variant -> seconds of each epoch
        self._took_before, self.to_come = list[float](), list[Trial]()
        for trial in (trial for trial in trials if trial.reads_from is None):
            if trial.key not in done:
                self.add(trial)
            if records is not None and (curve := records.curve(trial)):
                self._took_before.append(curve[-1].seconds / curve[-1].epoch)
                for point in curve if trial.key not in done else ():
                    self._unsettled[trial.key].count(point)

    def add(self, trial: Trial) -> None:
        """The trial has still to be trained."""
        self._specs[trial.key] = trial.spec
        self._unsettled[trial.key] = _Unsettled(trial, epochs_to_train(trial, self._specs))

    def started(self, trial: Trial) -> None:
        """The trial's next epoch begins; a search may just have proposed the trial."""
        alike = [each for each in self.to_come if each.opens_test == trial.opens_test]
        if trial.key not in self._specs and alike:
            self.to_come.remove(alike[0])
        if trial.key not in self._unsettled:
            self.add(trial)
        self._epoch_began[trial.key] = self._wall()
        self._most_running = max(self._most_running, len(self._epoch_began))

    def evaluated(self, trial: Trial, evaluation: Evaluation) -> None:
        """The trial has ended an epoch."""
        unsettled, now = self._unsettled[trial.key], self._wall()
        if trial.key in self._epoch_began:  # an earlier command may have begun this epoch
            trained = (evaluation.seconds - unsettled.seconds) / max(1, evaluation.epoch - unsettled.epoch)
            self._took[trial.variant].append(max(trained, now - self._epoch_began[trial.key]))
        self._epoch_began[trial.key] = now
        unsettled.count(evaluation)

    def settled(self, trial: Trial, *, resumable: bool) -> None:
        """The trial takes no more time, unless it can be resumed."""
        self._epoch_began.pop(trial.key, None)
        if not resumable:
            self._unsettled.pop(trial.key, None)

    def epochs_left(self, trial: Trial) -> int:
        """The most epochs that the trial may still take."""
        return self._unsettled[trial.key].epochs_left if trial.key in self._unsettled else 0

    def seconds_left(self) -> float | None:
        """What the sweep still takes with as many trials at once as ran at most; None while no epoch or trial tells."""
        of_all = [seconds for took in self._took.values() for seconds in took] or self._took_before
        if not self._unsettled and not self.to_come:
            return 0.0
        if not of_all or not self._most_running:
            return None
        mean, now, left = statistics.fmean(of_all), self._wall(), list[float]()
        for key, unsettled in self._unsettled.items():
            took = self._took.get(unsettled.trial.variant)
            each = statistics.fmean(took) if took else mean
            left.append(unsettled.epochs_left * each - min(each, now - self._epoch_began.get(key, now)))
        left += [mean * epochs_to_train(trial, self._specs) for trial in self.to_come]
        return max(0.0, sum(left) / self._most_running, *left)


class _Lasting(Console):
    """Says no more once its reader is gone, like a `tee` at Ctrl-C; Rich's own would end the process."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


class Progress:
    """A listener that shows the trials that run, the latest that ended, the counts, and the time left.

    `done` are the keys of trials that ended before, `diverged` some of them; `records` show how long earlier ones took;
    `best` has each search's best validation perplexity so far and its trial's number, by title. Without a terminal, a
    running trial prints at most one line every `line_seconds`. Safe from several threads.
    """

    def __init__(
        self,
        trials: Sequence[Trial],
        *,
        done: Collection[str] = (),
        diverged: Collection[str] = (),
        records: Records | None = None,
        best: Mapping[str, tuple[float, int]] | None = None,
        console: Console | None = None,
        line_seconds: float = 30.0,
    ) -> None:
        self._clock = Clock(trials, done, records)
        # Without a terminal no bar is drawn, even where FORCE_COLOR, as on many build servers, asks for colours.
        self._console = console or _Lasting(stderr=True, force_terminal=sys.stderr.isatty())
        self._line_seconds = line_seconds
        self._lock = threading.RLock()
        self._sharing = Counter(trial.reads_from or trial.key for trial in trials)  # a record's key -> its trials
        self._states: dict[str, ProgressState] = {key: "diverged" if key in diverged else "done" for key in done}
        self._running: dict[str, str] = {}  # a line for each
        self._best = dict(best or {})
        self._endings: deque[str] = deque(maxlen=4)
        self._printed: dict[str, float] = {}
        live = Live(get_renderable=self._lines, console=self._console, redirect_stdout=False, refresh_per_second=2)
        self._live = live if self._console.is_terminal and not self._console.is_dumb_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        elif self.counts()["waiting"]:
            self._print(self.summary())  # workers take some seconds to start, and print nothing meanwhile
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        self._print(self.summary())

    def expect(
        self, to_come: Sequence[Trial], trials: Sequence[Trial] = (), ended: Mapping[str, ProgressState] | None = None
    ) -> None:
        """Count as waiting, and in the time left: stand-ins for what searches may ask for, and these trials.

        Those that `ended`, by key, before anybody asked for them, count as what they are.
        """
        with self._lock:
            self._states |= ended or {}
            self._clock.to_come = list(to_come)
            for trial in [t for t in trials if t.reads_from is None and t.key not in {*self._sharing, *self._states}]:
                self._clock.add(trial)
            self._sharing |= Counter(trial.reads_from or trial.key for trial in trials)

    def started(self, trial: Trial) -> None:
        """Its line appears."""
        with self._lock:
            self._states[trial.key] = "running"
            self._running[trial.key] = f"{trial.tried}: starts"
            self._clock.started(trial)
        self._print(f"{trial.tried}: started")

    def evaluated(self, trial: Trial, evaluation: Evaluation) -> None:
        """Its line moves on."""
        with self._lock:
            self._clock.evaluated(trial, evaluation)
            point = f"{evaluation.stage}, epoch {evaluation.epoch}/{evaluation.epoch + self._clock.epochs_left(trial)}"
            point += f", validation perplexity {number(evaluation.valid_perplexity)}"
            line = f"{trial.tried}: {point}, {evaluation.tokens_per_second:,.0f} tokens/s"
            self._running[trial.key] = line
            if (at := time.monotonic()) - self._printed.get(trial.key, -self._line_seconds) < self._line_seconds:
                return
            self._printed[trial.key] = at
        self._print(f"{line}; {self._time_left()}")

    def settled(self, trial: Trial, record: Record | None) -> None:
        """Its line goes, and another says how it ended."""
        state, ending = _ending(trial, record)
        with self._lock:
            if trial.number is not None and record is not None and state == "done":
                reached = record.stages[-1].valid.perplexity, trial.number
                best, of_trial = self._best[trial.variant] = min(reached, self._best.get(trial.variant, reached))
                ending += f"; best so far {number(best)} validation perplexity, trial {of_trial}"
            self._states[trial.key] = state
            self._running.pop(trial.key, None)
            self._clock.settled(trial, resumable=state == "waiting")
            self._endings.append(f"{trial.tried}: {ending}")
        self._print(f"{trial.tried}: {ending}", summarized=True)

    def say(self, line: str) -> None:
        """Print a line above the live ones, or among the others."""
        self._console.print(Text(line), soft_wrap=True)

    def counts(self) -> dict[ProgressState, int]:
        """How many trials are in each state; a trial that is read from another's record settles with the other."""
        counts: dict[ProgressState, int] = dict.fromkeys(get_args(ProgressState), 0)
        with self._lock:
            for key in {*self._sharing, *self._states}:
                state = self._states.get(key, "waiting")
                counts[state] += 1
                counts["waiting" if state == "running" else state] += self._sharing.get(key, 1) - 1
            counts["waiting"] += len(self._clock.to_come)
        return counts

    def summary(self) -> str:
        """The counts and the time left, in a line."""
        with self._lock:
            counts = self.counts()
            words = ", ".join(f"{count} {state}" for state, count in counts.items() if count or state == "done")
            return f"{words}; {self._time_left()}" if counts["running"] or counts["waiting"] else words

    def _time_left(self) -> str:
        with self._lock:
            left = self._clock.seconds_left()
        return f"time left: {'unknown' if left is None else f'about {in_words(left)}'}"

    def _print(self, line: str, *, summarized: bool = False) -> None:
        if self._live is None:
            line = f"{line}; {self.summary()}" if summarized else line
            self._console.print(Text(f"{time.strftime('%H:%M:%S')} {line}"), soft_wrap=True)

    def _lines(self) -> Group:
        with self._lock:
            running, counts = list(self._running.values()), self.counts()
            # Of too many lines a terminal would show the first alone, without the counts and the time left.
            rows = max(1, min(_MOST_ROWS, self._console.height - len(self._endings) - 5))
            more = [f"and {len(running) - rows} more running"] if len(running) > rows else []
            total, left = sum(counts.values()), counts["running"] + counts["waiting"]
            lines = [Text(line, no_wrap=True, overflow="ellipsis") for line in (*running[:rows], *more, *self._endings)]
        bar = ProgressBar(max(total, 1), total - left, width=60)  # a search may have asked for no trial yet
        return Group(*lines, Text(f"{total - left}/{total}: {self.summary()}"), bar)


class Listeners:
    """Several listeners as one. An exception in one of them is logged once; it stops no trial and no other listener."""

    def __init__(self, *listeners: Listener) -> None:
        self._listeners = listeners
        self.started: Callable[[Trial], None] = partial(self._call, "started")
        self.evaluated: Callable[[Trial, Evaluation], None] = partial(self._call, "evaluated")
        self.settled: Callable[[Trial, Record | None], None] = partial(self._call, "settled")

    def _call(self, method: str, *arguments: object) -> None:
        for listener in self._listeners:
            try:
                getattr(listener, method)(*arguments)
            except Exception as error:
                say_once(f"{type(listener).__name__}: {type(error).__name__}: {error}")
                _log.debug("%s", type(listener).__name__, exc_info=True)


def _ending(trial: Trial, record: Record | None) -> tuple[ProgressState, str]:
    """The state of a trial that ended, and how it ended."""
    if trial.stopped_early:
        return "stopped early", "stopped early"
    if record is None or not (record.status == "failed" or is_settled(trial, record)):
        return "waiting", "stopped, can be resumed"
    if record.status != "complete":
        reason = (record.reason or "no reason given").strip().splitlines()
        return record.status, f"{record.status}: {reason[-1][:200]}"
    last = record.stages[-1]
    test = "not yet opened" if last.test is None else number(last.test.perplexity)
    valid = f"{number(last.valid.perplexity)} validation (its best epoch: {last.best_epoch})"
    return "done", f"complete, perplexity {valid}, {test} test"
