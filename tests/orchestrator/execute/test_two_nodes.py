"""Two Ray nodes on one machine, with resources of their own: what a node's death costs, and who is let in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.orchestrator.execute.test_sweep_end_to_end import place
from tests.orchestrator.trials.test_storage import s3
from tests.support.sweeps import SWEEP, descendants, finish, report, start, wait_for, workers

__all__ = ["place", "s3"]

# In a process of its own: Ray reads its environment once, and its nodes die with the process that started them.
CLUSTER = """
import sys
from ray.cluster_utils import Cluster
small = {"object_store_memory": 100 * 2**20}
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **small})
nodes = [cluster.add_node(num_cpus=1, resources={name: 1}, **small) for name in ("left", "right")]
print(cluster.address, *(node.all_processes["raylet"][0].process.pid for node in nodes), flush=True)
sys.stdin.read()
cluster.shutdown()
"""


class Nodes:
    """A running cluster: its address and the process of each node that trains."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        line = process.stdout.readline().split()
        self.address, self.raylets = line[0], [int(pid) for pid in line[1:]]

    def working(self) -> list[int]:
        """The nodes on which a trial is under way."""
        return [node for node in self.raylets if workers(node)]

    def kill(self, raylet: int) -> None:
        """End a node as a power cut would: its agents and workers too."""
        for pid in [raylet, *descendants(raylet)]:
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def nodes(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    token = tmp_path_factory.mktemp("token") / "token"
    token.write_text("0123456789abcdef" * 4)
    for name, value in {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
    }.items():
        monkeypatch.setenv(name, value)
    away = tmp_path_factory.mktemp("away")  # not the driver's folder
    with subprocess.Popen(
        [sys.executable, "-c", CLUSTER],
        cwd=away,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield Nodes(process)
        finally:
            left = list(descendants(process.pid))
            process.kill()
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue


@pytest.mark.slow
@pytest.mark.parametrize("where", ["shared folder", "s3"])
def test_a_node_killed_in_mid_sweep_costs_no_finished_work(
    place: Path, nodes: Nodes, where: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = SWEEP.replace("epochs: 6", "epochs: 12").replace("seeds: [1, 2]", "seeds: [1, 2, 3]")
    (place / "tiny.yaml").write_text(text)
    calm = tmp_path_factory.mktemp("calm")
    for name in ("corpus", "tiny.yaml"):
        (calm / name).symlink_to(place / name)
    finish(start(calm, "--executor", "inline"))

    storage = ["--storage", request.getfixturevalue("s3").uri] if where == "s3" else []
    process = start(place, "--address", nodes.address, *storage)
    busy: set[int] = set()
    wait_for(lambda: busy.update(nodes.working()) or len(busy) == 2, process, 240)
    wait_for(lambda: len(list(place.glob("runs/*/record.json"))) >= 2 and nodes.working(), process, 240)
    before = {path: path.read_bytes() for path in place.glob("runs/*/record.json")}
    victim = nodes.working()[0]
    nodes.kill(victim)
    finish(process)
    print(f"\n{where}: both nodes trained; one was killed with {len(before)} records written, of the keys")
    for path, was in before.items():
        same = path.read_bytes() == was
        print(f"  {path.parent.name}: {'the same, byte for byte' if same else 'CHANGED'}")
        assert same
    after = list(place.glob("runs/*/record.json"))
    print(f"  {len(after) - len(before)} more were written after it, and the report is that of an undisturbed run")
    assert len(after) > len(before)
    assert report(place) == report(calm)


@pytest.mark.slow
def test_who_may_join_a_cluster_and_with_which_folder(
    place: Path, nodes: Nodes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "wrong").write_text("f" * 64)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "wrong"))
    began = time.monotonic()
    output = finish(start(place, "--address", nodes.address), 2)
    assert "--address" in output and "token" in output.lower()
    assert "Traceback" not in output
    assert "f" * 64 not in output
    assert time.monotonic() - began < 120
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "absent"))
    output = finish(start(place, "--address", nodes.address), 2)
    assert "RAY_AUTH_TOKEN_PATH is set but file cannot be opened" in output
