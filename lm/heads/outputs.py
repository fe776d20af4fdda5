"""What a head sees. T time, B batch, H size of a layer."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Outputs:
    """Every layer's output (T, B, H), first to last, before (`raw`) and after (`dropped`) its locked dropout."""

    raw: tuple[Tensor, ...]
    dropped: tuple[Tensor, ...]
