"""A search in Optuna's terms: its dimensions, what became of a trial, and which of its warnings are unheard."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.trial import TrialState

from lm.spec import TrainSpec
from orchestrator.sweep.space import Change, Choice, Dimension, Integer, LogUniform, dimensions_of, fits
from orchestrator.sweep.walk import Draw, Places
from orchestrator.words import value_in_words


def suggesting(trial: optuna.trial.Trial, space: Places) -> Draw:
    """Draws what the trial's sampler suggests."""

    def draw(path: str, dimension: Dimension, _: TrainSpec) -> Any:
        key = parameter(space, path, dimension)
        match dimension:
            case Choice() | Change():
                return trial.suggest_categorical(key, list(dimension.options))
            case Integer():
                return trial.suggest_int(key, dimension.low, dimension.high, log=dimension.log)
            case _:
                log = isinstance(dimension, LogUniform)
                return trial.suggest_float(key, dimension.low, dimension.high, log=log)

    return draw


def parameter(space: Places, key: str, dimension: Dimension) -> str:
    """A dimension's name in a study: of several ranges of one path each is a parameter of its own."""
    if dimension is space[key] or len(dimensions_of(space[key])) == 1:
        return key
    return f"{key} where {', '.join(f'{path} is {value_in_words(value)}' for path, value in dimension.when.items())}"


def parameters(space: Places, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by the names of all parameters that could take them; a study asks for those of the ranges that hold.

    A start that lies outside a variant's own range is not among them: Optuna would take it, with a warning.
    """
    return {
        parameter(space, key, dimension): value
        for key, value in values.items()
        for dimension in dimensions_of(space[key])
        if fits(dimension, value)
    }


def distribution(dimension: Dimension) -> BaseDistribution:
    """From which a dimension is drawn."""
    match dimension:
        case Choice() | Change():
            return CategoricalDistribution(list(dimension.options))
        case Integer():
            return IntDistribution(dimension.low, dimension.high, log=dimension.log)
        case _:
            return FloatDistribution(dimension.low, dimension.high, log=isinstance(dimension, LogUniform))


STATES = {
    "running": TrialState.RUNNING,
    "complete": TrialState.COMPLETE,
    "stopped": TrialState.PRUNED,
    "diverged": TrialState.PRUNED,
    "failed": TrialState.FAIL,
}


@contextmanager
def quiet() -> Iterator[None]:
    """Within, what is experimental is chosen on purpose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        yield
