"""A trial: one variant with one seed, and where its numbers come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from lm.record import Evaluation, Record
from lm.spec import TrainSpec


@dataclass(frozen=True)
class Trial:
    """One row of the plan.

    `change` says in words what the variant changes. `reads_from` is the key of the planned trial whose record
    holds this one's stages, so that nothing is trained; `starts_from` the key of the one whose last shared stage
    this one continues. At most one of them is set. A trial of a search has its `number` there, leaves the test set
    closed, and may be `stopped_early`; such a one has no record, and does not go on.
    """

    variant: str
    change: str
    seed: int
    spec: TrainSpec
    key: str
    parameters: int
    reads_from: str | None = None
    starts_from: str | None = None
    number: int | None = None
    opens_test: bool = True
    stopped_early: bool = False

    @property
    def title(self) -> str:
        """How it is called: `full, seed 1`; of a search `full, trial 12`."""
        return f"{self.variant}, " + (f"seed {self.seed}" if self.number is None else f"trial {self.number}")


class Listener(Protocol):
    """Hears of trials while they run, in the driver. An exception in a listener never stops a trial."""

    def started(self, trial: Trial) -> None:
        """A worker took the trial up, for the first time or again."""

    def evaluated(self, trial: Trial, evaluation: Evaluation) -> None:
        """A new point of its curve."""

    def settled(self, trial: Trial, record: Record | None) -> None:
        """It ended: complete, diverged or failed with its record; without one stopped, and resumable unless early."""
