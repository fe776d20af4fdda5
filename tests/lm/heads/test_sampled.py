"""Sampled softmax and noise-contrastive estimation. T time, B batch, N = T x B, S samples, V vocabulary."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional as F

from lm.heads import Outputs, Words, build_head
from lm.heads.sampled import Sampled
from lm.spec import SampledHead
from tests.lm.heads.examples import HIDDEN, LAST, B, T, V, outputs, targets, words
from tests.support.tiny import seeded

PROPOSALS = {
    "uniform": {"proposal": "uniform"},
    "uniform-without-replacement": {"proposal": "uniform", "replacement": False},
    "unigram": {"proposal": "unigram"},
    "unigram-flattened": {"proposal": "unigram", "power": 0.5},
    "log-uniform": {"proposal": "log_uniform"},
}
every_proposal = pytest.mark.parametrize("loss", PROPOSALS.values(), ids=PROPOSALS.keys())
close = {"rtol": 0.0, "atol": 1e-5}  # expected counts are kept in float32


def build(loss: dict[str, Any], *, known: Words | None = None, seed: int = 0, spread: float = 0.5) -> Sampled:
    """A head in float64 over the examples' words, its parameters moved at random."""
    known, init = known or words(), seeded(seed)
    spec = SampledHead.model_validate({"kind": "sampled", "loss": {"kind": "softmax", **loss}})
    unused_VE = nn.Parameter(torch.zeros(len(known), LAST))
    sizes = (LAST, HIDDEN, LAST)
    head = build_head(spec, sizes=sizes, words=known, embedding_VE=unused_VE, tied=False, init=init)
    assert isinstance(head, Sampled)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(spread * torch.randn(parameter.shape, generator=init))
    return head.double()


def fix(head: Sampled, ids: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the head draw these words."""
    monkeypatch.setattr(head, "draw", lambda noise: ids)


def trained(head: Sampled, given: Outputs, targets_TB: Tensor, seed: int = 0) -> Tensor:
    return head.training_loss(given, targets_TB, seeded(seed)).nats_TB


def share_by_hand(loss: dict[str, Any], word: int) -> float:
    """Q(word), one word at a time."""
    raw = words().counts_V.tolist()
    counts = [max(count, 1) for count in raw]
    match loss.get("proposal", "unigram"):
        case "uniform":
            return 1 / V
        case "unigram":
            power = loss.get("power", 1.0)
            return counts[word] ** power / sum(count**power for count in counts)
        case "log_uniform":
            rank = sum(other > raw[word] or (other == raw[word] and i < word) for i, other in enumerate(raw))
            return math.log((rank + 2) / (rank + 1)) / math.log(V + 1)
    raise AssertionError(loss)


def scores_by_hand(head: Sampled, given: Outputs, t: int, b: int) -> list[float]:
    hidden = given.dropped[-1][t, b].tolist()
    rows, biases = head.weight_VH.tolist(), head.bias_V.tolist()
    return [sum(h * w for h, w in zip(hidden, row, strict=True)) + bias for row, bias in zip(rows, biases, strict=True)]


@every_proposal
@pytest.mark.parametrize("correct_target", [False, True])
def test_sampled_softmax_by_hand(loss: dict[str, Any], correct_target: bool) -> None:
    head, given, targets_TB = build({**loss, "samples": 30, "correct_target": correct_target}), outputs(), targets()
    drawn = head.draw(seeded(0)).tolist()
    hits = 0
    nats = trained(head, given, targets_TB).tolist()
    for t in range(T):
        for b in range(B):
            score, target = scores_by_hand(head, given, t, b), int(targets_TB[t, b])
            own = score[target]
            if correct_target:
                own -= math.log(30 * share_by_hand(loss, target))
            partition = math.exp(own)
            for word in drawn:
                hits += word == target
                if word != target or (correct_target and loss.get("replacement", True)):
                    partition += math.exp(score[word]) / (30 * share_by_hand(loss, word))
            assert nats[t][b] == pytest.approx(math.log(partition) - own, abs=1e-5)
    assert hits


@pytest.mark.parametrize(("log_partition", "constant"), [("auto", math.log(V)), (2.5, 2.5)])
def test_noise_contrastive_estimation_by_hand(log_partition: Any, constant: float) -> None:
    """The target found among the noise is noise there, as any word."""
    head = build({"kind": "nce", "samples": 30, "log_partition": log_partition})
    given, targets_TB = outputs(), targets()
    drawn = head.draw(seeded(0)).tolist()
    nats = trained(head, given, targets_TB).tolist()
    for t in range(T):
        for b in range(B):
            score, target = scores_by_hand(head, given, t, b), int(targets_TB[t, b])
            expected = 0.0
            for word, is_data in [(target, True), *((word, False) for word in drawn)]:
                model, noise = math.exp(score[word] - constant), 30 * share_by_hand({}, word)
                expected -= math.log((model if is_data else noise) / (model + noise))
            assert nats[t][b] == pytest.approx(expected, abs=1e-4)
    assert set(drawn) & set(targets_TB.flatten().tolist())


@pytest.mark.parametrize("correct_target", [False, True])
def test_every_word_once_is_the_exact_softmax(correct_target: bool) -> None:
    loss = {"samples": V, "proposal": "uniform", "replacement": False, "correct_target": correct_target}
    head, given, targets_TB = build(loss), outputs(), targets()
    leaves = [head.weight_VH, head.bias_V, given.dropped[-1].requires_grad_()]
    logits_NV = (given.dropped[-1] @ head.weight_VH.T + head.bias_V).flatten(0, 1)
    exact = F.cross_entropy(logits_NV, targets_TB.flatten(), reduction="none").view(T, B)
    nats_TB = trained(head, given, targets_TB)
    torch.testing.assert_close(nats_TB, exact, rtol=0.0, atol=1e-12)
    expected = torch.autograd.grad(exact.sum(), leaves)
    torch.testing.assert_close(torch.autograd.grad(nats_TB.sum(), leaves), expected, rtol=0.0, atol=1e-12)


@every_proposal
def test_the_partition_function_is_estimated_without_bias(loss: dict[str, Any]) -> None:
    """And its logarithm, the loss, too low on average."""
    windows = 4000
    head, given, targets_TB = build({**loss, "samples": 10}), outputs(), targets()
    logits_TBV = given.dropped[-1] @ head.weight_VH.T + head.bias_V
    own_TB = logits_TBV.gather(-1, targets_TB[..., None])[..., 0]
    noise = seeded(7)
    with torch.no_grad():
        nats_WTB = torch.stack([head.training_loss(given, targets_TB, noise).nats_TB for _ in range(windows)])
        ratio_WTB = (nats_WTB + own_TB - logits_TBV.logsumexp(dim=-1)).exp()
    error_TB = ratio_WTB.std(dim=0) / math.sqrt(windows)
    assert (error_TB < 0.1).all()
    assert ((ratio_WTB.mean(dim=0) - 1.0).abs() < 4.0 * error_TB).all()
    exact_TB = logits_TBV.logsumexp(dim=-1) - own_TB
    assert (nats_WTB.mean(dim=0) < exact_TB).all()


@pytest.mark.parametrize("replacement", [True, False])
def test_a_corrected_target_makes_the_truth_optimal(replacement: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few the samples: where the model is the data, the gradient expected over all draws is zero."""
    known, samples = Words(np.array([30, 9, 5, 1])), 3
    drawing = {"proposal": "unigram" if replacement else "uniform", "replacement": replacement}
    head = build({"samples": samples, "correct_target": True, **drawing}, known=known)
    data_V = torch.tensor([0.2, 0.6, 0.15, 0.05], dtype=torch.float64)
    with torch.no_grad():
        head.bias_V.copy_(data_V.log())
    context, every_TB = Outputs((), (torch.zeros(4, 1, LAST, dtype=torch.float64),)), torch.arange(4)[:, None]
    draws = list(product(range(4), repeat=samples) if replacement else combinations(range(4), samples))
    expected = torch.zeros(())
    for drawn in draws:
        fix(head, torch.tensor(drawn), monkeypatch)
        chance = math.prod(known.counts_V[word] / 45 for word in drawn) if replacement else 1 / len(draws)
        expected = expected + chance * (data_V * trained(head, context, every_TB)[:, 0]).sum()
    (gradient_V,) = torch.autograd.grad(expected, [head.bias_V])
    torch.testing.assert_close(gradient_V, torch.zeros(4, dtype=torch.float64), rtol=0.0, atol=1e-6)


def expected_nce_gradient(samples: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradient of the expected loss by the scores of one context where Z = Z_0; p of the model, of the data, and Q.

    The loss is a sum over the data word and over independent noise words, so that its expectation is one over Q.
    """
    known = Words(np.random.default_rng(3).integers(0, 40, size=23))
    head = build({"kind": "nce", "samples": samples}, known=known)
    hidden_1H = outputs().dropped[-1][:1, 0]
    with torch.no_grad():
        head.bias_V += math.log(23) - (hidden_1H @ head.weight_VH.T + head.bias_V).logsumexp(dim=-1)
        model_V = (hidden_1H @ head.weight_VH.T + head.bias_V)[0].softmax(dim=-1)
    data_V = torch.randn(23, generator=seeded(1), dtype=torch.float64).softmax(dim=-1)
    noise_V = torch.from_numpy(np.maximum(known.counts_V, 1) / np.maximum(known.counts_V, 1).sum())
    every_TB, context = torch.arange(23)[:, None], Outputs((), (hidden_1H.expand(23, 1, -1),))

    def with_noise(*drawn: int) -> Tensor:
        fix(head, torch.tensor(drawn, dtype=torch.int64), monkeypatch)
        return (data_V * trained(head, context, every_TB)[:, 0]).sum()

    data_term = with_noise()
    noise_term = sum((noise_V[word] * (with_noise(word) - data_term) for word in range(23)), torch.zeros(()))
    (gradient_V,) = torch.autograd.grad(data_term + samples * noise_term, [head.bias_V])
    return gradient_V, model_V, data_V, noise_V


def test_nce_tends_to_maximum_likelihood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its expected gradient is that of the likelihood, but for an error that falls as 1 / k (Mnih & Teh 2012)."""
    errors = {}
    for samples in (100, 1000, 10_000):
        gradient_V, model_V, data_V, noise_V = expected_nce_gradient(samples, monkeypatch)
        weight_V = samples * noise_V / (model_V + samples * noise_V)
        torch.testing.assert_close(gradient_V, weight_V * (model_V - data_V), rtol=0.0, atol=1e-6)
        errors[samples] = float((gradient_V - (model_V - data_V)).abs().max())
    assert errors[10_000] < 5e-4
    assert errors[1000] / errors[10_000] == pytest.approx(10, rel=0.05)
    assert errors[100] / errors[1000] == pytest.approx(10, rel=0.2)


@pytest.mark.parametrize("log_partition", ["auto", 4.0])
def test_nce_starts_at_the_noise(log_partition: Any) -> None:
    head = build({"kind": "nce", "log_partition": log_partition}, spread=0.0)
    assert head.weight_VH.abs().max() <= 0.1 and head.weight_VH.std() > 0.05
    with torch.no_grad():
        head.weight_VH.zero_()
    given = outputs()
    noise = torch.tensor([share_by_hand({}, word) for word in range(V)], dtype=torch.float64)
    torch.testing.assert_close(head.scorer().log_probabilities(given), noise.log().expand(T, B, V), **close)
    with torch.no_grad():
        measures = head.measures(head.tallies(head.scorer(), given, targets()), T * B)
    assert measures == pytest.approx({"log_partition_mean": 0.0, "log_partition_deviation": 0.0}, abs=1e-5)


def test_sampled_softmax_starts_without_bias_and_claims_no_normalisation() -> None:
    head = build({}, spread=0.0)
    assert not head.bias_V.any() and head.weight_VH.abs().max() <= 0.1 and head.weight_VH.std() > 0.05
    assert head.measures(head.tallies(head.scorer(), outputs(), targets()), T * B) == {}


@every_proposal
def test_words_are_drawn_as_often_as_expected(loss: dict[str, Any]) -> None:
    samples, windows, noise = 20, 3000, seeded(11)
    head = build({**loss, "samples": samples})
    drawn = [head.draw(noise).tolist() for _ in range(windows)]
    assert all(len(ids) == samples for ids in drawn)
    if "replacement" in loss:
        assert all(len(set(ids)) == samples for ids in drawn)
    counted = Counter(word for ids in drawn for word in ids)
    assert set(counted) <= set(range(V))
    expected_V = windows * samples * np.array([share_by_hand(loss, word) for word in range(V)])
    assert expected_V.min() > 5
    statistic = sum((counted[word] - expected) ** 2 / expected for word, expected in enumerate(expected_V))
    if "replacement" in loss:  # whether a word is drawn is a Bernoulli variable: its variance is smaller
        statistic /= (1 - samples / V) * V / (V - 1)
    assert 0.001 < stats.chi2.cdf(statistic, V - 1) < 0.999


def test_words_that_never_occur_are_drawn_like_words_that_occur_once() -> None:
    known = Words(np.array([0, 5, 1, 0, 3]))
    for kind in ("nce", "softmax"):
        drawn = build({"kind": kind, "samples": 20_000}, known=known).draw(seeded(1))
        share = torch.bincount(drawn, minlength=5) / 20_000
        torch.testing.assert_close(share, torch.tensor([1, 5, 1, 1, 3]) / 11, rtol=0.0, atol=0.015)
        head = build({"kind": kind, "samples": 5}, known=known)
        assert torch.isfinite(trained(head, outputs(), targets() % 5)).all()


@pytest.mark.parametrize("kind", ["softmax", "nce"])
@pytest.mark.parametrize(("samples", "expected"), [(7, 7), (0.25, 13), (V, V)])
def test_samples_are_a_count_or_a_share(kind: str, samples: Any, expected: int) -> None:
    assert len(build({"kind": kind, "samples": samples}).draw(seeded(0))) == expected


@pytest.mark.parametrize("loss", [*PROPOSALS.values(), {"kind": "nce"}], ids=[*PROPOSALS, "nce"])
def test_draws_depend_on_the_generator_alone(loss: dict[str, Any]) -> None:
    one, other = (build({**loss, "samples": 20}, seed=seed) for seed in (0, 1))
    before, first, second = torch.get_rng_state(), seeded(5), seeded(5)
    for _ in range(3):
        assert torch.equal(one.draw(first), other.draw(second))
    assert not torch.equal(one.draw(first), one.draw(first))
    assert not torch.equal(one.draw(seeded(5)), one.draw(seeded(6)))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("loss", [*PROPOSALS.values(), {"kind": "nce"}], ids=[*PROPOSALS, "nce"])
def test_only_drawn_words_and_targets_learn(loss: dict[str, Any]) -> None:
    head, given, targets_TB = build({**loss, "samples": 10}), outputs(), targets()
    trained(head, given, targets_TB).sum().backward()
    touched = {*head.draw(seeded(0)).tolist(), *targets_TB.flatten().tolist()}
    for parameter in head.parameters():
        assert parameter.grad is not None and parameter.grad.layout == torch.strided
        assert set(parameter.grad.view(V, -1).any(dim=-1).nonzero().flatten().tolist()) == touched


@pytest.mark.parametrize("loss", [{"kind": "softmax"}, {"kind": "nce"}])
def test_no_words_are_drawn_without_noise(loss: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="noise must be a generator, got None"):
        build(loss).training_loss(outputs(), targets(), None)


def test_self_normalisation_is_measured_over_the_text() -> None:
    head = build({"kind": "nce", "log_partition": 3.0})
    excess, total = [], {"log_partition": torch.zeros(()), "log_partition_squared": torch.zeros(())}
    for seed in (1, 2):
        given = outputs(seed=seed)
        with torch.no_grad():
            tallies = head.tallies(head.scorer(), given, targets())
        total = {name: total[name] + tally for name, tally in tallies.items()}
        for t in range(T):
            for b in range(B):
                excess.append(math.log(sum(math.exp(score) for score in scores_by_hand(head, given, t, b))) - 3.0)
    measures = head.measures(total, len(excess))
    assert measures == pytest.approx({"log_partition_mean": np.mean(excess), "log_partition_deviation": np.std(excess)})
