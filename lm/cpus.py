"""How many CPUs a process may use."""

from __future__ import annotations

import os
from pathlib import Path

QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""The quota of the control group; a container sees its own here."""


def cpu_count() -> int:
    """How many CPUs this process may use, by its affinity and the quota of its control group."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    words = QUOTA.read_text(encoding="utf-8").split() if QUOTA.exists() else []
    if len(words) == 2 and words[0].isdigit():  # microseconds of CPU time in each period; "max": no limit
        count = min(count, max(1, int(words[0]) // int(words[1])))
    return count
