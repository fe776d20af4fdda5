"""`export`: what searches found, for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.commands import shared
from orchestrator.words import counted


def export(
    file: shared.SweepFile,
    optuna: Annotated[
        str, typer.Option(metavar="URL", help="an Optuna storage, such as sqlite:///optuna.db, for optuna-dashboard")
    ],
    scale: shared.ScaleName = None,
    runs: shared.WrittenRuns = Path("runs"),
) -> None:
    """Write a sweep's searches as studies, each replaces the study of its name; nothing is trained."""
    sweep, state, _ = shared.opened_state(file, scale, runs)
    if sweep.searching is None:
        shared.wrong(f"{file}: neither searches nor tunes at scale {sweep.scale}: there is no study to write")
    studies = {
        f"{sweep.name}.{sweep.scale}.{search.task.variant}": (search.task, search.trials) for search in state.searches
    }
    with shared.refused(ValueError, OSError):
        # Optuna takes most of a second to import.
        from orchestrator.search.optuna import export as write

        write(studies, optuna)
    for name, (_, trials) in studies.items():
        typer.echo(f"{name}: {counted(len(trials), 'trial')}")
