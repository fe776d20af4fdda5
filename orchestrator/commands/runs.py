"""`runs`: the trials on disk, whatever sweep they belong to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.commands.shared import (
    AsJson,
    Key,
    RunsFolder,
    ScaleName,
    SweepFile,
    WrittenRuns,
    opened,
    print_json,
    refused,
    sweep_files,
    wrong,
)

if TYPE_CHECKING:
    from lm.record import Record
    from orchestrator.trials.disk import Carried

app = typer.Typer(help="List, show, compare and carry the trials on disk, and free their disk.", no_args_is_help=True)


@app.command("list")
def list_runs(
    file: Annotated[
        Path | None,
        typer.Option("--sweep", metavar="FILE", help="only this sweep's trials", autocompletion=sweep_files),
    ] = None,
    scale: ScaleName = None,
    runs: WrittenRuns = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """List every trial that has settled: its key, what it is, how it ended, its size on disk, and when."""
    from orchestrator.api import load_records
    from orchestrator.commands.terminal import print_table
    from orchestrator.trials.disk import size_of
    from orchestrator.words import counted

    variants = None if file is None else _variants(file, scale, runs.resolve(), silent=as_json)
    with refused(ValueError, OSError):
        records = load_records(runs)
    rows = [
        _row(record, size_of(runs / key), (variants or {}).get(key))
        for key, record in records.items()
        if variants is None or key in variants
    ]
    rows.sort(key=lambda row: row["finished_at"])
    if as_json:
        print_json({"runs": rows})
        return
    cells = [
        (
            row["key"],
            row["variant"] or row["what"],
            row["status"],
            "" if row["test_perplexity"] is None else f"{row['test_perplexity']:.2f}",
            f"{row['bytes'] / 2**20:,.1f} MiB",
            row["finished_at"],
        )
        for row in rows
    ]
    headings = ("key", "trial", "status", "test perplexity", "size", "finished at")
    print_table(headings, cells, right=("test perplexity", "size"), whole=("key", "size", "finished at"))
    total = sum(row["bytes"] for row in rows)
    typer.echo(f"{counted(len(rows), 'trial')}, {total / 2**20:,.1f} MiB")


@app.command()
def show(key: Key, runs: WrittenRuns = Path("runs"), as_json: AsJson = False) -> None:
    """Show everything that a trial's record holds; --json prints the record as it is."""
    from orchestrator.trials.records import record_of

    with refused(ValueError, OSError):
        record = record_of(runs, key)
    if as_json:
        typer.echo(record.model_dump_json(indent=1))
        return
    from orchestrator.commands.record_text import record_text

    typer.echo(record_text(record))


@app.command()
def diff(key: Key, other: Key, runs: WrittenRuns = Path("runs")) -> None:
    """Compare two trials: what their specs have otherwise, what they read, where they ran."""
    from orchestrator.trials.records import record_of
    from orchestrator.trials.spec_words import record_differences

    with refused(ValueError, OSError):
        before, after = (record_of(runs, each) for each in (key, other))
    typer.echo("\n".join(record_differences(before, after)) or "no difference")


@app.command()
def gc(
    runs: WrittenRuns = Path("runs"),
    weights: Annotated[
        bool, typer.Option("--weights", help="with --sweep: also the weights of its trials, which is asked about first")
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option("--sweep", metavar="FILE", help="whose weights go", autocompletion=sweep_files),
    ] = None,
    scale: ScaleName = None,
    keep_best: Annotated[
        int, typer.Option(min=0, metavar="N", help="with --weights: not those of the N best on validation")
    ] = 0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="with --weights: do not ask")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would go; remove nothing")] = False,
) -> None:
    """Free disk: checkpoints of complete and diverged trials, unfinished files, trials that were set aside.

    What a report needs stays, and so do weights unless --weights names a sweep's: a trial without weights cannot be
    scored again, and one that shares its stages trains them itself. Trials under way, unfinished or failed keep
    everything.
    """
    from orchestrator.trials.disk import collect

    if weights != (file is not None):
        wrong("runs gc: --weights and --sweep FILE go together: they remove the weights of that sweep's trials")
    if not weights and (scale is not None or keep_best):
        wrong("runs gc: --scale and --keep-best go with --weights")
    chosen: list[str] = []
    if file is not None:
        chosen = _whose_weights(file, scale, runs.resolve(), keep_best)
        if not dry_run and not yes and not _agreed(chosen, runs.resolve()):
            typer.echo("nothing was removed")
            return
    freed = 0
    with refused(ValueError):
        for gone in collect(runs.resolve(), weights=chosen, dry=dry_run):
            freed += gone.bytes
            typer.echo(f"{gone.bytes:>14,}  {gone.path}")
    typer.echo(f"{freed:,} bytes {'would be freed' if dry_run else 'freed'}")


@app.command()
def export(
    file: SweepFile,
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="where to; made if it is not there")],
    scale: ScaleName = None,
    runs: WrittenRuns = Path("runs"),
) -> None:
    """Copy what a report of a sweep needs: the records, curves and losses on test of its trials; no weights.

    `report FILE --runs FOLDER` makes the page from it, `runs import FOLDER` takes it over. Exit code 1 if a trial is
    damaged, which is named and left out.
    """
    from orchestrator.agenda.expand import expand
    from orchestrator.trials.disk import export_trials
    from orchestrator.trials.records import Records

    sweep, records = opened(file, scale), Records(runs.resolve())
    with refused(ValueError, OSError):
        now = expand(sweep, records)
        searched = [found.key for one in now.searches for found in one.trials if found.key is not None]
        keys = [*(records.holder(trial) for trial in now.trials), *searched]
        _told(export_trials(keys, [one.ledger for one in now.searches], records.root, to), to)


@app.command("import")
def import_(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="what `runs export` wrote")],
    runs: RunsFolder = Path("runs"),
) -> None:
    """Take over trials that `runs export` copied; one that is here already stays as it is.

    Each is checked by the hashes in its record. Exit code 1 if one is damaged, which is named and left out.
    """
    from orchestrator.trials.disk import import_trials

    with refused(ValueError, OSError):
        _told(import_trials(folder, runs), runs)


def _told(carried: Carried, to: Path) -> None:
    from orchestrator.trials.disk import size_of
    from orchestrator.words import counted

    for line in carried.left_out:
        typer.echo(f"left out: {line}", err=True)
    typer.echo(
        f"{counted(carried.copied, 'trial')} copied to {to}, which has {size_of(to) / 2**20:,.1f} MiB now; "
        f"{carried.there} there already"
    )
    if carried.left_out:
        raise typer.Exit(1)


def _whose_weights(file: Path, scale: str | None, runs: Path, keep_best: int) -> list[str]:
    """The keys of a sweep's complete and diverged trials that have weights, without the best."""
    from orchestrator.trials.disk import has_weights
    from orchestrator.trials.locks import sweep_runs
    from orchestrator.trials.records import Records

    variants, records = _variants(file, scale, runs, silent=False), Records(runs)
    if sweep_runs(runs):
        wrong(f"runs gc: a sweep runs with {runs}, and may start a trial from these weights")
    with refused(ValueError, OSError):
        found = [record for key in variants if (record := records.read(key)) is not None and record.status != "failed"]
    complete = [record for record in found if record.status == "complete"]
    best = sorted(complete, key=lambda record: record.stages[-1].valid.nats_per_token)[:keep_best]
    kept = {record.key for record in best}
    return [record.key for record in found if record.key not in kept and has_weights(runs / record.key)]


def _agreed(keys: list[str], runs: Path) -> bool:
    """Whether the person at the terminal wants these weights removed; exit code 2 where nobody can be asked."""
    from orchestrator.trials.disk import size_of
    from orchestrator.words import counted

    if not keys:
        return True
    if not _is_terminal():
        wrong("runs gc: --weights asks first, and there is no terminal to ask on; say --yes")
    size = sum(size_of(runs / key / "weights") for key in keys) / 2**20
    return typer.confirm(f"Remove the weights of {counted(len(keys), 'trial')}, {size:,.1f} MiB?")


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _variants(file: Path, scale: str | None, runs: Path, *, silent: bool) -> dict[str, str]:
    """What the sweep calls its trials, those of its searches included, by key; no trial of another sweep."""
    from orchestrator.agenda.expand import expand
    from orchestrator.trials.records import Records

    with refused(ValueError, OSError):
        now = expand(opened(file, scale, silent=silent), Records(runs))
    searched = {found.key: f"{s.task.variant}, trial {found.number}" for s in now.searches for found in s.trials}
    return {key: name for key, name in searched.items() if key} | {trial.key: trial.title for trial in now.table}


def _row(record: Record, size: int, variant: str | None) -> dict[str, Any]:
    from orchestrator.trials.spec_words import in_short

    done = record.stages[-1] if record.status == "complete" else None
    return {
        "key": record.key,
        "variant": variant,
        "what": in_short(record.spec),
        "status": record.status,
        "valid_perplexity": done and done.valid.perplexity,
        "test_perplexity": done and done.test and done.test.perplexity,
        "bytes": size,
        "finished_at": record.finished_at,
    }
