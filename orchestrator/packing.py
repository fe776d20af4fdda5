"""How much of a GPU a trial is granted where the sweep says `gpus: auto`, and the service that shares it."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lm.spec import TrainSpec
from orchestrator.estimate import Measuring
from orchestrator.estimate.reckoning import gpu_share
from orchestrator.machine import CannotStartError, gpu_memory_bytes
from orchestrator.sweep import Resources

_CONTROL = "nvidia-cuda-mps-control"
_log = logging.getLogger(__name__)


def granted_gpus(resources: Resources, specs: Iterable[TrainSpec], address: str | None = None) -> float:
    """What a trial of these gets of a GPU: as written, or of `auto` the share that its peak of memory allows.

    The most demanding spec decides for all, measured on this machine. Without a GPU here `auto` is none. Raises
    CannotStartError where a model cannot be measured, and where the trials go to the cluster at `address`, which may
    have GPUs that this machine lacks.
    """
    if resources.gpus != "auto":
        return resources.gpus
    total, specs = gpu_memory_bytes(), list(specs)
    if total is None and address is not None and specs:
        raise CannotStartError(
            f"resources.gpus: auto is measured on this machine, which has no GPU; for the cluster at {address} write "
            "the share of a GPU that a trial needs, such as 0.25, or 0"
        )
    if total is None:
        _log.warning("resources.gpus: auto: no GPU was found, trials train on CPUs")
        return 0.0
    if not specs:
        return 1.0
    measuring = Measuring("cuda", resources.threads)
    return 1.0 / gpu_share(max(measuring.of(spec).peak_memory_bytes for spec in specs), total)


@contextmanager
def multi_process_service(wanted: bool) -> Iterator[bool]:
    """CUDA's multi-process service for the time of the block, in folders of its own; whether it runs.

    Workers find it by the environment. Where it is missing or refuses to start, one line says so, and trials share the
    GPU without it. It is stopped at the end, also after errors and Ctrl-C.
    """
    control = shutil.which(_CONTROL) if wanted else None
    if control is None:
        if wanted:
            _log.warning("--mps: %s is not there; trials share the GPU without it", _CONTROL)
        yield False
        return
    folder = Path(tempfile.mkdtemp(prefix="mps-"))
    places = {f"CUDA_MPS_{kind}_DIRECTORY": str(folder) for kind in ("PIPE", "LOG")}
    before = {name: os.environ.get(name) for name in places}
    os.environ |= places
    try:
        started = _call([control, "-d"])
        if started is not None:
            _log.warning("--mps: %s: %s; trials share the GPU without it", _CONTROL, started)
            _restore(before)
        try:
            yield started is None
        finally:
            if started is None and (refused := _call([control], "quit\n")) is not None:
                _log.warning("--mps: the service could not be stopped: %s", refused)
    finally:
        _restore(before)
        shutil.rmtree(folder, ignore_errors=True)


def _call(line: list[str], words: str | None = None) -> str | None:
    """What went wrong, None where nothing did."""
    try:
        ran = subprocess.run(line, input=words or "", capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = (ran.stderr or ran.stdout).strip().splitlines() or [f"ended with {ran.returncode}"]
    return said[-1] if ran.returncode else None


def _restore(environment: dict[str, str | None]) -> None:
    for name, value in environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
