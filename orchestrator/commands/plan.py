"""`plan` and `schema`: what would run, and what a file may hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.commands.shared import AsJson, RunsFolder, ScaleName, SweepFile, opened, print_json, refused


def plan(
    file: SweepFile,
    scale: ScaleName = None,
    runs: RunsFolder = Path("runs"),
    write_specs: Annotated[
        Path | None, typer.Option(metavar="DIR", help="write a spec for `python -m lm train` for each trial to train")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the trials of a sweep file: what each changes, its key and size, and where it stands."""
    from orchestrator.plan import write_specs as write
    from orchestrator.plan_table import plan_data, print_plan
    from orchestrator.records import Records
    from orchestrator.rounds import known

    sweep, records = opened(file, scale, silent=as_json), Records(runs.resolve())
    with refused(ValueError, OSError):
        now = known(sweep, records)
        if as_json:
            print_json(plan_data(sweep, now, records))
        else:
            print_plan(sweep, now, records)
        if write_specs is not None:
            written = write(now.trials, write_specs)
            typer.echo(f"{len(written)} specs written to {write_specs}", err=as_json)


def schema() -> None:
    """Print the JSON Schema of sweep files, which sweeps/schema.json holds for editors."""
    from orchestrator.sweep.schema import schema_text

    typer.echo(schema_text(), nl=False)
