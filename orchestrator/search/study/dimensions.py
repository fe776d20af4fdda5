"""What is searched, in Optuna's terms; of a choice or change the names of its options."""

from __future__ import annotations

from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from orchestrator.search.task import Draw
from orchestrator.sweep.searches import Change, Choice, Integer, LogUniform, Searched


def suggesting(trial: optuna.trial.Trial) -> Draw:
    """Draws what the trial's sampler suggests."""

    def draw(key: str, dimension: Searched) -> Any:
        match dimension:
            case Choice() | Change():
                return trial.suggest_categorical(key, list(dimension.options))
            case Integer():
                return trial.suggest_int(key, dimension.low, dimension.high, log=dimension.log)
            case _:
                log = isinstance(dimension, LogUniform)
                return trial.suggest_float(key, dimension.low, dimension.high, log=log)

    return draw


def distribution(dimension: Searched) -> BaseDistribution:
    """From which a dimension is drawn."""
    match dimension:
        case Choice() | Change():
            return CategoricalDistribution(list(dimension.options))
        case Integer():
            return IntDistribution(dimension.low, dimension.high, log=dimension.log)
        case _:
            return FloatDistribution(dimension.low, dimension.high, log=isinstance(dimension, LogUniform))
