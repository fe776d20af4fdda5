"""`python -m lm corpus`: list, check, fetch and make corpora."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from lm.data.corpora import PUBLISHED, PYDOC, Archive, find
from lm.data.download import fetch as fetch_files
from lm.data.loading import load, locate
from lm.data.make import Tokenizer, make_corpus
from lm.data.suitable import corpus_warnings
from lm.data.text import SPLITS, CorpusError
from lm.spec import Corpus

app = typer.Typer(
    name="corpus",
    help="List, check, fetch and make corpora.",
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
    rows = [["corpus", "train", "valid", "test", "vocabulary", "where"]]
    sizes = [facts.train_tokens, facts.valid_tokens, facts.test_tokens, facts.vocabulary_size]
    rows.append([PYDOC, *(f"{size:,}" for size in sizes), "made from this Python's own documentation"])
    for name, published in PUBLISHED.items():
        sizes = [*published.tokens.values(), published.vocabulary_size]
        rows.append([name, *(f"{size:,}" for size in sizes), _where(name)])
    _print_table(rows)
    typer.echo("Tokens count one <eos> a line. Any folder with train.txt, valid.txt and test.txt is a corpus too.")


@app.command()
def check(name: str) -> None:
    """Check a corpus or a folder, and say what it holds."""
    with _errors_in_one_line():
        where = "this Python's pydoc_data" if name == PYDOC else str(locate(name, download=False))
        corpus = load(Corpus(name=name), download=False)
    facts = corpus.facts
    typer.echo(f"{name}: in order" if name in PUBLISHED or name == PYDOC else f"{name}: readable")
    typer.echo(f"  where        {where}")
    typer.echo(f"  tokens       {facts.train_tokens:,} train, {facts.valid_tokens:,} valid, {facts.test_tokens:,} test")
    typer.echo(f"  vocabulary   {facts.vocabulary_size:,}: {facts.vocabulary_rule}")
    typer.echo(f"  fingerprint  {facts.fingerprint}")
    for warning in corpus_warnings(corpus):
        typer.echo(f"warning: {warning}", err=True)


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


@app.command()
def make(
    source: Annotated[Path, typer.Argument(metavar="TEXT", help="a file of UTF-8 text, or a folder of .txt files")],
    out: Annotated[Path, typer.Option(help="the corpus's folder, which must be new")],
    split: Annotated[str, typer.Option(help="shares of the lines in train, valid and test")] = "80,10,10",
    lower: Annotated[bool, typer.Option("--lower", help="lower case")] = False,
    tokenize: Annotated[
        bool, typer.Option("--tokenize", help="part words, numbers and marks [default: at white space]")
    ] = False,
    numbers: Annotated[
        bool, typer.Option("--numbers", help="write N for every number, as in the Penn Treebank")
    ] = False,
    min_count: Annotated[
        int | None, typer.Option(min=1, help="words that training has less often become <unk> [default: none does]")
    ] = None,
    vocabulary_cap: Annotated[
        int | None, typer.Option(min=3, help="keep this many words of training, with <eos> and <unk>")
    ] = None,
) -> None:
    """Make a corpus of raw text: three contiguous stretches of its lines, for training, validation and test."""
    with _errors_in_one_line():
        words = Tokenizer(lower=lower, tokenize=tokenize, numbers=numbers)
        shares = _shares(split)
        splits = make_corpus(source, out, words, shares=shares, min_count=min_count, vocabulary_cap=vocabulary_cap)
        warnings = corpus_warnings(load(Corpus(name=str(out)), download=False))
    rows = [["split", "lines", "tokens", "types", "<unk>", "not in training, before <unk>"]]
    for made in splits:
        counts = [f"{count:,}" for count in (made.lines, made.tokens, made.types)]
        unseen = "" if made.name == "train" else f"{made.unseen / made.tokens:.1%}"
        rows.append([made.name, *counts, f"{made.unknown / made.tokens:.1%}", unseen])
    _print_table(rows)
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)
    typer.echo(f"In a sweep file:\nbase:\n  corpus: {{name: {json.dumps(str(out), ensure_ascii=False)}}}")


def _shares(text: str) -> list[float]:
    """Three shares; CorpusError for anything else."""
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        shares = []
    if len(shares) != len(SPLITS) or not all(share > 0.0 for share in shares) or math.isinf(sum(shares)):
        raise CorpusError(f"--split: expected three numbers above 0, such as 80,10,10, got {text!r}")
    return shares


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    """Rows under the first one, columns as wide as needed: numbers between a name and a remark."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *counts, remark in rows:
        numbers = "  ".join(count.rjust(width) for count, width in zip(counts, widths[1:-1], strict=True))
        typer.echo(f"{name.ljust(widths[0])}  {numbers}  {remark}")


def _where(name: str) -> str:
    try:
        folder = find(name)
    except CorpusError as error:
        return f"incomplete: {error}"
    if folder is not None:
        return str(folder)
    note = " (its address may be gone: untested)" if isinstance(PUBLISHED[name].source, Archive) else ""
    return f"not here; python -m lm corpus fetch {name}{note}"
