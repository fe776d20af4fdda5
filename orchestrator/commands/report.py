"""`report`: the page from the records alone, once or whenever they change; two pages side by side."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.commands import shared

if TYPE_CHECKING:
    from orchestrator.report.files.place import IfFuller
    from orchestrator.sweep import ScaledSweep


def report(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="a sweep file, such as sweeps/awd_ablation.yaml", autocompletion=shared.sweep_files
        ),
    ] = None,
    scale: shared.ScaleName = None,
    runs: shared.RunsFolder = Path("runs"),
    reports: shared.ReportsFolder = Path("reports"),
    watch: Annotated[
        bool, typer.Option("--watch", help="write it again whenever the records change, until Ctrl-C (exit code 130)")
    ] = False,
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="with --watch: between looks")] = 10.0,
    force: Annotated[
        bool, typer.Option("--force", help="replace an earlier report that has complete trials which this one lacks")
    ] = False,
    compare: Annotated[
        tuple[Path, Path] | None, typer.Option(metavar="A B", help="print two folders of reports side by side")
    ] = None,
) -> None:
    """Write the report of what the records hold now (nothing is trained), or print two reports side by side."""
    if (file is None) == (compare is None):
        shared.wrong("report: expected either a sweep FILE or --compare A B")
    if compare is not None:
        from orchestrator.report.compare import compare_reports

        with shared.refused(ValueError, OSError):
            typer.echo(compare_reports(*compare), nl=False)
    elif file is not None:
        _report(shared.opened(file, scale), file, runs, reports, every if watch else None, force=force)


def _report(scaled: ScaledSweep, file: Path, runs: Path, reports: Path, every: float | None, *, force: bool) -> None:
    """Write the report once, or look after `every` seconds and write it whenever a record or curve has changed."""
    from orchestrator.agenda.expand import expand
    from orchestrator.report.files.place import FullerPageError
    from orchestrator.report.report_sweep import report_sweep
    from orchestrator.trials.records import Records

    records = Records(runs.resolve())
    if_fuller: IfFuller = "replace" if force else "refuse"
    written: dict[Path, int] | None = None
    try:
        while True:
            if (times := _modification_times(records.root)) != written:
                with shared.refused(ValueError, OSError):
                    try:
                        state = expand(scaled, records)
                        typer.echo(report_sweep(scaled, file, state, records, reports, if_fuller=if_fuller).page)
                    except FullerPageError as error:
                        if written is None:
                            raise
                        typer.echo(str(error), err=True)  # trials were set aside, to be trained again
                written = times
            if every is None:
                return
            time.sleep(every)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _modification_times(runs: Path) -> dict[Path, int]:
    """When every record and curve was written, in nanoseconds."""
    times = {}
    for path in (*runs.glob("*/record.json"), *runs.glob("*/curve.parquet")):
        with suppress(OSError):  # moved away meanwhile, or not to be read: the report says so
            times[path] = path.stat().st_mtime_ns
    return times
