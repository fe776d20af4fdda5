"""Legs: stretches of training with values of their own, each from the best weights before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from lm.checkpoint import load_weights
from lm.data import fingerprint_of
from lm.epochs import run_stage
from lm.record import read_curve, weights_path
from lm.spec import TrainSpec, stage_keys
from tests.support.lm_trials import EVERY_STEP, NEVER, assert_same, killed, run, settled
from tests.support.stages import begin, texts
from tests.support.tiny import tiny_spec, write_corpus

SGD: dict[str, Any] = {"kind": "sgd", "learning_rate": 2.0, "clip": 0.5}
SECOND: dict[str, Any] = {
    "epochs": 2,
    "optimizer": {**SGD, "learning_rate": 1.0},
    "dropout": {"embedding": 0.0, "input": 0.05, "between": 0.1, "output": 0.3, "weight": 0.6},
    "penalties": {"activation": 0.5},
}
THIRD: dict[str, Any] = {"epochs": 1, "optimizer": {**SGD, "learning_rate": 0.25}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"), tokens=(600, 200, 150))


@pytest.fixture(scope="module")
def spec(folder: Path) -> TrainSpec:
    return tiny_spec(folder, optimizer=SGD, epochs=2, legs=[SECOND, THIRD], finetune={"epochs": 1})


@pytest.fixture(scope="module")
def undisturbed(spec: TrainSpec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed")
    run(spec, out)
    return out


def test_a_trial_goes_through_its_legs_then_fine_tunes(spec: TrainSpec, undisturbed: Path) -> None:
    curve, record = read_curve(undisturbed), settled(undisturbed)
    assert [point.stage for point in curve] == ["train"] * 2 + ["train-2"] * 2 + ["train-3", "finetune-1"]
    assert [point.epoch for point in curve] == [1, 2, 3, 4, 5, 6]
    assert [point.learning_rate for point in curve] == [2.0, 2.0, 1.0, 1.0, 0.25, 0.25]
    assert [stage.name for stage in record.stages] == list(spec.stages())
    valid = [stage.valid.nats_per_token for stage in record.stages]
    assert valid == sorted(valid, reverse=True)  # each leg starts from the best weights before, and keeps them at least


def test_a_leg_trains_with_its_own_values(spec: TrainSpec) -> None:
    stage = begin(spec, stage="train-2")
    assert (stage.spec.optimizer.learning_rate, stage.at.learning_rate) == (1.0, 1.0)
    assert stage.spec.penalties is not None and stage.spec.penalties.activation == 0.5
    assert stage.model.dropout == spec.legs[0].dropout
    assert [layer.weight_drop for layer in stage.model._layers()] == [0.6, 0.6]
    assert begin(spec, stage="train").model.dropout == spec.dropout
    assert begin(spec, stage="finetune-1").spec.optimizer == spec.legs[1].optimizer


def test_a_leg_is_a_stage_by_hand(spec: TrainSpec, undisturbed: Path) -> None:
    """The second leg: its text, its values and seed, from the weights that the first chose."""
    stage = begin(spec, vocabulary=23 + 1, stage="train-2")
    before = load_weights(weights_path(undisturbed, "train"), torch.device("cpu"))
    stage.model.load_weights(before)
    stage.best = {name: weight.clone() for name, weight in before.items()}
    stage.at.best_nats = settled(undisturbed).stages[0].valid.nats_per_token
    found = [point.valid_nats_per_token for point in run_stage(stage, *texts(spec), lambda _: None, NEVER)]
    assert found == [point.valid_nats_per_token for point in read_curve(undisturbed) if point.stage == "train-2"]


@pytest.mark.parametrize("step", [40, 70, 80])
def test_killed_within_a_leg(spec: TrainSpec, undisturbed: Path, tmp_path: Path, step: int) -> None:
    assert step < read_curve(undisturbed)[-1].step
    killed(spec, tmp_path, "lm.epochs.train_step", step, checkpoint_seconds=EVERY_STEP)
    run(spec, tmp_path)
    assert_same(tmp_path, undisturbed)


def test_trials_share_the_legs_that_they_have_in_common(spec: TrainSpec, undisturbed: Path, tmp_path: Path) -> None:
    other = spec.model_copy(update={"legs": (spec.legs[0], spec.legs[1].model_copy(update={"epochs": 2}))})
    keys = [stage_keys(one, fingerprint_of(one.corpus)) for one in (spec, other)]
    assert [keys[0][name] == keys[1][name] for name in keys[0]] == [True, True, False, False]
    shared = tmp_path / ".stages"
    trained = [point.stage for point in run(other, tmp_path / "other", shared_stages=shared)]
    assert trained == ["train"] * 2 + ["train-2"] * 2 + ["train-3"] * 2 + ["finetune-1"]
    assert [point.stage for point in run(spec, tmp_path / "own", shared_stages=shared)] == ["train-3", "finetune-1"]
    assert_same(tmp_path / "own", undisturbed)
    taken = [point.stage for point in run(other, tmp_path / "taken", resume_from=undisturbed)]
    assert taken == ["train-3"] * 2 + ["finetune-1"]
    assert_same(tmp_path / "taken", tmp_path / "other")


@pytest.mark.parametrize(
    ("leg", "said"),
    [
        (
            {"epochs": 1, "optimizer": {"kind": "adam", "learning_rate": 1e-3}},
            "a leg keeps the optimizer sgd, got adam",
        ),
        ({"epochs": 1, "optimizer": SGD, "dropout": {"shared_mask": True}}, "a leg keeps False, got True"),
        ({"epochs": 0, "optimizer": SGD}, "greater than or equal to 1"),
    ],
)
def test_what_cannot_change_is_refused(folder: Path, leg: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        tiny_spec(folder, optimizer=SGD, legs=[leg])
