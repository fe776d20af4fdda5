"""A table on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def print_table(
    headings: Sequence[str],
    rows: Iterable[Iterable[str]],
    *,
    right: Iterable[str] = (),
    whole: Iterable[str] = ("key",),
) -> None:
    """Print rows under headings: columns `right` aligned so, columns `whole` never broken."""
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    columns = [Column(name, justify="right" if name in right else "left", no_wrap=name in whole) for name in headings]
    table = Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console()
    (console if console.is_terminal else Console(width=10_000)).print(table)  # no line breaks in a file
