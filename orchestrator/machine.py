"""What this machine has, asked without torch, and the scale that fits it."""

from __future__ import annotations

import os
import shutil
import subprocess

from orchestrator.sweep import PUBLISHED_SCALE, Sweep

SMALL_SCALE = "laptop"


def default_scale(sweep: Sweep) -> tuple[str, str]:
    """The scale to take when none is asked for, and why."""
    if has_gpu():
        return PUBLISHED_SCALE, "this machine has an NVIDIA GPU"
    if SMALL_SCALE not in sweep.scale_names:
        return PUBLISHED_SCALE, f"no GPU was found, but the sweep has no scale {SMALL_SCALE!r}"
    return SMALL_SCALE, "no NVIDIA GPU was found"


def has_gpu() -> bool:
    """Whether `nvidia-smi` lists a GPU and `CUDA_VISIBLE_DEVICES` does not hide them all."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1"):
        return False
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return False
    try:
        listed = subprocess.run([smi, "-L"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return listed.returncode == 0 and bool(listed.stdout.strip())
