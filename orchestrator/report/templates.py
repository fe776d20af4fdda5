"""The templates of Markdown pages."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from orchestrator.words import escape


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
