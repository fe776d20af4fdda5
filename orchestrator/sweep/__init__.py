"""Sweep files: one YAML file, one question; read, checked whole, and looked at at one of its scales."""

from orchestrator.sweep.problems import SweepError
from orchestrator.sweep.read import check_vocabularies, read_sweep
from orchestrator.sweep.types import (
    PUBLISHED_SCALE,
    Component,
    Resources,
    Scale,
    ScaledSweep,
    Sweep,
    Variant,
)

__all__ = [
    "PUBLISHED_SCALE",
    "Component",
    "Resources",
    "Scale",
    "ScaledSweep",
    "Sweep",
    "SweepError",
    "Variant",
    "check_vocabularies",
    "read_sweep",
]
