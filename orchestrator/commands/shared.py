"""What commands share: their common arguments, how a sweep is opened, how an error of the user ends."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from orchestrator.sweep import ScaledSweep


def sweep_files(incomplete: str) -> list[str]:
    """Completes the path of a sweep file: beside what is typed, and in `sweeps/`."""
    start = Path(incomplete or ".")
    folders = {start if incomplete.endswith("/") or not incomplete else start.parent, Path("sweeps")}
    found = {str(path) for folder in folders for path in folder.glob("*.yaml")}
    return sorted(path for path in found if path.startswith(incomplete))


def _scales(context: typer.Context, incomplete: str) -> list[str]:
    return [name for name in _names(context, of_variants=False) if name.startswith(incomplete)]


def variants_of(context: typer.Context, incomplete: str) -> list[str]:
    """Completes a variant of the sweep on the line."""
    return [name for name in _names(context, of_variants=True) if name.startswith(incomplete)]


def _names(context: typer.Context, *, of_variants: bool) -> list[str]:
    from orchestrator.sweep import SweepError, read_sweep

    # An option that still lacks its value keeps the parser from giving the line's other words their names.
    file = context.params.get("file") or next((word for word in context.args if word.endswith(".yaml")), None)
    try:
        sweep = read_sweep(Path(file or ""))
        scaled = sweep.at(context.params.get("scale") or sweep.scale_names[0])
    except SweepError:
        return []  # no file yet, or a wrong one: the command itself will say so
    return [variant.name for variant in scaled.variants] if of_variants else list(sweep.scale_names)


def _written(context: typer.Context, runs: Path) -> Path:
    from orchestrator.errors import closest

    if not context.resilient_parsing and runs != Path("runs") and not runs.is_dir():
        near = closest(runs.name, (path.name for path in runs.parent.glob("*") if path.is_dir()))
        hint = "" if near is None else f" (did you mean {str(runs.parent / near)!r}?)"
        wrong(f"--runs: no folder {str(runs)!r}{hint}")
    return runs


SweepFile = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="a sweep file, such as sweeps/awd_ablation.yaml", autocompletion=sweep_files),
]
ScaleName = Annotated[
    str | None,
    typer.Option("--scale", help="a scale of the file [default: what fits the machine]", autocompletion=_scales),
]
ReportsFolder = Annotated[Path, typer.Option("--reports", help="the folder of the reports")]
RunsFolder = Annotated[Path, typer.Option("--runs", help="the folder of the records")]
WrittenRuns = Annotated[Path, typer.Option("--runs", help="the folder of the records", callback=_written)]
"""Of a command that only reads: a folder that is named is there; the default one may not have been written yet."""
AsJson = Annotated[bool, typer.Option("--json", help="print JSON, for scripts; its keys stay as they are")]
Cpus = Annotated[
    float | None, typer.Option("--cpus", help="of a trial, which trains with so many threads [default: the file's]")
]
Gpus = Annotated[
    str | None,
    typer.Option("--gpus", help="of a trial: a number, or auto: 0.25 where there is one, else 0 [default: the file's]"),
]
Key = Annotated[str, typer.Argument(metavar="KEY", help="a trial's key, or as much of it as tells it from others")]


def opened(file: Path, scale: str | None, *, silent: bool = False) -> ScaledSweep:
    """The sweep at the asked or fitting scale, which is printed; exit code 2, errors on stderr, where it is wrong."""
    from lm.data import CorpusError
    from orchestrator.execute.opening import open_sweep
    from orchestrator.sweep import SweepError

    with refused(SweepError, CorpusError):
        sweep, why = open_sweep(file, scale)
    if not silent:
        typer.echo(f"{sweep.name} at scale {sweep.scale} ({why}): {sweep.question}")
    return sweep


@contextmanager
def refused(*errors: type[Exception], exit_code: int = 2) -> Iterator[None]:
    """Within the block these errors end the command: a line on stderr, in their own words, and this exit code.

    What cannot be written is not among them: the group of commands ends with exit code 5.
    """
    try:
        yield
    except errors as error:
        from lm.files import cannot_write, in_a_line

        if cannot_write(error):
            raise
        wrong(in_a_line(error) if isinstance(error, OSError) else str(error), exit_code)


def wrong(message: str, exit_code: int = 2) -> NoReturn:
    """End with exit code 2, by default: the sweep file or the command line is wrong, and nothing was started."""
    typer.echo(message, err=True)
    raise typer.Exit(exit_code)


def print_json(value: Any) -> None:
    """Print plain data or a dataclass as JSON; a number that JSON does not have, such as infinity, becomes null."""
    data = dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
    typer.echo(json.dumps(_finite(data), indent=1, ensure_ascii=False))


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if abs(value) < float("inf") else None
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
        case _:
            return value
