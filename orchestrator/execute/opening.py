"""Open a sweep file at a scale, without what only training and reporting need."""

from __future__ import annotations

from pathlib import Path

from orchestrator.execute.machine import default_scale
from orchestrator.sweep import ScaledSweep, check_vocabularies, read_sweep


def load_sweep(path: Path | str, scale: str | None = None) -> ScaledSweep:
    """Read and check a sweep file, at a scale, or else at the one that fits this machine.

    Raises SweepError, with a line for everything that is wrong, and CorpusError for a text that is not there.
    """
    return open_sweep(Path(path), scale)[0]


def open_sweep(path: Path, scale: str | None) -> tuple[ScaledSweep, str]:
    """The sweep as `load_sweep` gives it, and why it is at this scale."""
    sweep = read_sweep(path)
    name, why = (scale, "as asked") if scale is not None else default_scale(sweep)
    scaled = sweep.at(name)
    check_vocabularies(scaled, path)
    return scaled, why
