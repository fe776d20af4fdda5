"""`sweep`: train what is missing, and report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.commands.shared import (
    Cpus,
    Gpus,
    ReportsFolder,
    RunsFolder,
    ScaleName,
    SweepFile,
    opened,
    refused,
    variants_of,
    wrong,
)

if TYPE_CHECKING:
    from orchestrator.sweep import ScaledSweep


def sweep(
    file: SweepFile,
    scale: ScaleName = None,
    runs: RunsFolder = Path("runs"),
    reports: ReportsFolder = Path("reports"),
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="VARIANT", help="train this variant and the baseline; may be repeated", autocompletion=variants_of
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="train anew what has a record; the old trials move to RUNS/.old/")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be trained; write nothing")] = False,
    cpus: Cpus = None,
    gpus: Gpus = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="trials at once [default: as many as fit]")] = None,
    address: Annotated[str | None, typer.Option(help="a Ray cluster [default: this machine]")] = None,
    storage: Annotated[
        str | None,
        typer.Option(envvar="LM_STORAGE", help="s3://, gs:// or file:// where workers keep trials [default: --runs]"),
    ] = None,
    executor: Annotated[
        str, typer.Option(help="ray, or inline: in this process, one after the other, with no stall limit")
    ] = "ray",
    verbose: Annotated[bool, typer.Option("--verbose", help="show what Ray says")] = False,
    checkpoint_minutes: Annotated[float, typer.Option(min=0.0, help="between checkpoints within an epoch")] = 10.0,
    budget: Annotated[str | None, typer.Option(help="start no trial after so long: 8h, 90m, 30s, 1d")] = None,
) -> None:
    """Train what has no record yet, track it in MLflow, and write the report. The same command again goes on."""
    from orchestrator.api import run_sweep
    from orchestrator.errors import CannotStartError, RayLostError
    from orchestrator.execute.machine import granted

    _check(executor, budget)
    scaled = opened(file, scale)
    with refused(CannotStartError):
        own = granted(scaled.resources, cpus, gpus)
    if dry_run:
        _say_what_would_be_trained(scaled, only or [], runs, fresh=fresh)
        return
    with refused(CannotStartError), refused(RayLostError, exit_code=4):
        result = run_sweep(
            scaled,
            file=file,
            only=only or (),
            fresh=fresh,
            runs=runs,
            reports=reports,
            executor="inline" if executor == "inline" else "ray",
            jobs=jobs,
            address=address,
            storage=storage,
            verbose=verbose,
            checkpoint_seconds=60.0 * checkpoint_minutes,
            budget=budget,
            cpus=None if cpus is None else own.cpus,
            gpus=None if gpus is None else own.gpus,
        )
    raise typer.Exit(result.exit_code)


def _check(executor: str, budget: str | None) -> None:
    from orchestrator.words import seconds_in

    if executor not in ("ray", "inline"):
        wrong(f"--executor: ray or inline, got {executor!r}")
    if budget is not None:
        try:
            seconds_in(budget)
        except ValueError as error:
            wrong(f"--budget: {error}")


def _say_what_would_be_trained(scaled: ScaledSweep, only: list[str], runs: Path, *, fresh: bool) -> None:
    from orchestrator.agenda.standing import search_standing
    from orchestrator.api import select, to_train
    from orchestrator.trials.records import Records
    from orchestrator.words import counted

    with refused(ValueError, OSError):
        waiting, searches = to_train(select(scaled, only), Records(runs.resolve()), fresh=fresh)
    for trial, state in waiting:
        typer.echo(f"{trial.key}  {trial.variant}, seed {trial.seed}: {state}")
    for searched in searches:
        typer.echo(search_standing(searched).in_words())
    more = ", and what the searches ask for and find" if searches else ""
    typer.echo(f"{counted(len(waiting), 'trial')} would be trained{more}; nothing was written")
    if fresh:
        typer.echo(f"their folders would be moved to {runs / '.old'}")
