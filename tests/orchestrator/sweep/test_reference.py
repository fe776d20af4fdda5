"""The reference page: it is the printed one, and has every field of the schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest

from lm.spec import Part, TrainSpec
from orchestrator.sweep import read_sweep
from orchestrator.sweep.schema import schema_text
from tests.docs.reference import reference_text

PAGE = reference_text()
SCHEMA = json.loads(schema_text())
CHANGES = SCHEMA["$defs"].pop("Changes")["properties"]
"""What `off:` and variants may change, by dotted path."""
PARTS = {"Sweep": SCHEMA} | SCHEMA["$defs"]
HEADINGS = re.findall(r"^##+ (.*)$", PAGE, flags=re.MULTILINE)


def test_the_committed_page_is_the_printed_one() -> None:
    committed = Path(__file__).parents[3] / "docs" / "reference.md"
    assert committed.read_text(encoding="utf-8") == PAGE, (
        "write it again: python -m tests.docs.reference > docs/reference.md"
    )


def test_every_part_has_one_section_and_every_field_one_row_with_all_its_cells() -> None:
    assert len(HEADINGS) == len(set(HEADINGS)) == len(PARTS)
    rows = re.findall(r"^\| `(\w+)` \|(.*)$", PAGE, flags=re.MULTILINE)
    fields = [name for part in PARTS.values() for name in part["properties"] if name != "kind"]
    assert sorted(name for name, _ in rows) == sorted(fields)
    for name, cells in rows:
        form, default, *_ = re.split(r"(?<!\\)\|", cells)
        assert re.split(r"(?<!\\)\|", cells)[3:] == [""] and form.strip() and default.strip(), name


def test_every_field_says_what_it_means_in_a_sentence() -> None:
    texts = {
        f"{name}.{field}": form.get("description", "")
        for name, part in PARTS.items()
        for field, form in part["properties"].items()
        if field != "kind"
    }
    assert len(texts) > 190
    assert [name for name, text in texts.items() if not text[:1].isupper() or text[-1] != "."] == []
    assert all(part["description"] for part in PARTS.values())


def test_every_link_leads_to_a_heading() -> None:
    anchors = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADINGS]
    links = set(re.findall(r"\]\(#([^)]+)\)", PAGE))
    assert len(anchors) == len(set(anchors)) and links <= set(anchors) and len(links) == len(PARTS) - 1


def test_rows_read_as_they_should() -> None:
    for row in (
        "| `epochs` | whole number from 1 to 1,000,000 | required | The most passes over the training text",
        "| `output` | number from 0 to below 1 | `0.0` | Of the last layer's output units, locked, p_o. |",
        "| `clip` | number above 0 to 1,000,000 or `null` | `null` | The largest norm of the gradient",
        "| `precision` | `float32`, `bfloat16` | `float32` |",
        "| `bptt` | [variable](#basebptt-variable) or [fixed](#basebptt-fixed) | `{kind: fixed}` |",
    ):
        assert row in PAGE


def test_editors_are_offered_the_dotted_paths_of_every_change() -> None:
    change = {"additionalProperties": True, "type": "object", "$ref": "#/$defs/Changes"}
    scale = SCHEMA["$defs"]["Scale"]["properties"]
    for field in (
        SCHEMA["properties"]["variants"],
        scale["variants"],
        SCHEMA["$defs"]["Change"]["properties"]["among"],
    ):
        assert list(field["patternProperties"].values()) == [change]
    for place in (SCHEMA["$defs"]["Component"]["properties"]["off"], scale["base"]):
        assert change.items() <= place.items()
    weight = CHANGES["dropout.weight"]
    assert weight["type"] == "number" and weight["exclusiveMaximum"] == 1.0 and "default" not in weight
    assert {"null"} < {form.get("type") for form in CHANGES["optimizer.clip"]["anyOf"]} and "penalties" in CHANGES
    assert {"head.dropout", "head.codebook.bits", "finetune.epochs"} <= CHANGES.keys()
    assert not {"seed", "head.kind", "kind"} & CHANGES.keys()
    assert all(form["description"].endswith(".") for form in CHANGES.values())


def test_every_path_that_is_offered_can_be_changed_in_some_base() -> None:
    """A path is there unless every kind of its part lacks it: the walk over the spec's own fields finds the same."""

    def paths(part: type[Part], prefix: str) -> Iterator[str]:
        for name, field in part.model_fields.items():
            yield f"{prefix}{name}"
            for inner in parts_in(field.annotation):
                yield from paths(inner, f"{prefix}{name}.")

    def parts_in(annotation: Any) -> Iterator[type[Part]]:
        if isinstance(annotation, type) and issubclass(annotation, Part):
            yield annotation
        elif get_origin(annotation) not in (tuple, list, dict):
            for inner in get_args(annotation):
                yield from parts_in(inner)

    expected = {path for path in paths(TrainSpec, "") if path != "seed" and path.rpartition(".")[2] != "kind"}
    assert CHANGES.keys() == expected


@pytest.mark.parametrize(
    "file", sorted((Path(__file__).parents[3] / "sweeps").glob("*.yaml")), ids=lambda file: file.stem
)
def test_every_change_of_the_shipped_sweeps_is_offered(file: Path) -> None:
    sweep = read_sweep(file)
    changes = [*(scale.base for scale in sweep.scales.values()), *sweep.variants.values()]
    changes += [component.off for component in sweep.components.values()]
    assert {path for change in changes for path in change} <= CHANGES.keys()
