"""Markdown pages: their templates, and a paragraph as plain text, for tags, summaries and LaTeX."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from textwrap import shorten
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markdown_it import MarkdownIt

from lm.yaml_text import write_yaml
from orchestrator import words
from orchestrator.words import NOTHING, Markdown, escape, listed

MOST_PANELS = 24
"""Of a picture; what is said of it names as many variants."""
_LONGEST_REASON = 300
Row = dict[str, Any]
Rows = list[Row]
"""A table: rows with the same headings in the same order."""


def plain(markdown: str) -> str:
    """The text that a reader sees of one paragraph of Markdown: no emphasis, no escapes, no entities."""
    tokens = MarkdownIt("commonmark").parseInline(markdown)
    return "".join(child.content for token in tokens for child in token.children or [])


def names(texts: Iterable[str]) -> Markdown:
    """Names as a list in a sentence, each escaped."""
    return Markdown(listed([escape(text) for text in texts]))


def drawn(texts: Sequence[str]) -> Markdown:
    """Names of what a picture shows; those beyond its panels are counted."""
    more = [f"{len(texts) - MOST_PANELS} more"] if len(texts) > MOST_PANELS else []
    return Markdown(listed([*map(escape, texts[:MOST_PANELS]), *more]))


def table(rows: Rows, alignment: str) -> Markdown:
    """One row or more as a table; `alignment` has l or r for each column, its last letter for all that follow."""
    marks = [{"l": ":--", "r": "--:"}[letter] for letter in alignment.ljust(len(rows[0]), alignment[-1])]
    lines = [rows[0], map(Markdown, marks), *(row.values() for row in rows)]
    cells = ([escape(NOTHING if cell is None else cell) for cell in line] for line in lines)
    return Markdown("\n".join(f"| {' | '.join(line)} |" for line in cells))


def environment(package: str, **settings: Any) -> Environment:
    """How the templates of a package are read: an unknown name is an error, a line with a tag alone leaves no line."""
    spaces: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
    return Environment(loader=PackageLoader(package, ""), undefined=StrictUndefined, **spaces, **settings)


@cache
def template(name: str) -> Template:
    """A template whose every value is escaped as it enters the page, unless it is `Markdown` already."""
    on_page = environment("orchestrator.report", finalize=lambda value: escape(NOTHING if value is None else value))
    on_page.filters |= {
        "names": names,
        "drawn": drawn,
        "table": table,
        "whole": lambda value: f"{value:,.0f}",
        "number": lambda value: NOTHING if value is None else words.number(value),
        "significant": words.significant,
        "signed": words.signed,
        "counted": words.counted,
        "fenced": words.fenced,
        "yaml": lambda data: words.fenced(write_yaml(data, as_ascii=False), "yaml"),
        "in_words": words.value_in_words,
        "shortened": lambda text: shorten(text or "", _LONGEST_REASON, placeholder=" … (whole in trials.csv)"),
    }
    return on_page.get_template(name)
