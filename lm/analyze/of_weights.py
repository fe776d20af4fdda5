"""The kinds of `python -m lm analyze` that need trained weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lm.analyzed import Found, NextWordsFound, trained_stage
from lm.command_group import Device, RunFolders, StageName, Threads, grant_threads, refuse, settled_record
from lm.data import load
from lm.record import Split
from lm.spec import Analysis, CodeErrorsAnalysis, Corpus, NextWordsAnalysis, RankAnalysis, SubspaceAnalysis

OnSplit = Annotated[Split, typer.Option(help="the text that is read: valid or test")]


def rank(
    runs: RunFolders,
    positions: Annotated[int, typer.Option(min=1, max=1_000_000, help="rows of the matrix")] = 20_000,
    split: OnSplit = "test",
    stage: StageName = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Print the rank of the matrix of log-probabilities: what a softmax cannot exceed and a mixture can."""
    asked = RankAnalysis(kind="rank", positions=positions, split=split)
    _show(_ask(asked, runs, stage, device, threads))


def subspace(runs: RunFolders, stage: StageName = None, device: Device = "auto", threads: Threads = None) -> None:
    """Print how far the output matrix's column space lies from the embedding's."""
    _show(_ask(SubspaceAnalysis(kind="subspace"), runs, stage, device, threads))


def next_words(
    runs: RunFolders,
    context: Annotated[list[str] | None, typer.Option(help="words of the text; may be given again")] = None,
    words: Annotated[int, typer.Option(min=1, max=1000, help="how many next words of each context")] = 10,
    split: OnSplit = "test",
    stage: StageName = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Print the most probable next words in contexts, side by side, and what frequent and similar words get."""
    if not all(map(str.split, context or ())):
        refuse("--context: should have a word, got blanks")
    asked = NextWordsAnalysis(kind="next_words", contexts=tuple(context or ()), words=words, split=split)
    records = [settled_record(run) for run in runs]
    if len({record.corpus.fingerprint for record in records}) > 1:
        refuse(f"RUN: should all be of one text and vocabulary, got {' '.join(map(str, runs))}")
    _check_contexts(asked, records[0].spec.corpus)
    answers = _ask(asked, runs, stage, device, threads)
    found = {run: answer for run, answer in answers.items() if isinstance(answer, NextWordsFound)}
    _show(answers)
    for places in zip(*(answer.contexts for answer in found.values()), strict=True):
        typer.echo(f"\n{places[0].context} → {places[0].next}")
        best = zip(*(place.words for place in places), strict=True)
        _print([[*found], *([f"{word} {probability:.3f}" for word, probability in row] for row in best)])


def _check_contexts(asked: NextWordsAnalysis, spec: Corpus) -> None:
    """Refuse what the text does not have, before anything is read that takes minutes."""
    from lm.analyze.next_words import places_of  # loads torch

    try:
        corpus = load(spec)
    except ValueError as error:
        refuse(str(error))
    text = corpus.valid if asked.split == "valid" else corpus.test
    _, left_out = places_of(asked.contexts, text, corpus.vocabulary)
    if left_out:
        refuse(f"--context: the text does not have {'; '.join(map(repr, dict.fromkeys(left_out)))}")


def code_errors(
    runs: RunFolders, split: OnSplit = "test", stage: StageName = None, device: Device = "auto", threads: Threads = None
) -> None:
    """Print how many bits of an ecoc head are wrong, and how often the word, corrected and not."""
    asked = CodeErrorsAnalysis(kind="code_errors", split=split)
    _show(_ask(asked, runs, stage, device, threads))


def _ask(settings: Analysis, runs: list[Path], stage: str | None, device: str, threads: int | None) -> dict[str, Found]:
    """Ask every run, or read what it keeps of the same question; the answers by its folder."""
    granted = grant_threads(threads)
    from lm.analyze.ask import analyze

    answers: dict[str, Found] = {}
    for run in runs:
        try:
            record = settled_record(run)
            of = trained_stage(record) if stage is None else stage
            answers[str(run)] = analyze(settings, record, run, stage=of, device=device, threads=granted)
        except ValueError as error:  # also of a corpus that is missing
            refuse(str(error))
    return answers


def _show(answers: dict[str, Found]) -> None:
    """Print a column of numbers for each run."""
    columns = [answer.numbers() for answer in answers.values()]
    names = dict.fromkeys(name for numbers in columns for name in numbers)
    _print([["", *answers], *([name, *(_shown(numbers.get(name)) for numbers in columns)] for name in names)])


def _print(rows: list[list[str]]) -> None:
    """A table, its first column to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        typer.echo("  ".join([first.ljust(widths[0]), *cells]))


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if float(value).is_integer() else f"{value:,.5g}"
