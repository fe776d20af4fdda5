"""What commands share: common arguments, how a sweep is opened, how an error of the user ends, tables and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from pydantic_core import to_json

from lm.files import cannot_write, in_a_line
from lm.names import closest

if TYPE_CHECKING:
    from orchestrator.agenda.expand import SweepState
    from orchestrator.sweep import ScaledSweep
    from orchestrator.trials.records import Records


def sweep_files(incomplete: str) -> list[str]:
    """Completes the path of a sweep file, also from `sweeps/`."""
    start = Path(incomplete or ".")
    folders = {start if incomplete.endswith("/") or not incomplete else start.parent, Path("sweeps")}
    return sorted({str(path) for folder in folders for path in folder.glob("*.yaml")})


def scales_of(context: typer.Context) -> list[str]:
    """Completes a scale of the sweep on the line."""
    return _scales_and_variants(context)[0]


def variants_of(context: typer.Context) -> list[str]:
    """Completes a variant of the sweep on the line."""
    return _scales_and_variants(context)[1]


def _scales_and_variants(context: typer.Context) -> tuple[list[str], list[str]]:
    """Two empty lists if there is no file yet, or a wrong one."""
    from orchestrator.sweep import SweepError, read_sweep

    # An option that still lacks its value keeps the parser from giving the line's other words their names.
    file = context.params.get("file") or next((word for word in context.args if word.endswith(".yaml")), None)
    try:
        sweep = read_sweep(Path(file or ""))
        scaled = sweep.at(context.params.get("scale") or sweep.scale_names[0])
    except SweepError:
        return [], []
    return list(sweep.scale_names), [variant.name for variant in scaled.variants]


def _existing(context: typer.Context, runs: Path) -> Path:
    if not context.resilient_parsing and runs != Path("runs") and not runs.is_dir():
        near = closest(runs.name, (path.name for path in runs.parent.glob("*") if path.is_dir()))
        hint = "" if near is None else f" (did you mean {str(runs.parent / near)!r}?)"
        wrong(f"--runs: no folder {str(runs)!r}{hint}")
    return runs


_FILE = "a sweep file, such as sweeps/awd_ablation.yaml"
SweepFile = Annotated[Path, typer.Argument(metavar="FILE", help=_FILE, autocompletion=sweep_files)]
_ONLY_OF = "only the trials of this sweep"
OfSweep = Annotated[Path | None, typer.Option("--sweep", metavar="FILE", help=_ONLY_OF, autocompletion=sweep_files)]
_SCALE = "a scale of the file [default: what fits the machine]"
ScaleName = Annotated[str | None, typer.Option("--scale", help=_SCALE, autocompletion=scales_of)]
_SET = "a value of the base, search or tuning, such as base.epochs=5; may be repeated"
_SEEDS = "in place of the file's: 1-5, or 1,4,7"
Set = Annotated[list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help=_SET)]
Seeds = Annotated[str | None, typer.Option("--seeds", help=_SEEDS)]
_ONLY = "only this variant and the baseline; may be repeated"
Only = Annotated[list[str] | None, typer.Option(metavar="VARIANT", help=_ONLY, autocompletion=variants_of)]
ReportsFolder = Annotated[Path, typer.Option("--reports", help="the folder of the reports")]
RunsFolder = Annotated[Path, typer.Option("--runs", help="the folder of the records")]
WrittenRuns = Annotated[Path, typer.Option("--runs", help="the folder of the records", callback=_existing)]
"""Of a command that only reads: a folder that is named must exist; the default one may not have been written yet."""
AsJson = Annotated[bool, typer.Option("--json", help="print JSON, for scripts; its keys are stable")]
_CPUS = "of a trial, which trains with as many threads [default: the file's]"
_GPUS = "of a trial: a number, or auto: 0.25 if there is one, else 0 [default: the file's]"
Cpus = Annotated[float | None, typer.Option("--cpus", help=_CPUS)]
Gpus = Annotated[str | None, typer.Option("--gpus", help=_GPUS)]
Key = Annotated[str, typer.Argument(metavar="KEY", help="a trial's key, or as much of it as tells it from others")]


def opened(
    file: Path, scale: str | None, set_: list[str] | None = None, seeds: str | None = None, *, silent: bool = False
) -> ScaledSweep:
    """The sweep at the asked or fitting scale, which is printed, with the changes of `--set` and `--seeds`.

    Exit code 2, errors on stderr, if it is wrong.
    """
    from orchestrator.execute.machine import open_sweep
    from orchestrator.sweep import Changes

    with refused(ValueError):
        sweep, why = open_sweep(file, scale, Changes.read(set_ or (), seeds))
    if not silent:
        of_scale = f" ({why})" if sweep.has_scales else ""
        typer.echo(f"{sweep.name}{sweep.at_scale}{of_scale}: {sweep.question}")
    return sweep


def opened_state(
    file: Path,
    scale: str | None,
    runs: Path,
    set_: list[str] | None = None,
    seeds: str | None = None,
    *,
    only: list[str] | None = None,
    silent: bool = False,
) -> tuple[ScaledSweep, SweepState, Records]:
    """The sweep as of `opened`, what it consists of so far, and the records; exit code 2 if one cannot be read.

    If `only` names variants, the sweep has these and the baseline alone.
    """
    from orchestrator.agenda.expand import expand, selected
    from orchestrator.trials.records import Records

    sweep, records = opened(file, scale, set_, seeds, silent=silent), Records(runs.resolve())
    with refused(ValueError, OSError):
        sweep = selected(sweep, only or ())
        return sweep, expand(sweep, records), records


@contextmanager
def refused(*errors: type[Exception], exit_code: int = 2) -> Iterator[None]:
    """Within the block these errors end the command, but for what the group of commands answers itself."""
    try:
        yield
    except errors as error:
        if cannot_write(error) or isinstance(error, BrokenPipeError):
            raise
        wrong(in_a_line(error) if isinstance(error, OSError) else str(error), exit_code)


def wrong(message: str, exit_code: int = 2) -> NoReturn:
    """Print why on stderr, and end; exit code 2: nothing was started."""
    typer.echo(message, err=True)
    raise typer.Exit(exit_code)


def goes_with(needed: str, given: bool, **options: object) -> None:
    """Exit code 2 if one of these options, by its name, has a value and what it goes with is not given."""
    name = next((name for name, value in options.items() if value not in (None, False)), None)
    if name is not None and not given:
        wrong(f"--{name.strip('_').replace('_', '-')}: goes with {needed}")


def print_json(value: Any) -> None:
    """Print plain data or a dataclass as JSON; a number that JSON does not have, such as infinity, becomes null."""
    typer.echo(to_json(value, indent=1, inf_nan_mode="null").decode())
