"""Beam search against all texts of a small vocabulary."""

from __future__ import annotations

import pytest
import torch

from lm.beam import beam_search
from lm.generate import Passage, generate
from lm.spec import Generate
from tests.lm.heads.examples import Example, V
from tests.support.writers import HEADS, every_text, small_writer, teacher_forced, vocabulary, writer

COUNT, LENGTH = 4, 4


def totals(passages: list[Passage]) -> list[float]:
    return [sum(passage.log_probabilities) for passage in passages]


@pytest.mark.parametrize("cell", ["lstm", "gru", "peephole_lstm", {"kind": "rhn", "depth": 2}], ids=str)
@pytest.mark.parametrize("ban", [(), ("<unk>",)])
def test_a_beam_as_wide_as_all_texts_finds_all_in_order(cell: str | dict[str, object], ban: tuple[str, ...]) -> None:
    model, words = small_writer(COUNT, cell), vocabulary(COUNT)
    texts_NT = every_text(COUNT, LENGTH)
    texts_NT = texts_NT[~(texts_NT == 1).any(dim=1)] if ban else texts_NT
    log_p_N = teacher_forced(model, [0, 2], texts_NT).sum(dim=1)
    order = log_p_N.argsort(descending=True)
    found = beam_search(model, words, words=LENGTH, width=COUNT**LENGTH, prompt="w2", ban=ban)
    assert [passage.words for passage in found] == [tuple(words[i] for i in texts_NT[n]) for n in order]
    assert totals(found) == pytest.approx(log_p_N[order].tolist())


@pytest.mark.parametrize("ban", [(), ("w3",), ("<eos>",)])
def test_sentences_of_any_length_are_searched_exhaustively(ban: tuple[str, ...]) -> None:
    """Each text ends at its first <eos> or has the full length; a narrow beam's scores are among these."""
    model, words = small_writer(COUNT), vocabulary(COUNT)
    forbidden = {words.index(word) for word in ban}
    texts = {
        tuple(text[: text.index(0) + 1] if 0 in text else text)
        for text in every_text(COUNT, LENGTH).tolist()
        if not forbidden & set(text[: text.index(0) + 1] if 0 in text else text)
    }
    expected = {text: float(teacher_forced(model, [0], torch.tensor([text])).sum()) for text in texts}
    ordered = sorted(expected, key=lambda text: -expected[text])
    found = beam_search(model, words, words=LENGTH, width=COUNT**LENGTH, ban=ban, sentence=True)
    assert [passage.words for passage in found] == [tuple(words[i] for i in text) for text in ordered]
    assert totals(found) == pytest.approx([expected[text] for text in ordered])
    for passage in beam_search(model, words, words=LENGTH, width=3, ban=ban, sentence=True):
        text = tuple(words.index(word) for word in passage.words)
        assert sum(passage.log_probabilities) == pytest.approx(expected[text])


@pytest.mark.parametrize("example", HEADS, ids=lambda example: example.name)
def test_scores_are_those_of_teacher_forcing_for_every_head(example: Example) -> None:
    """So the recurrent states followed their hypotheses."""
    model, words = writer(example), vocabulary(V)
    found = beam_search(model, words, words=7, width=9, prompt="w5 w6", ban=("<unk>",))
    ids_NT = torch.tensor([[words.index(word) for word in passage.words] for passage in found])
    expected_NT = teacher_forced(model, [0, 5, 6], ids_NT)
    torch.testing.assert_close(torch.tensor([p.log_probabilities for p in found], dtype=torch.float64), expected_NT)
    assert len(found) == 9 == len({passage.words for passage in found}) and totals(found) == sorted(totals(found))[::-1]
    assert len(set(ids_NT[:, -2].tolist())) > 1, "hypotheses differ before their last word"


@pytest.mark.parametrize("example", HEADS, ids=lambda example: example.name)
def test_a_beam_of_width_1_is_greedy(example: Example) -> None:
    model, words = writer(example), vocabulary(V)
    (greedy,) = generate(model, words, Generate(words=10, samples=1, temperature=0.0, ban=("w3",)))
    (narrow,) = beam_search(model, words, words=10, width=1, ban=("w3",))
    assert narrow.words == greedy.words
