"""Tables for people: no rules, no markup, and in a file as wide as they need."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

# Wide enough for one line a trial where the output goes to a file, which has no width of its own.
_PLAIN_WIDTH = 160


def plain_console() -> Console:
    """The terminal; where there is none, a console of a width that suits tables."""
    console = Console()
    return console if console.is_terminal else Console(width=_PLAIN_WIDTH)


def print_table(
    headings: Iterable[str],
    rows: Iterable[Iterable[str]],
    *,
    right: Iterable[str] = (),
    whole: Iterable[str] = ("key",),
) -> None:
    """Print rows under headings: columns `right` aligned so, columns `whole` never broken."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left", no_wrap=heading in whole)
    for row in rows:
        table.add_row(*map(Text, row))
    plain_console().print(table)
