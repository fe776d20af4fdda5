"""How long a report takes, and how much memory: of many trials with long curves and a loss for every token.

    python -m tests.benchmarks.report --variants 40 --seeds 25 --epochs 500 --tokens 80000

Writes made-up records once, into a folder that is kept where `--runs` names it; the report has a process of its own.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from lm.record import token_nats_path, write_curve, write_record
from lm.tables import write_table
from orchestrator.analysis.outcomes import read_outcomes
from orchestrator.report.page import ReportInput, write_report
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from tests.support.factories import FULL, make_curve, make_record, make_trial
from tests.support.pages import a_sweep

_AS_THE_COMMAND = "from tests.benchmarks import report; report.main()"


def trials_of(variants: int, seeds: int, epochs: int) -> list[Trial]:
    """The plan: variants that differ by their batch size."""
    long = FULL.model_copy(update={"epochs": epochs, "finetune": None})
    update = {name: getattr(long, name) for name in ("epochs", "finetune")}
    return [
        make_trial("full" if v == 0 else f"variant {v}", seed, batch_size=20 + v, **update)
        for v in range(variants)
        for seed in range(1, seeds + 1)
    ]


def settle_all(runs: Path, trials: list[Trial], tokens: int) -> None:
    """The records of the trials that have none yet: each with its curve and the loss of every token of the text."""
    text = np.random.default_rng(0)
    counts, hard = text.choice([0, 3, 40, 500, 7_000, 20_000], tokens), text.exponential(4.0, tokens)
    for trial in trials:
        folder = runs / trial.key
        if (folder / "record.json").exists():
            continue
        rng = np.random.default_rng([trial.spec.batch_size, trial.seed])
        test = 60.0 + 0.3 * trial.spec.batch_size + 0.1 * float(rng.normal())
        write_curve(folder, make_curve(trial.spec, 1.05 * test, noise=trial.seed))
        nats = (hard + 0.1 * rng.normal(size=tokens)).astype(np.float32)
        position, token = np.arange(1, tokens + 1, dtype=np.int32), np.arange(tokens, dtype=np.int32)
        table = pa.table({"position": position, "token": token, "training_count": counts, "nats": nats})
        write_table(token_nats_path(folder, "train", "test"), table)
        write_record(folder, make_record(trial, test))


def write(runs: Path, trials: list[Trial]) -> None:
    """Write the report, as the command does, into a folder beside the records."""
    records = Records(runs)
    report = ReportInput(
        sweep=a_sweep(name="benchmark", question="How long does a report take?", scale="paper", published_scale=True),
        outcomes=read_outcomes(trials, records, "full"),
        records=records,
        published={},
        published_note="",
        command="python -m tests.benchmarks.report",
    )
    write_report(report, runs.parent / "report")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("variants", 40), ("seeds", 25), ("epochs", 500), ("tokens", 80_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--only-write", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    trials = trials_of(asked.variants, asked.seeds, asked.epochs)
    if asked.only_write:
        write(asked.runs, trials)
        return
    with tempfile.TemporaryDirectory() as place:
        runs = (asked.runs or Path(place) / "runs").resolve()
        settle_all(runs, trials, asked.tokens)
        sizes = [f"--{name}={getattr(asked, name)}" for name in ("variants", "seeds", "epochs", "tokens")]
        began = time.perf_counter()
        command = [sys.executable, "-c", _AS_THE_COMMAND, *sizes, "--runs", str(runs), "--only-write"]
        subprocess.run(command, check=True)
        took, used = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = used.ru_utime + used.ru_stime
        print(
            f"{len(trials):,} trials of {asked.epochs} epochs and {asked.tokens:,} tokens: {took:.1f} s of the wall, "
            f"{cpu:.1f} s of CPU, {used.ru_maxrss / 2**20:.2f} GiB at most"
        )


if __name__ == "__main__":
    main()
