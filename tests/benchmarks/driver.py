"""What a sweep of many trials costs its driver: memory and CPU time, with a stub in the place of training.

    python -m tests.benchmarks.driver --trials 10000

Plans the trials, gives them to Ray Tune as `sweep` does, its progress lines included, and prints a line of JSON every
500 trials and one at the end. The stub reports two evaluations and writes a record as a real trial does. Ray's own
processes are not the driver's.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lm.record import Evaluation, Record, write_curve, write_record
from orchestrator.agenda.expand import unsettled
from orchestrator.agenda.trial_source import FixedOrder
from orchestrator.execute.ray import Order, ray_environment, session_folder
from orchestrator.execute.run_trial import Allotment
from orchestrator.sweep import Sweep
from orchestrator.trials.plan import plan
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from orchestrator.watch.progress import Listeners, Progress
from tests.support.factories import FULL, make_curve, make_record

MOST_BYTES = 1.5 * 2**30
MOST_SECONDS_A_TRIAL = 0.050
SECONDS_TO_START = 10.0


def stub(at_once: int) -> Callable[[dict[str, Any]], None]:
    """Two evaluations and a record, without training.

    The first trials wait until every worker has started: Tune gives a trial that waits for its worker to one that is
    free meanwhile, and begins to start another for the next, which trials of milliseconds would repeat for ever.
    """

    def train(config: dict[str, Any]) -> None:
        from ray import tune

        trial, allotment = config["trial"], config["allotment"]
        curve = make_curve(trial.spec, 100.0, epochs=2)
        if trial.seed < at_once:
            time.sleep(SECONDS_TO_START)
        for evaluation in curve:
            tune.report({"evaluation": evaluation})
        write_curve(allotment.runs / trial.key, curve)
        write_record(allotment.runs / trial.key, make_record(trial, 100.0))

    return train


class Meter:
    """A listener that prints, every so many trials, what the driver has cost since the last line."""

    def __init__(self, every: int) -> None:
        self.every, self.settled_trials = every, 0
        self._cpu, self._clock = time.process_time(), time.perf_counter()

    def started(self, trial: Trial) -> None:
        """Nothing to note."""

    def evaluated(self, trial: Trial, evaluation: Evaluation) -> None:
        """Nothing to note."""

    def settled(self, trial: Trial, record: Record | None) -> None:
        """Count it."""
        self.settled_trials += 1
        if self.settled_trials % self.every == 0:
            cpu, clock = time.process_time(), time.perf_counter()
            line = {
                "settled": self.settled_trials,
                "driver_cpu_seconds_a_trial": round((cpu - self._cpu) / self.every, 5),
                "wall_seconds_a_trial": round((clock - self._clock) / self.every, 5),
                "driver_peak_bytes": peak_bytes(),
            }
            print(json.dumps(line), flush=True)
            self._cpu, self._clock = cpu, clock


def peak_bytes() -> int:
    """The most memory that was resident of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(trials: int, folder: Path, at_once: int, every: int = 500) -> dict[str, float]:
    """The driver's own cost of so many trials, whose records are left in `folder`."""
    os.environ.update(ray_environment())  # Ray reads it when it loads
    import ray

    from orchestrator.execute.ray.bridge import Queue, fit
    from orchestrator.execute.ray.session import start_ray

    processor, clock = time.process_time, time.perf_counter
    sweep = Sweep(name="driver", question="?", base=FULL, seeds=tuple(range(trials))).at("paper")
    cpu_before, began = processor(), clock()
    planned = plan(sweep)
    records = Records(folder)
    missing = unsettled(planned, records)
    cpu_planned = processor()
    # A small share of a CPU, so that `at_once` workers fit any machine.
    allotment = Allotment(folder, cpus=0.01, gpus=0.0, checkpoint_seconds=600.0)
    with Progress(planned) as progress, session_folder() as session:
        start_ray(Order(allotment, session=session))
        queue = Queue(FixedOrder(missing), allotment, Listeners(progress, Meter(every)))
        fit(queue, stub(at_once), session=session, at_once=at_once)
        ray.shutdown()
    counts = progress.counts()
    assert counts["done"] == trials, counts
    return {
        "trials": trials,
        "planning_seconds_a_trial": (cpu_planned - cpu_before) / trials,
        "driver_cpu_seconds_a_trial": (processor() - cpu_before) / trials,
        "wall_seconds_a_trial": (clock() - began) / trials,
        "driver_peak_bytes": peak_bytes(),
    }


def main() -> None:
    """Print the cost; exit code 1 where it is over the limits."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--trials", type=int, default=10_000)
    arguments.add_argument("--at-once", type=int, default=2)
    given = arguments.parse_args()
    logging.getLogger("ray").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        found = measure(given.trials, Path(folder), given.at_once)
    print(json.dumps({name: round(value, 5) for name, value in found.items()}))
    over = found["driver_peak_bytes"] > MOST_BYTES or found["driver_cpu_seconds_a_trial"] > MOST_SECONDS_A_TRIAL
    raise SystemExit(int(over))


if __name__ == "__main__":
    main()
