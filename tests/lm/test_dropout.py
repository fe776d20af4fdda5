"""Locked and embedding dropout (Merity et al. 2017, 4.2 and 4.3). T time, B batch, F features, V vocabulary."""

from __future__ import annotations

import pytest
import torch

from lm.dropout import embed, keep_mask, locked_dropout
from lm.model import LanguageModel
from lm.spec import Dropout, Model, SoftmaxHead
from tests.support.tiny import even, seeded


@pytest.mark.parametrize("probability", [0.1, 0.4, 0.65])
def test_locked_dropout_on_ones(probability: float, device: torch.device) -> None:
    """One mask for all time, another for each column and call; zeros by their share, a mean of about 1."""
    noise = seeded(0, device)
    ones_TBF = torch.ones(7, 40, 400, device=device)
    dropped_TBF = locked_dropout(ones_TBF, probability, noise)
    assert (dropped_TBF == dropped_TBF[:1]).all()
    values = dropped_TBF[0].unique()
    torch.testing.assert_close(values.cpu(), torch.tensor([0.0, 1 / (1 - probability)]))
    patterns = {tuple(column.tolist()) for column in dropped_TBF[0]}
    assert len(patterns) == 40
    spread = (probability * (1 - probability) / (40 * 400)) ** 0.5
    assert (dropped_TBF == 0).double().mean().item() == pytest.approx(probability, abs=5 * spread)
    assert dropped_TBF.mean().item() == pytest.approx(1.0, abs=5 * spread / (1 - probability))
    assert not torch.equal(locked_dropout(ones_TBF, probability, noise), dropped_TBF)


def test_locked_dropout_is_the_identity_without_noise_or_probability(device: torch.device) -> None:
    input_TBF = torch.rand(3, 4, 5, device=device)
    assert locked_dropout(input_TBF, 0.5, None) is input_TBF
    assert locked_dropout(input_TBF, 0.0, seeded(0, device)) is input_TBF


def test_a_mask_of_one_generator_state_is_always_the_same(device: torch.device) -> None:
    like = torch.ones(1, device=device)
    assert torch.equal(keep_mask((5, 6), 0.5, like, seeded(2, device)), keep_mask((5, 6), 0.5, like, seeded(2, device)))


def test_no_two_places_share_a_mask(device: torch.device) -> None:
    """After the embedding, between the layers (twice) and after the last one, in layers of one size."""
    size = 64
    model = LanguageModel(
        Model(layers=3, embedding_size=size, hidden_size=size),
        SoftmaxHead(kind="softmax"),
        Dropout(input=0.5, between=0.5, output=0.5),
        even(9),
        seeded(0),
    ).to(device)
    seen = []
    hooks = [layer.register_forward_pre_hook(lambda _, given: seen.append(given[0])) for layer in model.layers]
    tokens_TB = torch.randint(9, (4, 5), generator=seeded(1)).to(device)
    outputs, _ = model(tokens_TB, model.initial_state(5), seeded(2, device))
    for hook in hooks:
        hook.remove()
    assert all(torch.equal(place, dropped) for place, dropped in zip(seen, outputs.dropped[:-1], strict=True))
    zero = [(place == 0).cpu() for place in outputs.dropped]
    assert all((place == place[:1]).all() for place in zero)
    patterns = [place[0] for place in zero]
    assert all(0.3 < pattern.double().mean() < 0.7 for pattern in patterns)
    for k, pattern in enumerate(patterns):
        for other in patterns[:k]:
            assert 0.3 < (pattern == other).double().mean() < 0.7


def test_words_are_dropped_whole(device: torch.device) -> None:
    """A word is zero at every place of the window, or scaled at every place."""
    words, probability = 12, 0.4
    embedding_VF = (torch.rand(words, 5, generator=seeded(0)) + 0.5).to(device)
    tokens_TB = torch.randint(words, (30, 8), generator=seeded(1)).to(device)
    embedded = embed(tokens_TB, embedding_VF, probability, seeded(2, device))
    dropped_words = 0
    for word in range(words):
        places = embedded[tokens_TB == word]
        assert len(places) > 1
        if (places == 0).all():
            dropped_words += 1
        else:
            torch.testing.assert_close(places, (embedding_VF[word] / (1 - probability)).expand_as(places))
    assert 0 < dropped_words < words


def test_share_of_dropped_words(device: torch.device) -> None:
    """About as many as the probability says."""
    words, probability = 20_000, 0.1
    every_word = torch.arange(words, device=device)[:, None]
    embedded = embed(every_word, torch.ones(words, 2, device=device), probability, seeded(0, device))
    zero = (embedded == 0).all(dim=-1).double().mean().item()
    assert zero == pytest.approx(probability, abs=5 * (probability * (1 - probability) / words) ** 0.5)


def test_no_gradient_reaches_a_dropped_word(device: torch.device) -> None:
    """And a word that stayed gets one for each place, scaled."""
    words, probability = 12, 0.4
    embedding_VF = torch.rand(words, 3, device=device).add_(0.5).requires_grad_()
    tokens_TB = torch.randint(words, (30, 8), generator=seeded(1)).to(device)
    embedded = embed(tokens_TB, embedding_VF, probability, seeded(2, device))
    embedded.sum().backward()
    assert embedding_VF.grad is not None
    for word in range(words):
        places = (tokens_TB == word).sum().item()
        kept = bool((embedded[tokens_TB == word] != 0).all())
        expected = places / (1 - probability) if kept else 0.0
        torch.testing.assert_close(embedding_VF.grad[word].cpu(), torch.full((3,), expected))


def test_a_tied_decoder_keeps_the_words_that_the_input_dropped(device: torch.device) -> None:
    """Logits are those of the whole embedding, whatever was dropped on the way in."""
    model = LanguageModel(
        Model(layers=1, embedding_size=6),
        SoftmaxHead(kind="softmax"),
        Dropout(embedding=0.6),
        even(15),
        seeded(0),
    ).to(device)
    tokens_TB = torch.randint(15, (4, 3), generator=seeded(1)).to(device)
    outputs, _ = model(tokens_TB, model.initial_state(3), seeded(2, device))
    expected = outputs.raw[-1] @ model.embedding_VE.T + model.head.bias_V
    torch.testing.assert_close(model.head.scorer().logits(outputs), expected)
    plain, _ = model(tokens_TB, model.initial_state(3))
    assert not torch.allclose(plain.raw[-1], outputs.raw[-1])


def test_embedding_without_noise_is_a_lookup(device: torch.device) -> None:
    embedding_VF = torch.rand(5, 3, device=device)
    tokens_TB = torch.tensor([[1, 4], [0, 1]], device=device)
    assert torch.equal(embed(tokens_TB, embedding_VF, 0.5, None), embedding_VF[tokens_TB])
    assert torch.equal(embed(tokens_TB, embedding_VF, 0.0, seeded(0, device)), embedding_VF[tokens_TB])
