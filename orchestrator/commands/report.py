"""`report`: the page from the records alone, once or whenever they change."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.commands.shared import ReportsFolder, RunsFolder, ScaleName, SweepFile, opened, refused


def report(
    file: SweepFile,
    scale: ScaleName = None,
    runs: RunsFolder = Path("runs"),
    reports: ReportsFolder = Path("reports"),
    watch: Annotated[
        bool, typer.Option("--watch", help="write it again whenever the records change, until Ctrl-C (exit code 130)")
    ] = False,
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="between looks of --watch")] = 10.0,
) -> None:
    """Write the report of what the records hold now; nothing is trained."""
    from orchestrator.records import Records
    from orchestrator.report_sweep import report_sweep
    from orchestrator.rounds import known

    scaled = opened(file, scale)
    records = Records(runs.resolve())

    def write() -> None:
        with refused(ValueError, OSError):
            typer.echo(report_sweep(scaled, file, known(scaled, records), records, reports).page)

    if not watch:
        write()
        return
    seen: dict[Path, int] | None = None
    try:
        while True:
            if (now := _written(records.root)) != seen:
                write()
                seen = now
            time.sleep(every)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _written(runs: Path) -> dict[Path, int]:
    """When every record and curve was written, in nanoseconds."""
    found = {}
    for path in (*runs.glob("*/record.json"), *runs.glob("*/curve.parquet")):
        try:
            found[path] = path.stat().st_mtime_ns
        except FileNotFoundError:
            continue  # moved away meanwhile
    return found
