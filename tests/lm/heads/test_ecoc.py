"""Error-correcting output codes against enumeration. T time, B batch, H layer size, C bits, V words, N tokens."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from lm.codebooks import Codebook
from lm.evaluate import token_nats, validation_nats
from lm.heads import Outputs, Words
from lm.heads.ecoc import Ecoc, ball_nats, default_radius
from lm.model import LanguageModel
from lm.spec import Dropout, EcocHead, Model
from tests.lm.heads.handmade import full_code, gray_rows, identity_code, random_code, rank_code
from tests.support.tiny import seeded

T, B, H = 6, 5, 8
CODES = {
    "random": random_code(23, 11),
    "rank": rank_code(23, 12),
    "identity": identity_code(23),
    "full": full_code(4),
}
every_code = pytest.mark.parametrize("book", CODES.values(), ids=list(CODES))


AS_TRAINED = {"kind": "codewords", "temperature": 1.0}


def spec(loss: str = "bce", scoring: Mapping[str, Any] | None = None, **options: Any) -> EcocHead:
    """The codebook named here is not looked at: a head takes the one of its words."""
    parts = {"kind": "ecoc", "codebook": {"kind": "unigram", "bits": 1}, "loss": {"kind": loss, **options}}
    return EcocHead.model_validate(parts | (scoring or {}))


def words(book: Codebook | None, count: int) -> Words:
    return Words(np.ones(count, dtype=np.int64), book)


def head_of(
    book: Codebook,
    loss: str = "bce",
    *,
    spread: float = 8.0,
    scoring: Mapping[str, Any] | None = None,
    **options: Any,
) -> Ecoc:
    """In float64, its bias not zero; the greater the spread, the surer it is of its bits."""
    head = Ecoc(spec(loss, scoring, **options), H, words(book, len(book)), seeded(0)).double()
    with torch.no_grad():
        head.bias_C.uniform_(-0.1, 0.1, generator=seeded(1))
        for parameter in head.parameters():
            parameter.mul_(spread)
    return head


def given() -> Outputs:
    """Only the last layer's dropped output is to be read."""
    hidden_TBH = torch.randn(T, B, H, generator=seeded(2), dtype=torch.float64)
    unread_TBH = torch.full((T, B, H), math.nan)
    return Outputs((unread_TBH, unread_TBH), (unread_TBH, hidden_TBH))


def targets(book: Codebook) -> Tensor:
    return torch.randint(len(book), (T, B), generator=seeded(3))


def bit_logits(head: Ecoc) -> Tensor:
    return given().dropped[-1] @ head.weight_CH.T + head.bias_C


def trained(head: Ecoc, book: Codebook) -> Tensor:
    return head.training_loss(given(), targets(book), None).nats_TB


def measured(head: Ecoc, outputs: Outputs, targets_TB: Tensor) -> dict[str, float]:
    with torch.no_grad():
        return head.measures(head.tallies(head.scorer(), outputs, targets_TB), targets_TB.numel())


def each(head: Ecoc, book: Codebook) -> list[dict[str, float]]:
    """The measures of every target by itself, with its exact loss."""
    hidden_TBH, targets_TB, found = given().dropped[-1], targets(book), []
    for t, b in itertools.product(range(T), range(B)):
        one = Outputs((), (hidden_TBH[t : t + 1, b : b + 1],))
        target = targets_TB[t : t + 1, b : b + 1]
        found.append(measured(head, one, target) | {"exact": head.scorer().target_nats(one, target).item()})
    return found


def code_probability(code: Any, logits: list[float]) -> float:
    """q: the product of every bit's probability."""
    q = 1.0
    for bit, logit in zip(code, logits, strict=True):
        q *= 1 / (1 + math.exp(-logit if bit else logit))
    return q


@every_code
def test_a_words_probability_is_its_codewords_share_of_the_mass_of_all_codewords(book: Codebook) -> None:
    head = head_of(book)
    p_NV = head.scorer().log_probabilities(given()).exp().flatten(0, 1)
    for p_V, z_C in zip(p_NV, bit_logits(head).flatten(0, 1).tolist(), strict=True):
        q_V = torch.tensor([code_probability(code, z_C) for code in book.unpacked()], dtype=torch.float64)
        torch.testing.assert_close(p_V, q_V / q_V.sum(), rtol=0.0, atol=1e-12)


@every_code
@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_the_folded_matrix_and_the_bit_logits_give_the_same_loss(
    book: Codebook, dtype: torch.dtype, within: float
) -> None:
    head, codes_VC = head_of(book), torch.tensor(book.unpacked()).double()
    expected = F.cross_entropy((bit_logits(head) @ codes_VC.T).flatten(0, 1), targets(book).flatten(), reduction="none")
    outputs = Outputs((), tuple(x.to(dtype) for x in given().dropped))
    found_TB = head.to(dtype).scorer().target_nats(outputs, targets(book))
    torch.testing.assert_close(found_TB.flatten().double(), expected, rtol=within, atol=within)


def test_the_identity_code_is_a_softmax_over_the_bits_in_value_and_gradient() -> None:
    book = CODES["identity"]
    head = head_of(book, "normalized")
    expected_N = F.cross_entropy(bit_logits(head).flatten(0, 1), targets(book).flatten(), reduction="none")
    torch.testing.assert_close(trained(head, book).flatten(), expected_N)
    parameters = list(head.parameters())
    gradients = torch.autograd.grad(trained(head, book).mean(), parameters)
    for gradient, expected in zip(gradients, torch.autograd.grad(expected_N.mean(), parameters), strict=True):
        torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-12)


def test_in_a_full_code_no_mass_is_without_a_word() -> None:
    book = CODES["full"]
    for measures in each(head_of(book), book):
        assert measures["marginal_nats_per_token"] == pytest.approx(measures["exact"], abs=1e-12)


@every_code
@pytest.mark.parametrize("spread", [0.5, 8.0, 50.0])
def test_the_product_of_marginals_never_beats_the_exact_loss(book: Codebook, spread: float) -> None:
    for measures in each(head_of(book, spread=spread), book):
        assert measures["marginal_nats_per_token"] >= measures["exact"] - 1e-9


@pytest.mark.parametrize("spread", [0.5, 8.0, 50.0])
def test_a_codeword_is_at_most_its_spans_best_code_and_that_at_most_the_span(spread: float) -> None:
    """And where the most probable of all codes lies in the span, the span's best code is that one."""
    book = rank_code(23, 7, class_bits=7)
    head, modes = head_of(book, spread=spread), 0
    logits_NC = bit_logits(head).flatten(0, 1).tolist()
    for measures, z_C in zip(each(head, book), logits_NC, strict=True):
        codeword, best, span = (measures[f"{name}_nats_per_token"] for name in ("marginal", "span", "span_sum"))
        assert codeword + 1e-9 >= best >= span - 1e-9
        if measures["accuracy_owner"]:
            modes += 1
            assert best == pytest.approx(-math.log(max(code_probability(g, z_C) for g in gray_rows(7))), abs=1e-9)
    assert modes


@every_code
def test_measures_equal_loops_over_words_and_bits(book: Codebook) -> None:
    head, sums = head_of(book, spread=12.0), dict[str, float]()

    def add(name: str, value: float) -> None:
        sums[name] = sums.get(name, 0.0) + value / (T * B)

    for z_C, y in zip(bit_logits(head).flatten(0, 1).tolist(), targets(book).flatten().tolist(), strict=True):
        predicted = [z > 0 for z in z_C]
        distance = [sum(bool(a) != b for a, b in zip(code, predicted, strict=True)) for code in book.unpacked()]
        score = [sum(z for bit, z in zip(code, z_C, strict=True) if bit) for code in book.unpacked()]
        nearer, level = sum(d < distance[y] for d in distance), sum(d == distance[y] for d in distance) - 1
        add("marginal_nats_per_token", -math.log(code_probability(book.unpacked()[y], z_C)))
        add("wrong_bits", distance[y] / book.bits)
        add("exact_codes", distance[y] == 0)
        add("accuracy_soft", max(score) == score[y])
        add("accuracy_hamming", min(zip(distance, [-s for s in score], range(len(book)), strict=True))[2] == y)
        add("reciprocal_rank_soft", 1 / (1 + sum(s > score[y] for s in score)))
        add("reciprocal_rank_hamming", 1 / (1 + nearer + level / 2))
        if book.spans is not None:
            owned = [
                gray for gray, word in zip(gray_rows(book.spans.class_bits), book.spans.owner, strict=True) if word == y
            ]
            q = [code_probability(code, z_C[: book.spans.class_bits]) for code in owned]
            add("span_nats_per_token", -math.log(max(q)))
            add("span_sum_nats_per_token", -math.log(sum(q)))
            add("accuracy_owner", predicted[: book.spans.class_bits] in [code.astype(bool).tolist() for code in owned])
    found = measured(head, given(), targets(book))
    assert found == pytest.approx(sums, rel=1e-9)


@every_code
def test_bce_is_minus_the_log_probability_of_the_codeword(book: Codebook) -> None:
    head = head_of(book, scale="sum")
    rows = zip(bit_logits(head).flatten(0, 1).tolist(), targets(book).flatten().tolist(), strict=True)
    expected = [-math.log(code_probability(book.unpacked()[y], z_C)) for z_C, y in rows]
    assert trained(head, book).flatten().tolist() == pytest.approx(expected, abs=1e-12)


@every_code
@pytest.mark.parametrize("loss", ["bce", "ball_drop"])
def test_the_matched_scale_starts_where_a_softmax_starts(book: Codebook, loss: str) -> None:
    head = head_of(book, loss, spread=0.0, scale="matched")
    torch.testing.assert_close(trained(head, book), torch.full((T, B), math.log(len(book)), dtype=torch.float64))


@pytest.mark.parametrize("loss", ["bce", "span_max", "span_sum", "ball_drop"])
@pytest.mark.parametrize(("scale", "factor"), [("mean", 1 / 12), ("matched", math.log(23) / (12 * math.log(2)))])
def test_scales_multiply_the_sum(loss: str, scale: str, factor: float) -> None:
    book = CODES["rank"]
    summed = trained(head_of(book, loss, scale="sum"), book)
    torch.testing.assert_close(trained(head_of(book, loss, scale=scale), book), factor * summed)


@pytest.mark.parametrize("loss", ["span_max", "span_sum"])
def test_span_losses_equal_enumeration_in_value_and_gradient(loss: str) -> None:
    """span_max: cross-entropy with the span's most probable class code, a constant, and the word's own checks."""
    book = rank_code(23, 9, class_bits=6)
    assert book.spans is not None
    head = head_of(book, loss, scale="sum")
    total = torch.zeros((), dtype=torch.float64)
    rows = zip(bit_logits(head).flatten(0, 1), targets(book).flatten().tolist(), strict=True)
    for z_C, y in rows:
        owned = [gray for gray, word in zip(gray_rows(6), book.spans.owner, strict=True) if word == y]
        if loss == "span_max":
            mode = max(owned, key=lambda code, z=z_C: code_probability(code, z[:6].tolist()))
            total = total + F.binary_cross_entropy_with_logits(z_C[:6], torch.tensor(mode).double(), reduction="sum")
        else:
            q = [torch.where(torch.tensor(code) > 0, z_C[:6].sigmoid(), (-z_C[:6]).sigmoid()).prod() for code in owned]
            total = total - torch.stack(q).sum().log()
        checks = torch.tensor(book.unpacked()[y, 6:]).double()
        total = total + F.binary_cross_entropy_with_logits(z_C[6:], checks, reduction="sum")
    found = trained(head, book).sum()
    torch.testing.assert_close(found, total)
    for gradient, expected in zip(
        torch.autograd.grad(found, list(head.parameters())),
        torch.autograd.grad(total, list(head.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("bits", [1, 5, 12])
@pytest.mark.parametrize("radius", [0, 1, 2, 3])
def test_the_ball_drops_the_bits_in_which_its_most_probable_code_differs(bits: int, radius: int) -> None:
    """Every code within the radius is tried; the dropped bits get no gradient at all, the others that of BCE."""
    margins_NC = 2 * torch.randn(8, bits, generator=seeded(bits), dtype=torch.float64)
    margins_NC.requires_grad_()
    nats_N = ball_nats(margins_NC, min(radius, bits))
    (gradient_NC,) = torch.autograd.grad(nats_N.sum(), margins_NC)
    for margins_C, nats, gradient_C in zip(margins_NC.tolist(), nats_N.tolist(), gradient_NC.tolist(), strict=True):
        ball = [code for code in itertools.product([1, 0], repeat=bits) if code.count(0) <= radius]
        best = max(ball, key=lambda code, m=margins_C: code_probability(code, m))
        kept = [margin for margin, right in zip(margins_C, best, strict=True) if right]
        assert nats == pytest.approx(sum(math.log1p(math.exp(-margin)) for margin in kept), abs=1e-12)
        for margin, right, slope in zip(margins_C, best, gradient_C, strict=True):
            assert slope == (pytest.approx(-1 / (1 + math.exp(margin))) if right else 0.0)


def test_the_default_radius_is_what_the_code_corrects_up_to_a_tenth_of_its_bits() -> None:
    apart = Codebook.from_bits(np.array([[0] * 69, [1] * 7 + [0] * 62], dtype=np.uint8))
    far = Codebook.from_bits(np.array([[0] * 69, [1] * 69], dtype=np.uint8))
    assert [default_radius(book) for book in (apart, far)] == [3, 6]
    assert head_of(apart, "ball_drop").radius == 3 and head_of(apart, "ball_drop", radius=1).radius == 1


def test_a_bit_at_exactly_zero_is_a_zero() -> None:
    book = CODES["rank"]
    head = head_of(book, spread=0.0)
    zeros = [int((row == 0).sum()) for row in book.unpacked()[targets(book)].reshape(T * B, -1)]
    found = measured(head, given(), targets(book))
    assert found["wrong_bits"] == pytest.approx(1 - np.mean(zeros) / book.bits)


@pytest.mark.parametrize("book", [None, random_code(22, 11)])
def test_a_codebook_of_other_words_is_refused(book: Codebook | None) -> None:
    with pytest.raises(ValueError, match=r"needs a codebook of its 23 words, got (none|one of 22)"):
        Ecoc(spec(), H, words(book, 23), seeded(0))


@pytest.mark.parametrize("loss", ["span_max", "span_sum"])
def test_a_span_loss_without_spans_is_refused(loss: str) -> None:
    with pytest.raises(ValueError, match=f"loss {loss} needs a codebook with spans"):
        head_of(CODES["random"], loss)


@pytest.mark.parametrize("loss", ["bce", "span_max", "span_sum", "ball_drop", "normalized"])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_whole_model_learns_a_text_and_is_scored_as_its_bits_say(cell: Literal["lstm", "gru"], loss: str) -> None:
    book = CODES["rank"]
    model = LanguageModel(
        Model(cell=cell, layers=1, embedding_size=12, hidden_size=12, tied=False),
        spec(loss, {"probability": AS_TRAINED}),
        Dropout(),
        words(book, 23),
        seeded(0),
    )
    text_RB = (torch.arange(60)[:, None] * 5 + torch.tensor([0, 7])) % 23  # every word names the next
    before = validation_nats(model, text_RB, 20)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(80):
        outputs, _ = model(text_RB[:-1], model.initial_state(2))
        optimizer.zero_grad()
        model.head.training_loss(outputs, text_RB[1:], None).nats_TB.mean().backward()
        optimizer.step()
    nats, measures = token_nats(model, text_RB, 20)
    assert nats.nats.mean() < 0.5 * before
    assert measures["accuracy_soft"] > 0.9 and measures["marginal_nats_per_token"] >= nats.nats.mean()
    with torch.no_grad():
        outputs, _ = model(text_RB[:-1], model.initial_state(2))
        z_TBC = outputs.dropped[-1] @ model.head.weight_CH.T + model.head.bias_C
        scores_TBV = z_TBC @ torch.tensor(book.unpacked()).float().T
        expected = F.cross_entropy(scores_TBV.flatten(0, 1), text_RB[1:].flatten())
    assert nats.nats.mean() == pytest.approx(float(expected), abs=1e-5)
