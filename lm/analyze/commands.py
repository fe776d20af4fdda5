"""`python -m lm analyze KIND RUN...`: what settled trials say beyond perplexity, one subcommand a kind."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lm.analyzed import Found, NextWordsFound, trained_stage
from lm.command_group import CommandGroup, Device, Threads, grant_threads, refuse
from lm.record import Split, read_record
from lm.spec import Analysis, CodeErrorsAnalysis, NextWordsAnalysis, RankAnalysis, SubspaceAnalysis

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, add_completion=False, rich_markup_mode=None)

Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", exists=True, file_okay=False, help="folders of trials")]
OnSplit = Annotated[Split, typer.Option(help="the text that is read: valid or test")]
Stage = Annotated[str | None, typer.Option(help="the stage that is asked; the last one if not said")]


@app.callback()
def _main() -> None:
    """What settled trials say beyond their perplexity."""


@app.command()
def ensemble(runs: Runs, split: OnSplit = "test", stage: Stage = None) -> None:
    """Perplexity of the mean of several models' probabilities, from the losses that they left."""
    from lm.by_token.ensemble import ensemble as ensemble_of
    from lm.by_token.losses import check_same_text, read_run

    if len(runs) < 2 or len(set(runs)) < len(runs):
        refuse(f"RUN: should be two runs or more, each once, got {' '.join(map(str, runs))}")
    try:
        members = [read_run(run, split, stage) for run in runs]
        check_same_text(members)
    except (ValueError, OSError) as error:
        refuse(str(error))
    found = ensemble_of([member.losses.nats for member in members])
    for member, perplexity in zip(members, found.members, strict=True):
        typer.echo(f"{member.folder} ({member.stage}): {split} perplexity {perplexity:.3f}")
    typer.echo(f"mean of {len(members)}: {found.mean:.3f}")
    typer.echo(f"ensemble: {found.perplexity:.3f} ({found.change:+.2%})")


@app.command()
def words(
    runs: Runs,
    split: OnSplit = "test",
    stage: Stage = None,
    most: Annotated[int, typer.Option(min=1, help="words to list on either side")] = 20,
) -> None:
    """Words that the second run gains and loses over the first; of one run, what its neural cache gains and loses.

    Nats saved: the first run's loss less the second's, summed over all occurrences of the word.
    """
    from lm.by_token.losses import check_same_text, read_cache_run, read_run
    from lm.by_token.words import vocabulary_of, word_savings

    if len(runs) > 2:
        refuse(f"RUN: should be one run with a neural cache, or two, got {' '.join(map(str, runs))}")
    try:
        if len(runs) == 1:
            run, plain_N = read_cache_run(runs[0], split)
            token_N, saved_N = run.losses.token, plain_N - run.losses.nats
        else:
            first, run = (read_run(path, split, stage) for path in runs)
            check_same_text([first, run])
            token_N, saved_N = run.losses.token, first.losses.nats - run.losses.nats
        found = word_savings([(token_N, saved_N)], vocabulary_of(run.record))
    except (ValueError, OSError) as error:
        refuse(str(error))
    typer.echo(f"{token_N.size:,} tokens of {split}, {found.total:,.2f} nats saved")
    for title, listed in (("gained", found.most(most, helped=True)), ("lost", found.most(most, helped=False))):
        typer.echo(f"{title:<24}{'count':>10}{'nats saved':>14}")
        for word in listed:
            typer.echo(f"{word.text:<24}{word.count:>10,}{word.nats:>14,.2f}")


@app.command()
def rank(
    runs: Runs,
    positions: Annotated[int, typer.Option(min=1, max=1_000_000, help="rows of the matrix")] = 20_000,
    split: OnSplit = "test",
    stage: Stage = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Print the rank of the matrix of log-probabilities: what a softmax cannot exceed and a mixture can."""
    _answer(RankAnalysis(kind="rank", positions=positions, split=split), runs, stage, device, threads)


@app.command()
def subspace(runs: Runs, stage: Stage = None, device: Device = "auto", threads: Threads = None) -> None:
    """Print how far the output matrix's column space lies from the embedding's."""
    _answer(SubspaceAnalysis(kind="subspace"), runs, stage, device, threads)


@app.command("next_words")
def next_words(
    runs: Runs,
    context: Annotated[list[str] | None, typer.Option(help="words of the text; may be given again")] = None,
    words: Annotated[int, typer.Option(min=1, max=1000, help="how many next words of each context")] = 10,
    split: OnSplit = "test",
    stage: Stage = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Print the most probable next words in contexts, side by side, and what frequent and similar words get."""
    if not all(map(str.split, context or ())):
        refuse("--context: should have a word, got blanks")
    asked = NextWordsAnalysis(kind="next_words", contexts=tuple(context or ()), words=words, split=split)
    answers = _answer(asked, runs, stage, device, threads)
    found = {run: answer for run, answer in answers.items() if isinstance(answer, NextWordsFound)}
    for places in zip(*(answer.contexts for answer in found.values()), strict=True):
        typer.echo(f"\n{places[0].context} → {places[0].next}")
        best = zip(*(place.words for place in places), strict=True)
        _print([[*found], *([f"{word} {probability:.3f}" for word, probability in row] for row in best)])
    if left_out := next(iter(found.values())).left_out:
        refuse(f"--context: the text does not have {'; '.join(map(repr, left_out))}")


@app.command("code_errors")
def code_errors(
    runs: Runs, split: OnSplit = "test", stage: Stage = None, device: Device = "auto", threads: Threads = None
) -> None:
    """Print how many bits of an ecoc head are wrong, and how often the word, corrected and not."""
    _answer(CodeErrorsAnalysis(kind="code_errors", split=split), runs, stage, device, threads)


def _answer(
    settings: Analysis, runs: list[Path], stage: str | None, device: str, threads: int | None
) -> dict[str, Found]:
    """Ask every run, or read what it keeps of the same question, and print a column of numbers for each."""
    granted = grant_threads(threads)
    from lm.analyze.ask import analyze

    answers: dict[str, Found] = {}
    for run in runs:
        try:
            record = read_record(run)
            if record is None:
                refuse(f"{run}: no record.json; only a settled trial can be analyzed")
            of = stage or trained_stage(record.spec)
            answers[str(run)] = analyze(settings, record, run, stage=of, device=device, threads=granted)
        except ValueError as error:  # also of a corpus that is missing
            refuse(str(error))
    columns = [answer.numbers() for answer in answers.values()]
    names = dict.fromkeys(name for numbers in columns for name in numbers)
    _print([["", *answers], *([name, *(_shown(numbers.get(name)) for numbers in columns)] for name in names)])
    return answers


def _print(rows: list[list[str]]) -> None:
    """A table, its first column to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        typer.echo("  ".join([first.ljust(widths[0]), *cells]))


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:,.5g}" if value != int(value) else f"{value:,.0f}"
