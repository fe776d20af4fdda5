"""`export`: a sweep for the tools of others."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.commands import shared
from orchestrator.words import counted

if TYPE_CHECKING:
    from lm.record import Evaluation
    from orchestrator.agenda.expand import SweepState
    from orchestrator.trials.records import Records

_OPTUNA = "write its searches to an Optuna storage, such as sqlite:///optuna.db, for optuna-dashboard"
_TENSORBOARD = "write the learning curves to this folder, for `tensorboard --logdir DIR`"


def export(
    file: shared.SweepFile,
    optuna: Annotated[str | None, typer.Option(metavar="URL", help=_OPTUNA)] = None,
    tensorboard: Annotated[Path | None, typer.Option(metavar="DIR", help=_TENSORBOARD)] = None,
    scale: shared.ScaleName = None,
    runs: shared.WrittenRuns = Path("runs"),
) -> None:
    """Write a sweep for other tools, in place of what was written of it there before; nothing is trained."""
    if optuna is None and tensorboard is None:
        shared.wrong("export: expected --optuna URL or --tensorboard DIR")
    sweep, state, records = shared.opened_state(file, scale, runs)
    if optuna is not None:
        if sweep.searching is None:
            shared.wrong(f"{file}: neither searches nor tunes{sweep.at_scale}: there is no study to write")
        place = f"{sweep.name}.{sweep.scale}"
        studies = {f"{place}.{search.task.title}": (search.task, search.trials) for search in state.searches}
        with shared.refused(ValueError, OSError):
            # Optuna takes most of a second to import.
            from orchestrator.search.optuna import export as write

            write(studies, optuna, lambda key: records.times(key, records.read(key)))
        for name, (_, trials) in studies.items():
            typer.echo(f"{name}: {counted(len(trials), 'trial')}")
    if tensorboard is not None:
        with shared.refused(ValueError, OSError):
            _write_curves(state, records, tensorboard)


def _write_curves(state: SweepState, records: Records, folder: Path) -> None:
    from lm.record import read_curve

    curves = {trial.title: (records.holder(trial), records.curve(trial)) for trial in state.table}
    for search in state.searches:
        keys = {f"{search.task.title}, trial {trial.number}": trial.key for trial in search.trials}
        curves |= {title: (key, read_curve(records.folder(key))) for title, key in keys.items() if key is not None}
    written = {title: (key, curve) for title, (key, curve) in curves.items() if curve}
    for title, (key, curve) in written.items():
        times = records.times(key, records.read(key))
        span = None if times is None else (int(1000 * times[0].timestamp()), int(1000 * times[1].timestamp()))
        _write_curve(folder / title.replace("%", "%25").replace("/", "%2F"), curve, span)
    typer.echo(f"{folder}: {counted(len(written), 'curve')}; to see them: tensorboard --logdir {folder}")


def _write_curve(folder: Path, curve: Iterable[Evaluation], times: tuple[int, int] | None) -> None:
    """Write a trial's finite numbers under MLflow's names, the epoch as step, in place of what was written before.

    `times` are when it began and ended, in milliseconds.
    """
    from tensorboardX import SummaryWriter  # takes up to a second to import; Ray Tune needs it too

    from orchestrator.watch.mlflow.contents import curve_measures

    for earlier in folder.glob("events.out.tfevents.*"):
        earlier.unlink()
    with SummaryWriter(str(folder)) as writer:
        for point in curve:
            for measure in curve_measures(point, times):
                writer.add_scalar(measure.name, measure.value, measure.step, measure.milliseconds / 1000)
