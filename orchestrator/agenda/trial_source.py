"""What to train next: an executor asks a source whenever it has room, and tells it how each trial goes."""

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


class TrialSource(Protocol):
    """Asked and told from one thread. A trial that `next` returned comes back in `settled`, unless all is stopped."""

    def next(self) -> Trial | None:
        """A trial to start now; None while nothing can start."""

    def ended(self) -> bool:
        """Whether nothing will start any more, however the trials under way end."""

    def goes_on(self, trial: Trial, evaluation: Evaluation) -> bool:
        """Whether a trial under way goes on after this point of its curve; one that does not is stopped there."""

    def settled(self, trial: Trial, record: Record | None) -> None:
        """It ended with its record, or was stopped without one."""


class FixedOrder:
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


class Chained:
    """One source after another, each made when all trials of the one before have settled; None ends it."""

    def __init__(self, following: Callable[[], TrialSource | None]) -> None:
        self._following = following
        self._source = following()
        self._under_way = 0

    def next(self) -> Trial | None:
        """The next trial of this round, or the first of a new one."""
        while self._source is not None:
            if (trial := self._source.next()) is not None:
                self._under_way += 1
                return trial
            if self._under_way or not self._source.ended():
                return None
            self._source = self._following()
        return None

    def ended(self) -> bool:
        """Whether the last round is over."""
        return self._source is None

    def goes_on(self, trial: Trial, evaluation: Evaluation) -> bool:
        """As this round's source says."""
        return self._source is None or self._source.goes_on(trial, evaluation)

    def settled(self, trial: Trial, record: Record | None) -> None:
        """Tell this round's source."""
        self._under_way -= 1
        if self._source is not None:
            self._source.settled(trial, record)


class StopOnStorageError:
    """Another source until it cannot read or write what it rests on, as where the disk is full.

    Then nothing starts any more, and what is under way trains to its end: raised in an executor, the error would end
    those trials too. The source is not asked or told again, so that its files stay as they are for the next command.
    """

    def __init__(self, source: TrialSource) -> None:
        self._source = source
        self.is_lost = False

    def next(self) -> Trial | None:
        """The source's next trial."""
        return self._unless_lost(self._source.next, None)

    def ended(self) -> bool:
        """Whether the source has ended or is lost."""
        return self._unless_lost(self._source.ended, True)

    def goes_on(self, trial: Trial, evaluation: Evaluation) -> bool:
        """As the source says; without it every trial goes on."""
        return self._unless_lost(lambda: self._source.goes_on(trial, evaluation), True)

    def settled(self, trial: Trial, record: Record | None) -> None:
        """Tell the source."""
        self._unless_lost(lambda: self._source.settled(trial, record), None)

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


class UntilDeadline:
    """Another source until a time is over: then nothing starts any more, and what is under way ends in its own time."""

    def __init__(self, source: TrialSource, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._source, self._now = source, now
        self._until = now() + seconds

    @property
    def is_over(self) -> bool:
        """Whether the time is spent."""
        return self._now() >= self._until

    def next(self) -> Trial | None:
        """The source's next trial while there is time."""
        return None if self.is_over else self._source.next()

    def ended(self) -> bool:
        """Whether the time or the source is over."""
        return self.is_over or self._source.ended()

    def goes_on(self, trial: Trial, evaluation: Evaluation) -> bool:
        """As the source says."""
        return self._source.goes_on(trial, evaluation)

    def settled(self, trial: Trial, record: Record | None) -> None:
        """Tell the source."""
        self._source.settled(trial, record)
