"""A group of commands whose complaints about a value end in what was got."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup


class CommandGroup(TyperGroup):
    """Typer checks a limit, such as `min=1`, through pydantic, and tells the rule alone."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command of the line; BadParameter names what was got."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            from pydantic import ValidationError

            if isinstance(error.__cause__, ValidationError):
                got = error.__cause__.errors(include_url=False)[0]["input"]
                error.message = f"{error.message.replace('Input should', 'should', 1)}, got {got}"
            raise
