"""One reader of YAML for sweep files, specs and published numbers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lm.spec import TrainSpec
from lm.spec_file import read_spec_file
from lm.yaml_text import read_yaml, read_yaml_file, write_yaml
from orchestrator.sweep import SweepError, read_sweep

SWEEPS = Path(__file__).parents[2] / "sweeps"
SPEC = "corpus: {name: ptb}\nepochs: 2\noptimizer: {kind: sgd, learning_rate: 1.0}\n"
DIALECT = {
    "012": 12,
    "0o14": 12,
    "0x1F": 31,
    "1_000": "1_000",
    "1:30": "1:30",
    "1e-3": 0.001,
    "+.5": 0.5,
    "-.INF": -math.inf,
    "yes": "yes",
    "no": "no",
    "on": "on",
    "OFF": "OFF",
    "True": True,
    "~": None,
    "": None,
    "2026-01-01": "2026-01-01",
    "=": "=",
    "<<": "<<",
    "!!str 12": "12",
    "!!float 3": 3.0,
}


@pytest.mark.parametrize("text", DIALECT)
def test_scalars_are_those_of_yaml_1_2(text: str) -> None:
    value = read_yaml(f"a: {text}\n").data["a"]
    assert (value, type(value)) == (DIALECT[text], type(DIALECT[text]))


def test_a_spec_and_a_sweep_file_read_a_value_alike(tmp_path: Path) -> None:
    spec_file, sweep_file = tmp_path / "spec.yaml", tmp_path / "sweep.yaml"
    spec_file.write_text(f"{SPEC}batch_size: 012\n".replace("1.0", "1e-3"))
    base = "".join(f"  {line}\n" for line in spec_file.read_text().splitlines())
    sweep_file.write_text(f"name: a\nquestion: b\nbase:\n{base}seeds: [1]\nvariants: {{c: {{epochs: 3}}}}\n")
    spec = read_spec_file(spec_file, TrainSpec.model_validate, TrainSpec)
    swept = read_sweep(sweep_file).base
    assert (spec.batch_size, spec.optimizer.learning_rate) == (12, 0.001)
    assert spec == swept.model_copy(update={"seed": spec.seed})


def as_written(data: Any) -> Any:
    """PyYAML's data with the key `off` as it is written; YAML 1.1 takes it for false."""
    if isinstance(data, dict):
        return {"off" if key is False else key: as_written(value) for key, value in data.items()}
    return [as_written(item) for item in data] if isinstance(data, list) else data


@pytest.mark.parametrize("file", sorted(SWEEPS.rglob("*.yaml")), ids=lambda file: file.name)
def test_every_shipped_file_has_the_values_that_pyyaml_reads(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert repr(read_yaml_file(file)) == repr(as_written(yaml.safe_load(text)))


def test_what_is_wrong_with_a_spec_is_told_at_its_line_in_the_files_order(tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text("epochs: 0\ncorpus: {name: ptb}\noptimizer:\n  kind: sgd\n  learning_rat: 1.0\n")
    with pytest.raises(ValueError) as refused:
        read_spec_file(file, TrainSpec.model_validate, TrainSpec)
    assert str(refused.value).splitlines() == [
        f"{file}:1: epochs: should be greater than or equal to 1, got 0",
        f"{file}:5: optimizer.learning_rat: unknown key 'learning_rat' (did you mean 'learning_rate'?)",
    ]


def test_a_duplicate_key_is_an_error_with_its_line_in_every_kind_of_file(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(f"{SPEC}epochs: 3\n")
    with pytest.raises(ValueError) as refused:
        read_spec_file(file, TrainSpec.model_validate, TrainSpec)
    assert str(refused.value) == f"{file}:4: epochs: duplicate key 'epochs' (first at line 2)"
    with pytest.raises(SweepError) as wrong:
        read_sweep(file)
    assert wrong.value.lines == (str(refused.value),)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a: &b [1]\nc: *b", "2: c: aliases are not allowed: write the value out"),
        ("[" * 50 + "]" * 50, "1: not YAML: nested more than 30 levels deep"),
        ("[" + "1," * 20_000 + "]", "1: not YAML: more than 20,000 values"),
        ("a: !!bool maybe", "1: a: the tag '!!bool' is unknown, or the value is not of its kind"),
        ("a: !!timestamp x", "1: a: the tag '!!timestamp' is unknown, or the value is not of its kind"),
        (
            "a: !!python/object/apply:os.system [x]",
            "1: a: the tag '!!python/object/apply:os.system' is unknown, or the value is not of its kind",
        ),
        (f"a: {'9' * 5000}", "1: a: a whole number of more than 100 digits"),
        ("a: b\u202e", "1: a: character U+202E is not allowed in text"),
        ("? [a]\n: 1", "1: a key must be one word or text"),
        ("a:\n  b: {c: 0,05, d: 1}", "2: a.b.c: a comma ends the value: if a number is meant, 0.05"),
        (
            "a:\n\tb: 1",
            "2: not YAML: while scanning for the next token found a tab that cannot start any token, "
            "because YAML indents with spaces",
        ),
        (
            "a: What: is it",
            "1: not YAML: mapping values are not allowed here "
            "(text with ': ' and no quotes, a line indented too far, no blank after a ':'?)",
        ),
        (
            "a: 1\nb:2\nc: 3\n",
            "2: not YAML: while scanning a simple key could not find expected ':' (no blank after a ':'?)",
        ),
        ('a: 1\nb: "two\nc: 3\n', "2: not YAML: while scanning a quoted scalar found unexpected end of stream"),
        (
            "a:\n  b: {x: 1}\n    c: 2",
            "3: not YAML: while parsing a block mapping expected <block end>, but found '<block mapping start>' "
            "(a line indented too far?)",
        ),
    ],
    ids=[
        "alias",
        "depth",
        "size",
        "bool",
        "timestamp",
        "python",
        "digits",
        "direction",
        "key",
        "comma",
        "tab",
        "colon",
        "blank",
        "quote",
        "deeper",
    ],
)
def test_what_the_reader_refuses_is_one_line_with_its_place(text: str, fault: str, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError) as refused:
        read_yaml_file(file)
    assert str(refused.value) == f"{file}:{fault}"


def test_a_file_beyond_the_limit_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(ValueError, match=r"x\.yaml: larger than 1 MiB"):
        read_yaml_file(file)


PLAIN = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12)
SCALARS = st.one_of(PLAIN, st.sampled_from(sorted(DIALECT)), st.integers(), st.floats(allow_nan=False), st.booleans())


@given(st.recursive(SCALARS | st.none(), lambda part: st.lists(part, max_size=3) | st.dictionaries(PLAIN, part)))
def test_what_is_written_is_read_as_the_same_by_both_versions(data: Any) -> None:
    text = write_yaml(data)
    assert read_yaml(text).data == data == yaml.safe_load(text)
