"""One search in memory: what to try next, and when to stop a trial.

The same ledger always makes the same study. Every trial gets a new sampler, whose seed is a function of the sampler's
seed and the trial's number, and which sees a copy of the study without what an earlier sampler left there: so a search
that was killed goes on as if it had not been.

What the samplers learn from a trial that ended (Optuna's state in capitals):
- complete: COMPLETE with its objectives.
- stopped: PRUNED. TPE ranks it after every complete trial, by how far it came, then by its loss there. The Gaussian
  process and CMA-ES leave it out.
- diverged: PRUNED without a curve, which TPE ranks last of all.
- failed: FAIL, which no sampler sees: the machine may be the reason.
The Gaussian process gets what diverged or failed as COMPLETE with the worst values of any complete trial, because it
would ask again for a place of which it hears nothing. CMA-ES draws another point.
A trial that still runs is to TPE a bad one (a constant liar), so that several at once do not all try the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import optuna
from optuna.samplers import RandomSampler
from optuna.trial import TrialState, create_trial

from lm.spec import TrainSpec
from orchestrator.search.events import Asked, Ended, Evaluated, Event
from orchestrator.search.optuna.terms import STATES, parameters, pruner, quiet, sampler_for, suggesting
from orchestrator.search.task import SearchTask, value_of
from orchestrator.sweep import searches
from orchestrator.sweep.space import Dimension, fits
from orchestrator.sweep.walk import combinations, lacking


class Study:
    """One task's search in memory. Trials are numbered from 0 in the order in which they are asked."""

    def __init__(self, task: SearchTask, most_epochs: int) -> None:
        self._task = task
        self._starts = task.starts()
        self._combinations = combinations(task.base, task.space, task.min_trials_per_option)
        self._pruner = pruner(task.searching.scheduler, most_epochs)
        # Under one name for every variant: Hyperband deals trials to its brackets by the name and the number.
        self._study = optuna.create_study(
            study_name="search",
            directions=["minimize"] * len(task.objectives),
            sampler=RandomSampler(seed=0),
            pruner=optuna.pruners.NopPruner(),
        )
        self._trials: list[optuna.trial.Trial] = []
        self._values: list[Mapping[str, Any]] = []
        self._diverged: set[int] = set()
        sampler = task.searching.sampler
        self._grid = enumerate(task.grid(sampler.points)) if isinstance(sampler, searches.GridSampler) else None

    def next_values(self) -> dict[str, Any] | None:
        """What the next trial should try; None if every point of a grid was tried."""
        task, number = self._task, len(self._trials)
        # What is not the sampler's choice: a start's values, or the options that still lack trials.
        is_start = number < len(self._starts)
        lacks = lacking(self._combinations, task.min_trials_per_option, self._values)
        fixed = self._starts[number] if is_start else lacks
        match task.searching.sampler:
            case searches.GridSampler() if self._grid is not None and not is_start:
                place = number - len(self._starts)
                return next((values for index, values in self._grid if index == place), None)
            case searches.RandomSampler() | searches.GridSampler():
                point = task.random_point(number)
            case searches.QuasiRandomSampler():
                point = task.sobol_point(number)
            case sampler:
                with quiet():
                    study = self._copy()
                    study.sampler = sampler_for(sampler, task.searching.sampler_seed, number)
                    study.enqueue_trial(parameters(task.space, fixed))
                    return task.walk(suggesting(study.ask(), task.space)).values

        def draw(key: str, dimension: Dimension, _: TrainSpec) -> Any:
            return fixed[key] if key in fixed and fits(dimension, fixed[key]) else value_of(dimension, point[key])

        return task.walk(draw).values

    def apply(self, event: Event) -> None:
        """Take an event of the ledger into account."""
        match event:
            case Asked(values=values):
                self._ask(values)
            case Evaluated(evaluated=number, epoch=epoch, nats=nats):
                self.reported(number, epoch, nats)
            case Ended(ended=number, state=state, objectives=objectives):
                if state == "diverged":
                    self._diverged.add(number)
                with quiet():
                    self._study.tell(number, objectives, state=STATES[state])

    def reported(self, number: int, epoch: int, best_nats: float | None) -> bool:
        """Whether a trial goes on whose best validation loss until this epoch is this; each epoch is reported once."""
        if best_nats is None or len(self._task.objectives) > 1:
            return True
        self._trials[number].report(best_nats, epoch)
        frozen = self._study.get_trials(deepcopy=False)[number]
        return self._pruner is None or not self._pruner.prune(self._study, frozen)

    def _ask(self, values: Mapping[str, Any]) -> None:
        sampler, space = self._task.searching.sampler, self._task.space
        with quiet():
            if isinstance(sampler, searches.CmaEsSampler):  # keeps its state in the study's trials as they are asked
                self._study.sampler = sampler_for(sampler, self._task.searching.sampler_seed, len(self._trials))
            self._study.enqueue_trial(parameters(space, values))
            trial = self._study.ask()
            self._task.walk(suggesting(trial, space))
        self._trials.append(trial)
        self._values.append(values)

    def _copy(self) -> optuna.Study:
        """The study as a sampler should see it."""
        study = optuna.create_study(directions=self._study.directions)
        trials = self._study.get_trials(deepcopy=False)
        complete = [trial.values for trial in trials if trial.state == TrialState.COMPLETE]
        worst = [max(values) for values in zip(*complete, strict=True)]
        impute = bool(worst) and isinstance(self._task.searching.sampler, searches.GaussianProcessSampler)
        for trial in trials:
            diverged = trial.number in self._diverged
            if impute and (diverged or trial.state == TrialState.FAIL):
                study.add_trial(create_trial(values=worst, params=trial.params, distributions=trial.distributions))
                continue
            step = None if diverged else trial.last_step
            seen = create_trial(
                state=trial.state,
                values=trial.values if trial.state == TrialState.COMPLETE else None,
                params=trial.params,
                distributions=trial.distributions,
                system_attrs={key: value for key, value in trial.system_attrs.items() if key.startswith("cma:")},
                # The last point of a curve is all that a sampler reads of it.
                intermediate_values={} if step is None else {step: trial.intermediate_values[step]},
            )
            study.add_trial(seen)
        return study
