"""Text cut into columns and windows. R rows, B columns (the batch), N tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lm.data.text import FEWEST_ROWS
from lm.spec import Bptt, FixedBptt, VariableBptt


def columns(tokens_N: npt.NDArray[np.int32], count: int, device: torch.device, field: str = "") -> Tensor:
    """The text as `count` contiguous columns (R, B) on the device, the few last tokens that do not fit left out.

    ValueError if a column would have fewer than `FEWEST_ROWS`; it begins with the `field` of the spec, if one is named.
    """
    rows = len(tokens_N) // count
    if rows < FEWEST_ROWS:
        problem = f"{len(tokens_N)} tokens in {count} columns give {rows} rows; at least {FEWEST_ROWS} are needed"
        raise ValueError(f"{field}: {problem}" if field else problem)
    kept_BR = torch.from_numpy(tokens_N[: rows * count].astype(np.int64)).view(count, rows)
    return kept_BR.t().contiguous().to(device)


def window_sampler(bptt: Bptt, cap_extra: int | None, generator: torch.Generator) -> Callable[[], tuple[int, float]]:
    """Draws the next window: its length and the factor on the learning rate.

    Variable windows follow Merity et al. 2017, section 4.1; the rate follows the drawn length, not one cut short by
    the text's end. `cap_extra`, where given, comes before the spec's own: it caps the length at the base length plus so
    many steps.
    """

    def fixed() -> tuple[int, float]:
        return bptt.length, 1.0

    def variable() -> tuple[int, float]:
        assert isinstance(bptt, VariableBptt)
        uniform, normal = torch.rand((), generator=generator).item(), torch.randn((), generator=generator).item()
        base = bptt.length if uniform < bptt.full_probability else bptt.length / 2
        length = max(bptt.minimum, int(base + bptt.deviation * normal))
        cap = bptt.cap_extra if cap_extra is None else cap_extra
        if cap is not None:
            length = min(length, bptt.length + cap)
        return length, length / bptt.length if bptt.rescale else 1.0

    match bptt:
        case FixedBptt():
            return fixed
        case VariableBptt():
            return variable
        case _:
            assert_never(bptt)
