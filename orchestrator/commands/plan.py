"""`plan` and `schema`: what would run, and what a file may hold."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.commands.shared import (
    AsJson,
    Cpus,
    Gpus,
    RunsFolder,
    ScaleName,
    SweepFile,
    opened,
    print_json,
    refused,
)


def plan(
    file: SweepFile,
    scale: ScaleName = None,
    runs: RunsFolder = Path("runs"),
    write_specs: Annotated[
        Path | None, typer.Option(metavar="DIR", help="write a spec for `python -m lm train` for each trial to train")
    ] = None,
    estimate: Annotated[bool, typer.Option("--estimate", help="measure each model; hours, bytes, memory")] = False,
    steps: Annotated[int, typer.Option(min=1, help="with --estimate: windows to train of each model")] = 8,
    anew: Annotated[bool, typer.Option("--anew", help="with --estimate: measure again what is known")] = False,
    cpus: Cpus = None,
    gpus: Gpus = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="with --estimate: trials at once")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the trials of a sweep file: what each changes, its key and size, and where it stands."""
    from orchestrator.agenda.expand import expand
    from orchestrator.commands.plan_table import plan_data, print_plan
    from orchestrator.execute.machine import granted
    from orchestrator.trials.plan import write_specs as write
    from orchestrator.trials.records import Records

    sweep, records = opened(file, scale, silent=as_json), Records(runs.resolve())
    with refused(ValueError, OSError):
        sweep = replace(sweep, resources=granted(sweep.resources, cpus, gpus))
        now = expand(sweep, records)
        cost = None
        if estimate:
            from orchestrator.execute.cost import Measuring, print_estimate
            from orchestrator.execute.cost import estimate as reckon

            cost = reckon(sweep, now, records, Measuring.granted(sweep.resources, steps, anew=anew), jobs)
        if as_json:
            print_json(plan_data(sweep, now, records) | ({"estimate": asdict(cost)} if cost else {}))
        else:
            print_plan(sweep, now, records)
            if cost is not None:
                print_estimate(cost)
        if write_specs is not None:
            from orchestrator.words import counted

            written = write(now.table, write_specs)
            train = f"python -m lm train {write_specs}/KEY.yaml --threads {sweep.resources.threads}"
            how = f"as this sweep would train one: {train}"
            typer.echo(f"{counted(len(written), 'spec')} written to {write_specs}; {how}", err=as_json)


def schema() -> None:
    """Print the JSON Schema of sweep files, which sweeps/schema.json holds for editors."""
    from orchestrator.sweep.types import schema_text

    typer.echo(schema_text(), nl=False)
