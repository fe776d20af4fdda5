"""Trials asked for by key: the whole of it, or as much as tells it from others."""

from __future__ import annotations

import re
from pathlib import Path

from lm.record import Record
from orchestrator.errors import nearest
from orchestrator.trials.records import read_own

_KEY = re.compile(r"[0-9a-f]{1,16}")


def find_key(runs: Path, prefix: str) -> str:
    """The key of the trial in `runs` that begins so; ValueError where there is none, or are several."""
    keys = sorted(path.name for path in runs.glob("*") if re.fullmatch(r"[0-9a-f]{16}", path.name))
    # Never joined to the path before it is known to be a key, so that no name leads out of the folder.
    found = [key for key in keys if key.startswith(prefix)] if _KEY.fullmatch(prefix) else []
    if len(found) == 1:
        return found[0]
    if found:
        raise ValueError(f"{prefix!r} is ambiguous: {', '.join(found[:8])}{', ...' if len(found) > 8 else ''}")
    if not keys:
        raise ValueError(f"no trial {prefix!r} in {runs}, which holds none")
    near = nearest(prefix, keys)
    raise ValueError(f"no trial {prefix!r} in {runs}{near if 'did you mean' in near or len(keys) <= 8 else ''}")


def record_of(runs: Path, prefix: str) -> Record:
    """The record of the trial that begins so; ValueError also where it has none yet, or a damaged one."""
    key = find_key(runs, prefix)
    record = read_own(runs / key)
    if record is None:
        raise ValueError(f"{runs / key}: no record.json: the trial has not settled yet")
    return record
