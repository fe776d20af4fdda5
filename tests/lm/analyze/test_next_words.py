"""Next words in contexts, and the probability of frequent words and of neighbours, against a plain computation."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from lm.__main__ import app
from lm.analyze.ask import analyze
from lm.analyze.next_words import FREQUENT, neighbours, places_of
from lm.analyze.reading import WINDOW
from lm.analyzed import NextWordsFound
from lm.codebooks.embeddings import word_vectors
from lm.data import load
from lm.kept_model import KeptModel, open_model
from lm.spec import Corpus, NextWordsAnalysis, PpmiSvdEmbeddings
from tests.support.lm_trials import run, settled
from tests.support.tiny import tiny_spec, write_corpus


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trial of a text longer than a window, with the frequent words, which has seen a part of the training text."""
    place = write_corpus(tmp_path_factory.mktemp("words") / "corpus", (1200, 300, 2 * WINDOW))
    for path in place.iterdir():
        text = path.read_text()
        for number, word in enumerate(FREQUENT, 3):
            text = text.replace(f"w{number} ", f"{word} ").replace(f"w{number}\n", f"{word}\n")
        path.write_text(text)
    run(tiny_spec(place, epochs=2, corpus={"name": str(place), "train_tokens": 100}), place.parent / "run")
    return place.parent / "run"


@pytest.fixture
def kept(folder: Path) -> KeptModel:
    return open_model(settled(folder), folder, device="cpu")


def asked(folder: Path, *contexts: str, words: int = 10) -> NextWordsFound:
    settings = NextWordsAnalysis(kind="next_words", contexts=contexts, words=words)
    found = analyze(settings, settled(folder), folder, stage="train", device="cpu")
    assert isinstance(found, NextWordsFound)
    return found


def probabilities(kept: KeptModel) -> np.ndarray:
    """Of every prediction of test, (N, V), the whole text in one piece."""
    text = torch.from_numpy(kept.corpus.test.astype(np.int64))[:, None]
    with torch.no_grad():
        outputs, _ = kept.model(text[:-1], kept.model.initial_state(1))
        return kept.model.head.scorer().log_probabilities(outputs)[:, 0].exp().double().numpy()


def test_the_two_numbers_are_those_of_a_plain_computation(folder: Path, kept: KeptModel) -> None:
    found, p_NV, targets = asked(folder), probabilities(kept), kept.corpus.test[1:]
    assert found.predictions == found.counted_by_text == len(targets) > WINDOW and list(found.probability) == list(
        FREQUENT
    )
    for word, value in found.probability.items():
        number = kept.corpus.vocabulary.index(word)
        assert value == pytest.approx(p_NV[targets != number, number].mean(), rel=1e-5)
    vectors = word_vectors(PpmiSvdEmbeddings(kind="ppmi_svd"), load(Corpus(name=kept.corpus.name)))
    embedding = kept.model.embedding_VE.detach().numpy()
    for value, matrix in ((found.neighbours, embedding), (found.neighbours_by_text, vectors)):
        unit = matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-12)
        cosine = unit @ unit.T
        np.fill_diagonal(cosine, -np.inf)
        near = np.argsort(-cosine, axis=1)[:, :10]
        assert value == pytest.approx(np.mean([p[near[t]].sum() for p, t in zip(p_NV, targets, strict=True)]), rel=1e-4)


def test_a_word_that_the_training_text_lacks_has_no_neighbours_by_it(tmp_path: Path) -> None:
    place = write_corpus(tmp_path / "corpus")
    with (place / "test.txt").open("a") as test:
        test.write("new words new\n")
    run(tiny_spec(place, epochs=1), tmp_path / "run")
    found = asked(tmp_path / "run")
    assert found.counted_by_text == found.predictions - 3


def test_a_context_is_read_with_all_of_the_text_before_it(folder: Path, kept: KeptModel) -> None:
    """Also one beyond the first window; the words are the most probable ones there, likeliest first."""
    words, test = kept.corpus.vocabulary, kept.corpus.test
    context = [words[number] for number in test[WINDOW + 40 : WINDOW + 49]]
    (found,) = asked(folder, " ".join(context), words=3).contexts
    assert test[found.position - 9 : found.position].tolist() == [words.index(word) for word in context]
    assert found.next == words[test[found.position]]
    p_V = probabilities(kept)[found.position - 1]
    best = np.argsort(-p_V)[:3]
    assert [word for word, _ in found.words] == [words[number] for number in best]
    assert [value for _, value in found.words] == pytest.approx(p_V[best], rel=1e-5)


def test_contexts_that_end_at_the_same_place_keep_their_words(folder: Path, kept: KeptModel) -> None:
    words, test = kept.corpus.vocabulary, kept.corpus.test
    long = " ".join(words[number] for number in test[2:8])
    found = asked(folder, long, long.split(maxsplit=2)[2]).contexts
    assert found[0].position == found[1].position == 8
    assert found[0].context == long != found[1].context


def test_places_are_the_first_ones_with_a_word_after_them_else_four_spread_over_the_text() -> None:
    vocabulary, text = ("a", "b", "c"), np.array([0, 1, 0, 1, 2, 0, 2, 1, 2, 0, 2, 2], dtype=np.int32)
    assert places_of(["a b", "a  b c", "c c", "a d", "b"], text, vocabulary) == (
        [(0, 2), (2, 5), (1, 2)],
        ("c c", "a d"),
    )
    places, left_out = places_of(["d"], text, vocabulary)
    assert left_out == ("d",) and [place for _, place in places] == [2, 4, 7, 9]
    assert places_of([], np.zeros(500, np.int32), vocabulary)[0][0] == (88, 100)
    assert places_of([], np.zeros(3, np.int32), vocabulary)[0] == [(0, 1), (0, 2)], "the first word has no prediction"


def test_neighbours_are_the_nearest_by_cosine_without_the_word_itself() -> None:
    vectors = torch.tensor([[1.0, 0.0], [5.0, 0.1], [0.0, 1.0], [-1.0, 0.0]])
    assert neighbours(vectors)[:2].tolist() == [[1, 2, 3], [0, 2, 3]]
    many = torch.randn(1100, 6, generator=torch.Generator().manual_seed(0))
    table = neighbours(many)
    assert table.shape == (1100, 10) and not (table == torch.arange(1100)[:, None]).any()
    cosine = torch.nn.functional.cosine_similarity(many[1050], many, dim=1)
    cosine[1050] = -2
    assert table[1050].tolist() == cosine.argsort(descending=True)[:10].tolist(), "also beyond the first block"


def test_two_models_stand_side_by_side(folder: Path, tmp_path: Path) -> None:
    other = shutil.copytree(folder, tmp_path / "other")
    result = CliRunner().invoke(
        app, ["analyze", "next_words", str(folder), str(other), "--words", "2", "--device", "cpu", "--threads", "1"]
    )
    assert result.exit_code == 0, result.output
    assert "probability of <unk>" in result.stdout and result.stdout.count(" → ") == 4
    assert result.stdout.count(str(other)) == 5, "a column of the numbers, and of each context's words"
    refused = CliRunner().invoke(app, ["analyze", "next_words", str(folder), "--context", "no such", "--threads", "1"])
    assert refused.exit_code == 2 and "--context: the text does not have 'no such'" in refused.stderr
    assert refused.stdout == ""
    kept = "".join(path.read_text(encoding="utf-8") for path in (folder / "analyses").glob("*.json"))
    assert "no such" not in kept, "it is refused before the text is read"
    capped = tmp_path / "capped"
    place = settled(folder).spec.corpus.name
    run(tiny_spec(place, epochs=1, corpus={"name": place, "vocabulary_cap": 12}), capped)
    refused = CliRunner().invoke(app, ["analyze", "next_words", str(folder), str(capped), "--threads", "1"])
    assert refused.exit_code == 2 and "RUN: should all be of one text and vocabulary" in refused.stderr
    blank = CliRunner().invoke(app, ["analyze", "next_words", str(folder), "--context", " "])
    assert blank.exit_code == 2 and "--context: should have a word, got blanks" in blank.stderr
