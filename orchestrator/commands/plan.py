"""`plan`, `status`, `export` and `schema`: a sweep's trials, how far they are, its searches, what a file may hold."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.commands import shared
from orchestrator.words import counted


def plan(
    file: shared.SweepFile,
    scale: shared.ScaleName = None,
    runs: shared.RunsFolder = Path("runs"),
    write_specs: Annotated[
        Path | None, typer.Option(metavar="DIR", help="write a spec for `python -m lm train` for each trial to train")
    ] = None,
    estimate: Annotated[bool, typer.Option("--estimate", help="measure each model; hours, bytes, memory")] = False,
    steps: Annotated[int, typer.Option(min=1, help="with --estimate: windows to train of each model")] = 8,
    again: Annotated[bool, typer.Option("--anew", help="with --estimate: ignore earlier measurements")] = False,
    cpus: shared.Cpus = None,
    gpus: shared.Gpus = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="with --estimate: trials at once")] = None,
    as_json: shared.AsJson = False,
) -> None:
    """Show the trials of a sweep file: what each changes, its key and size, and where it stands."""
    from orchestrator.commands.standing import plan_data, print_plan
    from orchestrator.execute.machine import granted

    sweep, state, records = shared.opened_state(file, scale, runs, silent=as_json)
    with shared.refused(ValueError, OSError):
        sweep = replace(sweep, resources=granted(sweep.resources, cpus, gpus))
        cost = None
        if estimate:
            from orchestrator.execute.cost import Measuring, print_estimate
            from orchestrator.execute.cost import estimate as reckon

            cost = reckon(sweep, state, records, Measuring.granted(sweep.resources, steps, again=again), jobs)
        if as_json:
            shared.print_json(plan_data(sweep, state, records) | ({"estimate": asdict(cost)} if cost else {}))
        else:
            print_plan(sweep, state, records)
            if cost is not None:
                print_estimate(cost)
        if write_specs is not None:
            from orchestrator.trials.plan import write_specs as write

            specs = counted(len(write(state.table, write_specs)), "spec")
            line = f"python -m lm train {write_specs}/KEY.yaml --threads {sweep.resources.threads}"
            typer.echo(f"{specs} written to {write_specs}; as this sweep would train one: {line}", err=as_json)


def status(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="a sweep file [default: every sweep of RUNS]", autocompletion=shared.sweep_files
        ),
    ] = None,
    scale: shared.ScaleName = None,
    runs: shared.WrittenRuns = Path("runs"),
    as_json: shared.AsJson = False,
) -> None:
    """Show who runs a sweep and how far every trial has come; without FILE, the last command of every sweep."""
    from orchestrator.agenda.standing import sweep_standing
    from orchestrator.commands.standing import print_status

    if file is None:
        _last_commands(runs.resolve(), as_json)
        return
    sweep, state, records = shared.opened_state(file, scale, runs, silent=as_json)
    with shared.refused(ValueError, OSError):
        standing = sweep_standing(sweep, state, records)
    if as_json:
        shared.print_json(standing)
    else:
        print_status(standing)


def _last_commands(runs: Path, as_json: bool) -> None:
    from orchestrator.agenda.standing import last_commands

    with shared.refused(OSError):
        commands = last_commands(runs)
    if as_json:
        shared.print_json({"sweeps": [asdict(holder) | {"state": state} for holder, state in commands]})
    elif not commands:
        typer.echo(f"no sweep was run with {runs}")
    else:
        rows = [
            (h.sweep, h.scale, state, h.since, h.until or "", f"{h.user}, {h.pid} on {h.host}", h.command)
            for h, state in commands
        ]
        shared.print_table(
            ("sweep", "scale", "state", "since", "until", "by", "command"), rows, whole=("sweep", "scale")
        )


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


def schema(
    markdown: Annotated[
        bool, typer.Option("--markdown", help="the same as a page, which docs/reference.md holds")
    ] = False,
) -> None:
    """Print the JSON Schema of sweep files, which sweeps/schema.json holds for editors."""
    from orchestrator.sweep.reference import reference_text
    from orchestrator.sweep.types import schema_text

    typer.echo(reference_text() if markdown else schema_text(), nl=False)
