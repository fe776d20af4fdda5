"""The reference page of sweep files, made from their JSON Schema: a table for each part, a row for each field."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from orchestrator.sweep.types import Sweep

_INTRODUCTION = """# Reference

Every field of a sweep file. [Sweep files](sweep-files.md) says how they go together. A part that is one of several has
a `kind`, which must be given. `scales`, `components` and `variants` name fields of `base` by dotted path, such as
`dropout.output`. Letters such as H are the papers' symbols, Greek ones are spelled out; V is the number of words.

This page is made from the schema: `python -m orchestrator schema --markdown > docs/reference.md`.
"""
_FORMS = {"UntilDecided": "until decided", "SplitSeeds": "split"}
"""Parts without a `kind` that stand for one field, by what tells them apart."""
_NAMED = {"components": "NAME", "scales": "NAME", "space": "PATH"}
"""What stands below a mapping whose keys the file chooses."""


def reference_text() -> str:
    """The page in Markdown, as `docs/reference.md` holds it."""
    schema = _schema()
    parts = schema.pop("$defs") | {schema["title"]: schema}
    headings = dict(_headings(schema["title"], "The file", "", parts, set()))
    return "\n".join([_INTRODUCTION, *(_section(parts[part], headings[part], headings) for part in headings)])


def _headings(part: str, heading: str, path: str, parts: dict[str, Any], seen: set[str]) -> Iterator[tuple[str, str]]:
    """Every part below and including this one, with its heading: the path of its first use, and its kind."""
    seen.add(part)
    yield part, heading
    for name, field in parts[part]["properties"].items():
        below = ".".join(filter(None, (path, name, _NAMED.get(name))))
        for inner in dict.fromkeys(re.findall(r'"\$ref": "#/\$defs/(\w+)"', json.dumps(field))):
            if inner not in seen:
                kind = parts[inner]["properties"].get("kind", {}).get("const") or _FORMS.get(inner)
                yield from _headings(inner, f"{below}: {kind}" if kind else below, below, parts, seen)


def _section(part: dict[str, Any], heading: str, headings: dict[str, str]) -> str:
    lines = [f"{'###' if '.' in heading else '##'} {heading}", "", part["description"], ""]
    rows = [
        f"| `{name}` | {_cell(_form(field, headings))} | {_default(field)} | {_cell(field.get('description', ''))} |"
        for name, field in part["properties"].items()
        if name != "kind"
    ]
    if rows:
        lines += ["| field | what it holds | default | meaning |", "| :-- | :-- | :-- | :-- |", *rows, ""]
    return "\n".join(lines)


def _form(field: dict[str, Any], headings: dict[str, str]) -> str:
    """What a field may hold, in words: its type and bounds, its values, or links to its parts."""
    if "$ref" in field:
        heading = headings[field["$ref"].removeprefix("#/$defs/")]
        return f"[{heading.rpartition(': ')[2]}](#{_anchor(heading)})"
    for joint in ("anyOf", "oneOf"):
        if joint in field:
            return " or ".join(dict.fromkeys(_form(form, headings) for form in field[joint]))
    if "enum" in field or "const" in field:
        return ", ".join(f"`{value}`" for value in field.get("enum", [field.get("const")]))
    match field.get("type"):
        case "array":
            items = field.get("items") or (field.get("prefixItems") or [{}])[0]
            return f"list of {_form(items, headings)}"
        case "object":
            values = field.get("additionalProperties")
            values = next(iter(field["patternProperties"].values())) if "patternProperties" in field else values
            return f"mapping of names to {_form(values, headings)}" if isinstance(values, dict) else "mapping"
        case "integer" | "number" as kind:
            return " ".join(["whole number" if kind == "integer" else "number", *_bounds(field)])
        case other:
            return {"boolean": "`true`, `false`", "string": "text", "null": "`null`"}.get(str(other), "any value")


def _bounds(field: dict[str, Any]) -> Iterator[str]:
    words = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "to below"}
    for key, word in words.items():
        if key in field:
            yield f"{word} {'2^63' if field[key] == 2**63 else _number(field[key])}"


def _number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else repr(value)


def _default(field: dict[str, Any]) -> str:
    """A field's default; of a whole part its kind, or that its fields have some."""
    if "default" not in field:
        return "required"
    match field["default"]:
        case {"kind": kind}:
            return f"`{{kind: {kind}}}`"
        case dict() as part if part:
            return "its fields'"
        case str() as text:
            return f"`{text}`"
        case value:
            return f"`{json.dumps(value)}`"


def _anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def schema_text() -> str:
    """The JSON Schema of sweep files, by which editors complete and check them: what `sweeps/schema.json` holds.

    Where a file changes the base, the schema has every dotted path, so that editors offer them with their types.
    """
    schema = _schema()
    parts = schema["$defs"]
    forms: dict[str, list[dict[str, Any]]] = {}
    for path, form in _paths("TrainSpec", "", parts):
        if form not in forms.setdefault(path, []):
            forms[path].append(form)
    component, scale, change = (parts[name]["properties"] for name in ("Component", "Scale", "Change"))
    named = (schema["properties"]["variants"], scale["variants"], change["among"])
    places = [
        component["off"],
        scale["base"],
        *(form for field in named for form in field["patternProperties"].values()),
    ]
    for place in places:
        place["$ref"] = "#/$defs/Changes"
    properties = {path: several[0] if len(several) == 1 else _any_of(several) for path, several in forms.items()}
    parts["Changes"] = {"description": "Values of the base by dotted path.", "properties": properties}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _schema() -> dict[str, Any]:
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Sweep.model_json_schema()}
    del schema["$defs"]["TrainSpec"]["properties"]["seed"]
    return schema


def _paths(part: str, prefix: str, parts: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every dotted path into a part with the form of its value, once for each kind of the parts above that has it.

    A kind changes with its whole part, so it has no path; a change has no default.
    """
    for name, field in parts[part]["properties"].items():
        if name != "kind":
            yield f"{prefix}{name}", {key: value for key, value in field.items() if key != "default"}
            for inner in _parts_of(field):
                yield from _paths(inner, f"{prefix}{name}.", parts)


def _parts_of(form: dict[str, Any]) -> Iterator[str]:
    """The parts that a value may be; not those in a list or a mapping, which no dotted path leads into."""
    if "$ref" in form:
        yield form["$ref"].removeprefix("#/$defs/")
    for inner in (*form.get("anyOf", ()), *form.get("oneOf", ())):
        yield from _parts_of(inner)


def _any_of(forms: list[dict[str, Any]]) -> dict[str, Any]:
    """What different kinds of a part hold in a field of the same name."""
    descriptions = dict.fromkeys(form["description"] for form in forms)
    return {"anyOf": forms, "description": " Or: ".join(descriptions)}
