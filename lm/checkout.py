"""Which code ran."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

COMMIT_VARIABLE = "LM_COMMIT"
"""Set where the code runs as a copy without its checkout, to the commit that it was copied from."""


def commit() -> str | None:
    """The git commit of this code, marked if files differ from it; None outside a checkout, or in another project's."""
    if (given := os.environ.get(COMMIT_VARIABLE)) is not None:
        return given or None
    here = Path(__file__).parent

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", *arguments], cwd=here, capture_output=True, text=True, check=False, timeout=10
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if git("ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None
    head = git("rev-parse", "--short=12", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".")
    return head and head + ("+changes" if changed else "")
