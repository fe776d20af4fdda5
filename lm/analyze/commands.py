"""`python -m lm analyze`: what settled trials say beyond their perplexity, one subcommand a kind."""

from __future__ import annotations

from typing import Annotated

import typer

from lm.analyze.of_weights import code_errors, next_words, rank, subspace
from lm.command_group import CommandGroup, RunFolders, refuse
from lm.record import Split

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, add_completion=False, rich_markup_mode=None)

OnSplit = Annotated[Split, typer.Option(help="test or valid")]
ScoredStage = Annotated[str | None, typer.Option(help="the stage whose losses are read; each run's last if not said")]


@app.callback()
def _main() -> None:
    """What settled trials say beyond their perplexity."""


@app.command()
def ensemble(runs: RunFolders, split: OnSplit = "test", stage: ScoredStage = None) -> None:
    """Perplexity of the mean of several models' probabilities, from the losses that they left."""
    from lm.by_token.ensemble import ensemble as ensemble_of
    from lm.by_token.losses import check_same_text, read_run

    if len(runs) < 2 or len({run.resolve() for run in runs}) < len(runs):
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
    runs: RunFolders,
    split: OnSplit = "test",
    stage: ScoredStage = None,
    most: Annotated[int, typer.Option(min=1, help="words to list on either side")] = 20,
) -> None:
    """Words that the second run gains and loses over the first; of one run, what its neural cache gains and loses.

    Nats saved: the first run's loss less the second's, summed over all occurrences of the word.
    """
    from lm.by_token.losses import check_same_text, read_cache_run, read_run
    from lm.by_token.words import vocabulary_of, word_savings

    if len(runs) > 2:
        refuse(f"RUN: should be one run with a neural cache, or two, got {' '.join(map(str, runs))}")
    if len(runs) == 1 and stage not in (None, "cache"):
        refuse(f"--stage: goes with two runs; of one its neural cache is read, got {stage}")
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


app.command("rank")(rank)
app.command("subspace")(subspace)
app.command("next_words")(next_words)
app.command("code_errors")(code_errors)
