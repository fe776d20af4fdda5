"""`runs`: the trials on disk, whatever sweep they belong to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lm.hashes import WEIGHTS
from orchestrator.commands import shared
from orchestrator.commands.list_runs import list_runs, named
from orchestrator.words import byte_size, counted

if TYPE_CHECKING:
    from orchestrator.trials.disk import Copied

app = typer.Typer(help="List, show, compare, copy and free the trials on disk.", no_args_is_help=True)
_WEIGHTS = "with --sweep: also the weights of its trials, after a question"
_KEEP_BEST = "with --weights: not those of the N best on validation"


app.command("list")(list_runs)


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
        total = byte_size(sum(size_of(runs / key / WEIGHTS) for key in keys))
        try:
            agreed = typer.confirm(f"Remove the weights of {counted(len(keys), 'trial')}, {total}?")
        except typer.Abort:
            shared.wrong("runs gc: nothing was removed, because nobody answered; --yes removes without a question")
        if not agreed:
            typer.echo("nothing was removed")
            return
    freed = 0
    with shared.refused(ValueError):
        for path, size in collect(runs, weights=keys, dry=dry_run):
            freed += size
            typer.echo(f"{size:>14,}  {path}")
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
    from orchestrator.trials.disk import copy_trials

    _, state, records = shared.opened_state(file, scale, runs)
    with shared.refused(ValueError, OSError):
        searched = [trial.key for search in state.searches for trial in search.trials if trial.key is not None]
        keys = [*(records.holder(trial) for trial in state.trials), *searched]
        _print_copied(copy_trials(keys, [search.ledger for search in state.searches], records.root, to), to)


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
        _print_copied(import_trials(folder, runs), runs)


def _print_copied(copied: Copied, to: Path) -> None:
    from orchestrator.trials.disk import size_of

    for line in copied.left_out:
        typer.echo(f"left out: {line}", err=True)
    now = f"which has {byte_size(size_of(to))} now; {copied.there} there already"
    typer.echo(f"{counted(copied.copied, 'trial')} copied to {to}, {now}")
    if copied.left_out:
        raise typer.Exit(1)


def _with_weights(file: Path, scale: str | None, runs: Path, keep_best: int) -> list[str]:
    """The keys of a sweep's complete and diverged trials that have weights, without the best."""
    from orchestrator.trials.locks import is_held

    _, state, records = shared.opened_state(file, scale, runs)
    if any(map(is_held, (runs / ".sweeps").glob("*.lock"))):
        shared.wrong(f"runs gc: a sweep runs with {runs}, and may start a trial from these weights")
    with shared.refused(ValueError, OSError):
        settled = [record for key in dict(named(state)) if (record := records.read(key)) is not None]
    complete = [record for record in settled if record.status == "complete"]
    best = sorted(complete, key=lambda record: record.stages[-1].valid.nats_per_token)[:keep_best]
    others = [record.key for record in settled if record.status != "failed" and record not in best]
    return [key for key in others if any((runs / key / WEIGHTS).glob("*"))]
