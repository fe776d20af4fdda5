"""`sweep`: train what is missing, and report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from orchestrator.commands import shared
from orchestrator.errors import CannotStartError, RayLostError
from orchestrator.words import counted

if TYPE_CHECKING:
    from orchestrator.sweep import ScaledSweep


Only = Annotated[
    list[str] | None,
    typer.Option(
        metavar="VARIANT",
        help="train this variant and the baseline; may be repeated",
        autocompletion=shared.variants_of,
    ),
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="train again what has a record; the old trials move to RUNS/.old/")
]
StorageUrl = Annotated[
    str | None,
    typer.Option(envvar="LM_STORAGE", help="s3://, gs:// or file:// where workers keep trials [default: --runs]"),
]
InProcess = Annotated[
    Literal["ray", "inline"], typer.Option(help="inline: in this process, one after the other, with no stall limit")
]


def sweep(
    file: shared.SweepFile,
    scale: shared.ScaleName = None,
    runs: shared.RunsFolder = Path("runs"),
    reports: shared.ReportsFolder = Path("reports"),
    only: Only = None,
    fresh: Fresh = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be trained; write nothing")] = False,
    cpus: shared.Cpus = None,
    gpus: shared.Gpus = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="trials at once [default: as many as fit]")] = None,
    address: Annotated[str | None, typer.Option(help="a Ray cluster [default: this machine]")] = None,
    storage: StorageUrl = None,
    executor: InProcess = "ray",
    verbose: Annotated[bool, typer.Option("--verbose", help="show what Ray says")] = False,
    checkpoint_minutes: Annotated[float, typer.Option(min=0.0, help="between checkpoints within an epoch")] = 10.0,
    budget: Annotated[str | None, typer.Option(help="start no trial after this time: 8h, 90m, 30s, 1d")] = None,
) -> None:
    """Train what has no record yet, track it in MLflow, and write the report. The same command again goes on."""
    from orchestrator.api import run_sweep
    from orchestrator.execute.machine import granted

    scaled = shared.opened(file, scale)
    with shared.refused(CannotStartError):
        resources = granted(scaled.resources, cpus, gpus)
    if dry_run:
        _say_what_would_be_trained(scaled, only or [], runs, fresh=fresh)
        return
    with shared.refused(CannotStartError), shared.refused(RayLostError, exit_code=4):
        result = run_sweep(
            scaled,
            file=file,
            only=only or (),
            fresh=fresh,
            runs=runs,
            reports=reports,
            executor=executor,
            jobs=jobs,
            address=address,
            storage=storage,
            verbose=verbose,
            checkpoint_seconds=60.0 * checkpoint_minutes,
            budget=budget,
            cpus=cpus,
            gpus=None if gpus is None else resources.gpus,
        )
    raise typer.Exit(result.exit_code)


def _say_what_would_be_trained(scaled: ScaledSweep, only: list[str], runs: Path, *, fresh: bool) -> None:
    from orchestrator.agenda.standing import search_standing
    from orchestrator.api import select, to_train
    from orchestrator.trials.records import Records

    with shared.refused(ValueError, OSError):
        trials, searches = to_train(select(scaled, only), Records(runs.resolve()), fresh=fresh)
    for trial, state in trials:
        typer.echo(f"{trial.key}  {trial.variant}, seed {trial.seed}: {state}")
    for search in searches:
        typer.echo(search_standing(search).in_words())
    more = ", and what the searches ask for and find" if searches else ""
    typer.echo(f"{counted(len(trials), 'trial')} would be trained{more}; nothing was written")
    if fresh:
        typer.echo(f"their folders would be moved to {runs / '.old'}")
