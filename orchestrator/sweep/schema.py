"""JSON Schema of sweep files, by which editors complete and check them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from orchestrator.sweep.types import Sweep


def schema_text() -> str:
    """The JSON Schema of sweep files, by which editors complete and check them: what `sweeps/schema.json` holds.

    Where a file changes the base, the schema has every dotted path, so that editors offer them with their types.
    """
    schema = plain_schema()
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


def plain_schema() -> dict[str, Any]:
    """The schema of the model, without `seed`, which a sweep sets."""
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
