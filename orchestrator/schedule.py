"""The door to Ray: trials on Ray Tune, as many at once as fit, on this machine or a cluster.

Ray is a replaceable executor here. It starts workers, restarts those that die, and passes evaluations to the driver;
what is complete is read from the records alone, since Tune also calls a trial terminated that Ctrl-C cut off.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",  # Ray's ports listen on all interfaces: nobody gets in without the token
    "RAY_AIR_NEW_OUTPUT": "0",  # with verbose=0 the only way to silence Tune's tables
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # ours asks Tune to stop, and remembers that it was asked
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
for _name, _value in _ENVIRONMENT.items():
    os.environ.setdefault(_name, _value)

import ray  # noqa: E402  (reads the environment above when it loads)
from ray import tune  # noqa: E402
from ray.tune.progress_reporter import TrialProgressCallback  # noqa: E402
from ray.tune.search import Searcher  # noqa: E402

from lm.record import Evaluation  # noqa: E402
from lm.spec import TrainSpec  # noqa: E402
from orchestrator.interrupt import Interrupt, on_interrupt  # noqa: E402
from orchestrator.quiet import quiet  # noqa: E402
from orchestrator.records import Records  # noqa: E402
from orchestrator.trial import Listener, Trial  # noqa: E402
from orchestrator.work import Grant, work, write_failure  # noqa: E402

# Ray calls a trial in a thread that is not the process's first, where glibc gives freed memory back to the system at
# once, and takes it again page by page at the next step: a step with a large softmax was measured 1.6 times slower.
_WORKER_ENVIRONMENT = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1),
}
MOST_WORKER_DEATHS = 3
_OBJECT_STORE_BYTES = 100 * 2**20
_FIELDS = [field.name for field in dataclasses.fields(Evaluation)]


_log = logging.getLogger(__name__)


class ScheduleError(ValueError):
    """What the trials ask for is not there; nothing was started."""


def run_on_ray(
    trials: Sequence[Trial],
    grant: Grant,
    listener: Listener,
    interrupt: Interrupt,
    *,
    jobs: int | None = None,
    address: str | None = None,
    verbose: bool = False,
) -> None:
    """Train the trials, at most `jobs` at once; return when all have ended or an interrupt stopped them.

    A worker that dies is started again from its trial's checkpoint, three times at most; then the trial is recorded as
    failed. Raises ScheduleError if no node could ever hold a trial.
    """
    records = Records(grant.runs)
    begun: set[str] = set()
    with _session_folder() as session, quiet(verbose):
        _start_ray(session, address, verbose)
        try:
            at_once = _fitting(grant, jobs)
            left = list(trials)
            # Tune gives a trial up at once, whatever its retries, when the idle worker it reuses turns out dead.
            for _ in range(1 + MOST_WORKER_DEATHS):
                if left and interrupt.signal is None:
                    events = _Events(left, grant, listener, begun)
                    _fit(left, grant, events, interrupt, session=session, at_once=at_once)
                    left = [trial for trial in left if records.find(trial) is None]
        except KeyboardInterrupt:
            interrupt.signal = interrupt.signal or signal.SIGINT
        finally:
            ray.shutdown()
    for trial in trials:
        if trial.key in begun and records.find(trial) is None:
            listener.settled(trial, None)


def _fit(
    trials: Sequence[Trial],
    grant: Grant,
    events: _Events,
    interrupt: Interrupt,
    *,
    session: Path,
    at_once: int,
) -> None:
    tuner = tune.Tuner(
        tune.with_resources(_trainable, {"cpu": grant.cpus, "gpu": grant.gpus}),
        tune_config=tune.TuneConfig(
            search_alg=_Queue(trials, grant), num_samples=-1, max_concurrent_trials=at_once, reuse_actors=True
        ),
        run_config=tune.RunConfig(
            name=f"round-{time.monotonic_ns()}",  # a name used again would mix both rounds in one folder
            storage_path=str(session / "tune"),
            verbose=0,
            callbacks=[events],
            failure_config=tune.FailureConfig(max_failures=MOST_WORKER_DEATHS),
        ),
    )

    def stop() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)  # Tune's own word for a graceful stop

    def not_yet_fitting(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGUSR1, not_yet_fitting)  # until Tune installs its handler
    with on_interrupt(interrupt, stop):
        tuner.fit()


def _trainable(config: dict[str, Any]) -> None:
    """One trial in a Ray worker."""

    def report(evaluation: Evaluation) -> None:
        tune.report(dataclasses.asdict(evaluation))

    work(_unpack(config["trial"]), Grant(**config["grant"]), report)


def _pack(trial: Trial) -> dict[str, Any]:
    return dataclasses.asdict(trial) | {"spec": trial.spec.model_dump_json()}


def _unpack(packed: dict[str, Any]) -> Trial:
    return Trial(**packed | {"spec": TrainSpec.model_validate_json(packed["spec"])})


class _Queue(Searcher):
    """Hands Tune the trials in order; one that continues another's stages waits until that one has ended."""

    def __init__(self, trials: Sequence[Trial], grant: Grant) -> None:
        super().__init__()
        self.waiting = list(trials)
        self.unsettled = {trial.key for trial in trials}
        self.running: dict[str, str] = {}
        self.grant = grant

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """The next trial that can start; None while all that are left wait for another."""
        for trial in self.waiting:
            if trial.starts_from not in self.unsettled:
                self.waiting.remove(trial)
                self.running[trial_id] = trial.key
                return {"trial": _pack(trial), "grant": dataclasses.asdict(self.grant)}
        finished: Any = Searcher.FINISHED  # a word among dictionaries, by Ray's own convention
        return None if self.waiting else finished

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Trials that waited for it may start; if it left no record, they are left for the next round."""
        key = self.running.pop(trial_id, "")
        self.unsettled.discard(key)
        if not (self.grant.runs / key / "record.json").exists():
            self.waiting = [trial for trial in self.waiting if trial.starts_from != key]

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: object
    ) -> bool:
        """Nothing is searched."""
        return True

    def save(self, checkpoint_path: str) -> None:
        """Nothing to save: the next command plans anew from the records."""

    def restore(self, checkpoint_path: str) -> None:
        """Never asked: see `save`."""


class _Events(TrialProgressCallback):
    """Passes what Tune reports on to the listener, with our trials in place of Tune's.

    It takes the place of Tune's own progress printer, which Tune adds where there is none. `begun` gathers the keys
    of trials that a worker took up.
    """

    def __init__(self, trials: Sequence[Trial], grant: Grant, listener: Listener, begun: set[str]) -> None:
        super().__init__()
        self.trials = {trial.key: trial for trial in trials}
        self.grant, self.listener, self.begun = grant, listener, begun
        self.records = Records(grant.runs)

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune pickles its callbacks for a restore that is never asked for

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: object) -> None:
        """A worker took it up."""
        ours = self._ours(trial)
        self.begun.add(ours.key)
        self.listener.started(ours)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: object
    ) -> None:
        """A new point of its curve."""
        if "stage" in result:
            self.listener.evaluated(self._ours(trial), Evaluation(**{name: result[name] for name in _FIELDS}))

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: object) -> None:
        """It ended, or was stopped: only its record knows."""
        self._settled(self._ours(trial))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: object) -> None:
        """Its worker died: once too often, the one failure that no worker could record, or else it is tried again."""
        ours = self._ours(trial)
        if trial.num_failures > MOST_WORKER_DEATHS and not (self.grant.runs / ours.key / "record.json").exists():
            reason = f"its worker died {trial.num_failures} times without a Python error (killed, or out of memory)"
            write_failure(ours, self.grant, reason)
        self._settled(ours)

    def _settled(self, trial: Trial) -> None:
        try:
            record = self.records.find(trial)
        except ValueError as error:  # Tune ends the whole sweep when a callback raises
            _log.warning("%s, seed %d: %s", trial.variant, trial.seed, error)
            return
        if record is not None:
            self.listener.settled(trial, record)

    def _ours(self, trial: Any) -> Trial:
        return self.trials[trial.config["trial"]["key"]]


def _start_ray(session: Path, address: str | None, verbose: bool) -> None:
    level = logging.INFO if verbose else logging.ERROR
    runtime = {"env_vars": _WORKER_ENVIRONMENT}
    if address is not None:
        ray.init(address=address, log_to_driver=verbose, logging_level=level, runtime_env=runtime)
        return
    ray.init(
        address="local",
        num_cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        include_dashboard=False,
        log_to_driver=verbose,
        logging_level=level,
        runtime_env=runtime,
        object_store_memory=_OBJECT_STORE_BYTES,
        _temp_dir=str(session / "ray"),
    )


def _fitting(grant: Grant, jobs: int | None) -> int:
    """How many trials fit at once on all nodes; ScheduleError if not even one does."""
    fitting = 0
    for node in ray.nodes():  # type: ignore[no-untyped-call]
        have: dict[str, float] = node["Resources"] if node["Alive"] else {}
        slots = [have.get(kind, 0.0) / need for kind, need in (("CPU", grant.cpus), ("GPU", grant.gpus)) if need]
        fitting += int(min(slots) + 1e-9)
    if fitting == 0:
        everything: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        have = {kind: amount for kind, amount in everything.items() if kind in ("CPU", "GPU")}
        raise ScheduleError(f"resources: a trial asks for {grant.cpus:g} CPU and {grant.gpus:g} GPU; there is {have}")
    return fitting if jobs is None else min(jobs, fitting)


@contextmanager
def _session_folder() -> Iterator[Path]:
    """A short temporary folder for Ray's and Tune's own files, which nobody needs later.

    Short, because a socket's path may have 107 bytes. Folders left by drivers that were killed are removed too.
    """
    root = Path(tempfile.gettempdir())
    for left in root.glob(f"orch-{os.getuid()}-*"):
        if not _alive(int(left.name.split("-")[2])):
            shutil.rmtree(left, ignore_errors=True)
    session = Path(tempfile.mkdtemp(prefix=f"orch-{os.getuid()}-{os.getpid()}-", dir=root))
    try:
        yield session
    finally:
        shutil.rmtree(session, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
