"""`python -m lm analyze KIND RUN...`: what trained weights say beyond perplexity, one subcommand a kind."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from lm.command_group import Device, Threads, grant_threads, refuse
from lm.record import read_record
from lm.spec import Analysis, RankAnalysis, SubspaceAnalysis

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None)

Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", exists=True, file_okay=False)]
Split = Annotated[str, typer.Option(help="the text that is read: valid or test")]
Stage = Annotated[str | None, typer.Option(help="whose weights; the last stage that trained if not said")]


@app.command()
def rank(
    runs: Runs,
    positions: Annotated[int, typer.Option(min=1, max=1_000_000, help="rows of the matrix")] = 20_000,
    split: Split = "test",
    stage: Stage = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Print the rank of the matrix of log-probabilities: what a softmax cannot exceed and a mixture can."""
    _answer(RankAnalysis(kind="rank", positions=positions, split=_split(split)), runs, stage, device, threads)


@app.command()
def subspace(runs: Runs, stage: Stage = None, device: Device = "auto", threads: Threads = None) -> None:
    """Print how far the output matrix's column space lies from the embedding's."""
    _answer(SubspaceAnalysis(kind="subspace"), runs, stage, device, threads)


def _split(name: str) -> Literal["valid", "test"]:
    if name not in ("valid", "test"):
        refuse(f"--split: should be valid or test, got {name!r}")
    return "valid" if name == "valid" else "test"


def _answer(settings: Analysis, runs: list[Path], stage: str | None, device: str, threads: int | None) -> None:
    """Ask every run, or read what it keeps of the same question, and print a column of numbers for each."""
    granted = grant_threads(threads)
    from lm.analyze.ask import analyze
    from lm.analyzed import trained_stage

    columns: dict[str, dict[str, float]] = {}
    for run in runs:
        try:
            record = read_record(run)
            if record is None:
                refuse(f"{run}: no record.json; only a settled trial can be analyzed")
            of = stage or trained_stage(record.spec)
            columns[str(run)] = analyze(settings, record, run, stage=of, device=device, threads=granted).numbers()
        except ValueError as error:  # also of a corpus that is missing
            refuse(str(error))
    names = dict.fromkeys(name for numbers in columns.values() for name in numbers)
    rows = [["", *columns]]
    rows += [[name, *(_shown(numbers.get(name)) for numbers in columns.values())] for name in names]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        typer.echo("  ".join([first.ljust(widths[0]), *cells]))


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:,.5g}" if value != int(value) else f"{value:,.0f}"
