"""The lines of a search's ledger, and the trials that they make. Free of Optuna."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from orchestrator.search.task import SearchTask

SearchEnd = Literal["complete", "stopped", "diverged", "failed"]
SearchTrialStatus = Literal["running"] | SearchEnd
_Number = Annotated[int, Field(ge=0)]
_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Seconds = Annotated[float, Field(allow_inf_nan=False, ge=0.0)]


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


class _Event(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class Asked(_Event):
    """A new trial with these values; only in a population's later generations does it have a parent."""

    asked: _Number
    values: dict[str, str | int | float | bool]
    key: str | None
    parent: _Number | None = None


class Evaluated(_Event):
    """An epoch of a running trial: its best validation loss so far, None if none was finite."""

    evaluated: _Number
    epoch: Annotated[int, Field(ge=1)]
    nats: _Finite | None
    seconds: _Seconds
    goes_on: bool


class Ended(_Event):
    """The end of a trial."""

    ended: _Number
    state: SearchEnd
    nats: _Finite | None
    objectives: tuple[_Finite, ...] | None
    epochs: _Number
    seconds: _Seconds
    reason: str | None

    @model_validator(mode="after")
    def _complete_with_numbers(self) -> Self:
        if (self.state == "complete") != (self.objectives is not None):
            raise ValueError("expected objectives of a complete trial, and of no other")
        if self.state == "complete" and self.nats is None:
            raise ValueError("expected the loss of a complete trial, got null")
        return self


Event = Asked | Evaluated | Ended
_KINDS: dict[str, type[Event]] = {"asked": Asked, "evaluated": Evaluated, "ended": Ended}


def parse(line: bytes) -> Event:
    """The event on a line of a ledger; ValueError says in a line what is wrong."""
    kind = next((kind for kind in _KINDS if line.startswith(f'{{"{kind}": '.encode())), None)
    if kind is None:
        raise ValueError("expected an event: asked, evaluated or ended")
    try:
        return _KINDS[kind].model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        problem = first["msg"].removeprefix("Value error, ")
        raise ValueError(": ".join([".".join(map(str, first["loc"])), problem]).removeprefix(": ")) from error


def check_next(event: Event, trials: Sequence[SearchTrial], task: SearchTask | None) -> None:
    """ValueError if an event cannot follow those that made these trials. Without a task less is checked."""
    match event:
        case Asked(asked=number, values=values, parent=parent):
            if number != len(trials):
                raise ValueError(f"asked: expected trial {len(trials)}, got {number}")
            if parent is not None and parent >= number:
                raise ValueError(f"parent: trial {parent} was not asked for")
            if task is not None:
                size = task.population or number + 1  # without a population all are of one generation
                if (-1 if parent is None else parent // size) != number // size - 1:
                    raise ValueError("parent: expected a trial of the generation before, none in the first generation")
                if wrong := task.wrong_value(values):
                    raise ValueError(wrong)
        case Evaluated(evaluated=number) | Ended(ended=number):
            if number >= len(trials) or trials[number].state != "running":
                raise ValueError(f"trial {number} is not running")
    match event:
        case Evaluated(evaluated=number, epoch=epoch) if epoch <= trials[number].epochs:
            raise ValueError(f"epoch: expected one after {trials[number].epochs}, got {epoch}")
        case Ended(objectives=tuple(objectives)) if task is not None and len(objectives) != len(task.objectives):
            raise ValueError(f"objectives: expected {len(task.objectives)} numbers, got {len(objectives)}")


def apply(event: Event, trials: list[SearchTrial]) -> None:
    """Update the trials by an event that can follow."""
    match event:
        case Asked(asked=number, values=values, key=key, parent=parent):
            epochs, seconds = (0, 0.0) if parent is None else (trials[parent].epochs, trials[parent].seconds)
            trials.append(SearchTrial(number, values, key, "running", epochs, seconds, None, None, None, parent=parent))
        case Evaluated(evaluated=number, epoch=epoch, nats=nats, seconds=seconds, goes_on=goes_on):
            curve = trials[number].curve + (() if nats is None else ((epoch, nats),))
            trial = replace(trials[number], epochs=epoch, seconds=seconds, valid_nats=nats, curve=curve)
            trials[number] = replace(trial, stopping=not goes_on)
        case Ended(ended=number, nats=nats):
            update: dict[str, Any] = event.model_dump(exclude={"ended", "nats"})
            trials[number] = replace(trials[number], valid_nats=nats, **update)
