"""The error of a sweep that lost Ray, where those who catch it need not import what runs Ray."""

from __future__ import annotations


class RayLostError(RuntimeError):
    """Ray's own processes died, and could not be replaced; what is on disk is as after an interrupt. Exit code 4."""
