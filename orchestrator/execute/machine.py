"""What this machine has, asked without torch, and the scale that fits it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from orchestrator.errors import CannotStartError
from orchestrator.sweep import PUBLISHED_SCALE, Resources, Sweep

SMALL_SCALE = "laptop"
CPU_FLAGS = Path("/proc/cpuinfo")
GPU_SHARE = 0.25
"""What a trial gets of a GPU where the sweep says `gpus: auto`."""


def default_scale(sweep: Sweep) -> tuple[str, str]:
    """The scale to take when none is asked for, and why."""
    if has_gpu():
        return PUBLISHED_SCALE, "this machine has an NVIDIA GPU"
    if SMALL_SCALE not in sweep.scale_names:
        return PUBLISHED_SCALE, f"no GPU was found, but the sweep has no scale {SMALL_SCALE!r}"
    return SMALL_SCALE, "no NVIDIA GPU was found"


def has_gpu() -> bool:
    """Whether there is a GPU to use."""
    return gpu_count() > 0


def gpu_count() -> int:
    """How many GPUs `nvidia-smi` lists, none if `CUDA_VISIBLE_DEVICES` hides them all."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    smi = shutil.which("nvidia-smi")
    if smi is None or (visible is not None and visible.strip() in ("", "-1")):
        return 0
    try:
        listed = subprocess.run([smi, "-L"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = sum(line.startswith("GPU") for line in listed.stdout.splitlines()) if listed.returncode == 0 else 0
    return found if visible is None else min(found, len(visible.split(",")))


def gpus_of(resources: Resources) -> float:
    """What a trial gets of a GPU on this machine: as written, or of `auto` a quarter where there is one."""
    if resources.gpus == "auto":
        return GPU_SHARE if has_gpu() else 0.0
    return resources.gpus


def cpu_count() -> int:
    """How many CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def multiplies_in_bfloat16() -> bool | None:
    """Whether the CPU has instructions for products in bfloat16; None where that cannot be read."""
    try:
        words = set(CPU_FLAGS.read_text(encoding="utf-8").split())
    except OSError:
        return None
    return bool(words & {"avx512_bf16", "amx_bf16", "bf16"})


def check_machine(cpus: float, gpus: float, scales_without_gpu: Sequence[str]) -> None:
    """CannotStartError if this machine has no room for even one trial that asks for so much.

    The sweep file has these scales that can do without a GPU.
    """
    if cpus > cpu_count():
        raise CannotStartError(
            f"resources.cpus: a trial asks for {cpus:g}, this machine grants {cpu_count()}; --cpus takes fewer"
        )
    if gpus and gpus > gpu_count():
        others = " or ".join(f"--scale {name}" for name in scales_without_gpu)
        without = f"take a scale without ({others}) or --gpus 0" if others else "take --gpus 0 for CPUs alone"
        raise CannotStartError(
            f"resources.gpus: a trial asks for {gpus:g} GPU, this machine has {gpu_count() or 'none'}; "
            f"{without}, or --address of a cluster that has some"
        )


def check_utf8(*paths: Path) -> None:
    """CannotStartError for a path that is not UTF-8: pyarrow, MLflow and Ray take no other."""
    for path in paths:
        try:
            str(path).encode()
        except UnicodeEncodeError:
            raise CannotStartError(f"expected a path in UTF-8, got {str(path)!r}") from None


def gpu_names() -> tuple[str, ...]:
    """What the GPUs are called."""
    return tuple(line.split(",")[0].strip() for line in _query_gpus())


def gpu_memory_bytes() -> int | None:
    """The memory of the smallest GPU; None without one."""
    sizes = [int(line.split(",")[1]) * 2**20 for line in _query_gpus()]
    return min(sizes, default=None)


def memory_bytes() -> int | None:
    """The memory of this machine, or what its control group may use; None where it cannot be told."""
    sizes = []
    for path, scale in (("/sys/fs/cgroup/memory.max", 1), ("/proc/meminfo", 1024)):
        try:
            words = Path(path).read_text(encoding="utf-8").split()
        except OSError:
            continue
        sizes += [int(word) * scale for word in words[:2] if word.isdigit()]
    return min(sizes, default=None)


def _query_gpus() -> list[str]:
    if not has_gpu():
        return []
    line = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        asked = subprocess.run(line, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [] if asked.returncode else asked.stdout.strip().splitlines()
