"""`coverage`: which tables and figures of the papers a sweep reaches, and what was run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.commands import shared

_PAGE = Path("docs/coverage.md")


def coverage(
    sweeps: Annotated[Path, typer.Option(exists=True, file_okay=False, help="the folder of sweep files")] = Path(
        "sweeps"
    ),
    reports: Annotated[Path, typer.Option(exists=True, file_okay=False, help="the folder of reports")] = Path(
        "reports"
    ),
) -> None:
    """Print which published tables and figures are covered, which docs/coverage.md holds."""
    from orchestrator.report.coverage import coverage as rows_of
    from orchestrator.report.coverage import coverage_text

    with shared.refused(ValueError):
        text = coverage_text(rows_of(sweeps, reports), _PAGE)
    typer.echo(text, nl=False)
