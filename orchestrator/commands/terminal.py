"""Tables for people: no rules, no markup, and in a file as wide as they need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
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
    headings: Sequence[str],
    rows: Iterable[Iterable[str]],
    *,
    right: Iterable[str] = (),
    whole: Iterable[str] = ("key",),
) -> None:
    """Print rows under headings: columns `right` aligned so, columns `whole` never broken, in a file none."""
    console = plain_console()
    if not console.is_terminal:
        _print_lines([list(headings), *map(list, rows)], [heading in right for heading in headings])
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left", no_wrap=heading in whole)
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def _print_lines(lines: Sequence[Sequence[str]], right: Sequence[bool]) -> None:
    """A line a row, however long: to lay out a thousand of them costs Rich most of a second."""
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        pads = (" " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True))
        cells = (pad + cell if is_right else cell + pad for cell, pad, is_right in zip(line, pads, right, strict=True))
        print("  ".join(cells).rstrip())
