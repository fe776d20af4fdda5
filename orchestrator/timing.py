"""How long a sweep will still take, reckoned from the epochs that its trials have finished."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence

from lm.record import Evaluation
from lm.spec import TrainSpec
from orchestrator.trial import Trial


class Clock:
    """Counts the epochs that are left, and how long one took on average, in seconds of the wall.

    Trials that are read from another's record cost nothing, and one that starts from another's stages only its
    own. Stages that may end early count in full, and each of the `expected` trials that are not known yet as the
    longest that is, so the time left is an upper estimate. Not for several threads.
    """

    def __init__(
        self,
        trials: Sequence[Trial],
        done: Collection[str] = (),
        now: Callable[[], float] = time.monotonic,
        expected: int = 0,
    ) -> None:
        self._specs = {trial.key: trial.spec for trial in trials}
        most = {trial.key: epochs_to_train(trial, self._specs) for trial in trials if trial.reads_from is None}
        self._left = {key: epochs for key, epochs in most.items() if key not in done}
        self._longest = max(most.values(), default=0)
        self.expected = expected
        self._now = now
        self._running: dict[str, float] = {}
        self._stages: dict[str, tuple[str, int]] = {}
        self._together = 1
        self._seconds, self._epochs = 0.0, 0

    def add(self, trial: Trial) -> None:
        """One of the expected trials, or one more, is known now."""
        self._specs[trial.key] = trial.spec
        epochs = epochs_to_train(trial, self._specs)
        self._left.setdefault(trial.key, epochs)
        self._longest = max(self._longest, epochs)
        self.expected = max(0, self.expected - 1)

    def started(self, trial: Trial) -> None:
        """Its first epoch begins."""
        self._running[trial.key] = self._now()
        self._together = max(self._together, len(self._running))

    def evaluated(self, trial: Trial, evaluation: Evaluation) -> None:
        """One more epoch of it is done."""
        now = self._now()
        if trial.key in self._running:
            self._seconds += now - self._running[trial.key]
            self._epochs += 1
        self._running[trial.key] = now
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
        """For the whole sweep, with as many trials at once as there have been; None before the first epoch ended."""
        if not self._left and not self.expected:
            return 0.0
        if not self._epochs:
            return None
        longest = self._longest if self.expected else max(self._left.values())
        shared = (sum(self._left.values()) + self.expected * self._longest) / self._together
        return self._seconds / self._epochs * max(shared, longest)


def stage_epochs(spec: TrainSpec) -> dict[str, int]:
    """The most epochs of every stage, in order."""
    tuned = 0 if spec.finetune is None else spec.finetune.epochs
    most = {name: spec.during(name).epochs for name in spec.stages()}
    most |= {name: tuned for name in most if name.startswith("finetune")}
    return most | ({"cache": 0} if spec.cache is not None else {})


def budget_of(spec: TrainSpec) -> tuple[int, int | None, int]:
    """What a trial may train on: epochs over all stages, and the stretch of the training text, its length and start."""
    return sum(stage_epochs(spec).values()), spec.corpus.train_tokens, spec.corpus.train_start


def epochs_to_train(trial: Trial, specs: Mapping[str, TrainSpec]) -> int:
    """The most epochs the trial may take, those of stages it takes over left out; `specs` holds its source by key."""
    epochs = stage_epochs(trial.spec)
    source = specs.get(trial.starts_from or "")
    theirs = {} if source is None else source.stages()
    return sum(epochs[name] for name, spec in trial.spec.stages().items() if theirs.get(name) != spec)


def in_words(seconds: float) -> str:
    """A time as one reads it: `40 s`, `12 min`, `3 h 20 min`, `2 d 4 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
