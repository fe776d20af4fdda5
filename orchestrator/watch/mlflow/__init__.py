"""The mirror of a sweep in MLflow; no other module of the project talks to MLflow."""

from orchestrator.watch.mlflow.mirror import Planned
from orchestrator.watch.mlflow.tracker import Tracker

__all__ = ["Planned", "Tracker"]
