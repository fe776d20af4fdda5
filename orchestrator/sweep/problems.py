"""What is wrong with a sweep file, and where: one line a problem, with the nearest valid name."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, Tag, ValidationError
from pydantic_core import ErrorDetails

from lm.yaml_text import Place
from orchestrator.errors import nearest

Path = Place
"""Keys and list positions from the top of the file."""

SLUG = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
NAME = r"^\S([^\n\r]*\S)?$"
PATTERNS = {
    SLUG: "letters, digits, '-' and '_', with a letter or digit first",
    NAME: "one line without blanks at its ends",
}
"""What the patterns of names ask for, in words."""

_UNKNOWN, _MISSING = "unknown key ", "missing key "
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60


@dataclass(frozen=True)
class Problem:
    """A broken rule at a path; `line` only where the path's own line would be the wrong one."""

    path: Path
    text: str
    line: int | None = None

    def under(self, *parents: str | int) -> Problem:
        """The same problem, seen from further up."""
        return Problem((*parents, *self.path), self.text, self.line)


class SweepError(ValueError):
    """Everything that is wrong with one sweep file, a line each, in the file's order."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


def unknown_key(path: Path, valid: Iterable[str]) -> Problem:
    """A key that the place does not have."""
    return Problem(path, f"{_UNKNOWN}{path[-1]!r}{nearest(path[-1], valid)}")


def shown(value: object) -> str:
    """What was got, cut to a readable length."""
    return "null" if value is None else _SHORT.repr(value)


def from_pydantic(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """Pydantic's errors in our words, at the paths that the file has; alternatives of a union joined by "or"."""
    found: dict[Path, Problem] = {}
    # A sequence may only be short of the items that are wrong themselves.
    every = error.errors(include_url=False)
    told = [d for d in every if d["type"] != "too_short" or not d["input"]] or every
    problems = [_problem(details, model) for details in told]
    misspelt = {(p.path[:-1], p.text.partition(" (did you mean ")[2]) for p in problems if p.text.startswith(_UNKNOWN)}
    for problem in problems:
        before = found.get(problem.path)
        if (problem.path, f"{problem.text.removeprefix(_MISSING)}?)") in misspelt:
            continue  # it is there, under another name
        if before is None or before.text == problem.text:
            found[problem.path] = problem
        else:
            rules = before.text.rsplit(", got ", 1)[0], problem.text.removeprefix("should be ")
            found[problem.path] = Problem(problem.path, " or ".join(rules))
    return list(found.values())


def _problem(details: ErrorDetails, model: type[BaseModel]) -> Problem:
    path, valid, here = _place(details["loc"], model)
    context, got = details.get("ctx", {}), details["input"]
    match details["type"]:
        case "extra_forbidden":
            return unknown_key(path, valid)
        case "missing":
            return Problem(path[:-1], f"{_MISSING}{path[-1]!r}")
        case "union_tag_not_found":
            return Problem(path, f"missing key 'kind' (one of {', '.join(_kinds(here))})")
        case "union_tag_invalid":
            return Problem(
                (*path, "kind"), f"unknown kind {shown(context['tag'])}{nearest(context['tag'], _kinds(here))}"
            )
        case "literal_error":
            names = re.findall(r"'([^']+)'", context["expected"])
            return Problem(path, f"should be {context['expected']}, got {shown(got)}{nearest(got, names)}")
        case "model_type" | "model_attributes_type" | "dict_type":
            return Problem(path, f"should be a mapping, got {shown(got)}")
        case "tuple_type":
            return Problem(path, f"should be a list, got {shown(got)}")
        case "string_pattern_mismatch" if context["pattern"] in PATTERNS:
            return Problem(path, f"should be {PATTERNS[context['pattern']]}, got {shown(got)}")
        case "too_short":
            fewest = context["min_length"]
            rule = "should not be empty" if fewest == 1 else f"should have at least {fewest} items"
            return Problem(path, f"{rule}, got {shown(got)}")
        case "value_error":
            text = details["msg"].removeprefix("Value error, ")
            # A rule over several values of a part is told at the first of them that its text names.
            fields = here.model_fields if isinstance(here, type) and issubclass(here, BaseModel) else {}
            named = re.search(rf"\b({'|'.join(fields)})\b", text) if fields else None
            return Problem(path if named is None else (*path, named.group()), text)
    text = details["msg"].removeprefix("Input ")
    return Problem(path, f"{text[:1].lower()}{text[1:]}, got {shown(got)}")


def _place(location: tuple[int | str, ...], model: type[BaseModel]) -> tuple[Path, list[str], Any]:
    """Pydantic's location less the tags and type names of unions; the keys valid there; the type there."""
    path: list[str | int] = []
    here: Any = model
    valid = list(model.model_fields)
    in_mapping = False
    for part in location:
        if part in (kinds := _kinds(here)):
            here = kinds[str(part)]
        elif part == "[key]" and in_mapping:  # the key itself is wrong, not its value
            break
        elif isinstance(part, int):
            path.append(part)
            here = _bare(get_args(here)[0]) if get_origin(here) is tuple else object
        elif isinstance(here, type) and issubclass(here, BaseModel):
            path.append(part)
            valid = list(here.model_fields)
            here = _bare(here.model_fields[part].annotation) if part in here.model_fields else object
        elif get_origin(here) is dict:
            path.append(part)
            here = _bare(get_args(here)[1])
            in_mapping = True
            continue
        in_mapping = False
    return tuple(path), valid, here


def _bare(annotation: Any) -> Any:
    """A type without `Annotated` and `| None`; a union of tagged parts stays whole."""
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        members = [_bare(member) for member in get_args(annotation) if member is not type(None)]
        return members[0] if len(members) == 1 else annotation
    return annotation


def _kinds(annotation: Any) -> dict[str, Any]:
    """The members of a union by their `kind`, or by the tag they are annotated with; empty for any other type."""
    if get_origin(annotation) not in (Union, UnionType):
        return {}
    found: dict[str, Any] = {}
    for member in get_args(annotation):
        part = _bare(member)
        tags = [tag.tag for tag in getattr(member, "__metadata__", ()) if isinstance(tag, Tag)]
        if isinstance(part, type) and issubclass(part, BaseModel) and "kind" in part.model_fields:
            tags += get_args(part.model_fields["kind"].annotation)
        found |= dict.fromkeys(tags, part)
    return found
