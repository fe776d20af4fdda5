"""Text for the page: numbers rounded by their uncertainty, names that cannot break Markdown, lists in words."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # scipy takes most of a second to import, and a plan is put in words without it
    from orchestrator.statistics import Interval

MINUS = "\u2212"
NOTHING = "–"
_SPECIAL = re.compile(r"([\\`*\[\]|~#^!])|(?<![^\W_])(_)|(_)(?![^\W_])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;", "$": "&#36;", "://": "&#58;//", "www.": "www&#46;"}
_ENTITY = re.compile("|".join(re.escape(text) for text in _ENTITIES), re.IGNORECASE)


class Markdown(str):
    """Text that is Markdown already, and is put on the page as it is."""


def escape(text: object) -> Markdown:
    """Any text as one line of literal Markdown: no table, link, mention, formula or HTML can come out of it."""
    if isinstance(text, Markdown):
        return text
    line = " ".join(str(text).split())
    backslashed = _SPECIAL.sub(lambda match: "\\" + match.group(0), line)
    return Markdown(_ENTITY.sub(lambda match: _ENTITIES[match.group(0).lower()], backslashed))


def fenced(text: str, language: str = "") -> Markdown:
    """A code block whose fence is longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return Markdown(f"{fence}{language}\n{text.rstrip()}\n{fence}")


def number(value: float, decimals: int = 2) -> str:
    """A number with so many decimals (negative: rounded to tens, hundreds), a true minus and no negative zero."""
    if math.isnan(value):
        return NOTHING
    if not math.isfinite(value):
        return "∞" if value > 0 else MINUS + "∞"
    if abs(value) >= 1e6:
        return f"{value:.2e}".replace("-", MINUS)
    rounded = round(value, decimals) + 0.0
    return f"{rounded:.{max(decimals, 0)}f}".replace("-", MINUS)


def significant(value: float, digits: int = 4) -> str:
    """A number with so many significant digits; a larger one whole, with its thousands apart."""
    if not math.isfinite(value) or abs(value) >= 1e12:
        return number(value)
    text = f"{value:,.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value + 0.0:#.{digits}g}".rstrip(".")
    return text.replace("-", MINUS)


def signed(value: float, decimals: int = 2) -> str:
    """A difference: as `number`, with a plus where it is above zero after rounding."""
    text = number(value, decimals)
    return f"+{text}" if value > 0 and text.strip("0.") else text


def decimals_for(uncertainty: float) -> int:
    """Decimals that show two significant digits of an uncertainty; at most two, unless it would then read as zero."""
    if not math.isfinite(uncertainty) or uncertainty <= 0:
        return 2
    return _more_until_seen(min(2, 1 - math.floor(math.log10(uncertainty))), uncertainty)


def spread(mean: float, deviation: float | None) -> str:
    """Mean ± standard deviation, rounded by the deviation; the mean alone where there is one value."""
    if deviation is None:
        return number(mean)
    decimals = decimals_for(deviation)
    return f"{number(mean, decimals)} ± {number(deviation, decimals)}"


def difference(value: float, interval: Interval | None) -> str:
    """A difference with its interval, rounded by the interval's width."""
    if interval is None:
        return signed(value)
    decimals = difference_decimals(interval)
    return f"{signed(value, decimals)} [{signed(interval.low, decimals)}, {signed(interval.high, decimals)}]"


def difference_decimals(interval: Interval) -> int:
    """Decimals for an interval: two digits of its half width, more where an end that is not zero would read as zero."""
    decimals = decimals_for((interval.high - interval.low) / 2)
    return _more_until_seen(decimals, min(abs(interval.low), abs(interval.high)))


def _more_until_seen(decimals: int, value: float) -> int:
    while value > 0 and decimals < 6 and round(value, decimals) == 0:
        decimals += 1
    return decimals


def published(value: float | None) -> str:
    """A published figure with the digits it was printed with."""
    return NOTHING if value is None else f"{value:.10g}" + (".0" if float(value).is_integer() else "")


def listed(items: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def counted(count: int, noun: str) -> str:
    """`1 seed`, `2 seeds`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def duration(seconds: float) -> str:
    """Seconds in the unit a reader would use."""
    for size, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
