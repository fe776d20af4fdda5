"""`runs list`: every trial on disk, and what tells it from the others."""

from __future__ import annotations

import csv
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from orchestrator.commands import shared
from orchestrator.watch.table import print_table
from orchestrator.words import byte_size, counted, value_in_words

if TYPE_CHECKING:
    from orchestrator.agenda.expand import SweepState

Sort = Literal["finished_at", "sweep", "variant", "status", "valid_perplexity", "test_perplexity", "bytes", "key"]
ListedStatus = Literal["complete", "diverged", "failed", "damaged"]
_MOST_DIFFERENCES = 6


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
    """List every trial that has settled: its sweep and variant if a report has it, how it differs, how it ended."""
    if as_csv and as_json:
        shared.wrong("runs list: --csv and --json: give one of them")
    shared.goes_with("--sweep FILE", file is not None, scale=scale)
    with shared.refused(ValueError, OSError):
        if file is None:
            names = _reported(reports, runs)
        else:
            sweep, state, _ = shared.opened_state(file, scale, runs, silent=as_json or as_csv)
            names = {key: (f"{sweep.name}/{sweep.scale}", title) for key, title in named(state)}
        rows = [row for row in _rows(runs, names) if file is None or row["key"] in names]
    rows = [row for row in rows if status is None or row["status"] == status]
    rows.sort(key=lambda row: (row[sort] is None, row[sort] or 0))
    if as_json:
        shared.print_json({"runs": rows})
    elif as_csv:
        writer = csv.DictWriter(sys.stdout, fieldnames=_FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    else:
        _print(rows)


def named(state: SweepState) -> Iterator[tuple[str, str]]:
    """Key and name of a sweep's trials; the table comes last, because its name counts if a search has the trial too."""
    for search in state.searches:
        yield from ((trial.key, f"{search.task.title}, trial {trial.number}") for trial in search.trials if trial.key)
    yield from ((trial.key, trial.title) for trial in state.table)


_FIELDS: tuple[str, ...] = ("key", "sweep", "variant", "seed", "what", "differs", "status")
_FIELDS += ("valid_perplexity", "test_perplexity", "bytes", "finished_at")


def _rows(runs: Path, names: Mapping[str, tuple[str, str]]) -> list[dict[str, Any]]:
    """A row for every trial; of one whose record cannot be read, the reason stands for what it is."""
    from orchestrator.trials.disk import size_of
    from orchestrator.trials.plan import flattened, in_short
    from orchestrator.trials.records import read_own

    rows, specs = [], defaultdict[str | None, dict[str, dict[str, Any]]](dict)
    for folder in sorted(path.parent for path in runs.glob("*/record.json")):
        sweep, variant = names.get(folder.name, (None, None))
        row: dict[str, Any] = dict.fromkeys(_FIELDS) | {"key": folder.name, "sweep": sweep, "variant": variant}
        with suppress(OSError):
            row["bytes"] = size_of(folder)
        try:
            record = read_own(folder)
        except (ValueError, OSError) as error:
            rows.append(row | {"status": "damaged", "what": str(error)})
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
        specs[sweep][folder.name] = dict(flattened(record.spec.model_dump(exclude={"seed"})))
    differing = {key: text for group in specs.values() for key, text in _differences(group).items()}
    return [row | {"differs": differing.get(row["key"])} for row in rows]


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


def _reported(reports: Path, runs: Path) -> dict[str, tuple[str, str]]:
    """The sweep and name of each trial that a report lists; of several reports, the last by name."""
    from orchestrator.report.files.folder import read_summary
    from orchestrator.search.ledger import ledger_path, read_search_trials

    names: dict[str, tuple[str, str]] = {}
    for path in sorted(reports.glob("*/*/trials.csv")):
        of = f"{path.parent.parent.name}/{path.parent.name}"
        with suppress(OSError, ValueError, KeyError):  # names alone are lost, and the page's own command says why
            if (summary := read_summary(path.parent)) is not None:
                for variant, key in summary.searches.items():
                    trials = read_search_trials(ledger_path(runs, key))
                    names |= {trial.key: (of, f"{variant}, trial {trial.number}") for trial in trials if trial.key}
            with path.open(encoding="utf-8", newline="") as table:
                rows = list(csv.DictReader(table))
            names |= {row["key"]: (of, f"{row['variant']}, seed {row['seed']}") for row in rows}
    return names


def _print(rows: list[dict[str, Any]]) -> None:
    cells = []
    for row in rows:
        test = "" if row["test_perplexity"] is None else f"{row['test_perplexity']:.2f}"
        size, is_damaged = byte_size(row["bytes"] or 0), row["status"] == "damaged"
        trial, differs = row["variant"] or ("" if is_damaged else row["what"]), row["what" if is_damaged else "differs"]
        cells.append(
            (row["key"], row["sweep"] or "", trial, differs, row["status"], test, size, row["finished_at"] or "")
        )
    headings = ("key", "sweep", "trial", "differs in", "status", "test perplexity", "size", "finished at")
    print_table(headings, cells, right=("test perplexity", "size"), whole=("key", "size"))
    typer.echo(f"{counted(len(rows), 'trial')}, {byte_size(sum(row['bytes'] or 0 for row in rows))}")
