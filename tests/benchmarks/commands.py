"""What commands cost that train nothing: CPU seconds of `plan`, `status`, `report` and a finished `sweep`.

    python -m tests.benchmarks.commands --trials 100 1000 5000 --mirrored 100 300 1000

Writes made-up records of a sweep with 20 seeds a variant, each with a curve and the loss of every token of its texts,
and runs each command in a process of its own, after a sweep whose page and mirror stand. The mirror is written to a new
SQLite database. A line of a Markdown table each.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from lm.data import load
from lm.record import token_nats_path, write_curve, write_record
from lm.tables import write_table
from orchestrator.agenda.expand import expand
from orchestrator.api import load_sweep
from orchestrator.execute.pages import LastMade
from orchestrator.report import report_sweep
from orchestrator.trials.plan import plan
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from orchestrator.watch.mlflow.mirror import Mirror
from tests.support.factories import make_curve, make_record

SEEDS = 20
SWEEP = """\
name: many
question: What do commands cost?
base:
  corpus: {name: pydoc}
  model: {layers: 2, embedding_size: 64, hidden_size: 128}
  dropout: {weight: 0.3}
  optimizer: {kind: nt_asgd, learning_rate: 20.0, nonmonotone_interval: 3, clip: 0.25}
  batch_size: 20
  epochs: %d
seeds: [%s]
variants:
"""


@dataclass(frozen=True)
class Size:
    """How many trials of how many epochs, on texts of so many tokens."""

    trials: int
    epochs: int
    tokens: int


def make_place(place: Path, size: Size) -> list[Trial]:
    """A folder with the sweep file `many.yaml` and all of its records."""
    text = SWEEP % (size.epochs, ", ".join(map(str, range(1, SEEDS + 1))))
    variants = size.trials // SEEDS
    (place / "many.yaml").write_text(
        text + "".join(f"  variant {v}: {{batch_size: {20 + v}}}\n" for v in range(1, variants))
    )
    trials = plan(load_sweep(place / "many.yaml", "paper"))
    facts = load(trials[0].spec.corpus).facts
    rng, runs = np.random.default_rng(0), place / "runs"
    hard, counts = rng.exponential(4.0, size.tokens), rng.choice([0, 3, 40, 500, 7_000, 20_000], size.tokens)
    for trial in trials:
        folder = runs / trial.key
        own = np.random.default_rng([trial.spec.batch_size, trial.seed])
        test = 60.0 + 0.3 * trial.spec.batch_size + 0.1 * float(own.normal())
        write_curve(folder, make_curve(trial.spec, 1.05 * test, noise=trial.seed))
        nats = (hard + 0.1 * own.normal(size=size.tokens)).astype(np.float32)
        position, token = np.arange(1, size.tokens + 1, dtype=np.int32), np.arange(size.tokens, dtype=np.int32)
        table = pa.table({"position": position, "token": token, "training_count": counts, "nats": nats})
        write_table(token_nats_path(folder, "train", "test"), table)
        # By no page read, only hashed: one file under all names.
        token_nats_path(folder, "train", "valid").hardlink_to(token_nats_path(runs / trials[0].key, "train", "test"))
        record = make_record(trial, test, corpus=facts)
        [stage] = record.stages
        write_record(folder, record.model_copy(update={"stages": (stage.model_copy(update={"key": trial.key}),)}))
    return trials


def cpu_seconds(place: Path, *line: str) -> float:
    """What a command costs, its processes included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "orchestrator", *line, "--scale", "paper"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(line)}: exit code {done.returncode}: {done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def finish(place: Path) -> None:
    """Leave what the command of a finished sweep leaves; of the mirror only a file, which nobody opens."""
    sweep, records, file = load_sweep(place / "many.yaml", "paper"), Records(place / "runs"), Path("many.yaml")
    (place / "mlflow.db").touch()
    (place / "runs" / ".sweeps").mkdir(exist_ok=True)
    with contextlib.chdir(place):
        last = LastMade(sweep, file, place / "reports" / sweep.name / sweep.scale, records)
        now = expand(sweep, records)
        last.write(now, report_sweep(sweep, file, now, records, "reports", if_fuller="refuse"), mirrored=True)


def mirror_seconds(place: Path, trials: list[Trial]) -> float:
    """What it costs to write all trials to a new database, the database's own making left out."""
    uri = f"sqlite:///{place / 'measured.db'}"
    mirror = Mirror(uri, load_sweep(place / "many.yaml", "paper"), None, Records(place / "runs"))
    mirror.sync(trials[0])
    began = time.process_time()
    for trial in trials[1:]:
        mirror.sync(trial)
    return time.process_time() - began


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, nargs="*", default=[100, 1000, 5000])
    parser.add_argument("--mirrored", type=int, nargs="*", default=[])
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=80_000)
    asked = parser.parse_args()
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    print("| trials | command | CPU seconds | ms a trial |\n| --: | :-- | --: | --: |")
    for count in sorted({*asked.trials, *asked.mirrored}):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            trials = make_place(place, Size(count, asked.epochs, asked.tokens))
            if count in asked.trials:
                tell(count, "plan, nothing checked before", cpu_seconds(place, "plan", "many.yaml"))
                finish(place)
                for command in ("plan", "status", "report", "sweep"):
                    tell(count, command, cpu_seconds(place, command, "many.yaml"))
            if count in asked.mirrored:
                tell(count, "mirror", mirror_seconds(place, trials))


def tell(trials: int, what: str, seconds: float) -> None:
    """A line of the table."""
    print(f"| {trials:,} | {what} | {seconds:.2f} | {1000 * seconds / trials:.2f} |", flush=True)


if __name__ == "__main__":
    main()
