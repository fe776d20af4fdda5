"""The errors that reach a user, and secrets kept out of what is printed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

_USER = re.compile(r"(?<=://)[^/\s?#]*@")
_SECRET = "token|password|passwd|pwd|secret|signature|credential"
_SECRET_VALUE = re.compile(
    # A parameter of an address, whatever stands around the word; elsewhere `key=` and `tokens=` are code.
    rf"(?i)([?&][-\w]*(?:{_SECRET}|key)[-\w]*=|(?<![a-z0-9])(?:[a-z0-9]+[-_])*(?:{_SECRET}|(?<=[-_])key)(?:[-_\d][-_a-z0-9]*)?=)[^&\s'\")#;]+"
)


class CannotStartError(ValueError):
    """Something that the trials need is missing; nothing was started."""


class RayLostError(RuntimeError):
    """Ray's processes died and could not be started again; the disk is as after an interrupt. Exit code 4."""


def redacted(text: object) -> str:
    """Text with `***` for the user and password of every address in it, and for `token=`, `password=` and the like."""
    return _SECRET_VALUE.sub(r"\1***", _USER.sub("***@", str(text)))


def command_line(words: Iterable[str]) -> str:
    """Words as a shell reads them, redacted."""
    return shlex.join(map(redacted, words))
