"""The mirror of a sweep in MLflow; `store` is the only module of the project that talks to MLflow."""

from orchestrator.tracking.tracker import Tracker

__all__ = ["Tracker"]
