"""Distances of subspaces, and what the augmented loss does to them. N rows, C columns, V vocabulary."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import lm.epochs
from lm.analyze.subspace import mean_cosine, subspace_distance
from lm.data.batches import columns
from lm.spec import TrainSpec, trial_key
from tests.support.stages import begin


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_space_is_no_distance_from_itself_in_another_basis() -> None:
    x_NC = normal(60, 7)
    assert subspace_distance(x_NC, x_NC @ normal(7, 7, seed=1)) < 1e-12
    assert subspace_distance(x_NC.float(), 1024 * x_NC.float()) < 1e-12


def test_coordinate_spaces() -> None:
    axes = torch.eye(6)
    assert subspace_distance(axes[:, :3], axes[:, 3:]) == 1.0
    assert subspace_distance(axes[:, :2], axes[:, 1:3]) == pytest.approx(math.sqrt(1 / 2), abs=1e-15)


@pytest.mark.parametrize("angle", [1e-4, 0.3, 1.0, math.pi / 2])
def test_lines_are_the_sine_of_their_angle_apart(angle: float) -> None:
    turned = torch.tensor([[math.cos(angle)], [math.sin(angle)], [0.0]], dtype=torch.float64)
    assert subspace_distance(torch.eye(3)[:, :1], -2 * turned) == pytest.approx(math.sin(angle), rel=1e-9)


def test_it_is_symmetric_and_the_root_mean_square_sine_of_the_principal_angles() -> None:
    x_NC, y_NC = normal(40, 9), normal(40, 9, seed=1) + 0.5 * normal(40, 9)
    u, q = (np.linalg.svd(matrix.numpy(), full_matrices=False)[0] for matrix in (x_NC, y_NC))
    cosines = np.linalg.svd(u.T @ q, compute_uv=False)
    expected = math.sqrt(1 - (cosines**2).mean())
    assert subspace_distance(x_NC, y_NC) == pytest.approx(expected, abs=1e-12)
    assert subspace_distance(y_NC, x_NC) == pytest.approx(expected, abs=1e-12)


def test_random_spaces() -> None:
    distance = subspace_distance(normal(10_000, 100), normal(10_000, 100, seed=1))
    assert distance == pytest.approx(math.sqrt(1 - 100 / 10_000), abs=1e-3)


def test_spaces_of_different_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"of one size are compared, got \(6, 2\) and \(6, 3\)"):
        subspace_distance(normal(6, 2), normal(6, 3))


V, SIZE = 200, 16


def trained(share: float, target_gradient: str) -> tuple[Tensor, Tensor, dict[str, float]]:
    """Embedding, decoder and the curve's last terms of a small model of random word pairs, its vectors of norm 1."""
    chance = np.random.default_rng(0)
    followers, word, text = chance.integers(V, size=(V, 5)), 0, list[int]()
    for choice in chance.integers(5, size=14_000):
        word = followers[word, choice]
        text.append(word)
    augmented = {"kind": "blended", "share": share, "temperature": 10.0, "target_gradient": target_gradient}
    spec = TrainSpec.model_validate(
        {
            "corpus": {"name": "random pairs"},
            "model": {
                "layers": 1,
                "embedding_size": SIZE,
                "hidden_size": SIZE,
                "tied": False,
                "init_range": 0.1,
                "embedding_norm": "word",
            },
            "head": {"kind": "softmax", "bias": False, "augmented": augmented},
            "bptt": {"kind": "fixed", "length": 35},
            "optimizer": {"kind": "adam", "learning_rate": 0.01},
            "epochs": 20,
            "epoch_measures": ["subspace"],
        }
    )
    stage = begin(spec, vocabulary=V)
    text_RB = columns(np.array(text, dtype=np.int32), spec.batch_size, torch.device("cpu"))
    curve = list(lm.epochs.run_stage(stage, text_RB, text_RB[:20], lambda _: None, 1e9))
    weights = stage.model.weights()
    return weights["embedding_VE"], weights["head.weight_VH"], dict(curve[-1].terms)


def cosine_of_pairs(embedding_VE: Tensor) -> float:
    unit_VE = F.normalize(embedding_VE, dim=1)
    return float((unit_VE @ unit_VE.T).sum() - V) / (V * (V - 1))


def test_the_augmented_loss_pulls_the_decoder_into_the_space_of_the_embedding() -> None:
    """The theory experiment in miniature (Inan et al. 2016, section 5.1), and its collapse when the target flows."""
    embedding_VE, decoder_VH, terms = trained(0.0, "stop")
    assert terms["subspace_distance"] == subspace_distance(embedding_VE, decoder_VH)
    assert subspace_distance(embedding_VE, decoder_VH) == pytest.approx(math.sqrt(1 - SIZE / V), abs=0.02)
    embedding_VE, decoder_VH, stopped = trained(1.0, "stop")
    assert subspace_distance(embedding_VE, decoder_VH) == stopped["subspace_distance"] < 0.4
    assert abs(cosine_of_pairs(embedding_VE)) < 0.05
    embedding_VE, _, flowing = trained(1.0, "flow")
    assert 0.0 <= flowing["augmented"] < 0.05 * stopped["augmented"]
    assert flowing["mean_cosine"] == pytest.approx(cosine_of_pairs(embedding_VE), abs=1e-5)
    assert flowing["mean_cosine"] > 0.7
    torch.testing.assert_close(embedding_VE.norm(dim=1), torch.ones(V))


def test_the_mean_cosine_is_that_of_all_pairs() -> None:
    assert mean_cosine(torch.eye(4)) == pytest.approx(0.0, abs=1e-15)
    assert mean_cosine(torch.tensor([[1.0, 2.0]]) * torch.tensor([[1.0], [3.0], [0.5]])) == pytest.approx(1.0)
    assert mean_cosine(torch.tensor([[1.0, 0.0], [-2.0, 0.0]])) == pytest.approx(-1.0)


def test_a_model_without_the_distance_is_refused_with_the_reason() -> None:
    parts = {"corpus": {"name": "x"}, "optimizer": {"kind": "adam", "learning_rate": 0.01}, "epochs": 1}
    measured = parts | {"epoch_measures": ["subspace"]}
    with pytest.raises(ValueError, match=r"epoch_measures: subspaces of one size .* last layer 8, embedding_size 4"):
        TrainSpec.model_validate(measured | {"model": {"embedding_size": 4, "hidden_size": 8, "tied": False}})
    with pytest.raises(ValueError, match=r"epoch_measures: .* got a head of kind adaptive"):
        TrainSpec.model_validate(measured | {"model": {"tied": False}, "head": {"kind": "adaptive"}})
    with pytest.raises(ValueError, match="epoch_measures: a tied model has one matrix for both"):
        TrainSpec.model_validate(measured)
    untied = {"model": {"embedding_size": 4, "hidden_size": 4, "tied": False}}
    plain = TrainSpec.model_validate(parts | untied)
    assert trial_key(plain, "0") != trial_key(TrainSpec.model_validate(measured | untied), "0")
    assert "epoch_measures" not in plain.model_dump(exclude_defaults=True), "keys of trials without it stay"
