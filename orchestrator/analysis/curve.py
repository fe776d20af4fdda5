"""A learning curve as arrays: a report reads half a million evaluations, and makes no object for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # who draws curves needs no Arrow
    import pyarrow as pa


@dataclass(frozen=True, eq=False)
class Curve:
    """Evaluations in the order of their epochs, a place each; fields and units of `lm.record.Evaluation`.

    The raw iterate's loss is nan before averaging begins, and None where no evaluation has it.
    """

    epoch: NDArray[np.int64]
    seconds: NDArray[np.float64]
    valid_nats_per_token: NDArray[np.float64]
    averaging: NDArray[np.bool_]
    stage: NDArray[np.str_]
    raw_valid_nats_per_token: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.epoch)

    def at(self, places: NDArray[np.bool_]) -> Curve:
        """The evaluations at these places alone."""
        return Curve(
            self.epoch[places],
            self.seconds[places],
            self.valid_nats_per_token[places],
            self.averaging[places],
            self.stage[places],
            None if self.raw_valid_nats_per_token is None else self.raw_valid_nats_per_token[places],
        )


def curve_of(table: pa.Table) -> Curve:
    """The arrays of `lm.record.read_curve_table`'s columns."""
    raw = "raw_valid_nats_per_token"
    return Curve(
        numbers_of(table, "epoch"),
        numbers_of(table, "seconds"),
        numbers_of(table, "valid_nats_per_token"),
        np.array(table["averaging"].to_pylist(), dtype=bool),
        np.array(table["stage"].to_pylist(), dtype=str),
        np.array(table[raw].to_pylist(), dtype=float) if raw in table.column_names else None,
    )


def numbers_of(table: pa.Table, name: str) -> NDArray[Any]:
    """A column of numbers, read-only; TypeError where it has other values, or nulls.

    Not by Arrow's own `to_numpy`, which imports pandas first: a quarter second before anything can be drawn.
    """
    return np.from_dlpack(table[name].combine_chunks())
