"""Run many trials of `lm`, keep their records, and report what they show.

from orchestrator import load_sweep, run_sweep, load_records, load_report
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.api import LoadedReport, SweepResult, load_records, load_report, load_sweep, run_sweep

__all__ = ["LoadedReport", "SweepResult", "load_records", "load_report", "load_sweep", "run_sweep"]


def __getattr__(name: str) -> object:
    # Resolved when asked for: every module of the package imports this file, and few of them want all that.
    if name in __all__:
        from orchestrator import api

        return getattr(api, name)
    raise AttributeError(f"module 'orchestrator' has no attribute {name!r}")
