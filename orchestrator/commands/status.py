"""`status`: what runs, what is done, the best so far."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.commands.shared import (
    AsJson,
    ScaleName,
    WrittenRuns,
    opened,
    print_json,
    refused,
    sweep_files,
)


def status(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="a sweep file [default: every sweep of RUNS]", autocompletion=sweep_files),
    ] = None,
    scale: ScaleName = None,
    runs: WrittenRuns = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """Show who runs a sweep and how far every trial has come; without FILE, the last command of every sweep."""
    root = runs.resolve()
    if file is None:
        with refused(OSError):
            _all_sweeps(root, as_json)
        return
    from orchestrator.agenda.expand import expand
    from orchestrator.agenda.standing import sweep_standing
    from orchestrator.commands.plan_table import print_status
    from orchestrator.trials.records import Records

    scaled, records = opened(file, scale, silent=as_json), Records(root)
    with refused(ValueError, OSError):
        standing = sweep_standing(scaled, expand(scaled, records), records)
    if as_json:
        print_json(standing)
    else:
        print_status(standing)


def _all_sweeps(runs: Path, as_json: bool) -> None:
    from orchestrator.agenda.standing import last_commands
    from orchestrator.commands.terminal import print_table

    found = last_commands(runs)
    if as_json:
        print_json({"sweeps": [dataclasses.asdict(holder) | {"state": state} for holder, state in found]})
        return
    if not found:
        typer.echo(f"no sweep was run with {runs}")
        return
    rows = [
        (h.sweep, h.scale, state, h.since, h.until or "", f"{h.user}, {h.pid} on {h.host}", h.command)
        for h, state in found
    ]
    print_table(("sweep", "scale", "state", "since", "until", "by", "command"), rows, whole=("sweep", "scale"))
