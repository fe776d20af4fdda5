"""The plan as a table in the terminal."""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.plan import millions, state_in_words, state_of
from orchestrator.records import Records
from orchestrator.sweep import ScaledSweep
from orchestrator.trial import Trial

# Wide enough for one line a trial where the output goes to a file, which has no width of its own.
_PLAIN_WIDTH = 160


def print_plan(sweep: ScaledSweep, trials: list[Trial], records: Records) -> None:
    """Print a line a trial, and a summary. ValueError where a record cannot be read."""
    console, table = _console(), Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("variant", "changes"):
        table.add_column(heading)
    table.add_column("seed", justify="right")
    table.add_column("key", no_wrap=True)
    table.add_column("parameters", justify="right")
    table.add_column("state")
    states = {trial.key: state_of(trial, records) for trial in trials}
    for trial in trials:
        words = state_in_words(trial, states[trial.key], trials)
        cells = (trial.variant, trial.change, str(trial.seed), trial.key, millions(trial.parameters), words)
        table.add_row(*map(Text, cells))
    console.print(table)
    console.print(Text(_summary(sweep, trials, Counter(states.values()))))


def print_status(trials: list[Trial], records: Records) -> None:
    """Print how far every trial has come, a line each. ValueError where a record cannot be read."""
    console, table = _console(), Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("variant", "seed", "state", "stage", "epoch", "validation perplexity"):
        table.add_column(heading, justify="right" if heading in ("seed", "epoch") else "left")
    for trial in trials:
        state = state_in_words(trial, state_of(trial, records), trials)
        curve = records.curve(trial)
        last = (curve[-1].stage, str(curve[-1].epoch), f"{curve[-1].valid_perplexity:.2f}") if curve else ("", "", "")
        table.add_row(*map(Text, (trial.variant, str(trial.seed), state, *last)))
    console.print(table)


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=_PLAIN_WIDTH)


def _summary(sweep: ScaledSweep, trials: list[Trial], states: Counter[str]) -> str:
    shared = sum(trial.starts_from is not None for trial in trials)
    parts = [
        f"{len(trials)} trials ({len(sweep.variants)} variants x {len(sweep.seeds)} seeds)",
        f"{states['new'] + states['to resume'] + states['failed']} to train",
        f"{sum(trial.reads_from is not None for trial in trials)} read from another trial",
        f"{shared} going on from another's stages",
        f"{states['done']} done",
    ]
    parts += [f"{states[state]} {state}" for state in ("to resume", "diverged", "failed") if states[state]]
    return "; ".join(parts)
