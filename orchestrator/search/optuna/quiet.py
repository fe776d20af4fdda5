"""Optuna's warnings that something is experimental, unheard."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from optuna.exceptions import ExperimentalWarning


@contextmanager
def quiet() -> Iterator[None]:
    """Within, what is experimental is chosen on purpose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        yield
