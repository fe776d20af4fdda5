"""The door to Optuna: what to try next, when to stop, which values mattered, studies for its dashboard."""

import warnings

import optuna

from orchestrator.search.optuna.analysis import export, importance
from orchestrator.search.optuna.study import Study

warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # such features are chosen on purpose
optuna.logging.set_verbosity(optuna.logging.ERROR)  # the driver's terminal shows our progress alone

__all__ = ["Study", "export", "importance"]
