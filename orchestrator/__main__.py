"""The command line: `python -m orchestrator COMMAND`. Heavy modules are imported inside the commands that need them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from orchestrator.sweep import ScaledSweep

app = typer.Typer(
    help="Run many trials of language models and report what they show.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

SweepFile = Annotated[Path, typer.Argument(metavar="FILE", help="a sweep file, such as sweeps/awd_ablation.yaml")]
ScaleName = Annotated[str | None, typer.Option("--scale", help="a scale of the file [default: what fits the machine]")]
ReportsFolder = Annotated[Path, typer.Option("--reports", help="the folder of the reports")]
RunsFolder = Annotated[Path, typer.Option("--runs", help="the folder of the records")]


@app.callback()
def _main() -> None:
    """Exit codes: 0 complete, 1 trials failed or diverged, 2 a wrong file or command line, 3 the budget was spent,
    130 or 143 interrupted.
    """


@app.command()
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
    jobs: Annotated[int | None, typer.Option(min=1, help="with --estimate: trials at once")] = None,
) -> None:
    """Show the trials of a sweep file: what each changes, its key and size, and where it stands."""
    from orchestrator import plan as planning
    from orchestrator.plan_table import print_plan
    from orchestrator.records import Records

    sweep = open_sweep(file, scale)
    with refused(ValueError, OSError):
        trials = planning.plan(sweep)
        print_plan(sweep, trials, Records(runs))
        if write_specs is not None:
            written = planning.write_specs(trials, write_specs)
            typer.echo(f"{len(written)} specs written to {write_specs}")
        if estimate:
            from orchestrator.estimate import Measuring, print_estimate
            from orchestrator.estimate import estimate as reckon

            measuring = Measuring.granted(sweep.resources, steps, anew=anew)
            print_estimate(reckon(sweep, trials, Records(runs), measuring, jobs))


@app.command()
def schema() -> None:
    """Print the JSON Schema of sweep files, which sweeps/schema.json holds for editors."""
    from orchestrator.sweep.schema import schema_text

    typer.echo(schema_text(), nl=False)


@app.command()
def sweep(
    file: SweepFile,
    scale: ScaleName = None,
    runs: RunsFolder = Path("runs"),
    reports: ReportsFolder = Path("reports"),
    jobs: Annotated[int | None, typer.Option(min=1, help="trials at once [default: as many as fit]")] = None,
    address: Annotated[str | None, typer.Option(help="a Ray cluster [default: this machine]")] = None,
    executor: Annotated[str, typer.Option(help="ray, or inline: in this process, one after the other")] = "ray",
    verbose: Annotated[bool, typer.Option("--verbose", help="show what Ray says")] = False,
    checkpoint_minutes: Annotated[float, typer.Option(min=0.0, help="between checkpoints within an epoch")] = 10.0,
    budget: Annotated[str | None, typer.Option(help="start no trial after so long: 8h, 90m, 30s, 1d")] = None,
    mps: Annotated[bool, typer.Option("--mps", help="share GPUs through CUDA's multi-process service")] = False,
) -> None:
    """Train what has no record yet, track it in MLflow, and write the report. The same command again goes on."""
    from orchestrator.budget import seconds_in
    from orchestrator.machine import CannotStartError
    from orchestrator.run import Options, prepare, run_sweep

    if executor not in ("ray", "inline"):
        wrong(f"--executor: ray or inline, got {executor!r}")
    try:
        seconds_in(budget) if budget is not None else None
    except ValueError as error:
        wrong(f"--budget: {error}")
    options = Options(
        file=file,
        runs=runs,
        reports=reports,
        executor="inline" if executor == "inline" else "ray",
        jobs=jobs,
        address=address,
        verbose=verbose,
        checkpoint_seconds=60.0 * checkpoint_minutes,
        budget=budget,
        mps=mps,
    )
    scaled = open_sweep(file, scale)
    with refused(ValueError, OSError):
        prepared = prepare(scaled, options)
    with refused(CannotStartError):
        code = run_sweep(prepared)
    raise typer.Exit(code)


@app.command()
def report(
    file: SweepFile,
    scale: ScaleName = None,
    runs: RunsFolder = Path("runs"),
    reports: ReportsFolder = Path("reports"),
) -> None:
    """Write the report of what the records hold now; nothing is trained."""
    from orchestrator.plan import plan as plan_trials
    from orchestrator.records import Records
    from orchestrator.report_sweep import report_sweep

    scaled = open_sweep(file, scale)
    with refused(ValueError, OSError):
        typer.echo(report_sweep(scaled, file, plan_trials(scaled), Records(runs.resolve()), reports))


@app.command()
def status(file: SweepFile, scale: ScaleName = None, runs: RunsFolder = Path("runs")) -> None:
    """Show how far every trial of a sweep has come."""
    from orchestrator.plan import plan as plan_trials
    from orchestrator.plan_table import print_status
    from orchestrator.records import Records

    scaled = open_sweep(file, scale)
    with refused(ValueError):
        print_status(plan_trials(scaled), Records(runs.resolve()))


def open_sweep(file: Path, scale: str | None) -> ScaledSweep:
    """The sweep at the asked or fitting scale, which is printed; exit code 2, errors on stderr, where it is wrong."""
    from lm.data import CorpusError
    from orchestrator.machine import default_scale
    from orchestrator.sweep import SweepError, check_vocabularies, read_sweep

    try:
        sweep = read_sweep(file)
        name, why = (scale, "as asked") if scale is not None else default_scale(sweep)
        scaled = sweep.at(name)
        check_vocabularies(scaled, file)
    except (SweepError, CorpusError) as error:
        wrong(str(error))
    typer.echo(f"{sweep.name} at scale {name} ({why}): {sweep.question}")
    return scaled


@contextmanager
def refused(*errors: type[Exception]) -> Iterator[None]:
    """Within the block these errors are the user's: said in their own words, exit code 2."""
    try:
        yield
    except errors as error:
        wrong(f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error))


def wrong(message: str) -> NoReturn:
    """End with exit code 2: the sweep file or the command line is wrong, and nothing was started."""
    typer.echo(message, err=True)
    raise typer.Exit(2)


if __name__ == "__main__":
    app(prog_name="python -m orchestrator")
