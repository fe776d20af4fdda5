"""`report.html`: the page once more as one file that asks no network for anything, made of the text of `report.md`."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from bokeh.resources import Resources
from markdown_it import MarkdownIt
from markdown_it.token import Token

from lm.files import write_text
from orchestrator.report.html.curves import HoverCurves
from orchestrator.report.markdown import environment

_FOLDER = Path(__file__).parent
_CURVES_AFTER = "overview.svg"
"""The curves that can be hovered end the section with this picture; without it they end the page."""
_ALLOWED_TAG = re.compile(r"&lt;(/?(?:details|summary))&gt;")


def write_html(folder: Path, text: str, hovered: HoverCurves | None) -> None:
    """Write `report.html` into `folder`, which holds the pictures that `text`, the Markdown of the page, names.

    Of HTML in the text only bare `<details>` and `<summary>` pass, and the page's policy lets only its own scripts run.
    """
    scripts = [(_FOLDER / "page.js").read_text(encoding="utf-8")]
    if hovered is not None:
        scripts.insert(0, str(Resources(mode="inline", components=["bokeh"]).js_raw[0]))
    markdown = _markdown()
    tokens = markdown.parse(text)
    headings, middle = _prepare(tokens, folder)
    parts = tokens[:middle], tokens[middle:]
    before, after = (markdown.renderer.render(part, markdown.options, {}) for part in parts)
    page = (
        environment("orchestrator.report.html", autoescape=True)
        .get_template("page.html.jinja")
        .render(
            title=next((heading for tag, _, heading in headings if tag == "h1"), ""),
            sections=[(anchor, heading) for tag, anchor, heading in headings if tag == "h2"],
            before=before,
            after=after,
            hovered=hovered,
            scripts=scripts,
            hashes=[base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts],
            css=(_FOLDER / "page.css").read_text(encoding="utf-8"),
        )
    )
    write_text(folder / "report.html", page)


def _markdown() -> MarkdownIt:
    """CommonMark with tables that scroll, and with HTML escaped but for the allowed tags."""
    markdown = MarkdownIt("commonmark", {"html": True}).enable("table")

    def few_tags(_: object, tokens: Sequence[Token], place: int, *__: Any) -> str:
        return _ALLOWED_TAG.sub(r"<\1>", escape(tokens[place].content))

    scroll = '<div class="scroll" role="region" aria-label="table" tabindex="0">\n<table>\n'
    markdown.add_render_rule("html_block", few_tags)
    markdown.add_render_rule("html_inline", few_tags)
    markdown.add_render_rule("table_open", lambda *_: scroll)
    markdown.add_render_rule("table_close", lambda *_: "</table>\n</div>\n")
    return markdown


def _prepare(tokens: Sequence[Token], folder: Path) -> tuple[list[tuple[str, str, str]], int]:
    """Give headings anchors, and put the folder's pictures in; tags, anchors and texts, and the place of the curves."""
    headings, middle, overview = [], len(tokens), False
    for place, token in enumerate(tokens):
        if token.type == "heading_open":
            token.attrSet("id", f"section-{place}")
            text = "".join(child.content for child in tokens[place + 1].children or [])
            headings.append((token.tag, f"section-{place}", text))
            middle = min(middle, place) if overview else middle
        for child in token.children or []:
            name = str(child.attrs.get("src", ""))
            overview = overview or name == _CURVES_AFTER
            path = folder / name
            if child.type == "image" and path.suffix == ".svg" and path.parent == folder and path.is_file():
                picture = base64.b64encode(path.read_bytes()).decode()
                child.attrSet("src", f"data:image/svg+xml;base64,{picture}")
    return headings, middle
