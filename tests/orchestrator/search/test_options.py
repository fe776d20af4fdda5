"""A search over options that need other values: ranges, starts and a least number of trials for each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest

from orchestrator.search.optuna import export, importance
from orchestrator.search.task import SearchTask
from orchestrator.sweep.draws import Options, combinations, lacking
from tests.orchestrator.search.test_search_contract import SAMPLERS, names
from tests.support.searching import BASE, Shelf, found, path_of, search, task

RATES = {"softmax": (8.0, 60.0), "mixture": (2.0, 6.0), "ecoc": (0.1, 1.5)}
SPACE: dict[str, Any] = {
    "layer": {
        "kind": "change",
        "among": {
            "softmax": {},
            "mixture": {"head": {"kind": "mixture", "experts": [0, 3]}},
            "codes": {"head": {"kind": "ecoc", "codebook": {"kind": "random", "bits": 50}}},
        },
    },
    "optimizer.learning_rate": [
        {"kind": "log_uniform", "low": low, "high": high, "when": {"head.kind": kind}}
        for kind, (low, high) in RATES.items()
    ],
    "head.codebook": {
        "kind": "choice",
        "when": {"layer": "codes"},
        "among": {"random": {"kind": "random", "bits": 50}, "unigram": {"kind": "unigram", "bits": 50}},
    },
    "dropout.input": {"kind": "uniform", "low": 0.0, "high": 0.7},
}
HEADS = {"softmax": "softmax", "mixture": "mixture", "codes": "ecoc"}
STARTS = [{"layer": "codes", "optimizer.learning_rate": 1.0}, {"layer": "mixture"}, {"layer": "softmax"}]


def options(**update: Any) -> SearchTask:
    return task(**{"space": SPACE, "scheduler": None, "trials": 16} | update)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=names)
def test_every_option_is_searched_in_its_own_range(sampler: dict[str, Any], tmp_path: Path) -> None:
    one = options(sampler=sampler, trials=12 if sampler["kind"] == "gaussian_process" else 24)
    (trials,) = search([one], Shelf(tmp_path))
    assert {trial.values["layer"] for trial in trials} == set(HEADS)
    for trial in trials:
        low, high = RATES[HEADS[trial.values["layer"]]]
        assert low <= trial.values["optimizer.learning_rate"] <= high
        assert ("head.codebook" in trial.values) == (trial.values["layer"] == "codes")
        spec = one.drawn(trial.values).spec
        assert spec is not None and spec.optimizer.learning_rate == trial.values["optimizer.learning_rate"]


def test_where_no_range_holds_the_trial_keeps_the_rate_that_it_has(tmp_path: Path) -> None:
    change = SPACE["layer"]["among"]["codes"] | {"optimizer.learning_rate": 0.5}
    layer = {"kind": "change", "among": SPACE["layer"]["among"] | {"codes": change}}
    space = SPACE | {"layer": layer, "optimizer.learning_rate": SPACE["optimizer.learning_rate"][:2]}
    (trials,) = search([options(space=space, sampler={"kind": "random"})], Shelf(tmp_path))
    codes = [trial for trial in trials if trial.values["layer"] == "codes"]
    assert codes and all("optimizer.learning_rate" not in trial.values for trial in codes)
    spec = options(space=space).drawn(codes[0].values).spec
    assert spec is not None and spec.optimizer.learning_rate == 0.5


@pytest.mark.parametrize("sampler", [SAMPLERS[0], SAMPLERS[1], SAMPLERS[5]], ids=names)
def test_each_option_starts_at_a_sensible_point(sampler: dict[str, Any], tmp_path: Path) -> None:
    (trials,) = search([options(sampler=sampler, start=STARTS, start_rest="base", trials=4)], Shelf(tmp_path))
    rest = {"dropout.input": BASE.dropout.input}
    assert trials[0].values == {"layer": "codes", "optimizer.learning_rate": 1.0, "head.codebook": "random"} | rest
    # The base's rate of 10 is in the softmax's range, and not in the mixture's: there it is sampled.
    assert 2.0 <= trials[1].values["optimizer.learning_rate"] <= 6.0
    assert (
        trials[1].values | {"optimizer.learning_rate": 0} == {"layer": "mixture", "optimizer.learning_rate": 0} | rest
    )
    assert trials[2].values == {"layer": "softmax", "optimizer.learning_rate": 10.0} | rest


def test_what_a_start_leaves_out_is_sampled_unless_the_base_is_asked_for(tmp_path: Path) -> None:
    (trials,) = search([options(sampler={"kind": "random"}, start=STARTS, trials=3)], Shelf(tmp_path))
    assert [trial.values["layer"] for trial in trials] == ["codes", "mixture", "softmax"]
    assert trials[0].values["optimizer.learning_rate"] == 1.0
    assert BASE.dropout.input not in [trial.values["dropout.input"] for trial in trials]


LEAST = {"layer": 4, "head.codebook": 3}


@pytest.mark.parametrize("sampler", [SAMPLERS[0], SAMPLERS[1], SAMPLERS[3], SAMPLERS[5]], ids=names)
def test_every_option_gets_its_least_number_of_trials(sampler: dict[str, Any], tmp_path: Path) -> None:
    one = options(sampler=sampler, min_trials_per_option=LEAST, start=STARTS, trials=14)
    (trials,) = search([one], Shelf(tmp_path))
    layers = Counter(trial.values["layer"] for trial in trials)
    books = Counter(trial.values.get("head.codebook") for trial in trials)
    assert min(layers[name] for name in HEADS) >= 4
    assert min(books["random"], books["unigram"]) >= 3


def trials_needed(combined: Sequence[Options], least: Mapping[str, int], starts: Sequence[Mapping[str, Any]]) -> int:
    """How many trials it takes until every option has its least number, the starts included."""
    tried = [*starts]
    while options := lacking(combined, least, tried):
        tried.append(options)
    return len(tried)


def test_three_trials_of_each_codebook_are_six_of_the_codes() -> None:
    one = options(min_trials_per_option=LEAST)
    combined = combinations(one.base, one.space, one.min_trials_per_option)
    assert [dict(options) for options in combined] == [
        {"layer": "softmax"},
        {"layer": "mixture"},
        {"layer": "codes", "head.codebook": "random"},
        {"layer": "codes", "head.codebook": "unigram"},
    ]
    assert trials_needed(combined, LEAST, []) == 4 + 4 + 6
    assert trials_needed(combined, LEAST, one.starts()) == 14
    assert trials_needed(combined, LEAST, [{"layer": "softmax"}] * 6) == 6 + 4 + 6


def test_options_that_do_not_depend_on_each_other_are_paired_evenly() -> None:
    space = {name: {"kind": "choice", "among": [1, 2]} for name in ("batch_size", "model.hidden_size", "epochs")}
    one = task(space=space, min_trials_per_option={"batch_size": 2, "epochs": 6})
    tried: list[Any] = []
    combined = combinations(one.base, one.space, one.min_trials_per_option)
    while options := lacking(combined, one.min_trials_per_option, tried):
        tried.append(options)
    assert len(tried) == 12
    assert Counter(values["batch_size"] for values in tried) == {"1": 6, "2": 6}


@pytest.mark.parametrize("sampler", [SAMPLERS[1], SAMPLERS[5]], ids=names)
def test_killed_after_any_trial_the_options_come_in_the_same_order(sampler: dict[str, Any], tmp_path: Path) -> None:
    one = options(sampler=sampler, min_trials_per_option=LEAST, start=STARTS[:1], start_rest="base", trials=14)
    whole = Shelf(tmp_path / "whole")
    (undisturbed,) = search([one], whole)
    lines = path_of(one, whole.root).read_bytes().splitlines(keepends=True)
    for cut in range(0, len(lines), 17):
        shelf = Shelf(tmp_path / str(cut))
        path = path_of(one, shelf.root)
        path.parent.mkdir(parents=True)
        path.write_bytes(b"".join(lines[:cut]))
        assert search([one], shelf) == [undisturbed]
        assert path.read_bytes() == b"".join(lines)


def test_a_variant_whose_choice_is_fixed_gets_no_least_number_of_it() -> None:
    one = options(min_trials_per_option=LEAST, fixed=("layer", "head.codebook"))
    assert one.min_trials_per_option == {}
    assert one.key("f" * 64) == options(fixed=("layer", "head.codebook")).key("f" * 64)


def test_ranges_and_least_numbers_decide_the_key() -> None:
    other = SPACE | {"optimizer.learning_rate": SPACE["optimizer.learning_rate"][:2]}
    changes: list[dict[str, Any]] = [
        {},
        {"space": other},
        {"min_trials_per_option": {"layer": 2}},
        {"start": STARTS},
        {"start": STARTS, "start_rest": "base"},
    ]
    assert len({options(**change).key("f" * 64) for change in changes}) == len(changes)


def test_a_range_of_each_option_is_a_parameter_of_its_own_in_an_export(tmp_path: Path) -> None:
    one = options(sampler={"kind": "random"}, trials=24)
    (trials,) = search([one], Shelf(tmp_path))
    url = f"sqlite:///{tmp_path}/optuna.db"
    export({"a": (one, trials)}, url, lambda key: None)
    study = optuna.load_study(study_name="a", storage=url)
    for theirs, ours in zip(study.trials, trials, strict=True):
        kind = HEADS[ours.values["layer"]]
        rate = theirs.params[f"optimizer.learning_rate where head.kind is {kind}"]
        assert rate == ours.values["optimizer.learning_rate"]
    study._storage.remove_session()
    complete = [trial for trial in found(one, tmp_path) if trial.state == "complete"]
    assert len(complete) >= 20 and all(math.isfinite(trial.valid_nats or math.nan) for trial in complete)
    assert set(importance(one, trials) or {}) == {"layer", "dropout.input"}


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_start_outside_a_variants_own_range_is_drawn_instead(sampler: str, tmp_path: Path) -> None:
    """A start suits the shared space; Optuna would take it for any variant, and the ledger refuse it for ever."""
    space = {"optimizer.learning_rate": {"kind": "log_uniform", "low": 0.0003, "high": 0.01}}
    one = task(space=space, sampler={"kind": sampler}, scheduler=None, trials=3)
    start = ({"optimizer.learning_rate": 30.0},)
    one = replace(one, searching=one.searching.model_copy(update={"start": start}))
    (trials,) = search([one], Shelf(tmp_path))
    assert len(trials) == 3
    assert all(0.0003 <= trial.values["optimizer.learning_rate"] <= 0.01 for trial in trials)
