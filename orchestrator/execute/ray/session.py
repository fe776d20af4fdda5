"""A Ray for the time of a sweep: its own on this machine, or a cluster's, whose nodes get this code and are checked."""

from __future__ import annotations

import logging
import os
import platform
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from lm.checkout import COMMIT_VARIABLE, commit
from lm.cpus import cpu_count
from lm.data import CorpusError, fingerprint_of
from orchestrator.errors import CannotStartError, RayLostError
from orchestrator.execute.machine import PACKAGES, code_digest, gpu_slots
from orchestrator.execute.ray import NOT_STARTED, Order
from orchestrator.execute.run_trial import Allotment
from orchestrator.trials.storage import Storage

# Ray calls a trial in a thread that is not the process's first, where glibc gives freed memory back to the system at
# once, and takes it again page by page at the next step: a step with a large softmax was measured 1.6 times slower.
_WORKER_ENVIRONMENT = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1),
}
_OBJECT_STORE_BYTES = 100 * 2**20
_CHECK_SECONDS = 120.0
MOST_SHIPPED_BYTES = 200 * 2**20


def start_ray(order: Order, shipped: Mapping[str, Any] | None = None) -> None:
    """Start Ray on this machine, or join a cluster, whose workers get `shipped` as runtime environment.

    Ray's ports listen on all interfaces, and a token keeps others out: a new one for each Ray on this machine.
    CannotStartError if a cluster cannot be joined, RayLostError if Ray does not start on this machine.
    """
    runtime = {"env_vars": _WORKER_ENVIRONMENT, **(shipped or {})}
    place: dict[str, Any] = {"address": order.address}
    if order.address is None:
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
        place = {"address": "local", "num_cpus": cpu_count(), "include_dashboard": False}
        # In a folder below the session's own, because Ray opens it to everybody.
        place |= {"object_store_memory": _OBJECT_STORE_BYTES, "_temp_dir": str(order.session / "ray")}
    level = logging.INFO if order.verbose else logging.ERROR
    try:
        ray.init(**place, log_to_driver=order.verbose, logging_level=level, runtime_env=runtime)
    except Exception as error:  # of any type, if one of its processes dies meanwhile
        message = last_line(error)
        if order.address is None:
            way_out = "a machine that is too busy can be the reason; --executor inline trains without Ray"
            raise RayLostError(f"{NOT_STARTED}: {message} ({way_out})") from error
        raise CannotStartError(f"--address {order.address}: {message}") from error


def last_line(error: Exception) -> str:
    """The end of Ray's message, which has the reason, often in the error's cause."""
    lines = str(error.__cause__ or error).strip().splitlines() or [repr(error)]
    return lines[-1][:400]


def dead_process() -> str | None:
    """Which of the processes that Ray started here, and cannot do without, has died; None if none has."""
    node: Any = ray._private.worker._global_node
    if node is None:  # not started yet
        return None
    for name in ("raylet", "gcs_server"):
        for started in node.all_processes.get(name, []):
            if (code := started.process.poll()) is not None:
                return f"its {name}, process {started.process.pid}, ended with exit code {code}"
    return None


def slots(allotment: Allotment) -> list[tuple[dict[str, Any], int]]:
    """The nodes that can hold a trial, and how many each."""
    holders = []
    for node in ray.nodes():  # type: ignore[no-untyped-call]
        have: dict[str, float] = node["Resources"] if node["Alive"] else {}
        by_cpus = int(have.get("CPU", 0.0) / allotment.cpus + 1e-9)
        if fit := min(by_cpus, gpu_slots(have.get("GPU", 0.0), allotment.gpus)) if allotment.gpus else by_cpus:
            holders.append((node, fit))
    return holders


def fitting(order: Order) -> int:
    """How many trials to run at once on all nodes; CannotStartError if not even one fits."""
    allotment = order.allotment
    room = sum(fit for _, fit in slots(allotment))
    if room == 0:
        everything: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        have = {kind: amount for kind, amount in everything.items() if kind in ("CPU", "GPU")}
        raise CannotStartError(
            f"resources: a trial asks for {allotment.cpus:g} CPU and {allotment.gpus:g} GPU; there is {have}"
        )
    return room if order.jobs is None else min(order.jobs, room)


@contextmanager
def shipped(order: Order) -> Iterator[dict[str, Any]]:
    """A runtime environment that brings this code to every node, and texts in folders below the working directory.

    A text beyond 200 MiB, or with an absolute path, has to be on the nodes, as `check_nodes` verifies.
    """
    with tempfile.TemporaryDirectory(prefix="texts-", dir=order.session) as texts:
        for name in {corpus.name for corpus in order.corpora}:
            for folder in (Path(name), Path("data", name)):
                files = [path for path in folder.glob("*.txt") if path.is_file()]
                outside = folder.is_absolute() or ".." in folder.parts
                if outside or sum(path.stat().st_size for path in files) > MOST_SHIPPED_BYTES:
                    continue
                for path in files:
                    Path(texts, folder).mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, Path(texts, path))
        yield {
            "py_modules": [str(package) for package in PACKAGES],
            "working_dir": texts,
            "excludes": ["__pycache__"],
            "env_vars": _WORKER_ENVIRONMENT | {COMMIT_VARIABLE: commit() or ""},
        }


def check_nodes(order: Order, nodes: Sequence[Mapping[str, Any]]) -> None:
    """CannotStartError naming the first node that differs; tolerated are other patch versions, and builds of torch."""
    with tempfile.NamedTemporaryFile(prefix=".reach-", dir=order.allotment.runs) as file:
        marker = Path(file.name)
        expected = facts(order, marker)
        answers = {
            node["NodeManagerHostname"]: ray.remote(facts)
            .options(num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False))
            .remote(order, marker)
            for node in nodes
        }
        for name, answer in answers.items():
            try:
                actual = ray.get(answer, timeout=_CHECK_SECONDS)
            except Exception as error:
                raise CannotStartError(f"node {name} cannot be checked: {last_line(error)}") from error
            if (problem := compared(expected, actual)) is not None:
                raise CannotStartError(f"node {name}: {problem}")


def facts(order: Order, marker: Path) -> dict[str, str]:
    """What decides a trial's numbers here, and whether the driver's `marker` in `runs` or the storage can be seen."""
    answer = {
        "code": code_digest()[:12],
        "python": ".".join(platform.python_version_tuple()[:2]),
        **{name: ".".join(version(name).split(".")[:2]) for name in ("torch", "numpy", "ray")},
    }
    for corpus in order.corpora:
        try:
            answer[f"corpus {corpus.name}"] = fingerprint_of(corpus)[:12]
        except (CorpusError, OSError) as error:
            answer[f"corpus {corpus.name}"] = str(error)
    if order.allotment.storage is None:
        other = "another folder (give --storage, or --runs on a disk that all nodes share)"
        return answer | {str(marker.parent): "shared" if marker.exists() else other}
    try:
        Storage(order.allotment.storage).keys()
    except (OSError, ValueError) as error:
        return answer | {"storage": str(error)}
    return answer | {"storage": "reachable"}


def compared(driver: Mapping[str, str], node: Mapping[str, str]) -> str | None:
    """What is wrong with a node, None if nothing."""
    differing = (name for name in driver if node.get(name) != driver[name])
    return next((f"{name} is {node.get(name)}, on the driver {driver[name]}" for name in differing), None)
