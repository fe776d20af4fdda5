"""The recipe of Zaremba et al. (2014) as Inan et al. (2016) use it: rates by epoch, sums over time, norms."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import lm.epochs
from lm.optimizers import decayed_rate
from lm.spec import SgdDecay
from lm.stage import Stage
from tests.support.lm_trials import run
from tests.support.stages import begin, texts, window
from tests.support.tiny import tiny_spec

SGD = {"kind": "sgd", "learning_rate": 1.0}
RECIPE: dict[str, Any] = {
    "model": {"layers": 2, "embedding_size": 6, "hidden_size": 6, "init_range": 0.5},
    "head": {"kind": "softmax", "bias": False, "augmented": {"kind": "added", "temperature": 5.0}},
    "dropout": {"input": 0.3, "between": 0.3, "output": 0.3, "shared_mask": True},
    "penalties": None,
    "bptt": {"kind": "fixed", "length": 12},
    "optimizer": SGD,
}


@pytest.mark.parametrize(
    ("decay", "full_epochs", "restart", "rates"),
    [
        (0.9, 5, None, [1, 1, 1, 1, 1, 0.9, 0.81]),
        (0.97, 1, None, [1, 0.97, 0.9409]),
        (0.9, 5, 7, [1, 1, 1, 1, 1, 0.9, 0.81] * 2 + [1]),
        (1.0, 2, None, [1, 1, 1]),
    ],
)
def test_decayed_rates(decay: float, full_epochs: int, restart: int | None, rates: list[float]) -> None:
    spec = SgdDecay(kind="sgd_decay", learning_rate=2.0, decay=decay, full_epochs=full_epochs, restart=restart)
    assert [decayed_rate(spec, epochs) / 2 for epochs in range(len(rates))] == pytest.approx(rates, rel=1e-12)


def test_a_trial_trains_at_the_decayed_rates_and_goes_on_where_they_restart(
    corpus_folder: Path, tmp_path: Path
) -> None:
    decay = {"kind": "sgd_decay", "learning_rate": 4.0, "decay": 0.5, "full_epochs": 2}
    once = run(tiny_spec(corpus_folder, optimizer=decay, epochs=4), tmp_path / "once")
    twice = run(tiny_spec(corpus_folder, optimizer=decay | {"restart": 4}, epochs=8), tmp_path / "twice")
    assert [point.learning_rate for point in twice] == [4.0, 4.0, 2.0, 1.0] * 2
    assert [p.valid_nats_per_token for p in twice[:4]] == [p.valid_nats_per_token for p in once]
    assert twice[4].train_nats_per_token < twice[0].train_nats_per_token  # from the weights that there were


def test_the_rate_is_divided_after_an_epoch_that_is_no_new_best(
    corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4.2 is better than the 4.5 before it, and worse than the best; 3.9 again is no better."""
    script = iter([5.0, 4.0, 4.5, 4.2, 3.9, 3.9, 3.8])
    monkeypatch.setattr(lm.epochs, "validation_nats", lambda *_: next(script))
    curve = run(tiny_spec(corpus_folder, optimizer={"kind": "sgd_plateau", "learning_rate": 8.0}, epochs=7), tmp_path)
    assert [point.learning_rate for point in curve] == [8.0, 8.0, 8.0, 2.0, 0.5, 0.5, 0.125]


def moved(stage: Stage, rate: float, steps: int = 12) -> dict[str, Tensor]:
    """What one step at this rate adds to every weight."""
    before = {name: weight.clone() for name, weight in stage.model.weights().items()}
    lm.epochs.train_step(stage, *window(stage.spec, steps), rate)
    return {name: weight - before[name] for name, weight in stage.model.weights().items()}


def norm_of(change: dict[str, Tensor]) -> float:
    return math.sqrt(sum(float((part.double() ** 2).sum()) for part in change.values()))


@pytest.mark.parametrize("steps", [12, 5])
def test_summed_over_time_at_rate_one_is_the_mean_at_the_rate_of_the_windows_length(
    corpus_folder: Path, steps: int
) -> None:
    """Every term of the loss, whatever the window's length."""
    mean, summed = (
        begin(tiny_spec(corpus_folder, **RECIPE, loss_reduction=reduction)) for reduction in ("mean", "sum_over_time")
    )
    expected, found = moved(mean, float(steps), steps), moved(summed, 1.0, steps)
    assert norm_of(expected) > 0.1
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    assert summed.sums[1].item() == pytest.approx(steps * mean.sums[1].item(), rel=1e-5)
    torch.testing.assert_close(summed.sums[[0, 2]], mean.sums[[0, 2]])  # what is reported stays per token


def test_clipping_takes_the_whole_summed_loss_and_keeps_its_direction(corpus_folder: Path) -> None:
    recipe = RECIPE | {"loss_reduction": "sum_over_time"}
    free = begin(tiny_spec(corpus_folder, **recipe))
    clipped = begin(tiny_spec(corpus_folder, **(recipe | {"optimizer": SGD | {"clip": 0.5}})))
    loose = begin(tiny_spec(corpus_folder, **(recipe | {"optimizer": SGD | {"clip": 1e6}})))
    whole, short = moved(free, 1.0), moved(clipped, 1.0)
    assert norm_of(whole) > 1.0 and norm_of(short) == pytest.approx(0.5, rel=1e-4)
    expected = {name: change * (0.5 / norm_of(whole)) for name, change in whole.items()}
    torch.testing.assert_close(short, expected, rtol=1e-4, atol=1e-6)
    assert all(torch.equal(change, whole[name]) for name, change in moved(loose, 1.0).items())


@pytest.mark.parametrize(("norm", "axis"), [("word", 1), ("dimension", 0)])
def test_vectors_have_length_one_from_the_start_and_after_every_step(corpus_folder: Path, norm: str, axis: int) -> None:
    """A step is the unconstrained one, then the embedding alone is scaled."""
    stage = begin(tiny_spec(corpus_folder, **(RECIPE | {"model": RECIPE["model"] | {"embedding_norm": norm}})))
    free = copy.deepcopy(stage)
    free.model.embedding_norm = "free"
    torch.testing.assert_close(stage.model.embedding_VE.norm(dim=axis), torch.ones(24 if axis else 6))
    moved(stage, 2.0), moved(free, 2.0)
    expected = free.model.weights()
    lengths = expected["embedding_VE"].norm(dim=axis, keepdim=True)
    assert (lengths - 1).abs().max() > 1e-2
    expected["embedding_VE"] = expected["embedding_VE"] / lengths
    torch.testing.assert_close(stage.model.weights(), expected)
    assert stage.model.head.weight_VH is stage.model.embedding_VE


def test_an_average_of_vectors_of_length_one_is_left_as_it_is(corpus_folder: Path) -> None:
    shape = RECIPE["model"] | {"embedding_norm": "word"}
    stage = begin(
        tiny_spec(corpus_folder, **(RECIPE | {"model": shape, "finetune": {"epochs": 1}})), stage="finetune-1"
    )
    iterates = []
    for _ in range(3):
        moved(stage, 2.0)
        iterates.append(stage.model.embedding_VE.detach().clone())
    assert stage.average is not None
    average_VE = stage.average.weights["embedding_VE"]
    torch.testing.assert_close(average_VE, sum(iterates) / 3)
    assert (average_VE.norm(dim=1) < 1.0).all()


def test_the_curve_tells_the_augmented_term_apart(corpus_folder: Path, tmp_path: Path) -> None:
    """Without masks and with a rate of almost nothing the terms of an epoch are those of the initial weights."""
    options = RECIPE | {"dropout": {}, "optimizer": SGD | {"learning_rate": 1e-30}, "epochs": 1}
    spec = tiny_spec(corpus_folder, **options)
    (point,) = run(spec, tmp_path)
    stage, text_RB = begin(spec), texts(spec)[0]
    nats, terms, state = [], [], stage.hidden
    for row in range(0, len(text_RB) - 2, 12):
        targets_TB = text_RB[row + 1 : row + 13]
        outputs, state = stage.model(text_RB[row : row + len(targets_TB)], state)
        loss = stage.model.head.training_loss(outputs, targets_TB, None)
        nats += loss.nats_TB.flatten().tolist()
        terms.append(loss.terms["augmented"].mean().item())
    assert point.terms == {"augmented": pytest.approx(math.fsum(terms) / len(terms), rel=1e-5)}
    assert point.train_nats_per_token == pytest.approx(math.fsum(nats) / len(nats), rel=1e-5)
