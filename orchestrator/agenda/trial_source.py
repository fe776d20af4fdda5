"""What to train next, and in which order: an executor asks a source when it has room, and reports each trial to it."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from lm.record import Evaluation, Record
from orchestrator.errors import redacted
from orchestrator.trials.records import ends_the_command
from orchestrator.trials.trial import Trial, budget_of, epochs_to_train

_log = logging.getLogger(__name__)


class TrialSource(Protocol):
    """Called from one thread. A trial that `next` returned comes back in `settled`, unless everything is stopped."""

    def may_start(self) -> bool:
        """Whether a trial may still be started, one that `next` returned before and whose worker died among them."""

    def next(self) -> Trial | None:
        """A trial to start now; None while nothing can start, and for good if none is under way."""

    def goes_on(self, trial: Trial, evaluation: Evaluation) -> bool:
        """Whether a trial under way goes on after this point of its curve; if not, it is stopped there."""

    def settled(self, trial: Trial, record: Record | None) -> None:
        """It ended with its record, or was stopped without one."""


class FixedOrder:
    """Trials in a given order; one that continues another's stages waits until that one has ended."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        self._waiting = list(trials)
        self._unsettled = {trial.key for trial in trials}

    def may_start(self) -> bool:
        """It may at any time."""
        return True

    def next(self) -> Trial | None:
        """The first trial that waits for no other."""
        places = (i for i, trial in enumerate(self._waiting) if trial.starts_from not in self._unsettled)
        return next((self._waiting.pop(place) for place in places), None)

    def goes_on(self, trial: Trial, evaluation: Evaluation) -> bool:
        """Nothing is stopped early: stronger regularization looks worse early and wins late."""
        return True

    def settled(self, trial: Trial, record: Record | None) -> None:
        """Trials that waited for it may start; if it left no record, they train all of their stages themselves."""
        self._unsettled.discard(trial.key)


class InTurn:
    """One source after another; the next is taken when all trials of the one before have settled.

    Nothing more starts once `seconds` are over, after an error with a file here, such as a full disk, or after a trial
    that failed as the others would. `check` raises an OSError if a trial may have left no record because it could not
    write. What is under way trains to its end: an error raised in an executor would end it.
    """

    def __init__(
        self,
        sources: Iterator[TrialSource],
        seconds: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._sources, self._clock, self._until, self._check = sources, clock, clock() + seconds, check
        self._source: TrialSource | None = None
        self._under_way = 0
        self.failed = False
        """Whether an error ended it."""

    def may_start(self) -> bool:
        """Until the time is over, or an error ended it."""
        return self._clock() < self._until

    def next(self) -> Trial | None:
        """The next trial of this source, or the first of the one that follows."""
        with self._ending_on_errors():
            while self.may_start():
                self._source = self._source or next(self._sources, None)
                trial = None if self._source is None else self._source.next()
                self._under_way += trial is not None
                if trial is not None or self._source is None or self._under_way:
                    return trial
                self._source = None
        return None

    def goes_on(self, trial: Trial, evaluation: Evaluation) -> bool:
        """As the current source says."""
        with self._ending_on_errors():
            return self._source is None or self._source.goes_on(trial, evaluation)
        return True

    def settled(self, trial: Trial, record: Record | None) -> None:
        """Report to the current source."""
        self._under_way -= 1
        with self._ending_on_errors():
            if self._source is not None:
                self._source.settled(trial, record)
            if record is None:
                self._check()
            elif ends_the_command(record):
                raise OSError(f"{trial.title}: {record.reason}")

    @contextmanager
    def _ending_on_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            self._source, self._until, self.failed = None, -math.inf, True
            problem = f"{type(error).__name__}: {redacted(error)}"
            _log.error("no further trial is started (%s); run the same command again to continue", problem)


def in_order(missing: Sequence[Trial], trials: Sequence[Trial]) -> list[Trial]:
    """The missing ones of these trials in the order of training.

    First the baseline and the first variant that can be compared with it, seed by seed, for an early first comparison.
    Then the longest first, so that no worker idles at the end.
    """
    first = {trials[0].variant, first_compared(trials)} if trials else set()  # the plan begins with the baseline
    specs = {trial.key: trial.spec for trial in trials}
    early = [trial for trial in missing if trial.variant in first]
    others = [trial for trial in missing if trial.variant not in first]
    return early + sorted(others, key=lambda trial: trial.parameters * epochs_to_train(trial, specs), reverse=True)


def first_compared(trials: Sequence[Trial]) -> str | None:
    """The first variant without a cache, with the baseline's budget if any has it; None if nothing is compared."""
    baseline, *others = {trial.variant: trial.spec for trial in trials}.items()
    compared = {variant: spec for variant, spec in others if spec.cache is None}
    fair = [variant for variant, spec in compared.items() if budget_of(spec) == budget_of(baseline[1])]
    return next(iter([*fair, *compared]), None)
