"""A population that trains in generations: who goes on from whom, and with which values (Jaderberg et al. 2017).

A member of a generation is a trial of the search. Its spec has a leg for every generation until its own, so that its
key names its whole history, and it shares the stages of whomever it goes on from. Generations wait for their last
trial: who goes on from whom depends on losses alone, not on which worker was faster. Free of Optuna and torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lm.spec import Leg, TrainSpec
from orchestrator.search.events import SearchTrial
from orchestrator.search.points import random_point, value_of
from orchestrator.search.task import SearchTask
from orchestrator.sweep.searches import PopulationBased
from orchestrator.sweep.space import Change, Choice, Dimension, Integer

_FACTORS = (0.8, 1.2)


def is_last(task: SearchTask, number: int) -> bool:
    """Whether a trial is of the last generation, which alone has trained for all epochs."""
    return number >= task.population * (len(task.generations) - 1)


def waits(task: SearchTask, found: Sequence[SearchTrial]) -> bool:
    """Whether the next member has to wait until a generation has ended."""
    return len(found) % task.population == 0 and any(trial.state == "running" for trial in found)


def extinct(task: SearchTask, found: Sequence[SearchTrial]) -> bool:
    """Whether a generation has ended without a member that could go on."""
    begun = len(found) % task.population
    return bool(found) and not begun and not waits(task, found) and not _alive(found[-task.population :])


def next_member(task: SearchTask, found: Sequence[SearchTrial]) -> tuple[dict[str, Any], int] | None:
    """The values of the next trial of a later generation, and the number of the trial from whose weights it goes on.

    None where no trial of the generation before can be gone on from. `found` holds that generation, ended, and the
    members after it that were asked.
    """
    scheduler = task.searching.scheduler
    assert isinstance(scheduler, PopulationBased)
    number, size = len(found), task.population
    first = (number // size - 1) * size
    before = found[first : first + size]
    ranked = sorted(_alive(before), key=lambda trial: (trial.valid_nats, trial.number))
    if not ranked:
        return None
    count = max(1, int(scheduler.share * size))
    best, worst = ranked[:count], ranked[count:][-count:]
    own = before[number % size]
    if own in ranked and own not in worst:
        return dict(own.values), own.number
    random = np.random.default_rng([task.searching.sampler_seed, number, 1])
    donor = best[int(random.integers(len(best)))]
    return _explored(task, donor.values, number, scheduler.resample_probability, random), donor.number


def history(found: Sequence[SearchTrial], values: Mapping[str, Any], parent: int | None) -> list[Mapping[str, Any]]:
    """The values of a trial after those of the trials that it goes on from, the first of them first."""
    if parent is None:
        return [values]
    return [*history(found, found[parent].values, found[parent].parent), values]


def own_share(found: Sequence[SearchTrial], trial: SearchTrial) -> tuple[int, float]:
    """The epochs and seconds that a trial of any search trained itself."""
    before = None if trial.parent is None else found[trial.parent]
    if before is None:
        return trial.epochs, trial.seconds
    return trial.epochs - before.epochs, trial.seconds - before.seconds


def spec_of(task: SearchTask, values: Sequence[Mapping[str, Any]]) -> tuple[TrainSpec | None, str | None]:
    """The spec of a trial with this history of values; where there is none, why.

    Fine-tuning and the cache come after the last generation.
    """
    specs = []
    for held in values:
        spec, reason = task.spec(held)
        if spec is None:
            return None, reason
        specs.append(spec)
    first, *later = specs
    if not task.population:
        return first, None
    epochs = task.generations
    legs = tuple(
        Leg(epochs=count, optimizer=spec.optimizer, dropout=spec.dropout, penalties=spec.penalties)
        for spec, count in zip(later, epochs[1:], strict=False)
    )
    update: dict[str, Any] = {"epochs": epochs[0], "legs": legs}
    if len(specs) < len(epochs):
        update |= {"finetune": None, "cache": None}
    return first.model_copy(update=update), None


def _alive(trials: Sequence[SearchTrial]) -> list[SearchTrial]:
    return [trial for trial in trials if trial.state in ("complete", "stopped") and trial.valid_nats is not None]


def _explored(
    task: SearchTask, values: Mapping[str, Any], number: int, resample: float, random: np.random.Generator
) -> dict[str, Any]:
    fresh = dict(zip(task.space, random_point(task, number), strict=True))

    def draw(key: str, dimension: Dimension, _: TrainSpec) -> Any:
        anew, factor = random.random() < resample, _FACTORS[int(random.integers(2))]
        if anew or key not in values:
            return value_of(dimension, fresh[key])
        return _perturbed(dimension, values[key], factor)

    return task.walk(draw).values


def _perturbed(dimension: Dimension, value: Any, factor: float) -> Any:
    """The value times the factor, within the range; a choice has no neighbours, and stays."""
    match dimension:
        case Choice() | Change():
            return value
        case Integer(low=low, high=high):
            return min(high, max(low, round(value * factor)))
        case _:
            return min(dimension.high, max(dimension.low, value * factor))
