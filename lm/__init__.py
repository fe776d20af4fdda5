"""Train, evaluate and keep one recurrent word-level language model."""

__version__ = "0.1.0"
"""Of the package lm-ablation, both `lm` and `orchestrator`; every record has it."""
