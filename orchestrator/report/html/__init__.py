"""`report.html`: the page once more as one file that asks no network for anything, made of the text of `report.md`.

Its learning curves can be hovered, with Bokeh rather than Plotly: its script is 1.3 MB a page instead of 4.8 MB
(Bokeh 3.9, Plotly 7.1), and both are well kept.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from bokeh.core.properties import field
from bokeh.embed import json_item
from bokeh.models import CDSView, ColumnDataSource, HoverTool, IndexFilter, MultiLine, NumeralTickFormatter, Range1d
from bokeh.plotting import figure
from bokeh.resources import Resources
from markdown_it import MarkdownIt
from markdown_it.token import Token

from lm.files import write_text
from orchestrator.analysis.outcomes import Outcomes
from orchestrator.report.markdown import environment
from orchestrator.report.pictures.learning import (
    VariantCurves,
    band,
    iterate,
    last_epoch,
    perplexities,
    variant_curves,
    visible_range,
)
from orchestrator.report.pictures.style import line_styles

_FOLDER = Path(__file__).parent
_CURVES_AFTER = "overview.svg"
"""The curves that can be hovered end the section with this picture; without it they end the page."""
_ALLOWED_TAG = re.compile(r"&lt;(/?(?:details|summary))&gt;")
_HIT_WIDTH = 10  # pixels
_MOST_IN_TOOLTIP = 12


@dataclass(frozen=True)
class Key:
    """A variant in the list below the curves; `lines` are the places of its lines, which the reader can hide."""

    lines: list[int]
    name: str
    colour: str
    border: str


@dataclass(frozen=True)
class HoverCurves:
    """What the page needs: the curves as JSON that is safe inside `<script>`, and their keys."""

    json: str
    keys: list[Key]


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


def hover_curves(outcomes: Outcomes) -> HoverCurves | None:
    """The validation perplexity of every seed and of the mean over seeds, by epoch; None if there is no curve."""
    variants = variant_curves(outcomes)
    if not variants:
        return None
    plot = _empty_plot(variants)
    keys = _draw(plot, variants, line_styles([variant.name for variant in variants], outcomes.baseline))
    return HoverCurves(_json(plot).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"), keys)


def _empty_plot(variants: Sequence[VariantCurves]) -> figure:
    low, high = visible_range(variants, None)
    # No tool is active by itself: a finger on a phone scrolls the page, until it asks for more.
    plot = figure(
        height=440,
        sizing_mode="stretch_width",
        y_axis_type="log",
        x_range=Range1d(start=0, end=last_epoch(variants)),
        y_range=Range1d(start=low, end=high),
        x_axis_label="epoch",
        y_axis_label="validation perplexity (log scale)",
        tools="pan,box_zoom,wheel_zoom,reset",
        active_drag=None,
        active_scroll=None,
        toolbar_location="above",
    )
    plot.toolbar.logo = None
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[00]")
    return plot


def _draw(plot: figure, variants: Sequence[VariantCurves], styles: Mapping[str, tuple[str, str]]) -> list[Key]:
    """Draw a line for each seed, and a broader one for the mean over seeds or for a single seed."""
    columns = ("variant", "seed", "xs", "ys", "width", "colour", "dash")
    lines: list[tuple[Any, ...]] = []
    keys = []
    for variant in variants:
        colour, dash = styles[variant.name]
        seeds = variant.seeds.items()
        seed_lines = [(f"seed {number}", seed.epoch, perplexities(seed), 0.8) for number, seed in seeds]
        mean = band(variant.seeds.values())
        label = f"mean of {len(seed_lines)} seeds" if len(seed_lines) > 1 else seed_lines.pop()[0]
        seed_lines.append((label, mean.epoch, mean.mean, 2.2))
        for number, seed in seeds:
            if len(raw := iterate(seed)):
                seed_lines.append((f"seed {number}, last iterate", raw.epoch, perplexities(raw), 0.4))
        name, first = " ".join(variant.name.split()), len(lines)
        lines += [(name, label, x.astype("int32"), y, width, colour, dash) for label, x, y, width in seed_lines]
        border = "dashed" if dash == "dashdot" else dash
        keys.append(Key(list(range(first, len(lines))), variant.name, colour, border))
    source = ColumnDataSource(dict(zip(columns, zip(*lines, strict=True), strict=True)))
    view = CDSView(filter=IndexFilter(indices=list(range(len(lines))), name="shown"))
    visible = MultiLine(xs="xs", ys="ys", line_color="colour", line_dash=field("dash"), line_width="width")
    plot.add_glyph(source, visible, view=view)
    # Bokeh finds a line under the pointer within half its width: a broad invisible one is easier to hit.
    broad = MultiLine(xs="xs", ys="ys", line_alpha=0.0, line_width=_HIT_WIDTH)
    hovered = MultiLine(xs="xs", ys="ys", line_color="colour", line_width=3.5)
    near = plot.add_glyph(source, broad, hover_glyph=hovered, view=view)
    tooltip = "<div>@variant, @seed, epoch $snap_x{0}: $snap_y{0,0.00}</div>"
    plot.add_tools(HoverTool(tooltips=tooltip, renderers=[near], limit=_MOST_IN_TOOLTIP, line_policy="nearest"))
    return keys


def _json(plot: figure) -> str:
    """The plot with models numbered as they appear: Bokeh numbers all that a process has made before it, too."""
    numbers: dict[str, str] = {}

    def renumbered(node: dict[str, Any]) -> dict[str, Any]:
        ids = {key: numbers.setdefault(node[key], f"m{len(numbers)}") for key in ("id", "root_id") if key in node}
        return node | ids

    item = json.loads(json.dumps(json_item(plot)), object_hook=renumbered)
    return json.dumps(item, separators=(",", ":"))
