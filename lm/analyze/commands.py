"""`python -m lm analyze`: what settled trials say beyond their perplexity, one subcommand a kind."""

from __future__ import annotations

import typer

from lm.analyze.of_weights import code_errors, next_words, rank, subspace
from lm.command_group import CommandGroup

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@app.callback()
def _main() -> None:
    """What settled trials say beyond their perplexity."""


app.command("rank")(rank)
app.command("subspace")(subspace)
app.command("next_words")(next_words)
app.command("code_errors")(code_errors)
