"""The plan, and where a sweep stands, as text in the terminal and as plain data for scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

import typer

from orchestrator.agenda.expand import Left, SweepState, what_is_left
from orchestrator.agenda.standing import SweepStanding, TrialStanding, search_standing
from orchestrator.commands import shared
from orchestrator.execute.machine import multiplies_in_bfloat16
from orchestrator.sweep import ScaledSweep
from orchestrator.trials.plan import millions, state_in_words, state_of
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from orchestrator.words import counted


def print_plan(sweep: ScaledSweep, state: SweepState, records: Records) -> None:
    """Print a line a trial and a search, and a summary. ValueError if a record cannot be read."""
    trials = state.table
    states = {trial.key: state_of(trial, records) for trial in trials}
    names = {trial.key: trial.variant for trial in trials}
    rows = [
        (t.variant, t.change, str(t.seed), t.key, millions(t.parameters), state_in_words(t, states[t.key], names))
        for t in trials
    ]
    if rows:
        headings = ("variant", "changes", "seed", "key", "parameters", "state")
        shared.print_table(headings, rows, right=("seed", "parameters"), whole=("key",))
    for search in state.searches:
        typer.echo(search_standing(search).in_words())
    if trials:
        typer.echo(
            _counts(len(trials), Counter(states[trial.key] for trial in trials), f" ({_product(sweep, trials)})")
        )
    if multiplies_in_bfloat16() is False and any(trial.spec.precision == "bfloat16" for trial in trials):
        typer.echo("precision bfloat16: this CPU has no instructions for it, and trains slower than in float32")
    typer.echo(_left_in_words(what_is_left(sweep, state, records)))


def plan_data(sweep: ScaledSweep, state: SweepState, records: Records) -> dict[str, Any]:
    """What `plan --json` prints: the sweep, its trials, how many are in each state, its searches, what is left.

    A variant that is being tuned has no trials yet: none is trained with the values of the file.
    """
    names = ("variant", "change", "seed", "key", "parameters", "reads_from", "starts_from")
    trials = [
        {name: getattr(trial, name) for name in names} | {"state": state_of(trial, records)} for trial in state.table
    ]
    return {
        "sweep": sweep.name,
        "scale": sweep.scale,
        "question": sweep.question,
        "counts": dict(Counter(trial["state"] for trial in trials)),
        "trials": trials,
        "searches": [asdict(search_standing(search)) for search in state.searches],
        "left": asdict(what_is_left(sweep, state, records)),
    }


def print_status(standing: SweepStanding) -> None:
    """Print who runs the sweep, a line a trial, the counts, and the best trial so far."""
    by = "" if standing.held_by is None else f" by {standing.held_by.in_words()}"
    typer.echo(f"running{by}" if standing.is_running else "no command runs it now")
    for search in standing.searches:
        typer.echo(search.in_words())
    headings = ("variant", "seed", "state", "stage", "epoch", "validation perplexity", "best", "at")
    shared.print_table(
        headings, map(_status_cells, standing.trials), right=("seed", "epoch", "validation perplexity", "best")
    )
    typer.echo(_counts(len(standing.trials), standing.counts))
    if (best := standing.best) is not None:
        perplexity = f"{best.best_valid_perplexity:.2f} validation perplexity"
        typer.echo(f"best so far: {best.variant}, seed {best.seed}: {perplexity}")


def _counts(trials: int, states: Mapping[str, int], detail: str = "") -> str:
    return f"{counted(trials, 'trial')}{detail}: {', '.join(f'{count} {state}' for state, count in states.items())}"


def _product(sweep: ScaledSweep, trials: Sequence[Trial]) -> str:
    variants = counted(len({trial.variant for trial in trials}), "variant")
    if len(sweep.looks) > 1:
        return f"{variants}, {sweep.looks[0]} to {sweep.looks[-1]} seeds each, more for those that are not decided"
    return f"{variants} x {counted(len(sweep.seeds), 'seed')}"


def _left_in_words(left: Left) -> str:
    if left.nothing:
        return "nothing is left to train"
    fewest, most = left.table_trials_fewest, left.table_trials_most
    if left.search_trials == 0 and fewest == most:
        return f"{most} to train"
    searches = "as many search trials as the hours or the grid of the search allow"
    if left.search_trials is not None:
        searches = f"up to {counted(left.search_trials, 'search trial')}"
    table = str(most) if fewest == most else f"{fewest} to {most}"
    return f"to train: {searches}, then {table} of the table, with the values that the searches find"


def _status_cells(trial: TrialStanding) -> tuple[str, ...]:
    when = trial.finished_at or trial.last_epoch_at
    at = "" if when is None else f"{datetime.fromisoformat(when).astimezone():%Y-%m-%d %H:%M:%S}"
    reached = f"{trial.epoch}/{trial.epochs}" if trial.epoch else ""
    perplexities = (trial.valid_perplexity, trial.best_valid_perplexity)
    last, best = ("" if value is None else f"{value:.2f}" for value in perplexities)
    return trial.variant, str(trial.seed), trial.state_in_words, trial.stage or "", reached, last, best, at
