"""A group of commands: how they complain about a value, a name or a full disk; the options that many of them have."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer
from pydantic import ValidationError
from typer.core import TyperGroup

from lm import __version__
from lm.cpus import cpu_count
from lm.files import cannot_write, in_a_line
from lm.spec import Part
from lm.validation import problems_of

if TYPE_CHECKING:
    from lm.record import Record

Form = TypeVar("Form", bound=Part)
T = TypeVar("T")

_NUMBERS = {"int_parsing": "should be a whole number", "float_parsing": "should be a number"}
CANNOT_WRITE = 5
"""The exit code of a command for which the disk is full, or that cannot write a folder."""


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"lm-ablation {__version__}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version, and do no more")
]
"""An option of a group's callback."""

Device = Annotated[str, typer.Option(help="auto, cpu or cuda")]
Threads = Annotated[
    int | None, typer.Option(min=1, help="torch threads; $OMP_NUM_THREADS if not said, else as many as CPUs granted")
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", exists=True, file_okay=False)]
"""The folder of a settled trial."""
RunFolders = Annotated[
    list[Path], typer.Argument(metavar="RUN...", exists=True, file_okay=False, help="folders of trials")
]
StageName = Annotated[str | None, typer.Option(help="whose weights; the last stage that trained if not said")]


def settled_record(run: Path) -> Record:
    """The record of a settled trial; exit code 2 where there is none, or it is damaged."""
    from lm.record import read_record  # loads Arrow, which `--help` does not need

    try:
        record = read_record(run)
    except ValueError as error:
        refuse(str(error))
    if record is None:
        refuse(f"{run}: no record.json; expected the folder of a settled trial")
    return record


def checked(form: type[Form], values: dict[str, Any]) -> Form:
    """The part of a spec that options make; exit code 2 with a line for each option that is wrong."""
    try:
        return form.model_validate(values)
    except ValidationError as error:
        problems = problems_of(error, form)
        refuse("\n".join(f"--{str(one.place[0]).replace('_', '-')}: {one.text}" for one in problems))


def numbers(option: str, text: str, kind: Callable[[str], T]) -> tuple[T, ...]:
    """The numbers of an option, written with commas; exit code 2 for anything else."""
    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError:
        refuse(f"{option}: expected numbers with commas, such as 1 or 1,2, got {text!r}")


def grant_threads(threads: int | None) -> int:
    """How many torch threads: as asked, else as $OMP_NUM_THREADS says, else the CPUs granted.

    Sets OMP_NUM_THREADS, which torch reads when it is imported, so call it before.
    """
    said = os.environ.get("OMP_NUM_THREADS", "")
    granted = threads or (int(said) if said.isdigit() and int(said) else cpu_count())
    os.environ["OMP_NUM_THREADS"] = str(granted)
    return granted


def refuse(message: str) -> NoReturn:
    """End with exit code 2 and what is wrong."""
    print(message, file=sys.stderr)
    raise SystemExit(2)


class CommandGroup(TyperGroup):
    """Typer checks a limit, such as `min=1`, through pydantic, and tells the rule alone."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command of the line; BadParameter names the word.

        Exit code 2 for a name that is not UTF-8, exit code 5 for what cannot be written, each with one line.
        """
        _check_names()
        try:
            with _said_if_it_cannot_be_written():
                return super().invoke(ctx)
        except typer.BadParameter as error:
            if isinstance(error.__cause__, ValidationError):
                details = error.__cause__.errors(include_url=False)[0]
                got, rule = details["input"], _NUMBERS.get(details["type"], error.message)
                said = rule.removeprefix("Value error, ").removesuffix(".").replace("Input should", "should", 1)
                error.message = said if repr(got) in said else f"{said}, got {got}"
                error.__cause__ = None  # it is said, once, though this group may lie within another
            raise

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Read the line; `--help` and `--version` write here already."""
        with _said_if_it_cannot_be_written():
            return super().make_context(*arguments, **options)


@contextmanager
def _said_if_it_cannot_be_written() -> Iterator[None]:
    """Exit code 5 and one line for what cannot be written."""
    try:
        yield
    except OSError as error:
        if not cannot_write(error, broadly=True):
            raise
        typer.echo(in_a_line(error), err=True)
        try:
            sys.stdout.flush()
        except OSError:  # else Python would try again when it ends, and complain
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(CANNOT_WRITE) from None


def _check_names() -> None:
    """Exit code 2 if a word of the line, or the working directory, has bytes that are not UTF-8.

    Records, Parquet files and pages hold names as UTF-8, so nothing could be written of such a one.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name may also come from a folder that is listed
    try:
        here = str(Path.cwd())
    except OSError as error:
        typer.echo(f"working directory: {error.strerror}", err=True)
        raise typer.Exit(2) from None
    for what, name in (("working directory", here), *(("argument", word) for word in sys.argv[1:])):
        shown = name.encode(errors="backslashreplace").decode()
        if shown != name:
            typer.echo(f"{what}: expected a name in UTF-8, got {shown}", err=True)
            raise typer.Exit(2)
