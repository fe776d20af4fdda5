"""A span of time as one writes it: 8h, 90m, 30s, 1d."""

from __future__ import annotations

import re

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds_in(text: str) -> float:
    """The seconds of a span such as `8h` or `1.5d`; ValueError for anything else, and for nothing at all."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip())
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if seconds <= 0.0:
        raise ValueError(f"a number above 0 and s, m, h or d, such as 90m or 8h; got {text!r}")
    return seconds
