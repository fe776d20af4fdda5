"""In which precision a CPU multiplies matrices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from lm.spec import Precision


@contextmanager
def products_in(precision: Precision) -> Iterator[None]:
    """Within it products of float32 matrices round their factors to this precision, and give float32.

    Sums are in float32 either way, and so is everything that is no product. PyTorch rounds nothing where it gains
    nothing: in tiny products, and in the fused LSTM. It holds for the process.
    """
    if precision == "float32":
        yield
        return
    matmul = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = matmul.fp32_precision
    matmul.fp32_precision = "bf16"
    try:
        yield
    finally:
        matmul.fp32_precision = before


def can_round() -> bool:
    """Whether this CPU multiplies in bfloat16 if asked to; its flags do not tell, because PyTorch may not use them.

    A third rounded to bfloat16 is 0.2% off, and its square twice that; another kernel's sums differ by far less.
    """
    thirds = torch.full((64, 64), 1 / 3)
    exact = thirds @ thirds
    with products_in("bfloat16"):
        return not torch.allclose(thirds @ thirds, exact, rtol=1e-3)


def in_bfloat16() -> bool:
    """Whether products take their factors in bfloat16 now."""
    return bool(torch.backends.mkldnn.matmul.fp32_precision == "bf16")  # type: ignore[attr-defined]
