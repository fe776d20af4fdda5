"""`python -m lm corpus`: list, check and fetch corpora."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from lm.data.corpora import PUBLISHED, PYDOC, Archive, find
from lm.data.download import fetch as fetch_files
from lm.data.loading import load, locate
from lm.data.text import CorpusError
from lm.spec import Corpus

app = typer.Typer(
    name="corpus",
    help="List, check and fetch corpora.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    try:
        yield
    except CorpusError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from error


@app.command("list")
def list_corpora() -> None:
    """Name, size, vocabulary and place of every named corpus."""
    with _errors_in_one_line():
        facts = load(Corpus(name=PYDOC)).facts
    rows: list[list[str]] = [["corpus", "train", "valid", "test", "vocabulary", "where"]]
    sizes = [facts.train_tokens, facts.valid_tokens, facts.test_tokens, facts.vocabulary_size]
    rows.append([PYDOC, *(f"{size:,}" for size in sizes), "made from this Python's own documentation"])
    for name, published in PUBLISHED.items():
        sizes = [*published.tokens.values(), published.vocabulary_size]
        rows.append([name, *(f"{size:,}" for size in sizes), _where(name)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *counts, where in rows:
        numbers = "  ".join(count.rjust(width) for count, width in zip(counts, widths[1:-1], strict=True))
        typer.echo(f"{name.ljust(widths[0])}  {numbers}  {where}")
    typer.echo("Tokens count one <eos> a line. Any folder with train.txt, valid.txt and test.txt is a corpus too.")


@app.command()
def check(name: str) -> None:
    """Check a corpus or a folder, and say what it holds."""
    with _errors_in_one_line():
        where = "this Python's pydoc_data" if name == PYDOC else str(locate(name, download=False))
        facts = load(Corpus(name=name), download=False).facts
    typer.echo(f"{name}: in order" if name in PUBLISHED or name == PYDOC else f"{name}: readable")
    typer.echo(f"  where        {where}")
    typer.echo(f"  tokens       {facts.train_tokens:,} train, {facts.valid_tokens:,} valid, {facts.test_tokens:,} test")
    typer.echo(f"  vocabulary   {facts.vocabulary_size:,}: {facts.vocabulary_rule}")
    typer.echo(f"  fingerprint  {facts.fingerprint}")


@app.command()
def fetch(name: str) -> None:
    """Download a named corpus unless it is at hand."""
    with _errors_in_one_line():
        if name == PYDOC:
            typer.echo(f"{PYDOC}: needs no files")
            return
        if name in PUBLISHED and find(name) is None and isinstance(PUBLISHED[name].source, Archive):
            typer.echo(f"{name}: its first address may be gone and this download is untested", err=True)
        where = fetch_files(name) if name in PUBLISHED else locate(name, download=False)
        typer.echo(f"{name}: {where}")


def _where(name: str) -> str:
    try:
        folder = find(name)
    except CorpusError as error:
        return f"incomplete: {error}"
    if folder is not None:
        return str(folder)
    note = " (its address may be gone: untested)" if isinstance(PUBLISHED[name].source, Archive) else ""
    return f"not here; python -m lm corpus fetch {name}{note}"
