"""Where a trial ran: versions, commit, device, memory."""

from __future__ import annotations

import platform
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch


def versions() -> dict[str, str]:
    """Versions of what decides the numbers."""
    found = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    if torch.version.cuda is not None:
        cudnn: object = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
        found |= {"cuda": torch.version.cuda, "cudnn": str(cudnn)}
    return found


def commit() -> str | None:
    """The git commit of this code, marked if files differ from it; None outside a checkout."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", *arguments], cwd=here, capture_output=True, text=True, check=False, timeout=10
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    head = git("rev-parse", "--short=12", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".")
    return None if head is None else head + ("+changes" if changed else "")


def device_name(device: torch.device) -> str:
    """The GPU's name, or the processor's."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return f"cpu ({line.split(':', 1)[1].strip()})"
    except OSError:
        pass  # not Linux: the platform's own word below
    return f"cpu ({platform.processor() or platform.machine()})"


def peak_memory_bytes(device: torch.device) -> int:
    """The most the GPU's allocator held since `reset_peak_memory`, or this process's peak resident size on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def reset_peak_memory(device: torch.device) -> None:
    """Start measuring the GPU's peak anew."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
