"""Which trials' files were hashed and found right, so that they are not hashed again while nobody has touched them.

runs/.checked.json   by trial key, a digest of the inode, size and times of the trial's files when they were hashed

A cache that may be deleted at any time. Only sweeps write it: commands that read change nothing under `runs/`. What is
wrong in it fits no trial, and costs a hash.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from functools import cached_property
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from lm.files import in_a_line, read_regular, write_text

FileState = tuple[int, int, int, int]
"""Inode, size in bytes, times of modification and of change in nanoseconds: nobody can set the last one."""
FileStates = list[tuple[str, FileState | None]]
"""What changes when a file that reports read is changed, or another takes its place."""

_TOO_FRESH_SECONDS = 2.0  # a file written again so soon may keep its times: no file system's clock is coarser
_log = logging.getLogger(__name__)


class Checked:
    """The note in a folder of trials."""

    def __init__(self, root: Path) -> None:
        self._path = root / ".checked.json"
        self._new: dict[str, str] = {}

    def has(self, key: str, state: FileStates) -> bool:
        """Whether a trial's files were found right in this state."""
        return self._known.get(key) == _digest(state)

    def add(self, key: str, state: FileStates) -> None:
        """Its files have just been found right; nothing is noted of one that was written only just now."""
        changed = max(files[3] for _, files in state if files is not None)
        if time.time() - changed / 1e9 > _TOO_FRESH_SECONDS:
            self._new[key] = _digest(state)

    def write(self) -> None:
        """Add what is new to the note; trials that are gone leave it."""
        if not self._new:
            return
        merged = {**_read(self._path), **self._new}
        kept = {key: digest for key, digest in merged.items() if (self._path.parent / key).exists()}
        try:
            write_text(self._path, json.dumps(kept, indent=0) + "\n")
        except OSError as error:
            _log.warning("files that were checked will be checked again: %s", in_a_line(error))
        self._new = {}

    @cached_property
    def _known(self) -> dict[str, str]:
        return _read(self._path)


def _read(path: Path) -> dict[str, str]:
    try:
        return TypeAdapter(dict[str, str]).validate_json(read_regular(path))
    except (OSError, ValidationError):
        return {}


def _digest(state: FileStates) -> str:
    return hashlib.sha256(repr(state).encode()).hexdigest()[:32]
