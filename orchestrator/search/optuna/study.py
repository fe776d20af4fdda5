"""One search in memory: what to try next, and when to stop a trial.

The ledger is the truth, and the same ledger always makes the same one. A sampler is made
anew for every trial, its seed a function of the sampler's seed and the trial's number, and sees a copy of the study
without what an earlier sampler left there: so a search that was killed goes on as if it had not been.

What a trial that ended tells the samplers (Optuna's state in capitals):
- complete: COMPLETE with its objectives.
- stopped: PRUNED. TPE ranks it behind every complete trial, by how far it came, then by its loss there. The Gaussian
  process and CMA-ES leave it out.
- diverged: PRUNED without a curve, which TPE ranks last of all, however far it came.
- failed: FAIL, which no sampler sees: it may be the machine's fault.
The Gaussian process gets what diverged or failed as COMPLETE with the worst values of any complete trial: a place of
which it hears nothing it asks for again and again. CMA-ES draws another point.
A trial that still runs is to TPE a bad one (a constant liar), so that several at once do not all try the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.samplers import RandomSampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from lm.spec import TrainSpec
from orchestrator.search.events import SearchTrialStatus
from orchestrator.search.optuna.policies import pruner, sampler_for
from orchestrator.search.optuna.terms import STATES, parameters, quiet, suggesting
from orchestrator.search.points import drawing, grid, random_point, sobol_point
from orchestrator.search.task import SearchTask
from orchestrator.sweep import searches
from orchestrator.sweep.space import Dimension, fits


class Study:
    """One task's search in memory. Numbers count from 0 in the order of `asked`."""

    def __init__(self, task: SearchTask, most_epochs: int) -> None:
        self._task = task
        self._space = task.space
        self._starts = task.starts()
        self._combinations = task.option_combinations()
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
        self._grid = enumerate(grid(task, sampler.points)) if isinstance(sampler, searches.GridSampler) else None

    def next_values(self) -> dict[str, Any] | None:
        """What the next trial should try; None where every point of a grid was tried."""
        number = len(self._trials)
        start = self._fixed(number)
        match self._task.searching.sampler:
            case searches.GridSampler() if not start and self._grid is not None:
                place = number - len(self._starts)
                return next((values for index, values in self._grid if index == place), None)
            case searches.RandomSampler() | searches.GridSampler():
                draw = drawing(self._task, random_point(self._task, number))
            case searches.QuasiRandomSampler():
                draw = drawing(self._task, sobol_point(self._task, number))
            case sampler:
                with quiet():
                    study = self._copy()
                    study.sampler = sampler_for(sampler, self._task.searching.sampler_seed, number)
                    study.enqueue_trial(parameters(self._space, start))
                    return self._task.walk(suggesting(study.ask(), self._space)).values

        def fixed_or_drawn(key: str, dimension: Dimension, spec: TrainSpec) -> Any:
            return start[key] if key in start and fits(dimension, start[key]) else draw(key, dimension, spec)

        return self._task.walk(fixed_or_drawn).values

    def _fixed(self, number: int) -> Mapping[str, Any]:
        """What of the next trial is not the sampler's: a start's values, or the options that still lack trials."""
        if number < len(self._starts):
            return self._starts[number]
        return self._task.lacking(self._combinations, self._values)

    def asked(self, values: Mapping[str, Any]) -> None:
        """The next trial tries these values."""
        sampler = self._task.searching.sampler
        with quiet():
            if isinstance(sampler, searches.CmaEsSampler):  # keeps its state in the study's trials as they are asked
                self._study.sampler = sampler_for(sampler, self._task.searching.sampler_seed, len(self._trials))
            self._study.enqueue_trial(parameters(self._space, values))
            trial = self._study.ask()
            self._task.walk(suggesting(trial, self._space))
        self._trials.append(trial)
        self._values.append(values)

    def reported(self, number: int, epoch: int, best_nats: float | None) -> bool:
        """Whether a trial goes on whose best validation loss until this epoch is this; every epoch is told once."""
        if best_nats is None or len(self._task.objectives) > 1:
            return True
        self._trials[number].report(best_nats, epoch)
        frozen = self._study.get_trials(deepcopy=False)[number]
        return self._pruner is None or not self._pruner.prune(self._study, frozen)

    def ended(self, number: int, state: SearchTrialStatus, objectives: Sequence[float] | None) -> None:
        """A trial is over; `objectives` of a complete one."""
        if state == "diverged":
            self._diverged.add(number)
        with quiet():
            self._study.tell(number, None if objectives is None else list(objectives), state=STATES[state])

    def _copy(self) -> optuna.Study:
        """The study as a sampler should see it."""
        study = optuna.create_study(directions=self._study.directions)
        trials = self._study.get_trials(deepcopy=False)
        complete = [trial.values for trial in trials if trial.state == TrialState.COMPLETE]
        worst = [max(values) for values in zip(*complete, strict=True)]
        impute = bool(worst) and isinstance(self._task.searching.sampler, searches.GaussianProcessSampler)
        for trial in trials:
            lost = trial.number in self._diverged
            if impute and (lost or trial.state == TrialState.FAIL):
                study.add_trial(create_trial(values=worst, params=trial.params, distributions=trial.distributions))
            else:
                study.add_trial(_as_seen(trial, with_curve=not lost))
        return study


def _as_seen(trial: FrozenTrial, with_curve: bool) -> FrozenTrial:
    step = trial.last_step if with_curve else None
    return create_trial(
        state=trial.state,
        values=trial.values if trial.state == TrialState.COMPLETE else None,
        params=trial.params,
        distributions=trial.distributions,
        system_attrs={key: value for key, value in trial.system_attrs.items() if key.startswith("cma:")},
        # The last point of a curve is all that a sampler reads of it.
        intermediate_values={} if step is None else {step: trial.intermediate_values[step]},
    )
