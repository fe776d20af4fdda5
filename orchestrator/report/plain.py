"""Markdown as plain text, for where no Markdown is read: tags, summaries, LaTeX."""

from __future__ import annotations

from markdown_it import MarkdownIt


def plain(markdown: str) -> str:
    """The text that a reader sees of one paragraph of Markdown: no emphasis, no escapes, no entities."""
    tokens = MarkdownIt("commonmark").parseInline(markdown)
    return "".join(child.content for token in tokens for child in token.children or [])
