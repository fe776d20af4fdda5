"""Whose memory it was, when Ray's memory monitor killed a worker because the machine's memory was full."""

from __future__ import annotations

import re

from orchestrator.errors import redacted

_KILLED = "killed due to the node running low on memory"
_USED = re.compile(r"was (?P<used>[\d.]+)GB used / (?P<limit>[\d.]+)GB limit")
_WORKER = re.compile(r"actual memory used=(?P<used>[\d.]+)GB")
_USER = re.compile(r"^(?P<process>\d+)\t(?P<used>[\d.]+)\t(?P<command>.+)$", re.MULTILINE)
_NAMED = 3
_LONGEST_COMMAND = 60


def filled_by_others(deaths: str) -> str | None:
    """Which programs fill the memory for which the last worker was killed, from what Ray says of a trial's deaths.

    None if it died otherwise, or if the trials themselves use half of the memory or more.
    """
    last = deaths.rpartition("Failure # ")[2]
    used = _USED.search(last)
    if _KILLED not in last or used is None:
        return None
    trials = sum(float(worker["used"]) for worker in _WORKER.finditer(last))
    if 2 * trials >= float(used["used"]):
        return None
    return f"{used['used']} of {used['limit']} GB are in use, {trials:g} by trials; most by {_users(last)}"


def _users(text: str) -> str:
    """The processes with the most resident memory, the largest first."""
    found = sorted(_USER.finditer(text), key=lambda user: float(user["used"]), reverse=True)[:_NAMED]
    return ", ".join(f"{_command(user['command'])} (process {user['process']}, {user['used']} GB)" for user in found)


def _command(text: str) -> str:
    line = "".join(letter if letter.isprintable() else "?" for letter in redacted(text))
    return line if len(line) <= _LONGEST_COMMAND else line[: _LONGEST_COMMAND - 3] + "..."
