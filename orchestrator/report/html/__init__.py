"""`report.html`: the page once more as one file that asks no network for anything, made of the text of `report.md`."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined

from lm.files import write_text
from orchestrator.analysis.outcomes import Outcome, flat
from orchestrator.report.html.body import html_body

if TYPE_CHECKING:
    from orchestrator.report.html.hovering import Hovered

_HERE = Path(__file__).parent


def hovered_curves(outcomes: Mapping[str, tuple[Outcome, ...]], baseline: str) -> Hovered | None:
    """The learning curves that the page lets a reader hover, None where there are none."""
    if not any(outcome.curve for outcome in flat(outcomes)):
        return None
    from orchestrator.report.html import hovering  # Bokeh takes most of a second to import

    return hovering.hovered_curves(outcomes, baseline)


def write_html(folder: Path, text: str, hovered: Hovered | None) -> None:
    """Write `report.html` into `folder`, which holds the pictures that `text`, the Markdown of the page, names.

    The page's policy names the scripts that may run by their hashes, so that nothing else does, whatever a name holds.
    """
    scripts = [(_HERE / "page.js").read_text(encoding="utf-8")]
    if hovered is not None:
        scripts.insert(0, hovered.library)
    made = html_body(text, folder)
    page = _environment().get_template("page.html.jinja")
    rendered = page.render(
        title=made.title,
        sections=made.sections,
        before=made.before,
        after=made.after,
        hovered=hovered,
        scripts=scripts,
        hashes=[_hash(script) for script in scripts],
        css=(_HERE / "page.css").read_text(encoding="utf-8"),
    )
    write_text(folder / "report.html", rendered)


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("orchestrator.report.html", ""),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


@cache
def _hash(script: str) -> str:
    """What a Content-Security-Policy calls this inline script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
