"""Which code ran."""

from __future__ import annotations

import subprocess
from pathlib import Path


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
