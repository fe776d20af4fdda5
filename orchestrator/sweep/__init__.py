"""Sweep files: one YAML file, one question; read, checked whole, and seen at one of its scales."""

from orchestrator.sweep.changes import UNCHANGED, Changes
from orchestrator.sweep.read import check_vocabularies, read_sweep
from orchestrator.sweep.scaled import Resources, ScaledSweep
from orchestrator.sweep.types import PUBLISHED_SCALE, Sweep, SweepError

__all__ = [
    "PUBLISHED_SCALE",
    "UNCHANGED",
    "Changes",
    "Resources",
    "ScaledSweep",
    "Sweep",
    "SweepError",
    "check_vocabularies",
    "read_sweep",
]
