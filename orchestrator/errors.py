"""The errors that reach a user, the nearest valid name, and secrets kept out of what is printed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_USER = re.compile(r"(?<=://)[^/\s?#]*@")
_SECRET_VALUE = re.compile(
    r"(?i)(?<![a-z0-9])((?:[a-z0-9]+[-_])*(?:token|password|passwd|pwd|secret|key|signature|credential)[-_a-z0-9]*=)[^&\s'\")#;]+"
)


class CannotStartError(ValueError):
    """Something that the trials need is missing; nothing was started."""


class RayLostError(RuntimeError):
    """Ray's processes died and could not be started again; the disk is as after an interrupt. Exit code 4."""


def nearest(got: object, valid: Iterable[str]) -> str:
    """A hint in brackets: the valid name that was probably meant, or all of them if none is close.

    If names begin with `got` and a space, it names all of these: `table1` may be any of its parts.
    """
    names = [str(name) for name in valid]
    if longer := [name for name in names if str(got) and name.startswith(f"{got} ")]:
        return f" (did you mean {' or '.join(map(repr, longer))}?)"
    if (close := closest(got, names)) is not None:
        return f" (did you mean {close!r}?)"
    return f" (valid here: {', '.join(names)})" if names else " (nothing is valid here)"


def closest(got: object, valid: Iterable[str]) -> str | None:
    """The valid name that was probably meant; None if none is close."""
    return next(iter(difflib.get_close_matches(str(got), list(valid), n=1)), None)


def redacted(text: object) -> str:
    """Text with `***` for the user and password of every address in it, and for `token=`, `password=` and the like."""
    return _SECRET_VALUE.sub(r"\1***", _USER.sub("***@", str(text)))
