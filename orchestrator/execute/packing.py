"""What a trial is granted in place of what the sweep file says, and the service that shares a GPU."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from orchestrator.errors import CannotStartError
from orchestrator.sweep import Resources

_CONTROL = "nvidia-cuda-mps-control"
_log = logging.getLogger(__name__)


def granted(resources: Resources, cpus: float | None = None, gpus: float | str | None = None) -> Resources:
    """The file's resources with these in place of its own; CannotStartError where they are none.

    `gpus` may be a text, as on a command line: a number or `auto`.
    """
    given = {name: value for name, value in (("cpus", cpus), ("gpus", gpus)) if value is not None}
    try:
        return Resources.model_validate(dict(resources) | given) if given else resources
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        name, rule = str(wrong["loc"][0]), wrong["msg"].replace("Input should", "should")
        if wrong["type"] == "value_error":  # which says itself what was got
            raise CannotStartError(f"--{name}: {rule.removeprefix('Value error, ')}") from None
        if wrong["type"] == "float_parsing":
            rule = "expected a number or auto"
        raise CannotStartError(f"--{name}: {rule}, got {given[name]}") from None


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
