"""How many CPUs a process may use."""

from __future__ import annotations

import os
from pathlib import Path

QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""The quota of the control group; a container sees its own here."""
QUOTA_1 = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")
"""The same of version 1 of control groups, in two files."""


def cpu_count() -> int:
    """How many CPUs this process may use, by its affinity and the quota of its control group."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    files = (QUOTA,) if QUOTA.exists() else QUOTA_1
    words = [word for path in files if path.exists() for word in path.read_text(encoding="utf-8").split()]
    if len(words) == 2 and words[0].isdigit():  # microseconds of CPU time in each period; "max" or -1: no limit
        count = min(count, max(1, int(words[0]) // int(words[1])))
    return count
