"""How long a sweep will still take, reckoned from the epochs that its trials have finished."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

from lm.record import Evaluation, Record
from orchestrator.trials.trial import Trial, epochs_to_train, stage_epochs


class Clock:
    """Counts the epochs that are left, and how long one took on average, in seconds of the wall.

    An epoch takes what those of its variant took, where none of them has ended what all took on average; and until this
    command has seen the first, what those of earlier commands took. Trials that are read from another's record cost
    nothing, and one that starts from another's stages only its own. Stages that may end early count in full, and each
    of the `expected` trials that are not known yet as the longest that is, so the time left is an upper estimate. Not
    for several threads.
    """

    def __init__(
        self,
        trials: Sequence[Trial],
        done: Collection[str] = (),
        now: Callable[[], float] = time.monotonic,
        expected: int = 0,
    ) -> None:
        self._specs = {trial.key: trial.spec for trial in trials}
        self._variants = {trial.key: trial.variant for trial in trials}
        most = {trial.key: epochs_to_train(trial, self._specs) for trial in trials if trial.reads_from is None}
        self._left = {key: epochs for key, epochs in most.items() if key not in done}
        self._longest = max(most.values(), default=0)
        self.expected = expected
        self._now = now
        self._running: dict[str, float] = {}
        self._stages: dict[str, tuple[str, int]] = {}
        self._last: dict[str, tuple[int, float]] = {}  # key -> epochs and seconds of training at its last evaluation
        self._together = 1
        self._begun = False
        self._took: dict[str, tuple[float, int]] = {}  # variant -> seconds, epochs
        self._took_before = 0.0, 0

    def add(self, trial: Trial) -> None:
        """One of the expected trials, or one more, is known now."""
        self._specs[trial.key], self._variants[trial.key] = trial.spec, trial.variant
        epochs = epochs_to_train(trial, self._specs)
        self._left.setdefault(trial.key, epochs)
        self._longest = max(self._longest, epochs)
        self.expected = max(0, self.expected - 1)

    def went_before(self, trial: Trial, last: Evaluation) -> None:
        """An earlier command has trained it so far."""
        self._count(trial, last)
        self._before(last.seconds, last.epoch)

    def settled_before(self, record: Record) -> None:
        """An earlier command has trained this one to its end."""
        seconds = sum(stage.train_seconds + stage.evaluation_seconds for stage in record.stages)
        self._before(seconds, sum(stage.epochs for stage in record.stages))

    def _before(self, seconds: float, epochs: int) -> None:
        self._took_before = self._took_before[0] + seconds, self._took_before[1] + epochs

    def started(self, trial: Trial) -> None:
        """Its first epoch begins."""
        self._begun = True
        self._running[trial.key] = self._now()
        self._together = max(self._together, len(self._running))

    def evaluated(self, trial: Trial, evaluation: Evaluation) -> None:
        """One more epoch of it is done."""
        now = self._now()
        if trial.key in self._running:
            seconds, epochs = self._took.get(trial.variant, (0.0, 0))
            took = max(now - self._running[trial.key], self._trained(trial, evaluation))
            self._took[trial.variant] = seconds + took, epochs + 1
        self._running[trial.key] = now
        self._count(trial, evaluation)

    def _trained(self, trial: Trial, evaluation: Evaluation) -> float:
        """Seconds of training since its epoch before; 0 where that is not known.

        The first epoch that ends here may have begun in an earlier command, and go on from a checkpoint within it.
        """
        epoch, seconds = self._last.get(trial.key, (0, 0.0))
        return evaluation.seconds - seconds if evaluation.epoch == epoch + 1 else 0.0

    def _count(self, trial: Trial, evaluation: Evaluation) -> None:
        self._last[trial.key] = evaluation.epoch, evaluation.seconds
        planned = stage_epochs(trial.spec)
        names = list(planned)
        later = names.index(evaluation.stage) if evaluation.stage in planned else len(names)
        stage, before = self._stages.get(trial.key, ("", 0))
        if stage != evaluation.stage:
            # An earlier stage may have ended before its last epoch; met in the middle, it counts as planned.
            nominal = sum(planned[name] for name in names[:later])
            before = min(nominal, evaluation.epoch - 1) if stage == "" else evaluation.epoch - 1
            self._stages[trial.key] = evaluation.stage, before
        rest = planned.get(evaluation.stage, 0) - (evaluation.epoch - before)
        self._left[trial.key] = max(0, rest) + sum(planned[name] for name in names[later + 1 :])

    def settled(self, trial: Trial, *, resumable: bool) -> None:
        """It takes no more time, unless it can be resumed."""
        self._running.pop(trial.key, None)
        if not resumable:
            self._left.pop(trial.key, None)

    def epochs_left(self, trial: Trial) -> int:
        """The most epochs that the trial may still take."""
        return self._left.get(trial.key, 0)

    def seconds_left(self) -> float | None:
        """For the whole sweep, with as many trials at once as there have been.

        None before the first trial started, or while neither this command nor an earlier one has ended an epoch.
        """
        if not self._left and not self.expected:
            return 0.0
        took = list(self._took.values()) or [self._took_before]
        epochs = sum(count for _, count in took)
        if not epochs or not self._begun:
            return None
        mean = sum(seconds for seconds, _ in took) / epochs
        left = [self._trial_seconds(key, mean) for key in self._left]
        most = self._longest * mean if self.expected else 0.0
        return max((sum(left) + self.expected * most) / self._together, most, *left)

    def _trial_seconds(self, key: str, mean: float) -> float:
        """What a trial still takes, where an epoch takes so long in the mean; the epoch under way is partly over."""
        seconds, epochs = self._took.get(self._variants[key], (mean, 1))
        each = seconds / epochs
        over = min(each, self._now() - self._running[key]) if key in self._running and self._left[key] else 0.0
        return self._left[key] * each - over
