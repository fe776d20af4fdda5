"""`report`: the page from the records alone, once or whenever they change; two pages side by side."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.commands.shared import ReportsFolder, RunsFolder, ScaleName, opened, refused, sweep_files, wrong


def report(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="a sweep file, such as sweeps/awd_ablation.yaml", autocompletion=sweep_files
        ),
    ] = None,
    scale: ScaleName = None,
    runs: RunsFolder = Path("runs"),
    reports: ReportsFolder = Path("reports"),
    watch: Annotated[
        bool, typer.Option("--watch", help="write it again whenever the records change, until Ctrl-C (exit code 130)")
    ] = False,
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="with --watch: between looks")] = 10.0,
    force: Annotated[
        bool, typer.Option("--force", help="replace an earlier report that has complete trials which this one lacks")
    ] = False,
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(
            metavar="A B", help="in place of FILE: two written reports, each FOLDER or FOLDER@COMMIT, side by side"
        ),
    ] = None,
    to: Annotated[
        Path | None, typer.Option(metavar="PAGE", help="with --compare: where to write [default: print it]")
    ] = None,
) -> None:
    """Write the report of what the records hold now (nothing is trained), or set two reports side by side."""
    _one_or_the_other(context)
    if compare is not None:
        _compare(*compare, to)
    elif file is not None:
        _report(file, scale, runs, reports, every if watch else None, force=force)


def _one_or_the_other(context: typer.Context) -> None:
    """Exit code 2 unless the line has FILE or --compare, and nothing that would not be read."""
    sources = {name: context.get_parameter_source(name) for name in sorted(context.params)}
    # By its name: typer brings its own copy of click's enumeration in some versions.
    given = [name for name, source in sources.items() if source is not None and source.name != "DEFAULT"]
    if "compare" in given:
        others = ["FILE" if name == "file" else f"--{name}" for name in given if name not in ("compare", "to")]
        if others:
            wrong(f"report: --compare reads two written reports and goes with --to alone, got {', '.join(others)} too")
    elif "file" not in given:
        wrong("report: a sweep FILE, or --compare A B with two written reports; got neither")
    elif "to" in given:
        wrong("report: --to goes with --compare; the report of a sweep is written below --reports")


def _compare(a: str, b: str, to: Path | None) -> None:
    from lm.files import write_text
    from orchestrator.report.compare import compare_reports

    if to is not None and to.is_dir():
        wrong(f"--to: expected a file, got the folder {to}")
    with refused(ValueError, OSError):
        page = compare_reports(a, b)
        if to is not None:
            write_text(to, page)
    typer.echo(page if to is None else to, nl=to is not None)


def _report(file: Path, scale: str | None, runs: Path, reports: Path, every: float | None, *, force: bool) -> None:
    scaled = opened(file, scale)
    from orchestrator.agenda.expand import expand
    from orchestrator.report.files.earlier import FullerPageError
    from orchestrator.report.report_sweep import report_sweep
    from orchestrator.trials.records import Records

    records = Records(runs.resolve())

    def write() -> None:
        now = expand(scaled, records)
        typer.echo(report_sweep(scaled, file, now, records, reports, if_fuller="replace" if force else "refuse").page)

    seen: dict[Path, int] | None = None
    try:
        while True:
            if (now := _written(records.root)) != seen:
                with refused(ValueError, OSError):
                    try:
                        write()
                    except FullerPageError as error:
                        if seen is None:
                            raise
                        typer.echo(str(error), err=True)  # trials were set aside, to be trained again
                seen = now
            if every is None:
                return
            time.sleep(every)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _written(runs: Path) -> dict[Path, int]:
    """When every record and curve was written, in nanoseconds."""
    found = {}
    for path in (*runs.glob("*/record.json"), *runs.glob("*/curve.parquet")):
        try:
            found[path] = path.stat().st_mtime_ns
        except OSError:
            continue  # moved away meanwhile, or not to be read: the report says so
    return found
