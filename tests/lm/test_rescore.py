"""A settled trial's kept weights, scored again, whatever its head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lm.rescore import rescore
from lm.spec import Cache, Dynamic
from lm.train import train
from tests.support.lm_trials import run, settled
from tests.support.tiny import tiny_spec

HEADS: list[dict[str, Any]] = [
    {"kind": "softmax"},
    {"kind": "mixture", "experts": [0, 1, 2], "dropout": 0.3, "prior_penalty": 0.01},
    {"kind": "sampled", "loss": {"kind": "softmax", "samples": 8}},
    {"kind": "hierarchical", "tree": {"kind": "huffman"}},
    {"kind": "ecoc", "codebook": {"kind": "unigram", "bits": 12}, "word_bias": "unigram"},
]


def test_a_test_text_that_the_trial_left_closed_stays_closed(corpus_folder: Path, tmp_path: Path) -> None:
    for _ in train(tiny_spec(corpus_folder, epochs=1), out=tmp_path, device="cpu", test=False):
        pass
    adapting = {"cache": Cache(window=5, weight=0.1, flatness=0.5), "dynamic": Dynamic(learning_rate=0.001, decay=0.01)}
    names = rescore(settled(tmp_path), tmp_path, device="cpu", **adapting)
    assert len(names) == 4 and not any(name.startswith("test") for name in names)


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head["kind"])
def test_scores_are_those_of_the_record(corpus_folder: Path, tmp_path: Path, head: dict[str, Any]) -> None:
    """Of the last stage that trained; with the cache at the values that the trial chose, also of that."""
    cache = {"window": [5, 50], "weight": [0.1, 0.3], "flatness": 0.5}
    tied = head["kind"] not in ("hierarchical", "ecoc")
    model = {"layers": 2, "embedding_size": 6, "hidden_size": 10, "tied": tied}
    spec = tiny_spec(corpus_folder, model=model, head=head, epochs=2, finetune={"epochs": 1}, cache=cache)
    run(spec, tmp_path)
    record = settled(tmp_path)
    trained, cached = record.stages[-2:]
    chosen = cached.cache
    assert chosen is not None
    name = f"cache window {chosen.window} weight {chosen.weight:g} flatness {chosen.flatness:g}"
    assert rescore(record, str(tmp_path), device="cpu", cache=spec.cache) == {
        "valid": trained.valid,
        "test": trained.test,
        "valid, one column": chosen.plain_valid,
        "test, one column": chosen.plain_test,
        f"valid, {name}": cached.valid,
        f"test, {name}": cached.test,
    }
