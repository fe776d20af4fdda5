"""The door to Optuna: what to try next, when to stop, which values mattered, studies for its dashboard."""

from __future__ import annotations

import errno
import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

import optuna
from optuna.exceptions import StorageInternalError
from optuna.trial import FrozenTrial, create_trial
from sqlalchemy.exc import SQLAlchemyError

from lm.files import WriteError, check_writable
from orchestrator.search.events import SearchTrial
from orchestrator.search.ledger import FEWEST_FOR_IMPORTANCE
from orchestrator.search.optuna.study import STATES, Study, distribution, parameter
from orchestrator.search.task import SearchTask

warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # such features are chosen on purpose
optuna.logging.set_verbosity(optuna.logging.ERROR)  # the driver's terminal shows our progress alone

__all__ = ["Study", "export", "importance"]

_EVALUATOR_SEEDS = range(5)
_SQLITE = "sqlite:///"
Times = Callable[[str], tuple[datetime, datetime] | None]


def importance(task: SearchTask, trials: Sequence[SearchTrial]) -> dict[str, tuple[float, float]] | None:
    """The share of the validation loss's variance that each value explains alone, largest first.

    fANOVA (Hutter et al. 2014) of a random forest over the complete trials: mean and standard deviation over seeds of
    the forest. A value that was not searched in every one of them, and in the same range, has no share. None for fewer
    than 20 trials, and if all have the same loss.
    """
    complete = [trial for trial in trials if trial.state == "complete"]
    if len(complete) < FEWEST_FOR_IMPORTANCE or len({trial.valid_nats for trial in complete}) == 1:
        return None
    frozen = [_frozen(task, trial, [trial.valid_nats or 0.0]) for trial in complete]
    shared = [name for name in frozen[0].params if all(name in trial.params for trial in frozen)]
    if not shared:
        return None
    study = optuna.create_study(direction="minimize")
    study.add_trials(frozen)
    shares = [
        optuna.importance.get_param_importances(
            study,
            evaluator=optuna.importance.FanovaImportanceEvaluator(n_trees=64, max_depth=64, seed=seed),
            params=shared,
            normalize=False,
        )
        for seed in _EVALUATOR_SEEDS
    ]
    spread = {key: [share[key] for share in shares] for key in shared}
    ordered = sorted(shared, key=lambda key: -statistics.fmean(spread[key]))
    return {key: (statistics.fmean(spread[key]), statistics.stdev(spread[key])) for key in ordered}


def export(studies: Mapping[str, tuple[SearchTask, Sequence[SearchTrial]]], url: str, times: Times) -> None:
    """Write studies by name into an Optuna storage such as `sqlite:///optuna.db`, in place of those of the same name.

    A copy for reading, such as with optuna-dashboard, which is never read back. `times` says when the trial with a key
    began and ended. ValueError, which does not repeat the URL and its password, if no storage can be opened there;
    WriteError if the database cannot be written.
    """
    if url.startswith(_SQLITE) and (folder := Path(url.removeprefix(_SQLITE)).parent).is_dir():
        check_writable(folder)
    try:
        storage = optuna.storages.RDBStorage(url)
    except (ImportError, ValueError, RuntimeError, SQLAlchemyError, StorageInternalError) as error:
        expected = "--optuna: expected the URL of a database, such as sqlite:///optuna.db"
        why = "it cannot be opened, no driver is installed for its kind, or another version of Optuna made it"
        raise ValueError(f"{expected}; {why}") from error
    try:
        for name, (task, trials) in studies.items():
            if name in optuna.get_all_study_names(storage):
                optuna.delete_study(study_name=name, storage=storage)
            directions: list[Literal["minimize"]] = ["minimize"] * len(task.objectives)
            study = optuna.create_study(study_name=name, storage=storage, directions=directions)
            study.set_metric_names([*task.objectives])
            study.add_trials([_frozen(task, trial, trial.objectives, times) for trial in trials])
    except (SQLAlchemyError, StorageInternalError) as error:
        raise WriteError(errno.EIO, "--optuna: the database cannot be written") from error
    finally:
        storage.engine.dispose()


def _frozen(
    task: SearchTask, trial: SearchTrial, values: Sequence[float] | None, times: Times = lambda key: None
) -> FrozenTrial:
    """The trial with its true times, which Optuna wants local and naive, if they are known."""
    drawn = {key: (parameter(task.space, key, d), d) for key, d in task.drawn(trial.values).dimensions.items()}
    names = ("key", "reason", "state", "valid_perplexity")
    about = {"variant": task.title} | {name: getattr(trial, name) for name in names}
    frozen = create_trial(
        state=STATES[trial.state],
        values=values,
        params={name: trial.values[key] for key, (name, _) in drawn.items()},
        distributions={name: distribution(dimension) for name, dimension in drawn.values()},
        user_attrs={key: value for key, value in about.items() if value is not None},
        intermediate_values=dict(trial.curve),
    )
    if trial.key is not None and (known := times(trial.key)) is not None:
        frozen.datetime_start, ended = (time.astimezone().replace(tzinfo=None) for time in known)
        frozen.datetime_complete = ended if frozen.state.is_finished() else None
    return frozen
