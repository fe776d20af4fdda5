"""Secrets of addresses, kept out of what is printed, logged or recorded."""

from __future__ import annotations

import re

_USER = re.compile(r"(?<=://)[^/\s?#]*@")
_SECRET_VALUE = re.compile(
    r"(?i)(?<![a-z0-9])((?:[a-z0-9]+[-_])*(?:token|password|passwd|pwd|secret|key|signature|credential)[-_a-z0-9]*=)[^&\s'\")#;]+"
)


def redacted(text: object) -> str:
    """Text with `***` for the user and password of every address in it, and for `token=`, `password=` and the like."""
    return _SECRET_VALUE.sub(r"\1***", _USER.sub("***@", str(text)))
