"""`status`: who runs a sweep, and how far it and its trials have come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.commands import shared
from orchestrator.commands.plan import counts_in_words
from orchestrator.words import number, print_table

if TYPE_CHECKING:
    from orchestrator.agenda.standing import SweepStanding, TrialLine, TrialStanding

_EVERY = "a sweep file [default: every sweep of RUNS]"
_TRIALS = "only a line for each trial, those of searches too"


def status(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help=_EVERY, autocompletion=shared.sweep_files)] = None,
    scale: shared.ScaleName = None,
    set_: shared.Set = None,
    seeds: shared.Seeds = None,
    runs: shared.WrittenRuns = Path("runs"),
    trials: Annotated[bool, typer.Option("--trials", help=_TRIALS)] = False,
    as_json: shared.AsJson = False,
) -> None:
    """Show who runs a sweep and how far every trial has come; without FILE, the last command of every sweep."""
    from orchestrator.agenda.standing import sweep_standing, trial_lines

    if file is None:
        shared.goes_with("FILE, a sweep file", False, trials=trials, scale=scale, set_=set_, seeds=seeds)
        _last_commands(runs.resolve(), as_json)
        return
    sweep, state, records = shared.opened_state(file, scale, runs, set_, seeds, silent=as_json)
    with shared.refused(ValueError, OSError):
        standing = sweep_standing(sweep, state, records)
    lines = trial_lines(standing, state.searches) if trials else []
    if as_json:
        shared.print_json(asdict(standing) | ({"lines": [asdict(line) for line in lines]} if trials else {}))
    elif trials:
        print_trials(lines)
    else:
        print_status(standing)


def _last_commands(runs: Path, as_json: bool) -> None:
    from orchestrator.agenda.standing import last_commands

    with shared.refused(OSError):
        commands = last_commands(runs)
    if as_json:
        shared.print_json({"sweeps": [asdict(holder) | {"state": state} for holder, state in commands]})
    elif not commands:
        typer.echo(f"no sweep was run with {runs}")
    else:
        rows = [
            (h.sweep, h.scale, state, h.since, h.until or "", f"{h.user}, {h.pid} on {h.host}", h.command)
            for h, state in commands
        ]
        headings = ("sweep", "scale", "state", "since", "until", "by", "command")
        print_table(headings, rows, whole=("sweep", "scale"))


def print_status(standing: SweepStanding) -> None:
    """Print who runs the sweep, a line a trial, the counts, and the best trial so far."""
    by = "" if standing.held_by is None else f" by {standing.held_by.in_words()}"
    typer.echo(f"running{by}" if standing.is_running else "no command runs it now")
    for search in standing.searches:
        typer.echo(search.in_words())
    headings = ("variant", "seed", "state", "stage", "epoch", "validation perplexity", "best", "at")
    right = ("seed", "epoch", "validation perplexity", "best")
    print_table(headings, map(_status_cells, standing.trials), right=right)
    typer.echo(counts_in_words(len(standing.trials), standing.counts))
    if (best := standing.best) is not None and best.best_valid_perplexity is not None:
        perplexity = f"{number(best.best_valid_perplexity)} validation perplexity"
        typer.echo(f"best so far: {best.variant}, seed {best.seed}: {perplexity}")


def print_trials(lines: Sequence[TrialLine]) -> None:
    """Print a line for each trial; what it tries is as long as it is, and comes last."""
    rows = [
        (
            "" if line.number is None else str(line.number),
            str(line.seed),
            f"{line.epoch}/{line.epochs}",
            "" if line.valid_perplexity is None else number(line.valid_perplexity),
            line.state,
            line.name,
        )
        for line in lines
    ]
    headings = ("trial", "seed", "epoch", "validation perplexity", "state", "variant, or what a search tries")
    print_table(headings, rows, right=headings[:4], whole=("epoch", "state"))


def _status_cells(trial: TrialStanding) -> tuple[str, ...]:
    when = trial.last_epoch_at
    at = "" if when is None else f"{datetime.fromisoformat(when).astimezone():%Y-%m-%d %H:%M:%S}"
    reached = f"{trial.epoch}/{trial.epochs}" if trial.epoch else ""
    perplexities = (trial.valid_perplexity, trial.best_valid_perplexity)
    last, best = ("" if value is None else number(value) for value in perplexities)
    return trial.variant, str(trial.seed), trial.state_in_words, trial.stage or "", reached, last, best, at
