"""Exact losses, and perplexity by predicted tokens and as the reference code divides. R rows, B columns, V words."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from lm.data.batches import columns
from lm.evaluate import hidden_and_nats, in_text_order, token_nats, validation_nats
from lm.model import LanguageModel
from lm.record import perplexity
from lm.spec import Dropout, Model, SoftmaxHead
from tests.support.tiny import even

V = 11


def model(seed: int = 0, *, constant: bool = False, vocabulary: int = V) -> LanguageModel:
    """A small model, its dropout rates high to show if they acted; or one whose logits are all equal."""
    built = LanguageModel(
        Model(layers=2, embedding_size=5, hidden_size=6),
        SoftmaxHead(kind="softmax"),
        Dropout(embedding=0.5, input=0.5, between=0.5, output=0.5, weight=0.5),
        even(vocabulary),
        torch.Generator().manual_seed(seed),
    )
    if constant:
        built.load_weights({name: torch.zeros_like(weight) for name, weight in built.weights().items()})
    else:
        built.load_weights({name: 3 * weight for name, weight in built.weights().items()})
    return built


def text(tokens: int, count: int) -> Tensor:
    ids = torch.randint(V, (tokens,), generator=torch.Generator().manual_seed(5)).numpy().astype(np.int32)
    return columns(ids, count, torch.device("cpu"))


@pytest.mark.parametrize("count", [1, 4])
def test_constant_logits_have_a_perplexity_of_the_vocabulary_size(count: int) -> None:
    """V itself; and V^((R - 1) / R) where the loss is divided by all rows, the first included, as in the reference."""
    text_RB = text(203, count)
    rows = 203 // count
    score = token_nats(model(constant=True), text_RB, 20)[0].score()
    assert score.perplexity == pytest.approx(V, rel=1e-6)
    assert score.perplexity_reference == pytest.approx(V ** ((rows - 1) / rows), rel=1e-6)
    assert math.exp(validation_nats(model(constant=True), text_RB, 20)) == pytest.approx(V, rel=1e-6)


@pytest.mark.parametrize(
    ("tokens", "count", "predicted"),
    [(73_760, 10, 73_750), (82_430, 1, 82_429), (217_646, 10, 217_630), (245_569, 1, 245_568), (217_646, 1, 217_645)],
    ids=["ptb valid", "ptb test", "wikitext-2 valid", "wikitext-2 test", "wikitext-2 valid, one column"],
)
def test_counts_of_predicted_tokens(tokens: int, count: int, predicted: int) -> None:
    text_RB = columns(np.zeros(tokens, dtype=np.int32), count, torch.device("cpu"))
    scored = in_text_order(torch.full((len(text_RB) - 1, count), 2.0), text_RB)
    score = scored.score()
    assert score.predicted_tokens == predicted == len(scored.position) == len(scored.token)
    assert (score.columns, score.nats_per_token) == (count, 2.0)


@pytest.mark.parametrize(
    ("exact", "reference", "tokens", "count"),
    [(60.033, 60.0, 73_760, 10), (57.303, 57.3, 82_430, 1), (68.613, 68.6, 217_646, 10), (65.801, 65.8, 245_569, 1)],
)
def test_the_hair_between_the_conventions(exact: float, reference: float, tokens: int, count: int) -> None:
    text_RB = columns(np.zeros(tokens, dtype=np.int32), count, torch.device("cpu"))
    nats = torch.full((len(text_RB) - 1, count), math.log(exact))
    score = in_text_order(nats, text_RB).score()
    assert score.perplexity == pytest.approx(exact, rel=1e-6)
    assert score.perplexity_reference == pytest.approx(reference, abs=6e-4)


@pytest.mark.parametrize("count", [1, 3])
def test_against_a_loop_over_tokens(count: int) -> None:
    text_RB = text(100, count)
    rows, built = 100 // count, model()
    scored, _ = token_nats(built, text_RB, 7)
    expected = []
    with torch.no_grad():
        for column in range(count):
            state = built.initial_state(1)
            for row in range(rows - 1):
                outputs, state = built(text_RB[row : row + 1, column : column + 1], state)
                logits = outputs.raw[-1][0, 0] @ built.embedding_VE.T + built.head.bias_V
                target = int(text_RB[row + 1, column])
                nats = float(torch.logsumexp(logits, 0) - logits[target])
                expected.append((column * rows + row + 1, target, nats))
    assert scored.position.tolist() == [position for position, *_ in expected]
    assert scored.token.tolist() == [token for _, token, _ in expected]
    np.testing.assert_allclose(scored.nats, [nats for *_, nats in expected], atol=2e-6)
    assert scored.nats.dtype == np.float32 and scored.position.dtype == scored.token.dtype == np.int32
    whole = text_RB.t().flatten()
    assert scored.token.tolist() == whole[scored.position.astype(int)].tolist()
    mean = math.fsum(nats for *_, nats in expected) / len(expected)
    assert scored.score().nats_per_token == pytest.approx(mean, rel=1e-6)
    assert validation_nats(built, text_RB, 7) == pytest.approx(mean, rel=1e-6)


@pytest.mark.parametrize("window", [1, 2, 33, 99, 1000])
def test_the_window_changes_nothing(window: int) -> None:
    text_RB, built = text(100, 1), model()
    torch.testing.assert_close(
        torch.tensor(token_nats(built, text_RB, window)[0].nats), torch.tensor(token_nats(built, text_RB, 70)[0].nats)
    )
    assert validation_nats(built, text_RB, window) == pytest.approx(validation_nats(built, text_RB, 70), rel=1e-6)


def test_hidden_states_are_those_before_each_prediction() -> None:
    text_R1, built = text(60, 1), model()
    hidden_NH, nats_N = hidden_and_nats(built, text_R1, 7)
    outputs, _ = built(text_R1[:-1], built.initial_state(1))
    torch.testing.assert_close(hidden_NH, outputs.raw[-1][:, 0].detach())
    torch.testing.assert_close(nats_N, torch.tensor(token_nats(built, text_R1, 70)[0].nats))


def test_an_enormous_loss_has_an_infinite_perplexity() -> None:
    assert perplexity(1e4) == math.inf and perplexity(1.0) == math.e and math.isnan(perplexity(math.nan))
    text_RB = text(40, 1)
    score = in_text_order(torch.full((39, 1), 1e4), text_RB).score()
    assert (score.nats_per_token, score.perplexity, score.perplexity_reference) == (1e4, math.inf, math.inf)


def test_scoring_leaves_no_gradient_and_draws_no_noise() -> None:
    built, text_RB = model(), text(60, 2)
    state = torch.get_rng_state()
    token_nats(built, text_RB, 7)
    validation_nats(built, text_RB, 7)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None and not parameter.is_inference() for parameter in built.parameters())
