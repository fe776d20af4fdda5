"""The reference page: it is the printed one, and has every field of the schema."""

from __future__ import annotations

import json
import re
from pathlib import Path

from typer.testing import CliRunner

from orchestrator.__main__ import app
from orchestrator.sweep.reference import reference_text, schema_text

PAGE = reference_text()
SCHEMA = json.loads(schema_text())
PARTS = {"Sweep": SCHEMA} | SCHEMA["$defs"]
HEADINGS = re.findall(r"^##+ (.*)$", PAGE, flags=re.MULTILINE)


def test_the_committed_page_is_the_printed_one() -> None:
    printed = CliRunner().invoke(app, ["schema", "--markdown"])
    assert (printed.exit_code, printed.stdout) == (0, PAGE)
    committed = Path(__file__).parents[2] / "docs" / "reference.md"
    assert committed.read_text(encoding="utf-8") == PAGE, (
        "write it again: python -m orchestrator schema --markdown > docs/reference.md"
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
