"""The mirror of a sweep in MLflow; `store` is the only module of the project that talks to MLflow."""

from orchestrator.tracking.planned import Planned
from orchestrator.tracking.tracker import Tracker

__all__ = ["Planned", "Tracker"]
