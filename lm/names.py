"""The valid name that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


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
    """The valid name that was probably meant, in whatever case, or the only one with this beginning or these initials.

    None if no name is close.
    """
    by_lower, asked = {name.lower(): name for name in valid}, str(got).lower()
    near = difflib.get_close_matches(asked, by_lower, n=1)
    longer = [name for name in by_lower if len(asked) > 1 and name.startswith(asked)]
    initials = [name for name in by_lower if len(asked) > 1 and asked == "".join(word[:1] for word in name.split("_"))]
    meant = near or longer[: len(longer) == 1] or initials[: len(initials) == 1]
    return by_lower[meant[0]] if meant else None
