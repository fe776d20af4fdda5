"""Specs: what is refused, how parameters are counted, what a trial's key depends on, what is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from lm.model import LanguageModel
from lm.spec import (
    Cache,
    Dropout,
    Model,
    RecurrentHighway,
    SoftmaxHead,
    TrainSpec,
    parameter_count,
    stage_keys,
    trial_key,
)
from tests.support.tiny import even

ROOT = Path(__file__).parents[2]
HEAD = SoftmaxHead(kind="softmax")
SGD = {"kind": "sgd", "learning_rate": 30.0}
SMALL: dict[str, Any] = {"corpus": {"name": "ptb"}, "optimizer": SGD, "epochs": 2}


@pytest.mark.parametrize(
    ("vocabulary", "embedding", "total"),
    [(10_000, 400, 24_221_600), (33_278, 400, 33_556_078), (10_000, 1150, 43_277_600), (33_278, 1150, 70_070_578)],
)
def test_published_parameter_totals(vocabulary: int, embedding: int, total: int) -> None:
    assert parameter_count(Model(embedding_size=embedding), HEAD, vocabulary) == total


@pytest.mark.parametrize(
    ("size", "vocabulary", "untied", "tied"),
    [
        pytest.param(200, 10_000, 4_653_200, 2_643_200, id="small"),
        pytest.param(650, 10_000, 19_780_400, 13_270_400, id="medium"),
        pytest.param(1500, 10_000, 66_034_000, 51_024_000, id="large"),
        pytest.param(650, 33_278, 50_065_078, 28_401_100, id="medium, wikitext-2"),
    ],
)
def test_parameter_totals_of_tying(size: int, vocabulary: int, untied: int, tied: int) -> None:
    """The models of Inan et al. 2016, who print 66M and 51M for the large one; reused embeddings take no bias."""
    for shared, total in ((False, untied), (True, tied)):
        model = Model(layers=2, embedding_size=size, hidden_size=size, tied=shared)
        assert parameter_count(model, SoftmaxHead(kind="softmax", bias=not shared), vocabulary) == total


@st.composite
def models(draw: st.DrawFn) -> Model:
    layers, tied = draw(st.integers(1, 3)), draw(st.booleans())
    sizes = st.integers(1, 9)
    embedding = draw(sizes)
    listed = draw(st.lists(sizes, min_size=layers, max_size=layers))
    if tied:
        listed[-1] = embedding
    size = draw(st.sampled_from([listed[0], tuple(listed)]))
    cell = draw(
        st.sampled_from(["lstm", "gru", "peephole_lstm", RecurrentHighway(kind="rhn", depth=draw(st.integers(1, 3)))])
    )
    return Model(cell=cell, layers=layers, embedding_size=embedding, hidden_size=size, tied=tied)


@settings(max_examples=60)
@given(models(), st.booleans(), st.integers(1, 13))
def test_parameter_count_is_that_of_the_built_model(model: Model, bias: bool, vocabulary: int) -> None:
    head = SoftmaxHead(kind="softmax", bias=bias)
    built = LanguageModel(model, head, Dropout(weight=0.5), even(vocabulary), torch.Generator().manual_seed(0))
    assert sum(weight.numel() for weight in built.parameters()) == parameter_count(model, head, vocabulary)
    assert sum(weight.numel() for weight in built.weights().values()) == parameter_count(model, head, vocabulary)


def test_layer_sizes() -> None:
    assert Model().hidden_sizes == (1150, 1150, 400)
    assert Model(tied=False).hidden_sizes == (1150, 1150, 1150)
    assert Model(layers=1).hidden_sizes == (400,)
    assert Model(layers=2, embedding_size=7, hidden_size=(5, 7)).hidden_sizes == (5, 7)
    with pytest.raises(ValidationError, match="lists 2 sizes for layers = 3"):
        Model(hidden_size=(5, 400))
    listed = SMALL | {"model": {"layers": 2, "hidden_size": [5, 5]}}
    with pytest.raises(ValidationError, match="5 is not embedding_size = 400"):
        TrainSpec.model_validate(listed)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"epoch": 3}, "epoch"),
        ({"model": {"layer": 3}}, "model.layer"),
        ({"dropout": {"weight": 1.0}}, "dropout.weight"),
        ({"dropout": {"weight": float("nan")}}, "dropout.weight"),
        ({"optimizer": SGD | {"learning_rate": 0.0}}, "optimizer.sgd.learning_rate"),
        ({"optimizer": SGD | {"learning_rate": float("inf")}}, "optimizer.sgd.learning_rate"),
        ({"optimizer": SGD | {"clip": 0.0}}, "optimizer.sgd.clip"),
        ({"optimizer": {"kind": "sgdd", "learning_rate": 1.0}}, "optimizer"),
        ({"optimizer": {"learning_rate": 1.0}}, "optimizer"),
        ({"bptt": {"kind": "fixed", "length": 1}}, "bptt.fixed.length"),
        ({"bptt": {"kind": "fixed", "deviation": 1.0}}, "bptt.fixed.deviation"),
        ({"bptt": {"kind": "variable", "length": 1}}, "bptt.variable.length"),
        ({"bptt": {"kind": "variable", "minimum": 1}}, "bptt.variable.minimum"),
        ({"bptt": {"kind": "variable", "full_probability": float("nan")}}, "bptt.variable.full_probability"),
        ({"bptt": {"kind": "variable", "full_probability": 1.1}}, "bptt.variable.full_probability"),
        ({"penalties": {"activation": -1.0}}, "penalties.activation"),
        ({"batch_size": 2.0}, "batch_size"),
        ({"batch_size": True}, "batch_size"),
        ({"epochs": 0}, "epochs"),
        ({"seed": -1}, "seed"),
        ({"cache": {"window": 0, "weight": 0.1, "flatness": 1.0}}, "cache.window"),
        ({"cache": {"window": 5, "weight": 1.0, "flatness": 1.0}}, "cache.weight"),
        ({"corpus": {"name": ""}}, "corpus.name"),
        ({"model": {"hidden_size": 10**9}}, "model.hidden_size"),
        ({"model": {"embedding_size": 10**9}}, "model.embedding_size"),
        ({"model": {"layers": 1000}}, "model.layers"),
        ({"model": {"init_range": 1e9}}, "model.init_range"),
        ({"dropout": {"output": 1.0}}, "dropout.output"),
        ({"epochs": 10**7}, "epochs"),
        ({"early_stop": 10**7}, "early_stop"),
        ({"batch_size": 10**7}, "batch_size"),
        ({"optimizer": SGD | {"learning_rate": 1e9}}, "optimizer.sgd.learning_rate"),
        ({"optimizer": SGD | {"weight_decay": 2.0}}, "optimizer.sgd.weight_decay"),
        ({"optimizer": SGD | {"clip": 1e9}}, "optimizer.sgd.clip"),
        ({"optimizer": {"kind": "nt_asgd", "learning_rate": 1.0, "nonmonotone_interval": 10**7}}, "optimizer.nt_asgd"),
        ({"penalties": {"temporal_activation": 1e9}}, "penalties.temporal_activation"),
        ({"bptt": {"kind": "fixed", "length": 10**7}}, "bptt.fixed.length"),
        ({"bptt": {"kind": "variable", "cap_extra": 10**7}}, "bptt.variable.cap_extra"),
        ({"finetune": {"epochs": 1, "repeats": 10**6}}, "finetune.repeats"),
        ({"scoring": {"valid_columns": 10**7}}, "scoring.valid_columns"),
        ({"cache": {"window": 10**7, "weight": 0.1, "flatness": 1.0}}, "cache.window"),
        ({"head": {"kind": "mixture", "experts": [0, 0, 0, 10**6]}}, "head.mixture.experts"),
        ({"head": {"kind": "ecoc", "codebook": {"kind": "random", "bits": 10**7}}}, "head.ecoc.codebook.random.bits"),
    ],
)
def test_a_wrong_value_is_refused_where_it_stands(change: dict[str, Any], where: str) -> None:
    with pytest.raises(ValidationError) as caught:
        TrainSpec.model_validate(SMALL | change)
    places = [".".join(map(str, error["loc"])) for error in caught.value.errors()]
    assert all(place.startswith(where) for place in places), places


def test_every_field_says_what_it_means() -> None:
    """Editors show it, and the reference page has it; a tag means what its part does."""
    schema = TrainSpec.model_json_schema()
    parts = {"TrainSpec": schema} | schema["$defs"]
    fields = {f"{part}.{name}": field for part, form in parts.items() for name, field in form["properties"].items()}
    assert len(fields) > 130 and [name for name, field in fields.items() if not field.get("description")] == []
    texts = [(name, field["description"]) for name, field in fields.items() if not name.endswith(".kind")]
    assert [name for name, text in texts if not text[0].isupper() or text[-1] != "."] == []


def test_averaging_does_not_take_over_the_rate_of_adam() -> None:
    adam = {"optimizer": {"kind": "adam", "learning_rate": 0.004}, "finetune": {"epochs": 1}}
    with pytest.raises(ValidationError, match=r"finetune\.learning_rate"):
        TrainSpec.model_validate(SMALL | adam)
    assert TrainSpec.model_validate(SMALL | adam | {"finetune": {"epochs": 1, "learning_rate": 3.0}})


def test_an_empty_list_of_cache_values_is_refused() -> None:
    with pytest.raises(ValidationError):
        Cache.model_validate({"window": [], "weight": 0.1, "flatness": 1.0})


def test_specs_are_frozen_and_survive_json_and_yaml() -> None:
    spec = TrainSpec.model_validate(SMALL | {"cache": {"window": [5, 9], "weight": 0.1, "flatness": [0.3, 1.0]}})
    with pytest.raises(ValidationError):
        spec.epochs = 3  # type: ignore[misc]
    assert TrainSpec.model_validate_json(spec.model_dump_json()) == spec
    assert TrainSpec.model_validate(yaml.safe_load(yaml.safe_dump(spec.model_dump(mode="json")))) == spec
    text = "{corpus: {name: ptb}, epochs: 2, optimizer: {kind: sgd, learning_rate: 1e-3, weight_decay: 1.2e-6}}"
    optimizer = TrainSpec.model_validate(yaml.safe_load(text)).optimizer
    assert (optimizer.learning_rate, optimizer.weight_decay) == (0.001, 1.2e-6)


FULL = SMALL | {
    "finetune": {"epochs": 5, "repeats": 2},
    "cache": {"window": 5, "weight": 0.1, "flatness": 1.0},
    "penalties": {"activation": 2.0, "temporal_activation": 1.0},
}


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 2},
        {"epochs": 3},
        {"batch_size": 21},
        {"penalties": None},
        {"finetune": {"epochs": 6, "repeats": 2}},
        {"finetune": None},
        {"cache": None},
        {"early_stop": 4},
        {"head": {"kind": "softmax", "bias": False}},
        {"model": {"cell": "gru"}},
        {"model": {"cell": {"kind": "rhn"}}},
        {"model": {"cell": {"kind": "rhn", "depth": 2}}},
        {"dropout": {"weight": 0.5}},
        {"dropout": {"state": 0.5}},
        {"bptt": {"kind": "variable"}},
        {"optimizer": SGD | {"clip": 0.25}},
        {"optimizer": {"kind": "nt_asgd", "learning_rate": 30.0}},
        {"corpus": {"name": "ptb", "train_tokens": 1000}},
        {"corpus": {"name": "ptb", "vocabulary_cap": 1000}},
        {"scoring": {"valid_columns": 5}},
        {"scoring": {"raw_iterate": True}},
        {"small_batch": 5},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_key_hangs_on_all_that_decides_the_numbers(change: dict[str, Any]) -> None:
    spec = TrainSpec.model_validate(FULL)
    assert trial_key(TrainSpec.model_validate(FULL | change), "f") != trial_key(spec, "f")
    assert trial_key(spec, "g") != trial_key(spec, "f")


def test_a_key_hangs_on_nothing_else() -> None:
    spec = TrainSpec.model_validate(SMALL)
    written_out = TrainSpec.model_validate(spec.model_dump(mode="json"))
    elsewhere = spec.model_copy(update={"corpus": spec.corpus.model_copy(update={"name": "/data/ptb"})})
    assert trial_key(written_out, "f") == trial_key(elsewhere, "f") == trial_key(spec, "f")
    whole = TrainSpec.model_validate(SMALL | {"optimizer": {"kind": "sgd", "learning_rate": 30}})
    assert trial_key(whole, "f") == trial_key(spec, "f")


def test_keys_of_today_are_those_of_tomorrow() -> None:
    """Changed on purpose only: a key that moves trains every finished trial once more."""
    assert trial_key(TrainSpec.model_validate(SMALL), "f") == "f0f5e600f2d31171"
    assert trial_key(TrainSpec.model_validate(FULL), "f") == "0ed52ead90050896"


def test_trials_share_the_stages_in_which_their_specs_agree() -> None:
    keys = stage_keys(TrainSpec.model_validate(FULL), "f")
    assert list(keys) == ["train", "finetune-1", "finetune-2", "cache"] and len(set(keys.values())) == 4
    assert keys["cache"] == trial_key(TrainSpec.model_validate(FULL), "f")
    fewer = TrainSpec.model_validate(FULL | {"cache": None, "finetune": None})
    assert stage_keys(fewer, "f") == {"train": keys["train"]}
    once = TrainSpec.model_validate(FULL | {"cache": None, "finetune": {"epochs": 5}})
    assert stage_keys(once, "f")["finetune-1"] == keys["finetune-1"] == trial_key(once, "f")
    longer = stage_keys(TrainSpec.model_validate(FULL | {"finetune": {"epochs": 6, "repeats": 2}}), "f")
    assert {name for name in keys if keys[name] == longer[name]} == {"train"}


def test_what_is_imported() -> None:
    """The spec loads no torch, nor does the command line's help; nothing in lm loads what belongs to sweeps."""
    code = """
import importlib, pkgutil, sys
def absent(*names):
    found = [name for name in names if name in sys.modules]
    assert not found, found
import lm.spec
absent("torch", "numpy", "pyarrow", "scipy", "yaml")
import lm.record, lm.data, lm.__main__
absent("torch")
import lm
for module in pkgutil.walk_packages(lm.__path__, "lm."):
    importlib.import_module(module.name)
assert "torch" in sys.modules
absent("ray", "mlflow", "optuna", "matplotlib", "orchestrator")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
