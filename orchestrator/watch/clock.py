"""How long a sweep will still take, estimated from the epochs that its trials have finished."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from lm.record import Evaluation
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial, epochs_to_train, stage_epochs


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

    An epoch takes what the epochs of its variant took on average. Before one of them has ended, it takes what all took,
    and before any has ended, what those in `records` took. A trial that is read from another's record costs nothing,
    and a stage that trials share costs once. A stage that may end early counts in full, so this is an upper estimate.
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
        self._took: dict[str, tuple[float, int]] = {}  # variant -> seconds and epochs
        self._took_before = 0.0, 0
        for trial in trials:
            if trial.reads_from is None and trial.key not in done:
                self._add(trial)
            if trial.reads_from is None and records is not None:
                self._read(trial, records)

    def _add(self, trial: Trial) -> None:
        self._specs[trial.key] = trial.spec
        self._unsettled[trial.key] = _Unsettled(trial, epochs_to_train(trial, self._specs))

    def _read(self, trial: Trial, records: Records) -> None:
        if (unsettled := self._unsettled.get(trial.key)) is None:
            if (record := records.find(trial)) is not None:
                stages = [(stage.train_seconds + stage.evaluation_seconds, stage.epochs) for stage in record.stages]
                self._took_before = _sum(self._took_before, *stages)
        elif curve := records.curve(trial):
            unsettled.count(curve[-1])
            self._took_before = _sum(self._took_before, (unsettled.seconds, unsettled.epoch))

    def started(self, trial: Trial) -> None:
        """The trial's next epoch begins; a search may just have proposed the trial."""
        if trial.key not in self._unsettled:
            self._add(trial)
        self._epoch_began[trial.key] = self._wall()
        self._most_running = max(self._most_running, len(self._epoch_began))

    def evaluated(self, trial: Trial, evaluation: Evaluation) -> None:
        """The trial has ended an epoch."""
        unsettled, ended = self._unsettled[trial.key], self._wall()
        if trial.key in self._epoch_began:
            seconds = ended - self._epoch_began[trial.key]
            if evaluation.epoch == unsettled.epoch + 1:  # an earlier command may have begun this epoch
                seconds = max(seconds, evaluation.seconds - unsettled.seconds)
            self._took[trial.variant] = _sum(self._took.get(trial.variant, (0.0, 0)), (seconds, 1))
        self._epoch_began[trial.key] = ended
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
        """What the whole sweep still takes, if as many trials go on running at once as have run at most.

        None before the first trial started, or while neither this command nor an earlier one has ended an epoch.
        """
        seconds, epochs = _sum(*self._took.values()) if self._took else self._took_before
        if not self._unsettled:
            return 0.0
        if not epochs or not self._most_running:
            return None
        left = [self._trial_seconds(unsettled, seconds / epochs) for unsettled in self._unsettled.values()]
        return max(sum(left) / self._most_running, *left)

    def _trial_seconds(self, unsettled: _Unsettled, mean: float) -> float:
        """What a trial still takes; an epoch takes the mean until one of the variant has ended."""
        key = unsettled.trial.key
        seconds, epochs = self._took.get(unsettled.trial.variant, (mean, 1))
        epoch = seconds / epochs
        over = min(epoch, self._wall() - self._epoch_began[key]) if key in self._epoch_began else 0.0
        return max(0.0, unsettled.epochs_left * epoch - over)


def _sum(*took: tuple[float, int]) -> tuple[float, int]:
    return sum(seconds for seconds, _ in took), sum(epochs for _, epochs in took)
