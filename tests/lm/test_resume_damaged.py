"""A trial under way whose finished stages, or curve, were changed or removed meanwhile: no record covers them yet."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from lm.record import read_curve, write_curve
from lm.spec import TrainSpec
from lm.train import train
from tests.support.lm_trials import assert_same, run
from tests.support.tiny import AVERAGING, tiny_spec, write_corpus


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> TrainSpec:
    corpus = write_corpus(tmp_path_factory.mktemp("corpus"), tokens=(600, 200, 150))
    return tiny_spec(corpus, optimizer=AVERAGING, epochs=2, finetune={"epochs": 3})


@pytest.fixture(scope="module")
def undisturbed(spec: TrainSpec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert len(run(spec, folder)) == 5
    return folder


@pytest.fixture(scope="module")
def under_way(spec: TrainSpec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a trial that was interrupted in its second stage, of which both of its checkpoints are."""
    folder = tmp_path_factory.mktemp("under_way")
    list(islice(train(spec, out=folder, device="cpu"), 4))
    return folder


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def lose_epochs(path: Path) -> None:
    write_curve(path.parent, read_curve(path.parent)[:-2])


@pytest.mark.parametrize(
    ("name", "harm"),
    [
        ("weights/train.safetensors", Path.unlink),
        ("weights/train.safetensors", empty),
        ("tokens/train.valid.parquet", flip),
        ("tokens/train.test.parquet", Path.unlink),
        ("curve.parquet", Path.unlink),
        ("curve.parquet", lose_epochs),
    ],
)
def test_it_is_trained_again_from_where_all_is_as_it_was(
    spec: TrainSpec,
    undisturbed: Path,
    under_way: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    name: str,
    harm: Callable[[Path], None],
) -> None:
    trial = tmp_path / "trial"
    shutil.copytree(under_way, trial)
    harm(trial / name)
    with caplog.at_level(logging.WARNING):
        rest = run(spec, trial)
    assert [point.epoch for point in rest] == [1, 2, 3, 4, 5]
    assert any(Path(name).name in record.getMessage() for record in caplog.records)
    assert_same(trial, undisturbed)


def test_a_checkpoint_from_before_the_stage_ended_needs_nothing_of_it(
    spec: TrainSpec, undisturbed: Path, tmp_path: Path
) -> None:
    trial = tmp_path / "trial"
    list(islice(train(spec, out=trial, device="cpu"), 3))
    empty(trial / "weights" / "train.safetensors")
    assert [point.epoch for point in run(spec, trial)] == [3, 4, 5]
    assert_same(trial, undisturbed)
