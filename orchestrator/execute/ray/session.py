"""A Ray of our own for the time of a sweep, or a cluster's, and the room it has."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray

from orchestrator.errors import CannotStartError, RayLostError
from orchestrator.execute.machine import cpu_count
from orchestrator.execute.ray.token import token_for_cluster, token_for_this_machine
from orchestrator.execute.run_trial import Allotment

# Ray calls a trial in a thread that is not the process's first, where glibc gives freed memory back to the system at
# once, and takes it again page by page at the next step: a step with a large softmax was measured 1.6 times slower.
_WORKER_ENVIRONMENT = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1),
}
_MOST_SAID = 300
_OBJECT_STORE_BYTES = 100 * 2**20


def start_ray(session: Path, address: str | None, verbose: bool, shipped: Mapping[str, Any] | None = None) -> None:
    """Start Ray on this machine, or join the cluster at `address`, whose workers get `shipped` as runtime environment.

    CannotStartError if there is no token for a cluster, or it cannot be joined; RayLostError if it does not start here.
    """
    level = logging.INFO if verbose else logging.ERROR
    runtime = {"env_vars": _WORKER_ENVIRONMENT}
    if address is not None:
        token_for_cluster(address)
        more = shipped or {}
        runtime = {**more, "env_vars": _WORKER_ENVIRONMENT | more.get("env_vars", {})}
        try:
            ray.init(address=address, log_to_driver=verbose, logging_level=level, runtime_env=runtime)
        except Exception as error:
            raise CannotStartError(f"--address {address}: {last_line(error)}") from error
        return
    token_for_this_machine()
    try:
        ray.init(
            address="local",
            num_cpus=cpu_count(),
            include_dashboard=False,
            log_to_driver=verbose,
            logging_level=level,
            runtime_env=runtime,
            object_store_memory=_OBJECT_STORE_BYTES,
            _temp_dir=str(session),
        )
    except Exception as error:  # of whatever type, when one of its processes dies meanwhile
        raise RayLostError(f"it did not start: {last_line(error)}") from error


def last_line(error: Exception) -> str:
    """The end of what Ray says: its first words are that it failed, and why comes last, often in the error's cause."""
    said = str(error.__cause__ or error).strip().splitlines() or [repr(error)]
    return said[-1][:_MOST_SAID]


def dead_process() -> str | None:
    """Which of the processes that Ray started, and cannot do without, has died; None if none has.

    When an agent dies, the raylet ends itself. A cluster's processes are not looked at.
    """
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
    found = []
    for node in ray.nodes():  # type: ignore[no-untyped-call]
        have: dict[str, float] = node["Resources"] if node["Alive"] else {}
        room = [have.get(kind, 0.0) / need for kind, need in (("CPU", allotment.cpus), ("GPU", allotment.gpus)) if need]
        if fit := int(min(room) + 1e-9):
            found.append((node, fit))
    return found


def fitting(allotment: Allotment, jobs: int | None) -> int:
    """How many trials fit at once on all nodes; CannotStartError if not even one does."""
    slots_in_all = sum(fit for _, fit in slots(allotment))
    if slots_in_all == 0:
        everything: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        have = {kind: amount for kind, amount in everything.items() if kind in ("CPU", "GPU")}
        raise CannotStartError(
            f"resources: a trial asks for {allotment.cpus:g} CPU and {allotment.gpus:g} GPU; there is {have}"
        )
    return slots_in_all if jobs is None else min(jobs, slots_in_all)
