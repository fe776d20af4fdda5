"""How a spec is changed: by dotted paths, one level deep, a value replacing the whole part."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError

from lm.names import nearest
from lm.spec import Part, Penalties, TrainSpec
from lm.validation import Problem, problems_of

ABSENT: Final = object()
"""The value at a path that a spec does not have."""


def override(spec: TrainSpec, changes: Mapping[str, Any]) -> tuple[TrainSpec, list[Problem]]:
    """The changed spec and no problem; or the spec as it was and what is wrong, each under the path of its change."""
    rules = {path: _misplaced(spec, path, changes) for path in changes}
    problems = [Problem((path,), rule) for path, rule in rules.items() if rule is not None]
    placed = [path for path, rule in rules.items() if rule is None]
    data = spec.model_dump()
    for path in placed:
        *parents, last = path.split(".")
        functools.reduce(operator.getitem, parents, data)[last] = changes[path]
    try:
        changed = TrainSpec.model_validate(data)
    except ValidationError as error:
        problems += [_hinted(_blame(problem, placed), spec, changes) for problem in problems_of(error, TrainSpec)]
    return (spec, problems) if problems else (changed, [])


def effective(spec: TrainSpec) -> TrainSpec:
    """The spec with everything that means the same written the same, so that specs that train alike are equal."""
    model = spec.model.model_copy(update={"hidden_size": spec.model.hidden_sizes})
    return spec.model_copy(update={"model": model, "penalties": spec.penalties or Penalties()})


def value_at(spec: TrainSpec, path: str) -> object:
    """The value at a dotted path; ABSENT if there is none, as inside a part that is null or of another kind."""
    value: object = spec
    for name in path.split("."):
        if not isinstance(value, Part) or name not in type(value).model_fields:
            return ABSENT
        value = getattr(value, name)
    return value


def changed_paths(spec: TrainSpec, other: TrainSpec, paths: Iterable[str]) -> set[str]:
    """Those of the paths at which two specs differ."""
    return {path for path in paths if value_at(spec, path) != value_at(other, path)}


def _misplaced(spec: TrainSpec, path: str, changes: Mapping[str, Any]) -> str | None:
    """Why nothing can be written to a path; None if something can."""
    if path == "seed":
        return "the seed is not part of a change: replicates are listed under 'seeds'"
    if (whole := next((other for other in changes if path.startswith(f"{other}.")), None)) is not None:
        return f"{whole!r} is replaced as a whole at the same time: write this value into it"
    names = path.split(".")
    for depth, name in enumerate(names):
        above = ".".join(names[:depth])
        part = value_at(spec, above) if above else spec
        if part is None:
            return f"{above!r} is null in the base: give the whole part, {above}: {{...}}"
        if not isinstance(part, Part):
            return f"{above!r} is a value, not a part: it has no {name!r}"
        if name not in (fields := type(part).model_fields):
            of_parts = [f"{field}.{name}" for field in fields] if part is spec else []
            if meant := [repr(place) for place in of_parts if value_at(spec, place) is not ABSENT]:
                return f"unknown key {name!r} (did you mean {' or '.join(meant)}?)"
            if name == "base" and part is spec:
                return f"paths begin inside the base: write {path.removeprefix('base.')!r}"
            valid = [field for field in fields if part is not spec or field != "seed"]
            return f"unknown key {name!r}{nearest(name, valid)}"
    if name == "kind":
        return f"to change the kind, give the whole part: {above}: {{kind: ..., ...}}"
    return None


def _hinted(problem: Problem, spec: TrainSpec, changes: Mapping[str, Any]) -> Problem:
    """A part without its kind may have been meant to change some of its values, of which the first is named."""
    path, *inside = map(str, problem.place)
    changed = [f"{path}.{name}" for name in changes[path]] if isinstance(changes[path], dict) else []
    changes_one = bool(changed) and not inside and value_at(spec, changed[0]) is not ABSENT
    if not changes_one or not problem.text.startswith("missing key 'kind'"):
        return problem
    return Problem(problem.place, f"{problem.text}; to change one value, write {changed[0]}: ...")


def _blame(problem: Problem, paths: Sequence[str]) -> Problem:
    """The problem under the change that most likely caused it.

    That is the change whose path shares most of the problem's place; of equals one whose part the message names, then
    the last.
    """

    def shared(path: str) -> int:
        pairs = zip(path.split("."), problem.place, strict=False)
        return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))

    path = max(reversed(paths), key=lambda path: (shared(path), path.split(".")[0] in problem.text))
    inside = problem.place[path.count(".") + 1 :] if shared(path) == path.count(".") + 1 else ()
    return Problem((path, *inside), problem.text)
