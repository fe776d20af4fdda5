"""The plan, and where a sweep stands, as tables in the terminal and as plain data for scripts."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from datetime import datetime
from typing import Any

from rich.text import Text

from orchestrator.agenda.expand import Left, SweepState, what_is_left
from orchestrator.agenda.standing import SweepStanding, TrialStanding, search_standing
from orchestrator.commands.terminal import plain_console, print_table
from orchestrator.execute.machine import multiplies_in_bfloat16
from orchestrator.sweep import ScaledSweep
from orchestrator.trials.plan import millions, state_in_words, state_of
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from orchestrator.words import counted


def print_plan(sweep: ScaledSweep, now: SweepState, records: Records) -> None:
    """Print a line a trial and a search, and a summary. ValueError where a record cannot be read."""
    trials = now.table
    states = {trial.key: state_of(trial, records) for trial in trials}
    names = {trial.key: trial.variant for trial in trials}
    rows = [
        (t.variant, t.change, str(t.seed), t.key, millions(t.parameters), state_in_words(t, states[t.key], names))
        for t in trials
    ]
    headings = ("variant", "changes", "seed", "key", "parameters", "state")
    if rows:
        print_table(headings, rows, right=("seed", "parameters"))
    console = plain_console()
    for searched in now.searches:
        console.print(Text(search_standing(searched).in_words()))
    if trials:
        console.print(Text(_summary(sweep, trials, Counter(states.values()))))
    if multiplies_in_bfloat16() is False and any(trial.spec.precision == "bfloat16" for trial in trials):
        console.print(
            Text("precision bfloat16: this CPU has no instructions for it, and trains slower than in float32")
        )
    left = what_is_left(sweep, now, records)
    if now.searching or left.nothing:
        console.print(Text(_left_in_words(left)))


def plan_data(sweep: ScaledSweep, now: SweepState, records: Records) -> dict[str, Any]:
    """What `plan --json` prints: the sweep, its trials, how many are in each state, its searches, what is left.

    A variant that is being tuned has no trials yet: none is trained with the values of the file.
    """
    states = [state_of(trial, records) for trial in now.table]
    left = what_is_left(sweep, now, records)
    names = ("variant", "change", "seed", "key", "parameters", "reads_from", "starts_from")
    return {
        "sweep": sweep.name,
        "scale": sweep.scale,
        "question": sweep.question,
        "counts": dict(Counter(states)),
        "trials": [
            {name: getattr(trial, name) for name in names} | {"state": state}
            for trial, state in zip(now.table, states, strict=True)
        ],
        "searches": [asdict(search_standing(searched)) for searched in now.searches],
        "left": asdict(left),
    }


def _left_in_words(left: Left) -> str:
    if left.nothing:
        return "nothing is left to train"
    searches = "as many search trials as the hours or the grid of the search allow"
    if left.search_trials is not None:
        searches = f"up to {counted(left.search_trials, 'search trial')}"
    fewest, most = left.table_trials_fewest, left.table_trials_most
    table = str(most) if fewest == most else f"{fewest} to {most}"
    return f"to train: {searches}, then {table} of the table, with the values that the searches find"


def print_status(standing: SweepStanding) -> None:
    """Print who runs the sweep, a line a trial, the counts, and the best trial so far."""
    console = plain_console()
    holder = standing.held_by
    by = "" if holder is None else f" by {holder.in_words()}"
    console.print(Text(f"running{by}" if standing.is_running else "no command runs it now"))
    headings = ("variant", "seed", "state", "stage", "epoch", "validation perplexity", "best", "at")
    for search in standing.searches:
        console.print(Text(search.in_words()))
    rows = map(_status_cells, standing.trials)
    print_table(headings, rows, right=("seed", "epoch", "validation perplexity", "best"))
    counts = ", ".join(f"{count} {state}" for state, count in standing.counts.items())
    console.print(Text(f"{counted(len(standing.trials), 'trial')}: {counts}"))
    if standing.best is not None:
        best = standing.best
        console.print(
            Text(
                f"best so far: {best.variant}, seed {best.seed}: {best.best_valid_perplexity:.2f} validation perplexity"
            )
        )


def _status_cells(trial: TrialStanding) -> tuple[str, ...]:
    when = trial.finished_at or trial.last_epoch_at
    at = "" if when is None else f"{datetime.fromisoformat(when).astimezone():%Y-%m-%d %H:%M:%S}"
    reached = f"{trial.epoch}/{trial.epochs}" if trial.epoch else ""
    perplexities = (trial.valid_perplexity, trial.best_valid_perplexity)
    last, best = ("" if value is None else f"{value:.2f}" for value in perplexities)
    return trial.variant, str(trial.seed), trial.state_in_words, trial.stage or "", reached, last, best, at


def _product(sweep: ScaledSweep, trials: list[Trial]) -> str:
    variants = len({trial.variant for trial in trials})
    if len(sweep.looks) > 1:
        return f"{counted(variants, 'variant')}, {sweep.looks[0]} to {sweep.looks[-1]} seeds each, more where undecided"
    return f"{counted(variants, 'variant')} x {counted(len(sweep.seeds), 'seed')}"


def _summary(sweep: ScaledSweep, trials: list[Trial], states: Counter[str]) -> str:
    shared = sum(trial.starts_from is not None for trial in trials)
    parts = [
        f"{counted(len(trials), 'trial')} ({_product(sweep, trials)})",
        f"{sum(states[state] for state in ('new', 'to resume', 'failed', 'damaged'))} to train",
        f"{sum(trial.reads_from is not None for trial in trials)} read from another trial",
        f"{shared} going on from another's stages",
        f"{states['done']} done",
    ]
    parts += [f"{states[state]} {state}" for state in ("to resume", "diverged", "failed", "damaged") if states[state]]
    return "; ".join(parts)
