"""The reflected binary code (Gray 1953): neighbouring positions differ in one bit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def to_gray(positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """The Gray code of each position, as a number."""
    return positions ^ positions >> 1


def from_gray(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The position of each Gray code below 2^62."""
    positions = codes
    for shift in (1, 2, 4, 8, 16, 32):
        positions = positions ^ positions >> shift
    return positions
