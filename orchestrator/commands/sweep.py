"""`sweep`: train what is missing, and report; `report`: the page from the records alone."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from orchestrator.commands import shared
from orchestrator.errors import CannotStartError, RayLostError
from orchestrator.words import counted

if TYPE_CHECKING:
    from orchestrator.execute.run import Options
    from orchestrator.report.files.folder import IfFuller
    from orchestrator.sweep import ScaledSweep

_FRESH = "train again what has a record; the old trials move to RUNS/.old/"
_STORAGE = "s3://, gs:// or file:// where workers keep trials [default: --runs]"
_EXECUTOR = "inline: in this process, one after the other, with no stall limit"
_NOTIFY = "run this at the end; its standard input is the outcome as JSON"
_EVERY = "with --watch: seconds between looks [default: 10]"
_WATCH = "write it again whenever the records change, until Ctrl-C (exit code 130)"
_FORCE = "replace an earlier report that has complete trials which this one lacks"


def sweep(
    file: shared.SweepFile,
    scale: shared.ScaleName = None,
    set_: shared.Set = None,
    seeds: shared.Seeds = None,
    runs: shared.RunsFolder = Path("runs"),
    reports: shared.ReportsFolder = Path("reports"),
    only: shared.Only = None,
    fresh: Annotated[bool, typer.Option("--fresh", help=_FRESH)] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be trained; write nothing")] = False,
    cpus: shared.Cpus = None,
    gpus: shared.Gpus = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="trials at once [default: as many as fit]")] = None,
    address: Annotated[str | None, typer.Option(help="a Ray cluster [default: this machine]")] = None,
    storage: Annotated[str | None, typer.Option(envvar="LM_STORAGE", help=_STORAGE)] = None,
    executor: Annotated[Literal["ray", "inline"], typer.Option(help=_EXECUTOR)] = "ray",
    verbose: Annotated[bool, typer.Option("--verbose", help="show what Ray says")] = False,
    checkpoint_minutes: Annotated[
        float, typer.Option(min=0.0, help="minutes between checkpoints within an epoch")
    ] = 10.0,
    budget: Annotated[str | None, typer.Option(help="start no trial after this time: 8h, 90m, 30s, 1d")] = None,
    notify: Annotated[str | None, typer.Option(metavar="COMMAND", help=_NOTIFY)] = None,
) -> None:
    """Train what has no record yet, track it in MLflow, and write the report. Run it again to continue.

    Exit codes: 0 all trials are complete, 1 some failed or diverged, 2 the file or the command is wrong and nothing was
    started, 3 the budget ran out first, 4 Ray did not start, or died twice, 5 the disk is full or a folder cannot be
    written, 130 or 143 interrupted.
    """
    from lm.data import CorpusError
    from orchestrator.api import run
    from orchestrator.execute.machine import granted
    from orchestrator.execute.run import Options

    scaled = shared.opened(file, scale, set_, seeds)
    with shared.refused(CannotStartError):
        resources = granted(scaled.resources, cpus, gpus)
        options = Options(
            file=file,
            runs=runs,
            reports=reports,
            executor=executor,
            jobs=jobs,
            address=address,
            storage=storage,
            verbose=verbose,
            checkpoint_minutes=checkpoint_minutes,
            only=tuple(only or ()),
            budget=budget,
            cpus=cpus,
            gpus=None if gpus is None else resources.gpus,
            notify=notify,
        )
    for warning in scaled.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if dry_run:
        _say_what_would_be_trained(scaled, options, fresh=fresh)
        return
    text_gone = shared.refused(CorpusError, exit_code=1)  # while its trials trained
    with shared.refused(CannotStartError), text_gone, shared.refused(RayLostError, exit_code=4):
        raise typer.Exit(run(scaled, options, fresh=fresh).exit_code)


def _say_what_would_be_trained(scaled: ScaledSweep, options: Options, *, fresh: bool) -> None:
    from orchestrator.agenda.expand import expand, selected
    from orchestrator.agenda.standing import search_standings
    from orchestrator.api import folders_to_set_aside, to_train
    from orchestrator.trials.records import Records, is_settled
    from orchestrator.trials.storage import Storage

    with shared.refused(ValueError, OSError):
        if fresh and options.storage is not None:
            raise CannotStartError("--fresh: the storage would give the old records back; take another --storage")
        sweep, records = selected(scaled, options.only), Records(options.runs.resolve())
        trials, searches = to_train(sweep, records, fresh=fresh)
        moved = folders_to_set_aside(expand(sweep, records), records.root) if fresh else []
        if options.storage is not None:
            there = Storage(options.storage)
            trials = [(trial, state) for trial, state in trials if not is_settled(trial, there.record(trial.key))]
    for trial, state in trials:
        typer.echo(f"{trial.key}  {trial.variant}, seed {trial.seed}: {state}")
    for search in search_standings(searches):
        typer.echo(search.in_words())
    more = ", and what the searches ask for and find" if searches else ""
    typer.echo(f"{counted(len(trials), 'trial')} would be trained{more}; nothing was written")
    if moved:
        typer.echo(f"{counted(len(moved), 'trial folder')} would be moved to {options.runs / '.old'}")


def report(
    file: shared.SweepFile,
    scale: shared.ScaleName = None,
    set_: shared.Set = None,
    seeds: shared.Seeds = None,
    runs: shared.RunsFolder = Path("runs"),
    reports: shared.ReportsFolder = Path("reports"),
    watch: Annotated[bool, typer.Option("--watch", help=_WATCH)] = False,
    every: Annotated[float | None, typer.Option(min=0.1, max=86400.0, metavar="SECONDS", help=_EVERY)] = None,
    force: Annotated[bool, typer.Option("--force", help=_FORCE)] = False,
) -> None:
    """Write the report of what the records hold now; nothing is trained."""
    from orchestrator.agenda.expand import expand
    from orchestrator.report import report_sweep
    from orchestrator.report.files.folder import FullerPageError
    from orchestrator.trials.records import Records

    shared.goes_with("--watch", watch, every=every)
    scaled, records = shared.opened(file, scale, set_, seeds), Records(runs.resolve())
    if_fuller: IfFuller = "replace" if force else "refuse"
    written: dict[Path, int] | None = None
    try:
        while True:
            if (times := _modification_times(records.root)) != written:
                with shared.refused(ValueError, OSError):
                    try:
                        state = expand(scaled, records)
                        typer.echo(report_sweep(scaled, file, state, records, reports, if_fuller=if_fuller).page)
                    except FullerPageError as error:
                        if written is None:
                            raise
                        typer.echo(str(error), err=True)  # trials were set aside, to be trained again
                written = times
            if not watch:
                return
            time.sleep(every or 10.0)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _modification_times(runs: Path) -> dict[Path, int]:
    """When everything that a page shows was written, in nanoseconds."""
    times, parts = {}, ("record.json", "curve.parquet", "samples/*.json", "analyses/*.json")
    for path in (*(path for part in parts for path in runs.glob(f"*/{part}")), *runs.glob(".searches/*.jsonl")):
        with suppress(OSError):  # moved away meanwhile, or not to be read: the report says so
            times[path] = path.stat().st_mtime_ns
    return times
