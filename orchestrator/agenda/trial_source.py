"""What to train next: an executor asks a course whenever it has room, and tells it how each trial goes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from lm.record import Evaluation, Record
from orchestrator.errors import redacted
from orchestrator.trials.trial import Trial

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Course(Protocol):
    """Asked and told from one thread. A trial that `next` returned comes back in `settled`, unless all is stopped."""

    def next(self) -> Trial | None:
        """A trial to start now; None while nothing can start."""

    def ended(self) -> bool:
        """Whether nothing will start any more, however the trials under way end."""

    def goes_on(self, trial: Trial, evaluation: Evaluation) -> bool:
        """Whether a trial under way goes on after this point of its curve; one that does not is stopped there."""

    def settled(self, trial: Trial, record: Record | None) -> None:
        """It ended with its record, or was stopped without one."""


class Planned:
    """Trials known from the start, in order; one that continues another's stages waits until that one has ended."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        self._waiting = list(trials)
        self._unsettled = {trial.key for trial in trials}

    def next(self) -> Trial | None:
        """The first trial that waits for no other."""
        free = (i for i, trial in enumerate(self._waiting) if trial.starts_from not in self._unsettled)
        place = next(free, None)
        return None if place is None else self._waiting.pop(place)

    def ended(self) -> bool:
        """Whether all have started."""
        return not self._waiting

    def goes_on(self, trial: Trial, evaluation: Evaluation) -> bool:
        """Nothing is stopped early: stronger regularization looks worse early and wins late."""
        return True

    def settled(self, trial: Trial, record: Record | None) -> None:
        """Trials that waited for it may start; if it left no record, they train all of their stages themselves."""
        self._unsettled.discard(trial.key)


class Rounds:
    """One course after another, each made when all trials of the one before have settled; None ends it."""

    def __init__(self, following: Callable[[], Course | None]) -> None:
        self._following = following
        self._course = following()
        self._under_way = 0

    def next(self) -> Trial | None:
        """The next trial of this round, or the first of a new one."""
        while self._course is not None:
            if (trial := self._course.next()) is not None:
                self._under_way += 1
                return trial
            if self._under_way or not self._course.ended():
                return None
            self._course = self._following()
        return None

    def ended(self) -> bool:
        """Whether the last round is over."""
        return self._course is None

    def goes_on(self, trial: Trial, evaluation: Evaluation) -> bool:
        """As this round's course says."""
        return self._course is None or self._course.goes_on(trial, evaluation)

    def settled(self, trial: Trial, record: Record | None) -> None:
        """Tell this round's course."""
        self._under_way -= 1
        if self._course is not None:
            self._course.settled(trial, record)


class UntilLost:
    """Another course until it cannot read or write what it rests on, as where the disk is full.

    Then nothing starts any more, and what is under way trains to its end: raised in an executor, the error would end
    those trials too. The course is not asked or told again, so that its files stay as they are for the next command.
    """

    def __init__(self, course: Course) -> None:
        self._course = course
        self.is_lost = False

    def next(self) -> Trial | None:
        """The course's next trial."""
        return self._unless_lost(self._course.next, None)

    def ended(self) -> bool:
        """Whether the course has ended or is lost."""
        return self._unless_lost(self._course.ended, True)

    def goes_on(self, trial: Trial, evaluation: Evaluation) -> bool:
        """As the course says; without it every trial goes on."""
        return self._unless_lost(lambda: self._course.goes_on(trial, evaluation), True)

    def settled(self, trial: Trial, record: Record | None) -> None:
        """Tell the course."""
        self._unless_lost(lambda: self._course.settled(trial, record), None)

    def _unless_lost(self, ask: Callable[[], T], otherwise: T) -> T:
        if self.is_lost:
            return otherwise
        try:
            return ask()
        except (OSError, ValueError) as error:
            self.is_lost = True
            _log.error(
                "nothing more is started; the same command goes on: %s: %s", type(error).__name__, redacted(error)
            )
            return otherwise


class Within:
    """Another course until a time is over: then nothing starts any more, and what is under way ends in its own time."""

    def __init__(self, course: Course, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._course, self._now = course, now
        self._until = now() + seconds

    @property
    def is_over(self) -> bool:
        """Whether the time is spent."""
        return self._now() >= self._until

    def next(self) -> Trial | None:
        """The course's next trial while there is time."""
        return None if self.is_over else self._course.next()

    def ended(self) -> bool:
        """Whether the time or the course is over."""
        return self.is_over or self._course.ended()

    def goes_on(self, trial: Trial, evaluation: Evaluation) -> bool:
        """As the course says."""
        return self._course.goes_on(trial, evaluation)

    def settled(self, trial: Trial, record: Record | None) -> None:
        """Tell the course."""
        self._course.settled(trial, record)
