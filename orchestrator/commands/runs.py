"""`runs`: the trials on disk, whatever sweep they belong to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.commands.shared import (
    AsJson,
    Key,
    ScaleName,
    WrittenRuns,
    opened,
    print_json,
    refused,
    sweep_files,
)

if TYPE_CHECKING:
    from lm.record import Record

app = typer.Typer(help="List, show and compare the trials on disk, and free their disk.", no_args_is_help=True)


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
    from orchestrator.disk import size_of
    from orchestrator.terminal import print_table
    from orchestrator.wording import counted

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
    from orchestrator.find_trial import record_of

    with refused(ValueError, OSError):
        record = record_of(runs, key)
    if as_json:
        typer.echo(record.model_dump_json(indent=1))
        return
    from orchestrator.record_text import record_text

    typer.echo(record_text(record))


@app.command()
def diff(key: Key, other: Key, runs: WrittenRuns = Path("runs")) -> None:
    """Compare two trials: what their specs have otherwise, what they read, where they ran."""
    from orchestrator.find_trial import record_of
    from orchestrator.spec_words import record_differences

    with refused(ValueError, OSError):
        before, after = (record_of(runs, each) for each in (key, other))
    typer.echo("\n".join(record_differences(before, after)) or "no difference")


@app.command()
def gc(
    runs: WrittenRuns = Path("runs"),
    keep_weights: Annotated[bool, typer.Option("--keep-weights", help="leave weights/ where they are")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would go; remove nothing")] = False,
) -> None:
    """Free disk: weights and checkpoints of complete and diverged trials, leftovers, trials that --fresh set aside.

    What a report needs stays: records, curves, the loss of every token, codebooks. A trial without weights cannot be
    scored again, and one that shares its stages trains them itself. Trials under way, unfinished or failed keep
    everything; weights stay while a sweep runs.
    """
    from lm.files import writing
    from orchestrator.disk import collect

    freed = 0
    with refused(ValueError), writing(runs):
        for gone in collect(runs.resolve(), keep_weights=keep_weights, dry=dry_run):
            freed += gone.bytes
            typer.echo(f"{gone.bytes:>14,}  {gone.path}")
    typer.echo(f"{freed:,} bytes {'would be freed' if dry_run else 'freed'}")


def _variants(file: Path, scale: str | None, runs: Path, *, silent: bool) -> dict[str, str]:
    """What the sweep calls its trials, those of its searches included, by key."""
    from orchestrator.records import Records
    from orchestrator.rounds import known

    with refused(ValueError, OSError):
        now = known(opened(file, scale, silent=silent), Records(runs))
    searched = {found.key: f"{s.task.variant}, trial {found.number}" for s in now.searches for found in s.found}
    return {key: name for key, name in searched.items() if key} | {trial.key: trial.title for trial in now.trials}


def _row(record: Record, size: int, variant: str | None) -> dict[str, Any]:
    from orchestrator.spec_words import in_short

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
