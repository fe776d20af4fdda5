"""`python -m lm codebook`: build a codebook and say what it is worth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import Field

from lm.spec import (
    CodebookSpec,
    Corpus,
    EcocHead,
    EmbeddingCode,
    Embeddings,
    HybridCode,
    Part,
    SimHashCode,
    TrainSpec,
)
from lm.spec_file import read_spec_file

if TYPE_CHECKING:
    from lm.codebooks.statistics import CodebookStatistics


class CodebookQuestion(Part):
    """A codebook of a corpus; likeness of words is measured by `embeddings`, the codebook's own where not given."""

    corpus: Corpus
    codebook: CodebookSpec
    embeddings: Embeddings | None = Field(default=None)


def codebook(
    spec_file: Annotated[Path, typer.Argument(metavar="SPEC.yaml", exists=True, dir_okay=False)],
) -> None:
    """Build the codebook of SPEC.yaml and print how far apart its codewords and its bits are.

    SPEC.yaml is a training spec whose head is ecoc, or only `corpus`, `codebook` and, if wished, `embeddings`.
    """
    from lm.codebooks.build import build_codebook
    from lm.codebooks.embeddings import word_vectors
    from lm.codebooks.statistics import codebook_statistics
    from lm.data import load
    from lm.files import cannot_write

    try:
        question = read_spec_file(spec_file, _question, CodebookQuestion, TrainSpec)
    except (ValueError, OSError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    try:
        corpus = load(question.corpus)
        built = build_codebook(question.codebook, corpus)
        by = question.embeddings or _own_embeddings(question.codebook)
        statistics = codebook_statistics(built, None if by is None else word_vectors(by, corpus))
    except (ValueError, OSError) as error:
        if cannot_write(error):
            raise
        typer.echo(f"{spec_file}: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(f"{question.codebook.kind} code of {corpus.name}, fingerprint {built.fingerprint}")
    for name, value in _rows(statistics):
        typer.echo(f"  {name:<28}{value}")


def _question(asked: object) -> CodebookQuestion:
    """ValueError, as ValidationError is one too, where what was asked has neither form."""
    if isinstance(asked, dict) and "codebook" in asked:
        return CodebookQuestion.model_validate(asked)
    spec = TrainSpec.model_validate(asked)
    if not isinstance(spec.head, EcocHead):
        raise ValueError(f"head: kind ecoc has a codebook, got kind {spec.head.kind}")
    return CodebookQuestion(corpus=spec.corpus, codebook=spec.head.codebook)


def _own_embeddings(spec: CodebookSpec) -> Embeddings | None:
    return spec.embeddings if isinstance(spec, EmbeddingCode | SimHashCode | HybridCode) else None


def _rows(found: CodebookStatistics) -> Iterator[tuple[str, str]]:
    yield "words", f"{found.words:,}"
    yield "bits", f"{found.bits:,}"
    yield "duplicates", f"{found.duplicates:,}"
    yield "minimum distance", f"{found.minimum_distance:,} bits"
    yield "correctable errors", f"{found.correctable_errors:,} bits"
    yield "mean distance", f"{found.mean_distance:,.2f} bits, of {found.pairs:,} random pairs"
    yield "column means", f"{found.lowest_column_mean:.3f} to {found.highest_column_mean:.3f}"
    yield "column correlation", f"{found.column_correlation:.3f} at most"
    if (near := found.neighbours) is not None:
        means = f"{near.mean:,.1f} bits (first hundred {near.first:,.1f}, last {near.last:,.1f})"
        yield "neighbours in order", means
    if found.rank_correlation is not None:
        yield "cosine and nearness", f"{found.rank_correlation:.3f} (Spearman)"
