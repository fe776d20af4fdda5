"""The Markdown of a report as HTML: pictures inside it, tables that scroll, sections that can be linked."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

CURVES_AFTER = "overview.svg"
"""The curves that can be hovered end the part that holds this picture, on a page without it the whole."""
_MEDIA_TYPE = "image/svg+xml"
_ALLOWED_TAG = re.compile(r"&lt;(/?(?:details|summary))&gt;")


@dataclass(frozen=True)
class Body:
    """The page's HTML, in two parts with room for the curves between; `sections` are anchors and headings."""

    title: str
    sections: list[tuple[str, str]]
    before: str
    after: str


def html_body(text: str, folder: Path) -> Body:
    """The HTML of a report's Markdown; of HTML inside it only bare `<details>` and `<summary>` are let through.

    Pictures that lie in `folder` are put into the page.
    """
    markdown = _markdown()
    tokens = markdown.parse(text)
    title, sections = "", []
    for place, heading in _headings(tokens):
        if tokens[place].tag == "h1":
            title = title or heading
        anchor = f"section-{place}"
        tokens[place].attrSet("id", anchor)
        if tokens[place].tag == "h2":
            sections.append((anchor, heading))
    split = _inline_pictures(tokens, folder)
    before, after = (markdown.renderer.render(some, markdown.options, {}) for some in (tokens[:split], tokens[split:]))
    return Body(title, sections, before, after)


def _markdown() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": True}).enable("table")
    markdown.add_render_rule("html_block", _few_tags)
    markdown.add_render_rule("html_inline", _few_tags)
    markdown.add_render_rule("table_open", _table_open)
    markdown.add_render_rule("table_close", _table_close)
    return markdown


def _few_tags(_: object, tokens: Sequence[Token], place: int, *__: Any) -> str:
    return _ALLOWED_TAG.sub(r"<\1>", escape(tokens[place].content))


def _table_open(*_: object) -> str:
    return '<div class="scroll" role="region" aria-label="table" tabindex="0">\n<table>\n'


def _table_close(*_: object) -> str:
    return "</table>\n</div>\n"


def _headings(tokens: Sequence[Token]) -> Iterator[tuple[int, str]]:
    """Where every heading opens, and its text."""
    for place, token in enumerate(tokens):
        if token.type == "heading_open":
            yield place, "".join(child.content for child in tokens[place + 1].children or [])


def _inline_pictures(tokens: Sequence[Token], folder: Path) -> int:
    """Put every picture into the page; the place where the curves belong: ahead of a heading, or the page's end."""
    found = False
    split = len(tokens)
    for place, token in enumerate(tokens):
        if found and token.type == "heading_open":
            split = min(split, place)
        for child in token.children or []:
            if child.type == "image":
                name = str(child.attrs["src"])
                found = found or name == CURVES_AFTER
                child.attrSet("src", _source(folder, name))
    return split


def _source(folder: Path, name: str) -> str:
    """A picture's bytes as a `data:` address; its name as it is, unless it is a file of the folder itself."""
    path = folder / name
    if path.suffix != ".svg" or Path(name).name != name or not path.is_file():
        return name
    return f"data:{_MEDIA_TYPE};base64,{base64.b64encode(path.read_bytes()).decode()}"
