from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lm.spec import TrainSpec
from lm.yaml_text import read_yaml
from orchestrator.sweep import SweepError, read_sweep
from orchestrator.sweep.override import override
from tests.support.sweep_texts import GOOD

BASE = TrainSpec.model_validate(yaml.safe_load(GOOD)["base"])
PROBABILITIES = st.floats(0.0, 0.99)
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "dropout.weight": PROBABILITIES,
        "dropout.input": PROBABILITIES,
        "epochs": st.integers(1, 10**6),
        "optimizer.learning_rate": st.floats(1e-6, 1e6),
        "optimizer.nonmonotone_interval": st.integers(1, 50),
        "finetune": st.none() | st.fixed_dictionaries({"epochs": st.integers(1, 99)}),
        "bptt": st.fixed_dictionaries({"kind": st.just("variable"), "length": st.integers(2, 200)}),
        "early_stop": st.none() | st.integers(1, 9),
    },
)

TOP = ["name", "question", "base", "components", "variants", "scales", "seeds", "resources", "published", "design"]
INNER = ["off", "corpus", "model", "dropout", "dropout.weight", "optimizer", "kind", "sgd", "epochs", "seed", "paper"]
WORDS = st.sampled_from([*TOP, *INNER, "full", "[key]", "a.b", "1", "null"]) | st.text(max_size=4)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | WORDS
GARBAGE = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4))


def read(text: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.yaml"
        path.write_text(text, encoding="utf-8")
        return read_sweep(path)


@given(CHANGES)
def test_valid_overrides_change_exactly_what_they_name(changes: dict[str, Any]) -> None:
    spec, problems = override(BASE, changes)
    assert problems == []
    expected = BASE.model_dump()
    for key, value in changes.items():
        *parents, last = key.split(".")
        part = expected
        for parent in parents:
            part = part[parent]
        part[last] = value
    assert spec == TrainSpec.model_validate(expected)


@settings(max_examples=50)
@given(CHANGES.filter(lambda changes: override(BASE, changes)[0] != BASE))
def test_overrides_come_back_from_a_file_as_they_were_written(changes: dict[str, Any]) -> None:
    data = yaml.safe_load(GOOD)
    data["variants"], data["components"], data["scales"] = {"changed": changes}, {}, {}
    sweep = read(yaml.safe_dump(data))
    assert sweep.variants["changed"] == changes
    assert sweep.at("paper").variants[1].spec == override(BASE, changes)[0]


@settings(max_examples=200)
@given(GARBAGE)
def test_garbage_is_only_ever_a_sweep_error(data: object) -> None:
    try:
        read(yaml.safe_dump(data, allow_unicode=True))
    except SweepError as error:
        assert error.lines


@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    ("base",),
                    ("base", "dropout"),
                    ("base", "optimizer"),
                    ("base", "model", "hidden_size"),
                    ("components",),
                    ("components", "fine-tuning"),
                    ("components", "fine-tuning", "off"),
                    ("variants", "neural cache"),
                    ("scales", "tiny"),
                    ("scales", "tiny", "base"),
                    ("scales", "tiny", "components"),
                    ("scales", "[key]"),
                    ("seeds",),
                    ("published",),
                ]
            ),
            GARBAGE,
        ),
        min_size=1,
        max_size=3,
    )
)
@example([(("scales", "tiny", "base"), {"": 1}), (("base", "optimizer"), {"kind": "kind"})])
def test_a_sweep_with_garbage_in_it_is_read_or_a_sweep_error(edits: list[tuple[tuple[str, ...], object]]) -> None:
    data = yaml.safe_load(GOOD)
    for path, garbage in edits:
        part = data
        for key in path[:-1]:
            part = part.get(key) if isinstance(part, dict) else None
        if isinstance(part, dict):
            part[path[-1]] = garbage
    try:
        sweep = read(yaml.safe_dump(data, allow_unicode=True))
    except SweepError as error:
        assert error.lines
    else:
        for scale in sweep.scale_names:
            assert sweep.at(scale).baseline.name == "full"


@given(st.text(max_size=60))
def test_any_text_is_data_or_an_error_with_a_line_of_it(text: str) -> None:
    try:
        document = read_yaml(text, "x.yaml")
    except ValueError as error:
        assert 1 <= int(str(error).split(":")[1]) <= len(text) + 1
    else:
        assert all(1 <= line <= len(text) + 1 for line in document.lines.values())
