"""Where a trial ran: versions, device, memory."""

from __future__ import annotations

import platform
import resource
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch

from lm import __version__


def versions() -> dict[str, str]:
    """Versions of this package and of what decides the numbers."""
    found = {"lm-ablation": __version__, "python": platform.python_version()}
    found |= {"torch": torch.__version__, "numpy": np.__version__}
    if torch.version.cuda is not None:
        cudnn: object = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
        found |= {"cuda": torch.version.cuda, "cudnn": str(cudnn)}
    return found


def device_name(device: torch.device) -> str:
    """The GPU's name; of a processor its name and the instructions that torch takes, on which the last bits depend."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu ({_processor()}, {torch.backends.cpu.get_cpu_capability()})"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux
        lines = []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def peak_memory_bytes(device: torch.device) -> int:
    """The most since `reset_peak_memory` that the GPU's allocator held or, on a CPU, was resident of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with suppress(OSError, StopIteration):  # of Linux; getrusage's may be that of the process that started this one
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def reset_peak_memory(device: torch.device) -> None:
    """Start measuring the peak again; on a CPU only Linux can, elsewhere it is the process's since its start."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
