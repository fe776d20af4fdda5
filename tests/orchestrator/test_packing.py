"""Trials packed on a GPU, with stand-ins for NVIDIA's programs that keep what they were asked: there is no GPU here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.execute.cost.reckoning import gpu_share
from orchestrator.execute.machine import gpu_memory_bytes
from orchestrator.execute.packing import multi_process_service

GIB = 2**30


def program(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that comes first on the path."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


CONTROL = 'echo "$@ $CUDA_MPS_PIPE_DIRECTORY" >> {0}/calls; [ "$1" = -d ] || cat >> {0}/calls'


def test_as_many_as_memory_allows_and_at_least_one() -> None:
    assert gpu_share(4 * GIB, 24 * GIB) == 4  # 4.6 GiB with headroom and 0.6 of context
    assert gpu_share(40 * GIB, 24 * GIB) == 1


def test_the_smallest_gpu_counts(programs: Path) -> None:
    program(programs, "nvidia-smi", 'if [ "$1" = -L ]; then echo "GPU 0: A"; else echo "A, 24576"; echo "B, 8192"; fi')
    assert gpu_memory_bytes() == 8 * GIB


def test_the_service_starts_and_stops_in_its_own_folder_also_after_an_error(programs: Path) -> None:
    program(programs, "nvidia-cuda-mps-control", CONTROL.format(programs))
    with pytest.raises(KeyboardInterrupt), multi_process_service(True) as runs:
        assert runs
        pipes = os.environ["CUDA_MPS_PIPE_DIRECTORY"]
        raise KeyboardInterrupt
    assert (programs / "calls").read_text().split() == ["-d", pipes, pipes, "quit"]
    assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
    assert not Path(pipes).exists()


def test_a_service_that_refuses_is_done_without(programs: Path, caplog: pytest.LogCaptureFixture) -> None:
    program(programs, "nvidia-cuda-mps-control", "echo not permitted >&2; exit 1")
    with multi_process_service(True) as runs:
        assert not runs
        assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
    assert "not permitted; trials share the GPU without it" in caplog.text


def test_a_missing_service_is_done_without_and_an_unwanted_one_not_asked_for(
    programs: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", str(programs))
    with multi_process_service(False) as runs:
        assert not runs and not caplog.text
    with multi_process_service(True) as runs:
        assert not runs
    assert "nvidia-cuda-mps-control is not there" in caplog.text
