"""The mirror of a sweep in MLflow; no other module of the project talks to MLflow."""
