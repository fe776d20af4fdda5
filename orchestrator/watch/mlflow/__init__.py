"""The mirror of a sweep in MLflow; `store` is the only module of the project that talks to MLflow."""

from orchestrator.watch.mlflow.mirror import Planned
from orchestrator.watch.mlflow.tracker import Tracker

__all__ = ["Planned", "Tracker"]
