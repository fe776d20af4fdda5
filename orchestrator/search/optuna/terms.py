"""A sweep file's search in Optuna's terms: its dimensions, samplers and schedulers, and what became of its trials."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, assert_never

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, SuccessiveHalvingPruner
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, RandomSampler, TPESampler
from optuna.trial import TrialState

from lm.spec import TrainSpec
from orchestrator.sweep import searches
from orchestrator.sweep.space import Change, Choice, Dimension, Integer, LogUniform, dimensions_of, fits
from orchestrator.sweep.walk import Draw, Places
from orchestrator.words import value_in_words

STATES = {
    "running": TrialState.RUNNING,
    "complete": TrialState.COMPLETE,
    "stopped": TrialState.PRUNED,
    "diverged": TrialState.PRUNED,
    "failed": TrialState.FAIL,
}


@contextmanager
def quiet() -> Iterator[None]:
    """Without Optuna's warnings of experimental features, which are chosen on purpose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        yield


def parameter(space: Places, key: str, dimension: Dimension) -> str:
    """A dimension's name in a study: of several ranges of one path each is a parameter of its own."""
    if dimension is space[key] or len(dimensions_of(space[key])) == 1:
        return key
    return f"{key} where {', '.join(f'{path} is {value_in_words(value)}' for path, value in dimension.when.items())}"


def parameters(space: Places, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by the names of all parameters that could take them; a study asks for those of the ranges that hold.

    A start outside a variant's own range is left out: Optuna would take it, with a warning.
    """
    return {
        parameter(space, key, dimension): value
        for key, value in values.items()
        for dimension in dimensions_of(space[key])
        if fits(dimension, value)
    }


def distribution(dimension: Dimension) -> BaseDistribution:
    """The distribution from which a dimension is drawn."""
    match dimension:
        case Choice() | Change():
            return CategoricalDistribution(list(dimension.options))
        case Integer():
            return IntDistribution(dimension.low, dimension.high, log=dimension.log)
        case _:
            return FloatDistribution(dimension.low, dimension.high, log=isinstance(dimension, LogUniform))


def suggesting(trial: optuna.trial.Trial, space: Places) -> Draw:
    """Draws what the trial's sampler suggests."""

    def draw(path: str, dimension: Dimension, _: TrainSpec) -> Any:
        name = parameter(space, path, dimension)
        match dimension:
            case Choice() | Change():
                return trial.suggest_categorical(name, list(dimension.options))
            case Integer():
                return trial.suggest_int(name, dimension.low, dimension.high, log=dimension.log)
            case _:
                log = isinstance(dimension, LogUniform)
                return trial.suggest_float(name, dimension.low, dimension.high, log=log)

    return draw


def sampler_for(
    sampler: searches.TpeSampler | searches.GaussianProcessSampler | searches.CmaEsSampler, seed: int, number: int
) -> BaseSampler:
    """A sampler for one trial."""
    of_trial, independent = (int(x) for x in np.random.SeedSequence([seed, number]).generate_state(2))
    startup = sampler.startup_trials
    match sampler:
        case searches.TpeSampler():
            # `group`: in a conditional space, what is searched together is estimated together.
            return TPESampler(
                seed=of_trial, n_startup_trials=startup, multivariate=True, group=True, constant_liar=True
            )
        case searches.GaussianProcessSampler():
            return GPSampler(
                seed=of_trial,
                independent_sampler=RandomSampler(seed=independent),
                n_startup_trials=startup,
                warn_independent_sampling=False,
            )
        case searches.CmaEsSampler():
            return CmaEsSampler(
                seed=int(np.random.SeedSequence(seed).generate_state(1)[0]),  # it uses the trial's number itself
                independent_sampler=RandomSampler(seed=independent),
                n_startup_trials=startup,
                warn_independent_sampling=False,
            )
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
