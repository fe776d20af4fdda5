"""Population-based training: which trial continues which, and with which values (Jaderberg et al. 2017).

A member of a generation is a trial of the search. Its spec has a leg for every generation up to its own, so that its
key names its whole history, and it shares the stages of the trial that it continues. A generation begins when the one
before has ended: who continues whom depends on losses alone, not on which worker was faster. Free of Optuna and torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lm.spec import Leg, TrainSpec
from orchestrator.search.events import SearchTrial
from orchestrator.search.task import SearchTask
from orchestrator.sweep.draws import value_of
from orchestrator.sweep.searches import PopulationBased
from orchestrator.sweep.space import Dimension, Integer, OneOf

_FACTORS = (0.8, 1.2)


@dataclass(frozen=True)
class Generations:
    """A search's trials by generation. A search without a population has no later generation, and nothing waits."""

    task: SearchTask
    trials: Sequence[SearchTrial]

    @property
    def waiting(self) -> bool:
        """Whether the next member has to wait until a generation has ended."""
        return self._at_boundary and any(trial.state == "running" for trial in self.trials)

    @property
    def extinct(self) -> bool:
        """Whether a generation has ended without a member that can be continued."""
        return self._at_boundary and not self.waiting and not _alive(self.trials[-self.task.population :])

    def next_member(self) -> tuple[dict[str, Any], int]:
        """A later generation's next trial: its values and the trial it continues; not if it is extinct."""
        scheduler, seed = self.task.searching.scheduler, self.task.searching.sampler_seed
        assert isinstance(scheduler, PopulationBased)
        number, size = len(self.trials), self.task.population
        first = (number // size - 1) * size
        before = self.trials[first : first + size]
        ranked = sorted(_alive(before), key=lambda trial: (trial.valid_nats, trial.number))
        count = max(1, int(scheduler.share * size))
        best, worst = ranked[:count], ranked[count:][-count:]
        member = before[number % size]
        if member in ranked and member not in worst:
            return dict(member.values), member.number
        random = np.random.default_rng([seed, number, 1])
        donor = best[int(random.integers(len(best)))]
        resampled = self.task.random_point(number)

        def draw(key: str, dimension: Dimension, _: TrainSpec) -> Any:
            resample, factor = random.random() < scheduler.resample_probability, _FACTORS[int(random.integers(2))]
            if resample or key not in donor.values:
                return value_of(dimension, resampled[key])
            return _perturbed(dimension, donor.values[key], factor)

        return self.task.draw_all(draw).values, donor.number

    def spec(self, values: Mapping[str, Any], parent: int | None) -> tuple[TrainSpec | None, str | None]:
        """The spec that goes on from the parent's, or None and why; fine-tuning and cache end the last generation."""
        each_drawn = [self.task.drawn(member) for member in history(self.trials, values, parent)]
        if (reason := next((drawn.reason for drawn in each_drawn if drawn.reason), None)) is not None:
            return None, reason
        first, *later = (drawn.last_spec for drawn in each_drawn)
        if not (epochs := self.task.generations):
            return first, None
        legs = tuple(
            Leg(epochs=count, optimizer=spec.optimizer, dropout=spec.dropout, penalties=spec.penalties)
            for spec, count in zip(later, epochs[1:], strict=False)
        )
        interim = {"finetune": None, "cache": None} if len(each_drawn) < len(epochs) else {}
        return first.model_copy(update={"epochs": epochs[0], "legs": legs} | interim), None

    @property
    def _at_boundary(self) -> bool:
        size = self.task.population
        return size > 0 and len(self.trials) > 0 and len(self.trials) % size == 0


def history(trials: Sequence[SearchTrial], values: Mapping[str, Any], parent: int | None) -> list[Mapping[str, Any]]:
    """The values of a trial after those of the trials that it continues, the first of them first."""
    each_drawn = [values]
    while parent is not None:
        each_drawn.append(trials[parent].values)
        parent = trials[parent].parent
    return each_drawn[::-1]


def own_share(trials: Sequence[SearchTrial], trial: SearchTrial) -> tuple[int, float]:
    """The epochs and seconds that a trial of any search trained itself."""
    if trial.parent is None:
        return trial.epochs, trial.seconds
    return trial.epochs - trials[trial.parent].epochs, trial.seconds - trials[trial.parent].seconds


def _alive(trials: Sequence[SearchTrial]) -> list[SearchTrial]:
    return [trial for trial in trials if trial.state in ("complete", "stopped") and trial.valid_nats is not None]


def _perturbed(dimension: Dimension, value: Any, factor: float) -> Any:
    """The value times the factor, within the range; a choice has no neighbours, and stays."""
    if isinstance(dimension, OneOf):
        return value
    moved = min(dimension.high, max(dimension.low, value * factor))
    return round(moved) if isinstance(dimension, Integer) else moved
