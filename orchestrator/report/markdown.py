"""Markdown pages: their templates, and a paragraph as plain text, for tags, summaries and LaTeX."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markdown_it import MarkdownIt

from orchestrator.words import escape


def plain(markdown: str) -> str:
    """The text that a reader sees of one paragraph of Markdown: no emphasis, no escapes, no entities."""
    tokens = MarkdownIt("commonmark").parseInline(markdown)
    return "".join(child.content for token in tokens for child in token.children or [])


def template(name: str) -> Template:
    """A template whose every value is escaped as it enters the page, unless it is `Markdown` already."""
    environment = Environment(
        loader=PackageLoader("orchestrator.report", ""),
        undefined=StrictUndefined,
        finalize=escape,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(name)
