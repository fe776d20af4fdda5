"""What is wrong with data that pydantic refuses, and where: one line a problem, with the nearest valid name."""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, Tag, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from lm.names import closest, nearest
from lm.yaml_text import Document, Place

SLUG = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
NAME = r"^\S([^\n\r]*\S)?$"
VARIED = r"^corpus\.train_start$|\.seed$"
_PATTERNS = {
    SLUG: "letters, digits, '-' and '_', with a letter or digit first",
    NAME: "one line without blanks at its ends",
    VARIED: "corpus.train_start, or a path that ends in .seed, such as head.codebook.seed",
}
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60


@dataclass(frozen=True)
class Problem:
    """A broken rule at a place of a file."""

    place: Place
    text: str

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.place))}: {self.text}"

    def under(self, *parents: str | int) -> Problem:
        """The same problem at a place below these parents."""
        return Problem((*parents, *self.place), self.text)


def messages(problems: Iterable[Problem], document: Document) -> list[str]:
    """A line for each problem, without repetitions, in the file's order: file, line, key, text."""
    ordered = sorted(problems, key=lambda problem: document.line(problem.place))
    return list(dict.fromkeys(document.message(problem.place, problem.text) for problem in ordered))


def unknown_key(place: Place, valid: Iterable[str]) -> Problem:
    """A key that is not valid at its place."""
    return Problem(place, f"unknown key {place[-1]!r}{nearest(place[-1], valid)}")


def shown(value: object) -> str:
    """A value as messages show it, cut to a readable length."""
    return json.dumps(value) if value is None or isinstance(value, bool) else _SHORT.repr(value)


def problems_of(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """Pydantic's errors in plain words, at the places of the file.

    The rules of a union's members are joined by "or". A misspelt key is not reported as missing as well.
    """
    errors = [(details, *_locate(details, model)) for details in error.errors(include_url=False)]
    misspelt = {
        (*place[:-1], closest(place[-1], _fields(parent)))
        for details, place, _, parent in errors
        if details["type"] == "extra_forbidden"
    }
    problems: dict[tuple[Place, str], Problem] = {}
    for details, place, form, parent in errors:
        if details["type"] == "missing" and place in misspelt:
            continue
        is_type = details["type"].endswith("_type") and details["loc"][-1:] != ("[key]",)
        if is_type and any(len(inner) > len(place) and inner[: len(place)] == place for _, inner, _, _ in errors):
            continue  # of a member of a union that the value was not meant for: what is wrong lies further inside
        if details["type"] == "too_short" and len(details["input"]) >= details["ctx"]["min_length"]:
            continue  # it has enough items, but some of them are wrong
        problem = _problem(details, place, form, parent, model)
        key = problem.place, "" if problem.text.startswith("should be ") else problem.text
        if key in problems and problem != problems[key]:
            rule = problems[key].text.rsplit(", got ", 1)[0]
            problem = Problem(problem.place, f"{rule} or {problem.text.removeprefix('should be ')}")
        problems[key] = problem
    return list(problems.values())


def _problem(details: ErrorDetails, place: Place, form: Any, parent: Any, model: type[BaseModel]) -> Problem:
    context, got = details.get("ctx", {}), shown(details["input"])
    match details["type"]:
        case "extra_forbidden":
            if place[-1] in _fields(model) and parent is not model and closest(place[-1], _fields(parent)) is None:
                return Problem(place, f"unknown key {place[-1]!r} (it belongs further out: indented too far?)")
            parts = [name for name, field in _fields(parent).items() if place[-1] in _fields(_bare(field.annotation))]
            if parts and closest(place[-1], _fields(parent)) is None:
                where = " or ".join(map(repr, parts))
                return Problem(place, f"unknown key {place[-1]!r} (it belongs into {where}: indented too little?)")
            part, dot, rest = str(place[-1]).partition(".")
            if dot and part in _fields(parent):
                return Problem(place, f"unknown key {place[-1]!r} (nested here: '{part}: {{{rest}: ...}}')")
            return unknown_key(place, _fields(parent))
        case "missing":
            return Problem(place[:-1], f"missing key {place[-1]!r}")
        case "union_tag_not_found":
            return Problem(place, f"missing key 'kind' (one of {', '.join(_members(form))})")
        case "union_tag_invalid":
            kind = context["tag"]
            return Problem((*place, "kind"), f"unknown kind {shown(kind)}{nearest(kind, _members(form))}")
        case "value_error":
            text = details["msg"].removeprefix("Value error, ")
            # A rule over several values of a part is reported at the first of them that its text names.
            named = re.search(rf"\b({'|'.join(_fields(form))})\b", text) if _fields(form) else None
            return Problem(place if named is None else (*place, named.group()), text)
        case "literal_error":
            valid = re.findall(r"'([^']+)'", context["expected"])
            near = nearest(details["input"], valid) if isinstance(details["input"], str) else ""
            return Problem(place, f"should be {context['expected']}, got {got}{near}")
        case "model_type" | "model_attributes_type" | "dict_type":
            kinds = f"kind (one of {', '.join(_members(form))})" if _members(form) else ""
            required = kinds or ", ".join(name for name, field in _fields(form).items() if field.is_required())
            rule = f"should be a mapping{required and f' with {required}'}"
        case "tuple_type":
            rule = "should be a list"
        case "bool_type" | "bool_parsing":
            rule = "should be true or false"
        case "int_type" | "int_parsing" | "int_parsing_size" | "int_from_float":
            rule = "should be a whole number"
        case "float_type" | "float_parsing":
            rule = "should be a number"
        case "string_type":
            rule = "should be text" + ", in quotes if it looks like a number" * isinstance(
                details["input"], int | float
            )
        case "string_pattern_mismatch" if context["pattern"] in _PATTERNS:
            rule = f"should be {_PATTERNS[context['pattern']]}"
        case "too_short":
            fewest = context["min_length"]
            rule = "should not be empty" if fewest == 1 else f"should have at least {fewest} items"
        case _:
            rule = details["msg"].removeprefix("Input ")
    return Problem(place, f"{rule[:1].lower()}{rule[1:]}, got {got}")


def _locate(details: ErrorDetails, model: type[BaseModel]) -> tuple[Place, Any, Any]:
    """Pydantic's location without the tags and type names of unions; the type there, and the type that holds it."""
    place: list[str | int] = []
    form: Any = model
    parent: Any = model
    location = details["loc"]
    if location[-1:] == ("[key]",) and details["type"] != "extra_forbidden":
        location = location[:-1]  # it marks a key that is itself wrong
    for part in location:
        if part in (members := _members(form)):
            form = members[part]
        elif isinstance(part, int):
            place.append(part)
            form = _bare(get_args(form)[0]) if get_origin(form) is tuple else object
        elif fields := _fields(form):
            place.append(part)
            form, parent = _bare(fields[part].annotation) if part in fields else object, form
        elif get_origin(form) is dict:
            place.append(part)
            form = _bare(get_args(form)[1])
    return tuple(place), form, parent


def _fields(form: Any) -> Mapping[str, FieldInfo]:
    """The fields of a model; none of any other type."""
    return form.model_fields if isinstance(form, type) and issubclass(form, BaseModel) else {}


def _bare(annotation: Any) -> Any:
    """A type without `Annotated` and `| None`; a union of tagged parts stays whole."""
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        members = [_bare(member) for member in get_args(annotation) if member is not type(None)]
        return members[0] if len(members) == 1 else annotation
    return annotation


def _members(annotation: Any) -> dict[Any, Any]:
    """The members of a union by their `kind`, or by the tag they are annotated with; empty for any other type."""
    members: dict[Any, Any] = {}
    if get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            tags = [tag.tag for tag in getattr(member, "__metadata__", ()) if isinstance(tag, Tag)]
            if (kind := _fields(part := _bare(member)).get("kind")) is not None:
                tags += get_args(kind.annotation)
            members |= dict.fromkeys(tags, part)
    return members
