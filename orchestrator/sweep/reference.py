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
_BOUNDS = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "to below"}
_PLAIN = {"boolean": "`true`, `false`", "string": "text", "null": "`null`", "object": "mapping"}


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
        [f"`{name}`", _form(field, headings), _default(field), field.get("description", "")]
        for name, field in part["properties"].items()
        if name != "kind"
    ]
    if rows:
        cells = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows]
        lines += ["| field | what it holds | default | meaning |", "| :-- | :-- | :-- | :-- |"]
        lines += [*(f"| {' | '.join(row)} |" for row in cells), ""]
    return "\n".join(lines)


def _form(field: dict[str, Any], headings: dict[str, str]) -> str:
    """What a field may hold, in words: its type and bounds, its values, or links to its parts."""
    match field:
        case {"$ref": part}:
            heading = headings[part.removeprefix("#/$defs/")]
            anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")  # GitHub's
            return f"[{heading.rpartition(': ')[2]}](#{anchor})"
        case {"anyOf": forms} | {"oneOf": forms}:
            return " or ".join(dict.fromkeys(_form(form, headings) for form in forms))
        case {"enum": values}:
            return ", ".join(f"`{value}`" for value in values)
        case {"const": value}:
            return f"`{value}`"
        case {"type": "array"}:
            return f"list of {_form(field.get('items') or field['prefixItems'][0], headings)}"
        case {"type": "object", "patternProperties": dict(values)}:
            return f"mapping of names to {_form(next(iter(values.values())), headings)}"
        case {"type": "object", "additionalProperties": dict(values)}:
            return f"mapping of names to {_form(values, headings)}"
        case {"type": "integer" | "number" as kind}:
            bounds = [f"{word} {_number(field[key])}" for key, word in _BOUNDS.items() if key in field]
            return " ".join(["whole number" if kind == "integer" else "number", *bounds])
        case _:
            return _PLAIN.get(field.get("type", ""), "any value")


def _number(value: float) -> str:
    return "2^63" if value == 2**63 else f"{int(value):,}" if value == int(value) else repr(value)


def _default(field: dict[str, Any]) -> str:
    """A field's default; of a whole part its kind, or that its fields have some."""
    match field:
        case {"default": {"kind": kind}}:
            return f"`{{kind: {kind}}}`"
        case {"default": dict(part)} if part:
            return "its fields'"
        case {"default": value}:
            return f"`{value if isinstance(value, str) else json.dumps(value)}`"
        case _:
            return "required"


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
    below = (form for field in named for form in field["patternProperties"].values())
    for place in (component["off"], scale["base"], *below):
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

    A kind changes with its whole part, so it has no path, and no path leads into a list or a mapping; a change has no
    default.
    """
    for name, field in parts[part]["properties"].items():
        if name != "kind":
            yield f"{prefix}{name}", {key: value for key, value in field.items() if key != "default"}
            forms = [field]
            for form in forms:  # which grows by the members of unions
                forms += [*form.get("anyOf", ()), *form.get("oneOf", ())]
                if "$ref" in form:
                    yield from _paths(form["$ref"].removeprefix("#/$defs/"), f"{prefix}{name}.", parts)


def _any_of(forms: list[dict[str, Any]]) -> dict[str, Any]:
    """What different kinds of a part hold in a field of the same name."""
    descriptions = dict.fromkeys(form["description"] for form in forms)
    return {"anyOf": forms, "description": " Or: ".join(descriptions)}
