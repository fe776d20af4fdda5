"""How codes are turned into a distribution over words: temperature, bias, spans. N tokens, C bits, V words."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from lm.codebooks import Codebook
from lm.heads import Outputs, Words
from lm.heads.ecoc import Ecoc
from lm.heads.temperature import HIGHEST, LOWEST, fit_temperature
from lm.record import read_curve, read_record
from lm.spec import EcocHead
from tests.lm.heads import examples
from tests.lm.heads.handmade import gray_rows, identity_code, random_code, rank_code
from tests.lm.heads.test_ecoc import B, H, T, bit_logits, code_probability, given, head_of, spec, targets, words
from tests.support.lm_trials import run, settled
from tests.support.tiny import seeded, tiny_spec

BOOK = random_code(23, 11)
RANKED = rank_code(23, 12)


@torch.no_grad()
def mean_nats(head: Ecoc) -> float:
    return float(head.scorer().target_nats(given(), targets(BOOK)).mean())


@torch.no_grad()
def scores(head: Ecoc, book: Codebook) -> torch.Tensor:
    """C z, by the definition (N, V)."""
    return (bit_logits(head) @ torch.tensor(book.unpacked()).double().T).flatten(0, 1)


@pytest.mark.parametrize("temperature", [0.2, 1.0, 30.0])
@pytest.mark.parametrize("bias", ["none", "unigram"])
def test_scores_are_divided_by_the_temperature_and_then_biased(temperature: float, bias: str) -> None:
    probability = {"kind": "codewords", "temperature": temperature}
    counts_V = np.arange(23)  # word 0 was never seen
    head = Ecoc(spec("bce", {"probability": probability, "word_bias": bias}), H, words(BOOK, 23), seeded(0)).double()
    if bias == "unigram":
        head.word_bias_V = torch.tensor(np.log((counts_V + 1) / (counts_V + 1).sum()))
    logits_NV = scores(head, BOOK) / temperature
    if head.word_bias_V is not None:
        logits_NV = logits_NV + head.word_bias_V
    expected_N = F.cross_entropy(logits_NV, targets(BOOK).flatten(), reduction="none")
    torch.testing.assert_close(head.scorer().target_nats(given(), targets(BOOK)).flatten(), expected_N)


def test_the_bias_is_the_logarithm_of_a_words_share_of_the_training_text_each_count_raised_by_one() -> None:
    head = Ecoc(spec("bce", {"word_bias": "unigram"}), H, Words(np.arange(23), BOOK), seeded(0))
    assert head.word_bias_V is not None and not head.word_bias_V.requires_grad
    assert head.word_bias_V.tolist() == pytest.approx([math.log((k + 1) / (253 + 23)) for k in range(23)], rel=1e-6)
    assert [name for name, _ in head.named_parameters()] == ["weight_CH", "bias_C"]


def test_an_infinite_temperature_leaves_the_unigram_model() -> None:
    probability = {"kind": "codewords", "temperature": 1e12}
    head = head_of(BOOK, scoring={"probability": probability, "word_bias": "unigram"})
    assert head.word_bias_V is not None
    expected_TB = -head.word_bias_V[targets(BOOK)]
    torch.testing.assert_close(head.scorer().target_nats(given(), targets(BOOK)), expected_TB, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("bias", ["none", "unigram"])
def test_fitting_finds_the_lowest_loss_and_is_kept(bias: str) -> None:
    """A fine grid finds no lower one; bits that are far too sure get a high temperature."""
    head = head_of(BOOK, spread=30.0, scoring={"word_bias": bias})
    fitted = head.fit(given(), targets(BOOK))
    best = mean_nats(head)
    grid = np.geomspace(fitted["temperature"] / 10, 10 * fitted["temperature"], 201)
    found = []
    for temperature in grid:
        head.use_fitted({"temperature": float(temperature)})
        found.append(mean_nats(head))
    assert best <= min(found) + 1e-6 and fitted["temperature"] > 5.0
    other = head_of(BOOK, spread=30.0, scoring={"word_bias": bias})
    other.use_fitted(fitted)
    assert mean_nats(other) == best


@pytest.mark.parametrize(("wrong", "nats"), [(True, math.log(4)), (False, 0.0)])
def test_where_no_temperature_is_best_one_within_the_limits_is_as_good(wrong: bool, nats: float) -> None:
    """Scores that are always right want none; scores that are always wrong want to be forgotten."""
    hidden_NH, targets_N = torch.eye(4), torch.arange(4)
    weight_VH = -hidden_NH if wrong else hidden_NH
    temperature = fit_temperature(hidden_NH, weight_VH, torch.zeros(4), None, targets_N)
    assert LOWEST <= temperature <= HIGHEST
    assert float(F.cross_entropy(weight_VH / temperature, targets_N)) == pytest.approx(nats, abs=1e-4)


def test_only_what_the_spec_leaves_open_is_fitted() -> None:
    fixed = [
        {"probability": {"kind": "codewords", "temperature": 1.0}},
        {"probability": {"kind": "span"}},
    ]
    for scoring in fixed:
        assert head_of(RANKED, scoring=scoring).fit(given(), targets(RANKED)) == {}
    assert head_of(RANKED, "normalized").fit(given(), targets(RANKED)) == {}
    for loss in ("bce", "span_max", "span_sum", "ball_drop"):
        assert set(head_of(RANKED, loss).fit(given(), targets(RANKED))) == {"temperature"}
    assert set(
        head_of(RANKED, "normalized", scoring={"probability": {"kind": "codewords"}}).fit(given(), targets(RANKED))
    )


def test_a_fitted_temperature_leaves_training_alone() -> None:
    """The normalised loss is that of temperature 1 before and after: what is trained does not depend on evaluations."""
    head = head_of(BOOK, "normalized", scoring={"probability": {"kind": "codewords"}})
    before = head.training_loss(given(), targets(BOOK), None).nats_TB
    assert head.fit(given(), targets(BOOK))["temperature"] != 1.0
    assert torch.equal(head.training_loss(given(), targets(BOOK), None).nats_TB, before)


def test_a_learned_bias_gets_the_gradient_of_a_softmaxs() -> None:
    head = head_of(BOOK, "normalized", scoring={"word_bias": "learned"})
    assert isinstance(head.word_bias_V, torch.nn.Parameter)
    (gradient_V,) = torch.autograd.grad(
        head.training_loss(given(), targets(BOOK), None).nats_TB.mean(), [head.word_bias_V]
    )
    p_NV = (scores(head, BOOK) + head.word_bias_V).softmax(dim=-1)
    expected_V = (p_NV - F.one_hot(targets(BOOK).flatten(), 23)).mean(dim=0)
    torch.testing.assert_close(gradient_V, expected_V)
    assert head.cost(10).parameters == sum(p.numel() for p in head.parameters())


@pytest.mark.parametrize("spread", [0.5, 8.0, 50.0])
def test_by_span_a_words_probability_is_that_of_all_its_codes(spread: float) -> None:
    assert RANKED.spans is not None
    head = head_of(RANKED, spread=spread, scoring={"probability": {"kind": "span"}})
    class_bits, owner = RANKED.spans.class_bits, RANKED.spans.owner
    log_p_NV = head.scorer().log_probabilities(given()).flatten(0, 1)
    for log_p_V, z_C in zip(log_p_NV, bit_logits(head).flatten(0, 1).tolist(), strict=True):
        expected_V = np.zeros(23)
        for code, word in zip(gray_rows(class_bits), owner, strict=True):
            expected_V[word] += code_probability(code, z_C[:class_bits])
        assert log_p_V.exp().tolist() == pytest.approx(expected_V.tolist(), rel=1e-9)
        assert expected_V.sum() == pytest.approx(1.0)


def test_by_span_no_word_is_impossible_however_sure_the_bits_are() -> None:
    """In logarithms all the way: the probabilities themselves are below the smallest float32."""
    head = head_of(RANKED, spread=1e4, scoring={"probability": {"kind": "span"}}).float()
    outputs = Outputs((), tuple(x.float() for x in given().dropped))
    log_p_TBV = head.scorer().log_probabilities(outputs).detach()
    assert torch.isfinite(log_p_TBV).all() and float(log_p_TBV.min()) < -200
    expected_TB = -log_p_TBV.gather(-1, targets(RANKED)[..., None])[..., 0]
    torch.testing.assert_close(
        head.scorer().target_nats(outputs, targets(RANKED)).detach(), expected_TB, rtol=1e-4, atol=1e-3
    )


@pytest.mark.parametrize("bias", ["none", "unigram"])
def test_the_loss_at_temperature_1_is_measured_beside(bias: str) -> None:
    head = head_of(BOOK, scoring={"word_bias": bias})
    head.fit(given(), targets(BOOK))
    with torch.no_grad():
        measured = head.measures(head.tallies(head.scorer(), given(), targets(BOOK)), T * B)
    expected = F.cross_entropy(scores(head, BOOK), targets(BOOK).flatten())
    assert measured["temperature_1_nats_per_token"] == pytest.approx(float(expected), rel=1e-9)
    plain = head_of(BOOK, scoring={"probability": {"kind": "codewords", "temperature": 1.0}})
    with torch.no_grad():
        assert "temperature_1_nats_per_token" not in plain.tallies(plain.scorer(), given(), targets(BOOK))


def test_with_a_bit_for_every_word_float32_loses_no_more_than_a_softmax_would() -> None:
    """A loss of 7e-4 nats was lost in a sum over 10,000 half bits that every word has alike."""
    count, size, noise = 10_000, 64, seeded(4)
    head = Ecoc(spec("normalized"), size, words(identity_code(count), count), noise)
    hidden = 3 * torch.randn(1, 50, size, generator=noise)
    targets_TB = torch.randint(count, (1, 50), generator=noise)
    with torch.no_grad():
        head.weight_CH.mul_(10)
        exact_NV = hidden[0].double() @ head.weight_CH.double().T + head.bias_C.double()
        expected_N = F.cross_entropy(exact_NV, targets_TB[0], reduction="none")
        found_N = head.scorer().target_nats(Outputs((), (hidden,)), targets_TB)[0]
    assert float((found_N.double() - expected_N).abs().max()) < 3e-5


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (
            {"probability": {"kind": "span"}, "codebook": {"kind": "random", "bits": 14}},
            "probability span needs a code",
        ),
        ({"probability": {"kind": "span"}, "word_bias": "unigram"}, "word_bias must be none, got unigram"),
        ({"probability": {"kind": "span"}, "loss": {"kind": "normalized"}}, "got probability span: take span_sum"),
        ({"word_bias": "learned"}, "word_bias learned needs loss normalized, bce gives it no gradient"),
        ({"probability": {"kind": "codewords", "temperature": 0.0}}, "greater than 0"),
    ],
)
def test_what_cannot_be_scored_is_refused(update: dict[str, Any], message: str) -> None:
    parts = {"kind": "ecoc", "codebook": {"kind": "unigram", "bits": 14}}
    with pytest.raises(ValueError, match=message):
        EcocHead.model_validate(parts | update)


def test_by_span_a_codebook_without_spans_is_refused() -> None:
    with pytest.raises(ValueError, match="probability span needs a codebook with spans"):
        head_of(BOOK, scoring={"probability": {"kind": "span"}})


def test_a_trial_keeps_what_was_fitted_and_its_curve_is_scored_by_it(corpus_folder: Path, tmp_path: Path) -> None:
    model = {"layers": 1, "embedding_size": 6, "hidden_size": 6, "tied": False}
    head = {"kind": "ecoc", "codebook": {"kind": "unigram", "bits": 40}}
    run(tiny_spec(corpus_folder, model=model, head=head, epochs=3), tmp_path)
    record = settled(tmp_path)
    (stage,) = record.stages
    assert stage.test is not None and stage.fitted["temperature"] > 0
    assert stage.measures["test"]["temperature_1_nats_per_token"] > stage.test.nats_per_token
    assert min(point.valid_nats_per_token for point in read_curve(tmp_path)) == pytest.approx(
        stage.valid.nats_per_token, rel=1e-9
    )


def test_a_code_scored_before_temperatures_were_fitted_is_read_as_of_temperature_1(
    corpus_folder: Path, tmp_path: Path
) -> None:
    model = {"layers": 1, "embedding_size": 6, "hidden_size": 6, "tied": False}
    run(
        tiny_spec(corpus_folder, model=model, head={"kind": "ecoc", "codebook": {"kind": "random", "bits": 40}}),
        tmp_path,
    )
    record = settled(tmp_path)
    old = record.model_dump(mode="json") | {"numerics_version": 1}
    for name in ("probability", "word_bias"):
        old["spec"]["head"].pop(name)
    old.pop("hashes")
    (tmp_path / "record.json").write_text(json.dumps(old))
    found = read_record(tmp_path)
    assert found is not None and isinstance(found.spec.head, EcocHead) and found.spec.head.temperature == 1.0


NORMALIZED = [example for example in examples.EXAMPLES if example.head.get("loss") == {"kind": "normalized"}]


@pytest.mark.parametrize("example", NORMALIZED, ids=lambda example: example.name)
def test_the_words_scores_are_of_the_distribution_that_is_trained(example: examples.Example) -> None:
    head, outputs, targets_TB = examples.build(example), examples.outputs(), examples.targets()
    log_p_TBV = head.word_scores(outputs).log_softmax(dim=-1)
    expected_TB = -log_p_TBV.gather(-1, targets_TB[..., None])[..., 0]
    torch.testing.assert_close(head.training_loss(outputs, targets_TB, None).nats_TB, expected_TB)
