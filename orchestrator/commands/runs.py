"""`runs`: the trials on disk, whatever sweep they belong to."""

from __future__ import annotations

import csv
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from lm.hashes import WEIGHTS
from lm.yaml_text import write_yaml
from orchestrator.commands import shared
from orchestrator.words import byte_size, counted, number, print_table, value_in_words

if TYPE_CHECKING:
    from orchestrator.agenda.expand import SweepState

app = typer.Typer(help="List, show, compare, copy and free the trials on disk.", no_args_is_help=True)
_WEIGHTS = "with --sweep: also the weights of its trials, after a question"
_KEEP_BEST = "with --weights: not those of the N best on validation"
Sort = Literal["finished_at", "sweep", "variant", "status", "valid_perplexity", "test_perplexity", "bytes", "key"]
ListedStatus = Literal["complete", "diverged", "failed", "damaged"]
_FIELDS: tuple[str, ...] = ("key", "sweep", "variant", "seed", "what", "differs", "status")
_FIELDS += ("valid_perplexity", "test_perplexity", "bytes", "finished_at")
_MOST_DIFFERENCES = 6


@app.command("list")
def list_runs(
    file: shared.OfSweep = None,
    scale: shared.ScaleName = None,
    runs: shared.WrittenRuns = Path("runs"),
    reports: shared.ReportsFolder = Path("reports"),
    sort: Annotated[Sort, typer.Option(help="ascending; without a value last")] = "finished_at",
    status: Annotated[ListedStatus | None, typer.Option(help="only these")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="print CSV, with the fields of --json")] = False,
    as_json: shared.AsJson = False,
) -> None:
    """List every trial that has ended: its sweep and variant if a report has it, how it differs, how it ended."""
    if as_csv and as_json:
        shared.wrong("runs list: --csv and --json: give one of them")
    shared.goes_with("--sweep FILE", file is not None, scale=scale)
    with shared.refused(ValueError, OSError):
        if file is None:
            names, sweeps = _reported(reports, runs)
        else:
            sweep, state, _ = shared.opened_state(file, scale, runs, silent=as_json or as_csv)
            names = {key: (f"{sweep.name}/{sweep.scale}", title) for key, title in _named(state)}
            sweeps = {f"{sweep.name}/{sweep.scale}": {*names}}
        rows = [row for row in _rows(runs, names, sweeps) if file is None or row["key"] in names]
    rows = [row for row in rows if status is None or row["status"] == status]
    rows.sort(key=lambda row: (row[sort] is None, row[sort] or 0))
    if as_json:
        shared.print_json({"runs": rows})
    elif as_csv:
        writer = csv.DictWriter(sys.stdout, fieldnames=_FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    else:
        _print_list(rows)


def _named(state: SweepState) -> Iterator[tuple[str, str]]:
    """Key and name of a sweep's trials, of one that has several the name that counts last.

    That is the table's if a search has the trial too, and that of the variant which trains it if others read it.
    """
    for search in reversed(state.searches):
        yield from ((trial.key, f"{search.task.title}, trial {trial.number}") for trial in search.trials if trial.key)
    yield from ((trial.key, trial.title) for trial in reversed(state.table))


def _rows(
    runs: Path, names: Mapping[str, tuple[str, str]], sweeps: Mapping[str, Collection[str]]
) -> list[dict[str, Any]]:
    """A row for every trial; of one whose record cannot be read, the reason stands for what it is.

    `names`: of a trial, by key, the sweep that it is listed under, and its name there; `sweeps`: the keys of each, of
    which several may share a trial.
    """
    from orchestrator.trials.disk import size_of
    from orchestrator.trials.plan import flattened, in_short
    from orchestrator.trials.records import damage_in_a_line, read_own

    rows, specs = [], dict[str, dict[str, Any]]()
    for folder in sorted(path.parent for path in runs.glob("[!.]*/record.json")):
        sweep, variant = names.get(folder.name, (None, None))
        row: dict[str, Any] = dict.fromkeys(_FIELDS) | {"key": folder.name, "sweep": sweep, "variant": variant}
        with suppress(OSError):
            row["bytes"] = size_of(folder)
        try:
            record = read_own(folder)
        except (ValueError, OSError) as error:
            rows.append(row | {"status": "damaged", "what": damage_in_a_line(error)})
            continue
        if record is None:  # it was removed meanwhile
            continue
        stage = record.stages[-1] if record.status == "complete" else None
        row |= {
            "seed": record.spec.seed,
            "what": in_short(record.spec),
            "status": record.status,
            "valid_perplexity": stage and stage.valid.perplexity,
            "test_perplexity": stage and stage.test and stage.test.perplexity,
            "finished_at": record.finished_at,
        }
        rows.append(row)
        specs[folder.name] = dict(flattened(record.spec.model_dump(exclude={"seed"})))
    groups: dict[str | None, Collection[str]] = {None: specs.keys() - names.keys()}
    groups.update(sweeps)
    texts = {of: _differences({key: specs[key] for key in keys if key in specs}) for of, keys in groups.items()}
    return [row | {"differs": texts[row["sweep"]].get(row["key"])} for row in rows]


def _differences(specs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """By key, the values of a trial that are not those of most trials of its group."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for spec in specs.values():
        for path, value in spec.items():
            counts[path][repr(value)] += 1
    usual = {path: of.most_common(1)[0] for path, of in counts.items()}
    texts = {}
    for key, spec in specs.items():
        unusual = [
            f"{path} {value_in_words(value)}"
            for path, value in spec.items()
            if usual[path][0] != repr(value) or usual[path][1] <= len(specs) / 2
        ]
        more = [f"and {len(unusual) - _MOST_DIFFERENCES} more"] if len(unusual) > _MOST_DIFFERENCES else []
        texts[key] = ", ".join(unusual[:_MOST_DIFFERENCES] + more)
    return texts


def _reported(reports: Path, runs: Path) -> tuple[dict[str, tuple[str, str]], dict[str, set[str]]]:
    """The sweep and name of each trial that a report lists, of several reports the last; the trials of each."""
    from orchestrator.report.files.folder import read_summary
    from orchestrator.search.ledger import ledger_path, read_search_trials

    names, sweeps = dict[str, tuple[str, str]](), dict[str, set[str]]()
    for path in sorted(reports.glob("*/*/trials.csv")):
        of = f"{path.parent.parent.name}/{path.parent.name}"
        listed = dict[str, str]()
        with suppress(OSError, ValueError, KeyError):  # names alone are lost, and the page's own command says why
            if (summary := read_summary(path.parent)) is not None:
                for variant, key in reversed(summary.searches.items()):
                    trials = read_search_trials(ledger_path(runs, key))
                    listed |= {trial.key: f"{variant}, trial {trial.number}" for trial in trials if trial.key}
            with path.open(encoding="utf-8", newline="") as table:
                rows = reversed([*csv.DictReader(table)])
                listed |= {row["key"]: f"{row['variant']}, seed {row['seed']}" for row in rows}
        names |= {key: (of, name) for key, name in listed.items()}
        sweeps[of] = {*listed}
    return names, sweeps


def _print_list(rows: list[dict[str, Any]]) -> None:
    cells = []
    for row in rows:
        test = "" if row["test_perplexity"] is None else number(row["test_perplexity"])
        size, is_damaged = byte_size(row["bytes"] or 0), row["status"] == "damaged"
        trial, differs = row["variant"] or ("" if is_damaged else row["what"]), row["what" if is_damaged else "differs"]
        cells.append(
            (row["key"], row["sweep"] or "", trial, differs, row["status"], test, size, row["finished_at"] or "")
        )
    headings = ("key", "sweep", "trial", "differs in", "status", "test perplexity", "size", "finished at")
    print_table(headings, cells, right=("test perplexity", "size"), whole=("key", "size"))
    typer.echo(f"{counted(len(rows), 'trial')}, {byte_size(sum(row['bytes'] or 0 for row in rows))}")


@app.command()
def show(key: shared.Key, runs: shared.WrittenRuns = Path("runs"), as_json: shared.AsJson = False) -> None:
    """Show everything that a trial's record holds, as YAML; --json prints the record as it is."""
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
    """Free disk: checkpoints of trials that ended or that a search stopped, unfinished files, what was set aside.

    What a report needs stays, and so do weights unless --weights names a sweep's: a trial without weights cannot be
    scored again, and one that shares its stages trains them itself. Trials under way, unfinished or failed keep all.
    """
    from orchestrator.search.ledger import stopped_early
    from orchestrator.trials.disk import collect, size_of

    runs = runs.resolve()
    if weights != (file is not None):
        shared.wrong("runs gc: --weights and --sweep FILE go together: they remove the weights of that sweep's trials")
    shared.goes_with("--weights", weights, scale=scale, keep_best=keep_best or None)
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
        for path, size in collect(runs, weights=keys, stopped=stopped_early(runs), dry=dry_run):
            freed += size
            typer.echo(f"{size:>14,}  {path}")
    typer.echo(f"{freed:,} bytes {'would be freed' if dry_run else 'freed'}")


@app.command()
def export(
    file: shared.SweepFile,
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="where to; made if it is not there")],
    scale: shared.ScaleName = None,
    set_: shared.Set = None,
    seeds: shared.Seeds = None,
    runs: shared.WrittenRuns = Path("runs"),
) -> None:
    """Copy what a report of a sweep needs: the records, curves and losses on test of its trials, its looks; no weights.

    `report FILE --runs FOLDER` makes the page from it, `runs import FOLDER` adds it to other runs. Exit code 1 if a
    trial is damaged, which is named and left out, as one is that would replace a better one in FOLDER.
    """
    from orchestrator.agenda.expand import looks_path
    from orchestrator.analysis.looks import add_looks
    from orchestrator.trials.disk import copy_trials

    sweep, state, records = shared.opened_state(file, scale, runs, set_, seeds)
    with shared.refused(ValueError, OSError):
        searched = [trial.key for search in state.searches for trial in search.trials if trial.key is not None]
        keys = [*(records.holder(trial) for trial in state.trials), *searched]
        copied = copy_trials(keys, [search.ledger for search in state.searches], records.root, to)
        add_looks(looks_path(sweep, records), to)
    _print_copied(*copied, to)


@app.command("import")
def import_(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="what `runs export` wrote")],
    runs: shared.RunsFolder = Path("runs"),
) -> None:
    """Add trials that `runs export` copied; one that is in RUNS stays as it is, but a failure moves to RUNS/.old/.

    Each is checked by the hashes in its record. Exit code 1 if one is damaged, which is named and left out.
    """
    from orchestrator.analysis.looks import add_looks
    from orchestrator.trials.disk import import_trials

    with shared.refused(ValueError, OSError):
        copied = import_trials(folder, runs)
        for looks in sorted((folder / ".sweeps").glob("*.looks")):
            add_looks(looks, runs)
    _print_copied(*copied, runs)


def _print_copied(copied: int, there: int, left_out: tuple[str, ...], to: Path) -> None:
    from orchestrator.trials.disk import size_of

    for line in left_out:
        typer.echo(f"left out: {line}", err=True)
    now = f"which has {byte_size(size_of(to))} now; {there} there already"
    typer.echo(f"{counted(copied, 'trial')} copied to {to}, {now}")
    if left_out:
        raise typer.Exit(1)


def _with_weights(file: Path, scale: str | None, runs: Path, keep_best: int) -> list[str]:
    """The keys of a sweep's complete and diverged trials that have weights, without the best."""
    from orchestrator.trials.locks import check_no_sweep_runs

    _, state, records = shared.opened_state(file, scale, runs)
    with shared.refused(ValueError, OSError):
        check_no_sweep_runs(runs)
        settled = [record for key in dict(_named(state)) if (record := records.read(key)) is not None]
    complete = [record for record in settled if record.status == "complete"]
    best = sorted(complete, key=lambda record: record.stages[-1].valid.nats_per_token)[:keep_best]
    others = [record.key for record in settled if record.status != "failed" and record not in best]
    return [key for key in others if any((runs / key / WEIGHTS).glob("*"))]
