"""Named changes to a spec: dotted paths, one level, a value replacing the whole part."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from lm.spec import Part, Penalties, TrainSpec
from orchestrator.errors import nearest
from orchestrator.sweep.problems import Path, Problem, from_pydantic


def override(spec: TrainSpec, changes: Mapping[str, Any]) -> tuple[TrainSpec, list[Problem]]:
    """The changed spec, and what is wrong with the changes; wrong ones are left out of the spec.

    A problem's path starts with the dotted key of the change it belongs to.
    """
    problems = [problem for key in changes if (problem := _misplaced(spec, key, changes)) is not None]
    good = dict(changes)
    while True:
        for problem in problems:
            good.pop(str(problem.path[0]), None)
        data = spec.model_dump()
        for key, value in good.items():
            *parents, last = key.split(".")
            part = data
            for parent in parents:
                part = part[parent]
            part[last] = value
        try:
            return TrainSpec.model_validate(data), problems
        except ValidationError as error:
            problems += [_blame(problem, good) for problem in from_pydantic(error, TrainSpec)]


def effective(spec: TrainSpec) -> TrainSpec:
    """The spec with everything that means the same written the same, so that specs that train alike are equal."""
    model = spec.model.model_copy(update={"hidden_size": spec.model.hidden_sizes})
    return spec.model_copy(update={"model": model, "penalties": spec.penalties or Penalties()})


def has(spec: TrainSpec, key: str) -> bool:
    """Whether a spec has a place at a dotted key; a part that is null, or of another kind, has none inside."""
    here: object = spec
    for name in key.split("."):
        if not isinstance(here, Part) or name not in type(here).model_fields:
            return False
        here = getattr(here, name)
    return True


def value_at(spec: TrainSpec, key: str) -> object:
    """What a spec has at a dotted key that fits it."""
    here: object = spec
    for name in key.split("."):
        here = getattr(here, name)
    return here


def _misplaced(spec: TrainSpec, key: str, changes: Mapping[str, Any]) -> Problem | None:
    names = key.split(".")
    if names == ["seed"]:
        return Problem((key,), "the seed is no part of a change: replicates are listed under 'seeds'")
    whole = next((other for other in changes if key.startswith(f"{other}.")), None)
    if whole is not None:
        return Problem((key,), f"{whole!r} is replaced as a whole beside it: write this value into it")
    here: object = spec
    for depth, name in enumerate(names):
        above = ".".join(names[:depth])
        if here is None:
            return Problem((key,), f"{above!r} is null in the base: give the whole part, {above}: {{...}}")
        if not isinstance(here, Part):
            return Problem((key,), f"{above!r} is a value, not a part: it has no {name!r}")
        fields = type(here).model_fields
        if name not in fields:
            valid = [field for field in fields if here is not spec or field != "seed"]
            return Problem((key,), f"unknown key {name!r}{nearest(name, valid)}")
        here = getattr(here, name)
    if names[-1] == "kind":
        above = ".".join(names[:-1])
        return Problem((key,), f"a kind changes with its whole part: write {above}: {{kind: ..., ...}}")
    return None


def _blame(problem: Problem, changes: Mapping[str, Any]) -> Problem:
    """Put a problem of the changed spec under the change that caused it."""
    for key in changes:
        path: Path = tuple(key.split("."))
        if problem.path[: len(path)] == path:
            return Problem((key, *problem.path[len(path) :]), problem.text)

    # A rule over several values (a tied model's sizes) is broken by the change nearest to where it is told, then by
    # one inside a part that its text names, then by the last one.
    def closeness(key: str) -> tuple[int, bool]:
        names = key.split(".")
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(names, problem.path, strict=False))
        return len(list(same)), names[0] in problem.text

    return Problem((max(reversed(list(changes)), key=closeness),), problem.text)
