"""Penalties added to the training loss: means of squares, as in the authors' code. T time, B batch, H layer size."""

from __future__ import annotations

from torch import Tensor


def activation(dropped_TBH: Tensor) -> Tensor:
    """Mean square of the dropped output, a scalar >= 0 (AR; Merity et al. 2017, section 4.6)."""
    return dropped_TBH.square().mean()


def temporal_activation(raw_TBH: Tensor) -> Tensor:
    """Mean squared change of the raw output between neighbouring steps, a scalar >= 0 (TAR; Merity et al. 2017, 4.6).

    Looks only inside the window, which must have at least two steps.
    """
    return (raw_TBH[1:] - raw_TBH[:-1]).square().mean()
