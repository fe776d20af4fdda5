"""Trials that share a GPU, with a stand-in for NVIDIA's program: there is no GPU here."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.execute.estimate import packing_of
from orchestrator.execute.machine import Gpu, list_gpus
from orchestrator.sweep import Resources, Sweep
from tests.orchestrator.execute.test_estimate import MEASURED
from tests.support.factories import FULL
from tests.support.places import fake_smi

GIB = 2**30


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `nvidia-smi` prints about two GPUs."""
    fake_smi(tmp_path, monkeypatch, 'cat "$(dirname "$0")/rows"')
    (tmp_path / "rows").write_text("A, 24576\nB, 8192\n")
    return tmp_path / "rows"


def test_gpus_have_a_name_and_the_memory_that_the_driver_knows(smi: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list_gpus() == [Gpu("A", 24 * GIB), Gpu("B", 8 * GIB)]
    smi.write_text("Orin (nvgpu), [N/A]\n")
    assert list_gpus() == [Gpu("Orin (nvgpu)", None)]
    smi.write_text("A, 24576\nB, 8192\n")
    for visible, seen in (
        ("0", "A"),
        ("1", "B"),
        ("1, 0", "BA"),
        ("7", ""),
        ("0,7,1", "A"),
        ("1,-1", "B"),
        ("GPU-8d5f", "A"),
        ("NoDevFiles", ""),  # what Slurm sets for a job without a GPU
    ):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert "".join(gpu.name for gpu in list_gpus()) == seen, visible


@pytest.mark.parametrize(
    ("rows", "share", "peak", "fit"),
    [
        ("A, 24576", 0.1, 4, 4),  # 4.6 GiB with headroom and 0.6 of context
        ("A, 24576", 0.5, 4, 2),
        ("A, 24576", 0.1, 40, 1),  # at least one
        ("A, 24576\nB, 8192", 0.1, 4, 2),  # the smallest counts
        ("A, 24576\nB, 8192", 2.0, 4, 1),
        ("A, [N/A]", 0.1, 4, 10),
        ("\n".join(["A, [N/A]"] * 8), 0.35, 4, 16),  # no share lies on two GPUs
        ("\n".join(["A, [N/A]"] * 8), 0.6, 4, 8),
    ],
)
def test_as_many_share_a_gpu_as_its_memory_allows(smi: Path, rows: str, share: float, peak: int, fit: int) -> None:
    smi.write_text(f"{rows}\n")
    sweep = Sweep(name="toy", question="?", base=FULL, seeds=(1,), resources=Resources(gpus=share)).at("paper")
    packing = packing_of(sweep, [MEASURED.model_copy(update={"peak_memory_bytes": peak * GIB})])
    assert (packing.by_memory, packing.by_gpus) == (None, fit)


def test_what_the_sweep_starts_by_itself_is_told_apart_from_what_memory_allows(smi: Path) -> None:
    smi.write_text("A, 24576\n")
    sweep = Sweep(name="toy", question="?", base=FULL, seeds=(1,), resources=Resources(cpus=0.1, gpus=0.1)).at("paper")
    packing = packing_of(sweep, [MEASURED.model_copy(update={"peak_memory_bytes": 4 * GIB})])
    assert (packing.at_once, packing.started) == (4, 10)
