"""Numbers, times, bytes, values, lists and tables as text, rounded by their uncertainty and safe in Markdown."""

from __future__ import annotations

import io
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from lm.spec import Part

MINUS = "\u2212"
_LOPSIDED = 3.0
"""An interval is lopsided if its half width is this many times the distance of its nearer end."""
NOTHING = "–"
_SPECIAL = re.compile(r"([\\`*\[\]|~#^!])|(?<![^\W_])(_)|(_)(?![^\W_])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;", "$": "&#36;", "://": "&#58;//", "www.": "www&#46;"}
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_ENTITY = re.compile("|".join(re.escape(text) for text in _ENTITIES), re.IGNORECASE)


class Markdown(str):
    """Text that is Markdown already, and is put on the page as it is."""


def escape(text: object) -> Markdown:
    """Any text as one line of literal Markdown, without tables, links, mentions, formulas and HTML."""
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
    """A number with these decimals (negative: rounded to tens, hundreds), a true minus and no negative zero."""
    if math.isnan(value):
        return NOTHING
    if not math.isfinite(value):
        return "∞" if value > 0 else MINUS + "∞"
    if abs(value) >= 1e6:
        return f"{value:.2e}".replace("-", MINUS)
    rounded = round(value, decimals) + 0.0
    return f"{rounded:.{max(decimals, 0)}f}".replace("-", MINUS)


def significant(value: float, digits: int = 4) -> str:
    """A number with these significant digits; a larger one is whole, with commas between its thousands."""
    if not math.isfinite(value) or abs(value) >= 1e12:
        return number(value)
    text = f"{value:,.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value + 0.0:#.{digits}g}".rstrip(".")
    return text.replace("-", MINUS)


def signed(value: float, decimals: int = 2) -> str:
    """A difference: as `number`, with a plus if it is above zero after rounding."""
    text = number(value, decimals)
    return f"+{text}" if value > 0 and text.strip("0.") else text


def decimals_for(uncertainty: float) -> int:
    """Decimals for two significant digits of an uncertainty: at most two, or as many as show that it is not zero."""
    if not math.isfinite(uncertainty) or uncertainty <= 0:
        return 2
    decimals = min(2, 1 - math.floor(math.log10(uncertainty)))
    while decimals < 6 and round(uncertainty, decimals) == 0:
        decimals += 1
    return decimals


def spread(mean: float, deviation: float | None) -> str:
    """Mean ± standard deviation, rounded by the deviation; the mean alone if there is one value."""
    if deviation is None or math.isnan(mean):
        return number(mean)
    decimals = decimals_for(deviation)
    return f"{number(mean, decimals)} ± {number(deviation, decimals)}"


def difference(value: float, interval: tuple[float, float] | None) -> str:
    """A difference with its interval, rounded by the interval's width."""
    if interval is None:
        return signed(value)
    text, low, high = rounded_by_interval(value, *interval)
    return f"{text} [{low}, {high}]"


def ends_in_words(low: float, high: float) -> str:
    """The ends of an interval of perplexities, rounded by its width: `109.8 to 115.8`."""
    decimals = decimals_for((high - low) / 2)
    return f"{number(low, decimals)} to {number(high, decimals)}"


def rounded_by_interval(value: float, low: float, high: float) -> tuple[str, str, str]:
    """A difference and the ends of its interval, each with its sign, to two digits of the half width.

    In a lopsided interval the difference and the nearer end can be far smaller than that: then they are rounded by
    their distance. If one would still read as zero, it is rounded by itself: an end by its size, the difference by that
    distance. An end at zero itself is left out of the interval, as the later steps of the verdicts do it: `above 0`,
    `below 0`.
    """
    nearer, half = min(abs(value - low), abs(high - value)), (high - low) / 2
    of_half = decimals_for(half if math.isfinite(half) else nearer)
    close = decimals_for(nearer) if _LOPSIDED * nearer < half else of_half

    def rounded(end: float, uncertainty: float, decimals: int) -> str:
        if math.isfinite(end) and round(end, decimals) == 0:
            return signed(end, decimals_for(uncertainty) if end else decimals)
        return f"{'+' * (end > 0)}{number(end, decimals)}"

    low_is_nearer = value - low <= high - value
    of_low = "above 0" if low == 0 < value else rounded(low, abs(low), close if low_is_nearer else of_half)
    of_high = "below 0" if high == 0 > value else rounded(high, abs(high), of_half if low_is_nearer else close)
    return rounded(value, nearer, close), of_low, of_high


def published(value: float | None) -> str:
    """A published number with its printed digits."""
    return NOTHING if value is None else f"{value:.10g}" + (".0" if float(value).is_integer() else "")


def listed(items: Sequence[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`; `a, with d, and b`, because the comma of an item must end before the last."""
    if len(items) < 2:
        return "".join(items)
    comma = "," * any(", " in re.sub(r"\(.*?\)", "", item) for item in items[:-1])
    return f"{', '.join(items[:-1])}{comma} {last} {items[-1]}"


def counted(count: int, noun: str) -> str:
    """`1 seed`, `2 seeds`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def byte_size(count: float) -> str:
    """Bytes in KiB, MiB or GiB, with three digits: `5.20 MiB`."""
    return _in_unit(count, {"KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30})


def in_thousands(count: float) -> str:
    """A large number in K, M or G, with three digits: `5.38 K`."""
    return _in_unit(count, {"K": 1e3, "M": 1e6, "G": 1e9})


def _in_unit(count: float, units: Mapping[str, float]) -> str:
    """Three digits in the smallest of these units, which ascend, that needs no more before the point."""
    unit = next((unit for unit, size in units.items() if count / size < 999.5), list(units)[-1])
    return f"{significant(count / units[unit], 3)} {unit}"


def duration(seconds: float) -> str:
    """A time in one unit, with a decimal: `3.2 s`, `1.5 min`, `2.0 h`."""
    for size, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def in_words(seconds: float) -> str:
    """A time in whole units: `40 s`, `12 min`, `3 h 20 min`, `2 d 4 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def seconds_in(text: str) -> float:
    """The seconds of a span such as `8h` or `1.5d`; ValueError for anything else, and for zero."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip())
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if seconds <= 0.0:
        raise ValueError(f"expected a number above 0 and s, m, h or d, such as 90m or 8h, got {text!r}")
    return seconds


def value_in_words(value: object) -> str:
    """A value of a spec; a part by its kind and the fields that differ from their defaults: `ecoc (codebook ...)`."""
    match value:
        case None:
            return "none"
        case Part():
            fields = [
                f"{name} {value_in_words(getattr(value, name))}"
                for name, field in type(value).model_fields.items()
                if name != "kind" and (field.is_required() or getattr(value, name) != field.default)
            ]
            return f"{getattr(value, 'kind', '')} ({', '.join(fields)})".strip().removesuffix(" ()")
        case tuple():
            return f"[{', '.join(map(value_in_words, value))}]"
        case float():
            exact = str(value)
            return exact if len(exact) <= 9 else f"{value:.4g}"
        case _:
            return str(value)


@contextmanager
def may_be_unread() -> Iterator[None]:
    """What is printed within the block may find no reader, such as a `head` that has ended: the rest goes nowhere."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python would complain when it ends


def print_table(
    headings: Sequence[str],
    rows: Iterable[Iterable[str]],
    *,
    right: Iterable[str] = (),
    whole: Iterable[str] = ("key",),
) -> None:
    """Print rows under headings, on the terminal: columns `right` aligned so, columns `whole` never broken."""
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    columns = [Column(name, justify="right" if name in right else "left", no_wrap=name in whole) for name in headings]
    table = Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*map(Text, row))
    text, live = io.StringIO(), sys.stdout.isatty()  # Rich itself would end the process if nobody reads any more
    Console(file=text, force_terminal=live, width=None if live else 10_000).print(table)  # no line breaks in a file
    print(text.getvalue(), end="")
