"""`runs`: the trials on disk, whatever sweep they belong to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.commands import shared
from orchestrator.watch.table import print_table
from orchestrator.words import byte_size, counted

if TYPE_CHECKING:
    from orchestrator.agenda.expand import SweepState
    from orchestrator.trials.disk import Carried

app = typer.Typer(help="List, show, compare and carry the trials on disk, and free their disk.", no_args_is_help=True)
_WEIGHTS = "with --sweep: also the weights of its trials, after a question"
_KEEP_BEST = "with --weights: not those of the N best on validation"


@app.command("list")
def list_runs(
    file: shared.OfSweep = None,
    scale: shared.ScaleName = None,
    runs: shared.WrittenRuns = Path("runs"),
    as_json: shared.AsJson = False,
) -> None:
    """List every trial that has settled: its key, what it is, how it ended, its size on disk, and when."""
    from orchestrator.api import load_records
    from orchestrator.trials.disk import size_of
    from orchestrator.trials.plan import in_short

    variants = {} if file is None else dict(_named(shared.opened_state(file, scale, runs, silent=as_json)[1]))
    with shared.refused(ValueError, OSError):
        records = [record for key, record in load_records(runs).items() if file is None or key in variants]
    rows = []
    for record in sorted(records, key=lambda record: record.finished_at):
        stage = record.stages[-1] if record.status == "complete" else None
        row: dict[str, Any] = {
            "key": record.key,
            "variant": variants.get(record.key),
            "what": in_short(record.spec),
            "status": record.status,
            "valid_perplexity": stage and stage.valid.perplexity,
            "test_perplexity": stage and stage.test and stage.test.perplexity,
            "bytes": size_of(runs / record.key),
            "finished_at": record.finished_at,
        }
        rows.append(row)
    if as_json:
        shared.print_json({"runs": rows})
        return
    cells = []
    for row in rows:
        test = "" if row["test_perplexity"] is None else f"{row['test_perplexity']:.2f}"
        what, size = row["variant"] or row["what"], byte_size(row["bytes"])
        cells.append((row["key"], what, row["status"], test, size, row["finished_at"]))
    headings = ("key", "trial", "status", "test perplexity", "size", "finished at")
    print_table(headings, cells, right=("test perplexity", "size"), whole=("key", "size", "finished at"))
    typer.echo(f"{counted(len(rows), 'trial')}, {byte_size(sum(row['bytes'] for row in rows))}")


@app.command()
def show(key: shared.Key, runs: shared.WrittenRuns = Path("runs"), as_json: shared.AsJson = False) -> None:
    """Show everything that a trial's record holds, as YAML; --json prints the record as it is."""
    from lm.yaml_text import write_yaml
    from orchestrator.trials.records import record_of

    with shared.refused(ValueError, OSError):
        record = record_of(runs, key)
    typer.echo(record.model_dump_json(indent=1) if as_json else write_yaml(record.model_dump(mode="json")).rstrip())


@app.command()
def diff(key: shared.Key, other: shared.Key, runs: shared.WrittenRuns = Path("runs")) -> None:
    """Compare two trials: how their specs differ, what they read, where they ran."""
    from orchestrator.trials.plan import record_differences
    from orchestrator.trials.records import record_of

    with shared.refused(ValueError, OSError):
        lines = list(record_differences(record_of(runs, key), record_of(runs, other)))
    typer.echo("\n".join(lines) or "no difference")


@app.command()
def gc(
    runs: shared.WrittenRuns = Path("runs"),
    weights: Annotated[bool, typer.Option("--weights", help=_WEIGHTS)] = False,
    file: shared.OfSweep = None,
    scale: shared.ScaleName = None,
    keep_best: Annotated[int, typer.Option(min=0, metavar="N", help=_KEEP_BEST)] = 0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="with --weights: do not ask")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would go; remove nothing")] = False,
) -> None:
    """Free disk: checkpoints of complete and diverged trials, unfinished files, trials that were set aside.

    What a report needs stays, and so do weights unless --weights names a sweep's: a trial without weights cannot be
    scored again, and one that shares its stages trains them itself. Trials under way, unfinished or failed keep
    everything.
    """
    from orchestrator.trials.disk import collect, size_of

    runs = runs.resolve()
    if weights != (file is not None):
        shared.wrong("runs gc: --weights and --sweep FILE go together: they remove the weights of that sweep's trials")
    if not weights and (scale is not None or keep_best):
        shared.wrong("runs gc: --scale and --keep-best go with --weights")
    keys = [] if file is None else _with_weights(file, scale, runs, keep_best)
    if keys and not dry_run and not yes:
        size = byte_size(sum(size_of(runs / key / "weights") for key in keys))
        try:
            agreed = typer.confirm(f"Remove the weights of {counted(len(keys), 'trial')}, {size}?")
        except typer.Abort:
            shared.wrong("runs gc: nothing was removed, because nobody answered; --yes removes without a question")
        if not agreed:
            typer.echo("nothing was removed")
            return
    freed = 0
    with shared.refused(ValueError):
        for removed in collect(runs, weights=keys, dry=dry_run):
            freed += removed.bytes
            typer.echo(f"{removed.bytes:>14,}  {removed.path}")
    typer.echo(f"{freed:,} bytes {'would be freed' if dry_run else 'freed'}")


@app.command()
def export(
    file: shared.SweepFile,
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="where to; made if it is not there")],
    scale: shared.ScaleName = None,
    runs: shared.WrittenRuns = Path("runs"),
) -> None:
    """Copy what a report of a sweep needs: the records, curves and losses on test of its trials; no weights.

    `report FILE --runs FOLDER` makes the page from it, `runs import FOLDER` adds it to other runs. Exit code 1 if a
    trial is damaged, which is named and left out.
    """
    from orchestrator.trials.disk import export_trials

    _, state, records = shared.opened_state(file, scale, runs)
    with shared.refused(ValueError, OSError):
        searched = [trial.key for search in state.searches for trial in search.trials if trial.key is not None]
        keys = [*(records.holder(trial) for trial in state.trials), *searched]
        _print_carried(export_trials(keys, [search.ledger for search in state.searches], records.root, to), to)


@app.command("import")
def import_(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="what `runs export` wrote")],
    runs: shared.RunsFolder = Path("runs"),
) -> None:
    """Add trials that `runs export` copied; a trial that is in RUNS already stays as it is.

    Each is checked by the hashes in its record. Exit code 1 if one is damaged, which is named and left out.
    """
    from orchestrator.trials.disk import import_trials

    with shared.refused(ValueError, OSError):
        _print_carried(import_trials(folder, runs), runs)


def _print_carried(carried: Carried, to: Path) -> None:
    from orchestrator.trials.disk import size_of

    for line in carried.left_out:
        typer.echo(f"left out: {line}", err=True)
    now = f"which has {byte_size(size_of(to))} now; {carried.there} there already"
    typer.echo(f"{counted(carried.copied, 'trial')} copied to {to}, {now}")
    if carried.left_out:
        raise typer.Exit(1)


def _with_weights(file: Path, scale: str | None, runs: Path, keep_best: int) -> list[str]:
    """The keys of a sweep's complete and diverged trials that have weights, without the best."""
    from orchestrator.trials.disk import has_weights
    from orchestrator.trials.locks import sweep_runs

    _, state, records = shared.opened_state(file, scale, runs)
    if sweep_runs(runs):
        shared.wrong(f"runs gc: a sweep runs with {runs}, and may start a trial from these weights")
    with shared.refused(ValueError, OSError):
        settled = [record for key in dict(_named(state)) if (record := records.read(key)) is not None]
    complete = [record for record in settled if record.status == "complete"]
    best = sorted(complete, key=lambda record: record.stages[-1].valid.nats_per_token)[:keep_best]
    others = [record.key for record in settled if record.status != "failed" and record not in best]
    return [key for key in others if has_weights(runs / key)]


def _named(state: SweepState) -> Iterator[tuple[str, str]]:
    """Key and name of a sweep's trials; the table comes last, because its name counts if a search has the trial too."""
    for search in state.searches:
        yield from ((trial.key, f"{search.task.variant}, trial {trial.number}") for trial in search.trials if trial.key)
    yield from ((trial.key, trial.title) for trial in state.table)
