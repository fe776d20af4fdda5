"""The lines of a search's ledger, and the trials that they make. Free of Optuna."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

from lm.record import perplexity

SearchEnd = Literal["complete", "stopped", "diverged", "failed"]
SearchTrialStatus = Literal["running"] | SearchEnd


@dataclass(frozen=True)
class SearchTrial:
    """One trial of a search so far.

    `valid_nats` is the best validation loss in nats per token, of a complete trial its final one; `curve` has the best
    until each epoch. `key` is None if no spec can have the values. `parent` is the number of the trial from whose
    weights it continues; epochs and seconds (of training) include the parent's.
    """

    number: int
    values: Mapping[str, Any]
    key: str | None
    state: SearchTrialStatus
    epochs: int
    seconds: float
    valid_nats: float | None
    objectives: tuple[float, ...] | None
    reason: str | None
    curve: tuple[tuple[int, float], ...] = ()
    stopping: bool = False
    parent: int | None = None

    @property
    def valid_perplexity(self) -> float | None:
        """exp of its validation loss; None before there is one."""
        return None if self.valid_nats is None else perplexity(self.valid_nats)


class _Event(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)


class Asked(_Event):
    """A new trial with these values; only in a population's later generations does it have a parent."""

    asked: int
    values: dict[str, str | int | float | bool]
    key: str | None
    parent: int | None = None


class Evaluated(_Event):
    """An epoch of a running trial: its best validation loss so far, None if none was finite."""

    evaluated: int
    epoch: int
    nats: float | None
    seconds: float
    goes_on: bool


class Ended(_Event):
    """The end of a trial."""

    ended: int
    state: SearchEnd
    nats: float | None
    objectives: tuple[float, ...] | None
    epochs: int
    seconds: float
    reason: str | None


Event = Asked | Evaluated | Ended
EVENT: TypeAdapter[Event] = TypeAdapter(Event)


def apply(event: Event, trials: list[SearchTrial]) -> None:
    """Update the trials by an event; ValueError if it cannot follow those that made them."""
    match event:
        case Asked(asked=number, values=values, key=key, parent=parent):
            if number != len(trials) or parent not in (None, *range(number)):
                raise ValueError(f"expected trial {len(trials)}, got {number} with parent {parent}")
            epochs, seconds = (0, 0.0) if parent is None else (trials[parent].epochs, trials[parent].seconds)
            trials.append(SearchTrial(number, values, key, "running", epochs, seconds, None, None, None, parent=parent))
            return
        case Evaluated(evaluated=number) | Ended(ended=number):
            if number not in range(len(trials)) or trials[number].state != "running":
                raise ValueError(f"trial {number} is not running")
    update = event.model_dump(exclude={"evaluated", "ended", "epoch", "goes_on", "nats"}) | {"valid_nats": event.nats}
    if isinstance(event, Evaluated):
        curve = trials[number].curve + (() if event.nats is None else ((event.epoch, event.nats),))
        update |= {"epochs": event.epoch, "curve": curve, "stopping": not event.goes_on}
    trials[number] = replace(trials[number], **update)
