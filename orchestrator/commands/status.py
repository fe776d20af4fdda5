"""`status`, `why` and `reproduce`: how far a sweep has come, what became of a trial, whether it can be repeated."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lm.files import DamagedError, read_regular
from orchestrator.commands import shared
from orchestrator.commands.plan import counts_in_words
from orchestrator.words import counted, number, print_table

if TYPE_CHECKING:
    from lm.record import Evaluation
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
    if standing.trials:
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


def why(
    key: shared.Key,
    runs: shared.WrittenRuns = Path("runs"),
    lines: Annotated[int, typer.Option(min=1, help="lines of the traceback, epochs of the curve")] = 30,
) -> None:
    """Show why a trial failed or diverged: its reason, the ends of its traceback, its log and its curve."""
    from lm.record import read_curve
    from orchestrator.search.ledger import stopped_early
    from orchestrator.trials.disk import FAILURE
    from orchestrator.trials.records import check_trial, damage_in_a_line, find_key

    with shared.refused(ValueError, OSError):
        key = find_key(runs, key)
        try:
            record, curve = check_trial(runs / key), read_curve(runs / key)
        except DamagedError as error:
            typer.echo(f"{key} is damaged: {damage_in_a_line(error)}")
            return
    if record is None:
        stopped = stopped_early(runs).get(key)
        by_search = f"a search stopped it after epoch {stopped}"
        typer.echo(f"{key} has no record: {'it was stopped or still runs' if stopped is None else by_search}")
    elif record.status == "complete":
        typer.echo(f"{key} is complete: there is nothing to explain")
    else:
        typer.echo(f"{key} {record.status}" + ("" if record.reason is None else f": {record.reason}"))
        if record.divergence is not None:
            typer.echo(f"divergence: {record.divergence.model_dump_json()}")
    if record is not None and record.status == "failed":
        try:
            text = read_regular(runs / key / FAILURE).decode(errors="replace")
            typer.echo("\n".join(text.rstrip().splitlines()[-lines:]))
        except OSError:
            typer.echo(f"no traceback was kept ({FAILURE})")
        for line in _end_of_log(runs / key, lines):
            typer.echo(line)
    for point in curve[-lines:]:
        typer.echo(_in_words(point))
    if not curve:
        typer.echo("no epoch was finished")


def reproduce(
    key: shared.Key,
    epochs: Annotated[int | None, typer.Option(min=1, help="only the first epochs [default: all]")] = None,
    runs: shared.WrittenRuns = Path("runs"),
) -> None:
    """Train a trial again from its record alone, in a temporary folder, and compare the curves: PASS or FAIL.

    On a CPU with the same instructions all numbers but times must be the same to the last bit; on a GPU losses within
    1% of each other. Exit codes: 0 PASS, 1 FAIL, 2 it cannot be trained here, for example because the text is another.
    """
    from lm.record import read_curve
    from orchestrator.execute.reproduce import circumstances, obstacle
    from orchestrator.execute.reproduce import reproduce as reproduce_trial
    from orchestrator.trials.records import check_trial, record_of

    with shared.refused(ValueError, OSError):
        record = record_of(runs, key)
        check_trial(runs / record.key)
        curve = read_curve(runs / record.key)
        if (why := obstacle(record, curve)) is not None:
            shared.wrong(why)
    if epochs is not None and epochs > len(curve):
        shared.wrong(f"--epochs: the record of {record.key} has {counted(len(curve), 'epoch')}, got {epochs}")
    os.environ["OMP_NUM_THREADS"] = str(record.threads)  # torch reads it when it loads
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # else the temporary folder would stay
    for line in circumstances(record):
        typer.echo(f"not as in the record: {line}", err=True)
    try:
        with tempfile.TemporaryDirectory(prefix="reproduce-") as folder, shared.refused(ValueError, OSError):
            place = Path(folder) / "trial"
            repetition = reproduce_trial(record, curve, place, epochs=epochs, said=lambda p: typer.echo(_in_words(p)))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    how = f"within {repetition.tolerance:.0%}" if repetition.tolerance else "bit for bit"
    if repetition.difference is not None:
        typer.echo(f"FAIL ({how}): {repetition.difference}")
        raise typer.Exit(1)
    stages = f" and the scores of {counted(repetition.stages, 'stage')}" if repetition.stages else ""
    typer.echo(f"PASS: {counted(repetition.epochs, 'epoch')}{stages} the same {how}")


def _end_of_log(folder: Path, lines: int) -> list[str]:
    """The last lines of a failed trial's log, its evaluations and what it printed, without the traceback again."""
    from lm.trial_log import LOG

    try:
        text = read_regular(folder / LOG).decode(errors="replace")
    except OSError:  # a trial of an earlier version, or a worker elsewhere that died
        return []
    before, _, trace = text.rpartition(" ERROR failed: ")
    if before and " INFO begins: " not in trace:
        text = before.rpartition("\n")[0]
    return ["the end of log.txt before it failed:", *text.rstrip().splitlines()[-lines:]]


def _in_words(point: Evaluation) -> str:
    losses = f"validation perplexity {point.valid_perplexity:.4f}, training loss {point.train_nats_per_token:.4f}"
    rates = f"learning rate {point.learning_rate:g}, gradient norm {point.gradient_norm:.4g}"
    return f"{point.stage} epoch {point.epoch}: {losses}, {rates}"
