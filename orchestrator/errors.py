"""The errors that reach a user, and secrets kept out of what is printed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

_USER = re.compile(r"(?<=://)[^/\s?#]*@")
_SECRET_VALUE = re.compile(
    r"(?i)(?<![a-z0-9])((?:[a-z0-9]+[-_])*(?:token|password|passwd|pwd|secret|key|signature|credential)[-_a-z0-9]*=)[^&\s'\")#;]+"
)


class CannotStartError(ValueError):
    """Something that the trials need is missing; nothing was started."""


class RayLostError(RuntimeError):
    """Ray's processes died and could not be started again; the disk is as after an interrupt. Exit code 4."""


def redacted(text: object) -> str:
    """Text with `***` for the user and password of every address in it, and for `token=`, `password=` and the like."""
    return _SECRET_VALUE.sub(r"\1***", _USER.sub("***@", str(text)))


def command_line(words: Iterable[str]) -> str:
    """Words as a shell reads them, those with an address redacted; `train_tokens=200` is no secret and stays."""
    return shlex.join(redacted(word) if "://" in word else word for word in words)
