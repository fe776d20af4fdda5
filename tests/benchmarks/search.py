"""How soon a sweep file's search finds what plain random search finds, in seconds of training.

    python tests/benchmarks/search.py sweeps/search_awd.yaml --scale laptop --repeats 5 --runs DIR

Three ways over the same space and seeds: `random` draws values and trains each trial to its end; `random+scheduler`
has the file's scheduler too; `file` is the search as the file has it. Starting points are left out of all three, since
one near the best would make any search look fast. Each repeat has its own sampler seed and training seed. The others
go on until they have reached the best validation loss of `random`, or have trained as long as `random` did in all.
Trials run one at a time in this process. Every way of every repeat has its own folder in DIR, so that none is told what
another trained; the same command again goes on where it was killed.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from lm.record import Evaluation, Record, perplexity
from orchestrator.execute.interrupt import Interrupt
from orchestrator.execute.run_trial import Allotment, run_inline
from orchestrator.search.events import SearchTrial
from orchestrator.search.ledger import ledger_path, read_search_trials
from orchestrator.search.task import SearchTask
from orchestrator.search.trial_source import SearchTrialSource
from orchestrator.sweep import read_sweep
from orchestrator.sweep.searches import RandomSampler, Search
from orchestrator.trials.plan import Facts
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial

WAYS = ("random", "random+scheduler", "file")


@dataclass(frozen=True)
class Spent:
    """Training in all, and until a loss was reached, None where it was not; and the best loss there is."""

    seconds: float
    epochs: int
    reached_seconds: float | None
    reached_epochs: int | None
    best_nats: float
    trials: int


class Enough:
    """A search until a loss is reached or so many seconds of training are spent."""

    def __init__(self, source: SearchTrialSource, ledger: Path, target: float, most_seconds: float) -> None:
        self._source, self._ledger = source, ledger
        self._target, self._most_seconds = target, most_seconds

    def next(self) -> Trial | None:
        now = spent(self._ledger, self._target)
        over = now.reached_epochs is not None or now.seconds >= self._most_seconds
        return None if over else self._source.next()

    def goes_on(self, trial: Trial, evaluation: Evaluation) -> bool:
        return self._source.goes_on(trial, evaluation)

    def settled(self, trial: Trial, record: Record | None) -> None:
        self._source.settled(trial, record)


class Silent:
    def started(self, trial: Trial) -> None: ...

    def evaluated(self, trial: Trial, evaluation: Evaluation) -> None: ...

    def settled(self, trial: Trial, record: Record | None) -> None: ...


def spent(ledger: Path, target: float) -> Spent:
    """What a search, one trial at a time, has trained until its losses reached the target."""
    seconds, epochs = 0.0, 0
    reached_seconds, reached_epochs = None, None
    found = read_search_trials(ledger) if ledger.exists() else []
    for trial in found:
        epoch = epoch_of(trial, target)
        if reached_epochs is None and epoch is not None:
            reached_seconds, reached_epochs = seconds + trial.seconds * epoch / trial.epochs, epochs + epoch
        seconds, epochs = seconds + trial.seconds, epochs + trial.epochs
    best = min((trial.valid_nats for trial in found if trial.valid_nats is not None), default=math.inf)
    return Spent(seconds, epochs, reached_seconds, reached_epochs, best, len(found))


def epoch_of(trial: SearchTrial, target: float) -> int | None:
    """The epoch in which the trial reaches the target; None where it does not."""
    return next((epoch for epoch, nats in trial.curve if nats <= target), None)


def run(base: SearchTask, way: str, repeat: int, runs: Path, target: float, most_seconds: float) -> Spent | None:
    """One way to search, to its end or until it reached the target; None where it was interrupted."""
    update: dict[str, object] = {"start": (), "sampler_seed": repeat, "training_seed": 1000 + repeat}
    if way != "file":
        update["sampler"] = RandomSampler(kind="random")
    if way == "random":
        update["scheduler"] = None
    else:
        update |= {"trials": None, "training_hours": 1e6}
    searching = base.searching.model_copy(update=update)
    task = SearchTask(base.variant, base.base.model_copy(update={"seed": 1000 + repeat}), searching, base.fixed)
    records, facts = Records((runs / f"{way}-{repeat}").resolve()), Facts()
    ledger = ledger_path(records.root, task.key(facts.fingerprint(task.base.corpus)))
    interrupt = Interrupt()
    source = Enough(SearchTrialSource([task], records, facts), ledger, target, most_seconds)
    run_inline(source, Allotment(records.root, 1.0, 0.0, 600.0), Silent(), interrupt)
    return None if interrupt.signal is not None else spent(ledger, target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--scale", default="laptop")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--runs", type=Path, default=Path("runs/search-benchmark"))
    asked = parser.parse_args()
    sweep = read_sweep(asked.file).at(asked.scale)
    assert isinstance(sweep.searching, Search), "the file does not search"
    base = SearchTask("base", sweep.baseline.spec, sweep.searching)
    print("repeat  way               trials  epochs  seconds  best valid ppl  reached after epochs, seconds (share)")
    shares: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for repeat in range(asked.repeats):
        target, whole = -math.inf, Spent(math.inf, 0, None, None, math.inf, 0)
        for way in WAYS:
            if (now := run(base, way, repeat, asked.runs, target, whole.seconds)) is None:
                print("interrupted; the same command goes on")
                return
            if way == "random":
                target = now.best_nats
                ledger = next((asked.runs / f"random-{repeat}" / ".searches").iterdir())
                whole = now = spent(ledger, target)
            epochs = math.inf if now.reached_epochs is None else now.reached_epochs
            seconds = math.inf if now.reached_seconds is None else now.reached_seconds
            share = epochs / whole.epochs, seconds / whole.seconds
            shares[way].append(share)
            print(
                f"{repeat:6}  {way:16}  {now.trials:6}  {now.epochs:6}  {now.seconds:7.0f}  "
                f"{perplexity(now.best_nats):14.2f}  {epochs:.0f}, {seconds:.0f} ({share[0]:.2f}, {share[1]:.2f})",
                flush=True,
            )
    for way, found in shares.items():
        epochs, seconds = (statistics.median(values) for values in zip(*found, strict=True))
        print(f"median {way}: random search's best after {epochs:.2f} of its epochs, {seconds:.2f} of its seconds")


if __name__ == "__main__":
    main()
