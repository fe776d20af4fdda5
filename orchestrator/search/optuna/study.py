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
from typing import Any, assert_never

import numpy as np
import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, SuccessiveHalvingPruner
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, RandomSampler, TPESampler
from optuna.trial import TrialState, create_trial

from lm.spec import TrainSpec
from orchestrator.search.events import Asked, Ended, Evaluated, Event
from orchestrator.search.task import SearchTask
from orchestrator.sweep import searches
from orchestrator.sweep.draws import Draw, Places, combinations, lacking, value_of
from orchestrator.sweep.space import Dimension, Integer, LogUniform, OneOf, dimensions_of, fits
from orchestrator.words import value_in_words

STATES = {
    "running": TrialState.RUNNING,
    "complete": TrialState.COMPLETE,
    "stopped": TrialState.PRUNED,
    "diverged": TrialState.PRUNED,
    "failed": TrialState.FAIL,
}


def parameter(space: Places, key: str, dimension: Dimension) -> str:
    """A dimension's name in a study: of several ranges of one path each is a parameter of its own."""
    if len(dimensions_of(space[key])) == 1:
        return key
    return f"{key} where {', '.join(f'{path} is {value_in_words(value)}' for path, value in dimension.when.items())}"


def parameters(space: Places, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by the names of all parameters that could take them, without those outside a variant's own range."""
    return {
        parameter(space, key, dimension): value
        for key, value in values.items()
        for dimension in dimensions_of(space[key])
        if fits(dimension, value)
    }


def distribution(dimension: Dimension) -> CategoricalDistribution | IntDistribution | FloatDistribution:
    """The distribution from which a dimension is drawn."""
    match dimension:
        case OneOf():
            return CategoricalDistribution(list(dimension.options))
        case Integer():
            return IntDistribution(dimension.low, dimension.high, log=dimension.log)
        case _:
            return FloatDistribution(dimension.low, dimension.high, log=isinstance(dimension, LogUniform))


def suggesting(trial: optuna.trial.Trial, space: Places) -> Draw:
    """Draws what the trial's sampler suggests."""

    def draw(path: str, dimension: Dimension, _: TrainSpec) -> Any:
        name, of = parameter(space, path, dimension), distribution(dimension)
        if isinstance(of, CategoricalDistribution):
            return trial.suggest_categorical(name, of.choices)
        if isinstance(of, IntDistribution):
            return trial.suggest_int(name, of.low, of.high, log=of.log)
        return trial.suggest_float(name, of.low, of.high, log=of.log)

    return draw


def sampler_for(
    sampler: searches.TpeSampler | searches.GaussianProcessSampler | searches.CmaEsSampler, seed: int, number: int
) -> BaseSampler:
    """A sampler for one trial."""
    of_trial, independent = (int(x) for x in np.random.SeedSequence([seed, number]).generate_state(2))
    startup = sampler.startup_trials
    others: dict[str, Any] = {"n_startup_trials": startup, "warn_independent_sampling": False}
    others["independent_sampler"] = RandomSampler(seed=independent)
    match sampler:
        case searches.TpeSampler():
            # `group`: in a conditional space, what is searched together is estimated together.
            return TPESampler(
                seed=of_trial, n_startup_trials=startup, multivariate=True, group=True, constant_liar=True
            )
        case searches.GaussianProcessSampler():
            return GPSampler(seed=of_trial, **others)
        case searches.CmaEsSampler():  # it uses the trial's number itself
            return CmaEsSampler(seed=int(np.random.SeedSequence(seed).generate_state(1)[0]), **others)
        case _:
            assert_never(sampler)


def pruner(scheduler: searches.Scheduler | None, most_epochs: int) -> BasePruner | None:
    """A pruner whose resource is the epoch; its rungs are those of the losses that were reported."""
    match scheduler:
        case None | searches.PopulationBased():
            return None
        case searches.Asha(grace_epochs=grace, reduction_factor=factor):
            return SuccessiveHalvingPruner(min_resource=grace, reduction_factor=factor)
        case searches.Hyperband(grace_epochs=grace, reduction_factor=factor):
            return HyperbandPruner(min_resource=grace, max_resource=max(most_epochs, grace), reduction_factor=factor)
        case searches.MedianStopping(grace_epochs=grace, startup_trials=startup):
            return MedianPruner(n_startup_trials=startup, n_warmup_steps=grace)
        case _:
            assert_never(scheduler)


class Study:
    """One task's search in memory. Trials are numbered from 0 in the order in which they are asked."""

    def __init__(self, task: SearchTask) -> None:
        self._task = task
        self._starts = task.starts()
        self._combinations = combinations(task.base, task.space, task.min_trials_per_option)
        self._pruner = pruner(task.searching.scheduler, task.base.most_epochs)
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

    def next_values(self) -> dict[str, Any]:
        """What the next trial should try; StopIteration if every point of a grid was tried."""
        task, number = self._task, len(self._trials)
        is_start = number < len(self._starts)
        # What is not the sampler's choice: a start's values, or the options that still lack trials.
        lacks = lacking(self._combinations, task.min_trials_per_option, self._values)
        fixed = self._starts[number] if is_start else lacks
        match task.searching.sampler:
            case searches.GridSampler() if self._grid is not None and not is_start:
                place = number - len(self._starts)
                return next(values for index, values in self._grid if index == place)
            case searches.RandomSampler() | searches.GridSampler():
                point = task.random_point(number)
            case searches.QuasiRandomSampler():
                point = task.sobol_point(number)
            case sampler:
                study = self._copy()
                study.sampler = sampler_for(sampler, task.searching.sampler_seed, number)
                study.enqueue_trial(parameters(task.space, fixed))
                return task.draw_all(suggesting(study.ask(), task.space)).values

        def draw(key: str, dimension: Dimension, _: TrainSpec) -> Any:
            return fixed[key] if key in fixed and fits(dimension, fixed[key]) else value_of(dimension, point[key])

        return task.draw_all(draw).values

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
        if isinstance(sampler, searches.CmaEsSampler):  # keeps its state in the study's trials, as it draws for them
            self._study.sampler = sampler_for(sampler, self._task.searching.sampler_seed, len(self._trials))
        self._study.enqueue_trial(parameters(space, values))
        trial = self._study.ask()
        if isinstance(sampler, searches.CmaEsSampler):
            _ = trial.relative_params  # draws, which the values that were enqueued would leave undone
        self._task.draw_all(suggesting(trial, space))
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
