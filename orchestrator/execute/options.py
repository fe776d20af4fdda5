"""How a sweep is run: what the command line and the Python interface ask for."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

Executor = Literal["ray", "inline"]


@dataclass(frozen=True)
class Options:
    """How a sweep is run; none of it changes a number."""

    file: Path
    runs: Path = Path("runs")
    reports: Path = Path("reports")
    executor: Executor = "ray"
    jobs: int | None = None
    address: str | None = None
    storage: str | None = None
    verbose: bool = False
    checkpoint_seconds: float = 600.0
    only: tuple[str, ...] = ()
    budget: str | None = None
    mps: bool = False
    cpus: float | None = None
    gpus: float | str | None = None

    def in_words(self, among: Collection[str] | None = None) -> str:
        """The options that are not as by default, as the command line has them; of all, or `among` these."""
        line = ""
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "file" and value != field.default and (among is None or field.name in among):
                name, value = {"checkpoint_seconds": ("checkpoint_minutes", self.checkpoint_seconds / 60)}.get(
                    field.name, (field.name, value)
                )
                for one in value if isinstance(value, tuple) else (value,):
                    line += f" --{name.replace('_', '-')}" + ("" if one is True else f" {shlex.quote(str(one))}")
        return line
