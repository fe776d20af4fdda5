"""The command line: `python -m orchestrator COMMAND`. Heavy modules are imported inside the commands that need them."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from lm.command_group import CommandGroup, Version
from orchestrator.commands import files, runs
from orchestrator.commands.files import export, init
from orchestrator.commands.plan import plan, schema
from orchestrator.commands.status import reproduce, status, why
from orchestrator.commands.sweep import report, sweep

app = typer.Typer(
    cls=CommandGroup,
    # A shell completes a command, `orchestrator`, and not a module that another command runs.
    add_completion=Path(sys.argv[0]).name != "__main__.py",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback()
def _main(version: Version = False) -> None:
    """Run many trials of language models and report what they show.

    Exit codes: 0 complete, 1 trials failed or diverged, 2 a wrong file or command line and nothing was started, 3 the
    budget was reached first, 4 Ray did not start, or died twice, 5 the disk is full or a folder cannot be written, 130
    or 143 interrupted (everything can be resumed).
    """


for command in (init, plan, sweep, status, report, why, reproduce, export, schema):
    app.command()(command)
app.add_typer(runs.app, name="runs")
app.add_typer(files.app, name="sweeps")

if __name__ == "__main__":
    app(prog_name="python -m orchestrator")
