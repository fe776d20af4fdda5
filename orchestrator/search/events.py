"""The events of a search's ledger: which lines are whole, and what they say of its trials. Free of Optuna.

A line is whole if it is one of the events below and fits the lines before it and the search's task. Others are left
out. A damaged line that asked for a trial costs all that was asked for after it: each choice rests on those before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.search.task import SearchTask

SearchTrialStatus = Literal["running", "complete", "stopped", "diverged", "failed"]
Event = dict[str, Any]
_Number = Annotated[int, Field(ge=0)]
_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Seconds = Annotated[float, Field(allow_inf_nan=False, ge=0.0)]


@dataclass(frozen=True)
class SearchTrial:
    """One trial of a search so far. `valid_nats` is the best validation loss, of a complete trial its final one.

    `curve` has the best loss until each epoch, nats a token; `seconds` those of its training, wherever it was trained;
    `key` is None for values that no spec can have; `parent` is the number of the trial from whose weights it goes on:
    epochs and seconds count what that one trained too.
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


class _Asked(_Event):
    asked: _Number
    values: dict[str, str | int | float | bool]
    key: str | None
    parent: _Number | None = None


class _Evaluated(_Event):
    evaluated: _Number
    epoch: Annotated[int, Field(ge=1)]
    nats: _Finite | None
    seconds: _Seconds
    goes_on: bool


class _Ended(_Event):
    ended: _Number
    state: Literal["complete", "stopped", "diverged", "failed"]
    nats: _Finite | None
    objectives: list[_Finite] | None
    epochs: _Number
    seconds: _Seconds
    reason: str | None


_KINDS: dict[str, type[_Event]] = {"asked": _Asked, "evaluated": _Evaluated, "ended": _Ended}


def search_trials_in(events: Iterable[Event]) -> list[SearchTrial]:
    """What whole events tell of the trials, in the order in which these were asked."""
    found: list[SearchTrial] = []
    for event in events:
        tell(found, event)
    return found


def tell(found: list[SearchTrial], event: Event) -> None:
    """Take a whole event into account."""
    match event:
        case {"asked": int(n), "values": values, "key": key, "parent": int(parent)}:
            before = found[parent]
            asked = SearchTrial(
                n, values, key, "running", before.epochs, before.seconds, None, None, None, parent=parent
            )
            found.append(asked)
        case {"asked": int(n), "values": values, "key": key}:
            found.append(SearchTrial(n, values, key, "running", 0, 0.0, None, None, None))
        case {"evaluated": int(n), "epoch": epoch, "nats": nats, "seconds": seconds, "goes_on": goes_on}:
            curve = found[n].curve + (() if nats is None else ((epoch, nats),))
            found[n] = replace(
                found[n], epochs=epoch, seconds=seconds, valid_nats=nats, curve=curve, stopping=not goes_on
            )
        case {"ended": int(n), "objectives": objectives, **rest}:
            update = {field: rest[field] for field in ("state", "epochs", "seconds", "reason")}
            objectives = None if objectives is None else tuple(objectives)
            found[n] = replace(found[n], valid_nats=rest["nats"], objectives=objectives, **update)


def wrong_with(event: object, found: list[SearchTrial], task: SearchTask | None) -> str | None:
    """Why a line is no whole event after those that made `found`; None where it is. Without a task less is checked."""
    kind = next((kind for kind in _KINDS if kind in event), None) if isinstance(event, dict) else None
    if kind is None:
        return "expected an event: asked, evaluated or ended"
    try:
        whole = _KINDS[kind].model_validate(event)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg'][:1].lower()}{first['msg'][1:]}"
    match whole:
        case _Asked():
            return _wrong_question(whole, found, task)
        case _Evaluated(evaluated=number) | _Ended(ended=number):
            if number >= len(found):
                return f"{kind}: trial {number} was never asked for"
            if found[number].state != "running":
                return f"{kind}: trial {number} had ended"
    match whole:
        case _Evaluated(evaluated=number, epoch=epoch) if epoch <= found[number].epochs:
            return f"epoch: expected one after {found[number].epochs}, got {epoch}"
        case _Ended(state="complete", nats=None):
            return "nats: expected the loss of a complete trial, got null"
        case _Ended(state=state, objectives=objectives) if (state == "complete") != (objectives is not None):
            return f"objectives: expected {'numbers' if state == 'complete' else 'null'} for a trial that is {state}"
        case _Ended(objectives=list(objectives)) if task is not None and len(objectives) != len(task.objectives):
            return f"objectives: expected {len(task.objectives)} numbers, got {len(objectives)}"
    return None


def _wrong_question(asked: _Asked, found: list[SearchTrial], task: SearchTask | None) -> str | None:
    if asked.asked != len(found):
        return f"asked: expected trial {len(found)}, got {asked.asked}"
    if asked.parent is not None and asked.parent >= len(found):
        return f"parent: trial {asked.parent} was never asked for"
    if task is None:
        return None
    if (asked.parent is not None) != (0 < task.population <= asked.asked):
        return "parent: expected for trials of a population's later generations, and no others"
    if asked.parent is not None and asked.parent // task.population != asked.asked // task.population - 1:
        return f"parent: expected a trial of the generation before, got {asked.parent}"
    return task.wrong_value(asked.values)
