"""The errors that reach a user, and secrets kept out of what is printed."""

from __future__ import annotations

import re

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
