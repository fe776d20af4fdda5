"""`export`: a sweep for the tools of others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.commands import shared
from orchestrator.words import counted

if TYPE_CHECKING:
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
        _write_studies(f"{sweep.name}.{sweep.scale}", state, records, optuna)
    if tensorboard is not None:
        with shared.refused(ValueError, OSError):
            _write_curves(state, records, tensorboard)


def _write_studies(place: str, state: SweepState, records: Records, url: str) -> None:
    studies = {f"{place}.{search.task.title}": (search.task, search.trials) for search in state.searches}
    with shared.refused(ValueError, OSError):
        # Optuna takes most of a second to import.
        from orchestrator.search.optuna import export as write

        write(studies, url, lambda key: records.times(key, records.read(key)))
    for name, (_, trials) in studies.items():
        typer.echo(f"{name}: {counted(len(trials), 'trial')}")


def _write_curves(state: SweepState, records: Records, folder: Path) -> None:
    from lm.record import read_curve
    from orchestrator.watch.tensorboard import write_curve

    curves = {trial.title: (records.holder(trial), records.curve(trial)) for trial in state.table}
    for search in state.searches:
        keys = {f"{search.task.title}, trial {trial.number}": trial.key for trial in search.trials}
        curves |= {title: (key, read_curve(records.folder(key))) for title, key in keys.items() if key is not None}
    written = {title: (key, curve) for title, (key, curve) in curves.items() if curve}
    for title, (key, curve) in written.items():
        times = records.times(key, records.read(key))
        span = None if times is None else (int(1000 * times[0].timestamp()), int(1000 * times[1].timestamp()))
        write_curve(folder / title.replace("%", "%25").replace("/", "%2F"), curve, span)
    typer.echo(f"{folder}: {counted(len(written), 'curve')}; to see them: tensorboard --logdir {folder}")
