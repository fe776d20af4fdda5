"""Ensembles from losses on disk: the mean of probabilities, Jensen's bound, what cannot be averaged."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from lm.__main__ import app
from lm.by_token.ensemble import ensemble, ensemble_nats
from lm.by_token.losses import read_losses, read_run
from lm.record import read_record, token_nats_path
from lm.train import train
from tests.support.tiny import tiny_spec, write_corpus


def members(count: int = 4, size: int = 500) -> np.ndarray:
    return np.random.default_rng(0).exponential(4.0, (count, size))


def test_an_ensemble_gives_each_target_the_mean_of_its_probabilities() -> None:
    nats_MN = members()
    np.testing.assert_allclose(np.exp(-ensemble_nats(list(nats_MN))), np.exp(-nats_MN).mean(axis=0), rtol=1e-12)


def test_by_jensen_it_is_never_worse_than_the_mean_loss_of_its_members() -> None:
    nats_MN = members()
    assert (ensemble_nats(list(nats_MN)) <= nats_MN.mean(axis=0) + 1e-12).all()
    found = ensemble(list(nats_MN))
    assert found.perplexity < math.exp(nats_MN.mean()) <= found.mean and found.change < 0


def test_of_equal_members_it_is_the_member_exactly() -> None:
    (nats_N,) = members(1)
    assert np.array_equal(ensemble_nats([nats_N] * 5), nats_N)
    assert ensemble([nats_N] * 3).change == 0.0


def test_probabilities_below_the_smallest_float_do_not_underflow() -> None:
    found = ensemble_nats([np.array([2000.0, 2000.0]), np.array([3000.0, 2.0])])
    assert found.tolist() == pytest.approx([2000 + math.log(2), 2 + math.log(2)], abs=1e-12)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds, `1` and `2`, of a small model; `shorter` has another test text."""
    place = tmp_path_factory.mktemp("runs")
    corpora = {"1": (1200, 300, 250), "2": (1200, 300, 250), "shorter": (1200, 300, 200)}
    for name, tokens in corpora.items():
        corpus = write_corpus(place / f"corpus-{tokens[2]}", tokens)
        spec = tiny_spec(corpus, seed=len(name), epochs=1)
        list(train(spec.model_copy(update={"seed": 1 + (name == "2")}), out=place / name))
    return place


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["analyze", "ensemble", *map(str, arguments)])


def test_the_command_prints_members_their_mean_and_the_ensemble(runs: Path) -> None:
    done = invoke(runs / "1", runs / "2")
    assert done.exit_code == 0, done.output
    records = [read_record(runs / name) for name in "12"]
    perplexities = [stage.test.perplexity for record in records if record for stage in record.stages if stage.test]
    both = [np.exp(-read_run(runs / name, "test").losses.nats) for name in "12"]
    expected = math.exp(-np.log((both[0] + both[1]) / 2).mean())
    lines = done.stdout.splitlines()
    for name, line, perplexity in zip("12", lines, perplexities, strict=False):
        assert line == f"{runs / name} (train): test perplexity {perplexity:.3f}"
    mean = sum(perplexities) / 2
    assert lines[2:] == [f"mean of 2: {mean:.3f}", f"ensemble: {expected:.3f} ({expected / mean - 1:+.2%})"]
    assert invoke(runs / "1", runs / "2", "--split", "valid").stdout != done.stdout


def test_what_cannot_be_averaged_is_one_line_and_exit_code_2(runs: Path, tmp_path: Path) -> None:
    one, two = runs / "1", runs / "2"
    damaged, empty = tmp_path / "damaged", tmp_path / "empty"
    shutil.copytree(one, damaged)
    token_nats_path(damaged, "train", "test").write_bytes(b"PAR1")
    empty.mkdir()
    for arguments, message in (
        ((one,), "RUN: should be two runs or more, each once"),
        ((one, one), "RUN: should be two runs or more, each once"),
        ((one, empty), f"{empty}: no record.json; only a settled trial has losses"),
        ((one, two, "--stage", "trian"), f"{one}: no stage 'trian' was scored on test (did you mean 'train'?)"),
        ((one, runs / "shorter"), "should predict what"),
        ((one, damaged), "is not the file that the trial wrote"),
    ):
        done = invoke(*arguments)
        assert done.exit_code == 2 and message in done.stderr and len(done.stderr.splitlines()) == 1, done.output


def test_a_file_that_is_no_table_is_named(tmp_path: Path) -> None:
    path = tmp_path / "train.test.parquet"
    path.write_bytes(b"PAR1 no more")
    with pytest.raises(ValueError, match=r"train\.test\.parquet: not losses by token"):
        read_losses(path)
