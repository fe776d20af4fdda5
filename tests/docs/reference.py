"""The reference page of sweep files, made from their JSON Schema: a table for each part, a row for each field."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from orchestrator.sweep.schema import plain_schema

_INTRODUCTION = """# Reference

Every field of a sweep file. [Sweep files](sweep-files.md) says how they go together. A part that is one of several has
a `kind`, which must be given. `scales`, `components` and `variants` name fields of `base` by dotted path, such as
`dropout.output`. Letters such as H are the papers' symbols, Greek ones are spelled out; V is the number of words.

This page is made from the schema: `python -m tests.docs.reference > docs/reference.md`.
"""
_FORMS = {"UntilDecided": "until decided", "SplitSeeds": "split"}
"""Parts without a `kind` that stand for one field, by what tells them apart."""
_NAMED = {"components": "NAME", "scales": "NAME", "space": "PATH"}
"""What stands below a mapping whose keys the file chooses."""
_BOUNDS = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "to below"}
_PLAIN = {"boolean": "`true`, `false`", "string": "text", "null": "`null`", "object": "mapping"}


def reference_text() -> str:
    """The page in Markdown, as `docs/reference.md` holds it."""
    schema = plain_schema()
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


if __name__ == "__main__":
    print(reference_text(), end="")
