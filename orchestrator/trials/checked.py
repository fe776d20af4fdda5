"""A note of the trials whose files were hashed and right, so that they are not hashed again until they change.

runs/.checked.json   by trial key, a digest of the inode, size and times of the trial's files when they were hashed

A cache that may be deleted at any time. Only sweeps write it: commands that read change nothing under `runs/`. A wrong
entry fits no trial, and costs a hash.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from lm.files import in_a_line, read_regular, write_text
from lm.hashes import CURVE, RECORD, TOKENS

FileStates = list[tuple[str, tuple[int, int, int, int] | None]]
"""Of each file its inode, size in bytes, times of modification and of change (ns): nobody can set the last one."""

TOO_FRESH_SECONDS = 2.0  # a file written again so soon may keep its times: no file system's clock is coarser
_log = logging.getLogger(__name__)


def state_of_files(folder: Path) -> FileStates:
    """What changes when a file that reports read is changed, or another takes its place."""
    names = ["", RECORD, CURVE]  # plain text, and no Path: this is asked several times for every trial
    with suppress(OSError):  # each of its files will raise it too
        names += sorted(f"{TOKENS}/{name}" for name in os.listdir(folder / TOKENS))  # noqa: PTH208
    states: FileStates = [(name, None) for name in names]
    for place, name in enumerate(names):
        with suppress(OSError):
            status = os.stat(f"{folder}/{name}")  # noqa: PTH116
            states[place] = name, (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return states


class Checked:
    """The note in a folder of trials."""

    def __init__(self, root: Path) -> None:
        self._path = root / ".checked.json"
        self._new: dict[str, str] = {}

    def has(self, key: str, state: FileStates) -> bool:
        """Whether a trial's files were right in this state."""
        return self._noted.get(key) == _digest(state)

    def add(self, key: str, state: FileStates) -> None:
        """The trial's files are right; they are not noted if one was written only just now."""
        changed = max(times[3] for _, times in state if times is not None)
        if time.time() - changed / 1e9 > TOO_FRESH_SECONDS:
            self._new[key] = _digest(state)

    def write(self) -> None:
        """Add what is new to the note; trials that are gone leave it."""
        if not self._new:
            return
        merged = _read(self._path) | self._new
        present = {key: digest for key, digest in merged.items() if (self._path.parent / key).exists()}
        try:
            write_text(self._path, json.dumps(present, indent=0) + "\n")
        except OSError as error:
            _log.warning("files that were checked will be checked again: %s", in_a_line(error))
        self._new = {}

    @cached_property
    def _noted(self) -> dict[str, str]:
        return _read(self._path)


def _read(path: Path) -> dict[str, str]:
    try:
        return TypeAdapter(dict[str, str]).validate_json(read_regular(path))
    except (OSError, ValidationError):
        return {}


def _digest(state: FileStates) -> str:
    return hashlib.sha256(repr(state).encode()).hexdigest()[:32]
