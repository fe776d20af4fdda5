"""Processes of Ray's own that die: Ray is started again once, and nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.orchestrator.execute.test_faults import OFTEN, calm, completes, place, temporary
from tests.support.sweeps import (
    alive,
    checkpoints,
    descendants,
    finish,
    report,
    sessions,
    start,
    wait_for,
    workers,
)

__all__ = ["calm", "place", "temporary"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes through /proc"),
]
RAYLET = b"/raylet/raylet"
DEATHS = {
    "raylet": RAYLET,
    "control store": b"/gcs/gcs_server",
    "dashboard agent": b"ray::DashboardAgent",
    "runtime environment agent": b"ray::RuntimeEnvAgent",
    "process that speaks to Ray": b"orchestrator.execute.ray",
}


def started(place: Path, temporary: Path) -> subprocess.Popen[str]:
    environment = {"TMPDIR": str(temporary)}
    process = start(place, *OFTEN, "--jobs", "2", environment=environment)
    wait_for(lambda: workers(process.pid) and checkpoints(place), process)
    return process


@pytest.mark.parametrize("death", DEATHS)
def test_ray_is_started_again_and_the_page_is_the_same(place: Path, calm: Path, temporary: Path, death: str) -> None:
    process = started(place, temporary)
    before, raylets = set(descendants(process.pid)), workers(process.pid, RAYLET)
    for pid in workers(process.pid, DEATHS[death]):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: set(workers(process.pid, RAYLET)) - set(raylets), process, seconds=30.0)
    assert not alive(before), "trained on, beside those that replaced it"
    seen = set(descendants(process.pid))
    output = finish(process)
    assert output.count("Ray was lost") == 1 and "Traceback" not in output
    assert report(place) == report(calm)
    assert not alive(seen)
    assert not sessions(temporary)


def test_ray_lost_twice_ends_the_command(place: Path, calm: Path, temporary: Path) -> None:
    process = started(place, temporary)
    seen, (first, *_) = set(descendants(process.pid)), workers(process.pid, RAYLET)
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: first not in workers(process.pid, RAYLET) and workers(process.pid), process)
    seen |= set(descendants(process.pid))
    lost = time.monotonic()
    os.kill(workers(process.pid, RAYLET)[0], signal.SIGKILL)
    output = finish(process, 4)
    assert time.monotonic() - lost < 120
    assert "Traceback" not in output
    last = output.strip().splitlines()[-1]
    assert last.startswith("Ray was lost: its raylet, process ")
    assert last.endswith("run the same command again to continue")
    assert not alive(seen)
    assert not sessions(temporary)
    completes(place, calm, *OFTEN)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_ray_is_lost_starts_nothing_again(place: Path, temporary: Path, number: int) -> None:
    process = started(place, temporary)
    seen = set(descendants(process.pid))
    os.kill(workers(process.pid, RAYLET)[0], signal.SIGKILL)
    process.send_signal(number)
    output = finish(process, 128 + number)
    assert "Traceback" not in output
    assert not alive(seen)
    assert not sessions(temporary)
