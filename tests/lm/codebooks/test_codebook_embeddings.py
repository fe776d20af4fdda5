"""Word vectors: of the text against a slow form, of files, and what is refused."""

from __future__ import annotations

import hashlib
import math
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from lm.codebooks import build_codebook
from lm.codebooks.embeddings import likeness, word_vectors
from lm.codebooks.ppmi import cooccurrences, ppmi, ppmi_svd
from lm.spec import CheckpointEmbeddings, FileEmbeddings, PpmiSvdEmbeddings
from tests.lm.codebooks.made import code, corpus_of, random_corpus

WORDS = ("the", "cat", "<unk>", "<eos>", "sat")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def checkpoint(path: Path, **tensors: Any) -> CheckpointEmbeddings:
    save_file(tensors, path)
    return CheckpointEmbeddings(kind="checkpoint", path=str(path), sha256=sha256(path))


def lines(path: Path, text: str) -> FileEmbeddings:
    path.write_text(text, encoding="utf-8")
    return FileEmbeddings(kind="file", path=str(path), sha256=sha256(path))


def test_a_word_that_the_text_does_not_have_has_no_vector() -> None:
    """Though there are more sizes than the information of so few words fills."""
    text = np.random.default_rng(0).integers(0, 24, 400).astype(np.int32)
    vectors_VE = ppmi_svd(text, 27, 3, 300)
    assert (vectors_VE != 0).any(axis=1).tolist() == [True] * 24 + [False] * 3
    assert likeness(vectors_VE, 25).tolist() == [0.0] * 27


@pytest.mark.parametrize("window", [1, 2, 5])
def test_cooccurrences_and_their_information(window: int) -> None:
    text = np.random.default_rng(0).zipf(1.5, size=400) % 12
    together: defaultdict[tuple[int, int], float] = defaultdict(float)
    for here, word in enumerate(text.tolist()):
        for there, other in enumerate(text.tolist()):
            if 0 < abs(here - there) <= window:
                together[word, other] += (window + 1 - abs(here - there)) / window
    counts = cooccurrences(text.astype(np.int32), 13, window)
    assert all(counts[pair] == pytest.approx(together[pair]) for pair in np.ndindex(13, 13))

    of_word = [sum(together[word, other] for other in range(13)) for word in range(13)]
    smoothed = [count**0.75 for count in of_word]
    found = ppmi(counts)
    for (word, other), count in together.items():
        if count:
            information = math.log((count / of_word[word]) / (smoothed[other] / sum(smoothed)))
            assert found[word, other] == pytest.approx(max(0.0, information))
    assert all(found[pair] == 0 for pair in np.ndindex(13, 13) if not together[pair])


@pytest.mark.parametrize(("words", "size"), [(40, 10), (40, 300), (5, 4), (2, 300)])
def test_vectors_are_the_singular_ones_by_the_root_of_their_value(words: int, size: int) -> None:
    corpus = random_corpus(words)
    vectors = ppmi_svd(corpus.train, words, 5, size)
    left, values, _ = np.linalg.svd(ppmi(cooccurrences(corpus.train, words, 5)).toarray())
    size = min(size, words - 1)
    assert vectors.shape == (words, size) and vectors.dtype == np.float32
    assert np.linalg.norm(vectors, axis=0) == pytest.approx(np.sqrt(values[:size]), abs=1e-3)
    expected = left[:, :size] * values[:size] @ left[:, :size].T
    assert np.abs(vectors @ vectors.T - expected).max() < 1e-4  # the same but for the vectors' signs,
    highest = np.abs(vectors).argmax(axis=0)
    assert (vectors[highest, np.arange(size)] >= 0).all()  # which are these
    assert np.array_equal(vectors, ppmi_svd(corpus.train, words, 5, size))


@pytest.mark.parametrize("text", [[0], [0, 0, 0]])
def test_a_text_without_two_words_together_has_no_vectors(text: list[int]) -> None:
    with pytest.raises(ValueError, match="no two words of the training text are together more often than by chance"):
        ppmi_svd(np.array(text, dtype=np.int32), 3, 5, 2)


def test_likeness_is_the_cosine() -> None:
    vectors = np.array([[1.0, 0.0], [3.0, 3.0], [0.0, 0.0], [-2.0, 0.0]], dtype=np.float32)
    assert likeness(vectors, 0) == pytest.approx([1.0, math.sqrt(0.5), 0.0, -1.0])
    assert likeness(vectors, 2) == pytest.approx([0.0, 0.0, 0.0, 0.0])


def test_vectors_of_a_trained_model(tmp_path: Path) -> None:
    corpus = corpus_of([0, 1, 2], WORDS)
    table = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    spec = checkpoint(tmp_path / "w.safetensors", embedding_VE=table, other=np.zeros(3, dtype=np.float32))
    assert np.array_equal(word_vectors(spec, corpus), table)
    short = checkpoint(tmp_path / "s.safetensors", embedding_VE=table[:4])
    named = checkpoint(tmp_path / "n.safetensors", weight=table)
    broken = checkpoint(tmp_path / "b.safetensors", embedding_VE=table * np.nan)
    (tmp_path / "t.safetensors").write_text("no weights")
    os.mkfifo(tmp_path / "pipe")
    text = spec.model_copy(
        update={"path": str(tmp_path / "t.safetensors"), "sha256": sha256(tmp_path / "t.safetensors")}
    )
    for refused, said in (
        (short, r"s\.safetensors: a model of 4 words, the corpus has 5"),
        (named, r"n\.safetensors: not weights with a tensor embedding_VE"),
        (broken, r"b\.safetensors: holds numbers that are not finite"),
        (text, r"t\.safetensors: not weights with a tensor embedding_VE"),
        (spec.model_copy(update={"path": str(tmp_path / "gone")}), "gone cannot be read: No such file"),
        (spec.model_copy(update={"path": str(tmp_path / "pipe")}), "pipe cannot be read: is not a regular file"),
        (spec.model_copy(update={"sha256": "0" * 64}), f"has SHA-256 {spec.sha256}, the spec says 0000"),
    ):
        with pytest.raises(ValueError, match=said):
            word_vectors(refused, corpus)


@pytest.mark.parametrize("header", ["", "6 2\n"])
def test_vectors_of_a_file(tmp_path: Path, header: str) -> None:
    """In any order, with words that the corpus does not have; the first of two lines of a word counts.

    The first line may be word2vec's, of two counts, though one of them is a word too.
    """
    text = "cat 1 2\n6 0 1\n<eos> -1 0.5\n\nthe 3e-1 4\ndog x y z\ncat and 2 2\n<unk> 5 6\nsat 7 8\ncat 9 9\n"
    spec = lines(tmp_path / "v.txt", header + text)
    expected = [[0.3, 4], [1, 2], [5, 6], [-1, 0.5], [7, 8], [0, 1]]
    assert word_vectors(spec, corpus_of([0], (*WORDS, "6"))) == pytest.approx(np.array(expected))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cat 1 2\nthe 1\n<unk> 1 2\n<eos> 1 2\nsat 1 2\n", r"v\.txt:2: 1 numbers for 'the', others have 2"),
        ("cat 1 2\nthe 1 two\n", r"v\.txt:2: could not convert string to float: .*two"),
        ("cat 1 2\nsat\n", r"v\.txt:2: 0 numbers for 'sat'"),
        ("cat 1 2\n<eos> 3 4\n", r"no vector for 3 of the corpus's 5 words: the, <unk>, sat$"),
        ("dog 1 2\n", r"no vector for 5 of the corpus's 5 words: the, cat, <unk>, <eos>, sat$"),
        ("cat 1 nan\nthe 1 1\n<unk> 1 2\n<eos> 1 2\nsat 1 2\n", "not finite"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        word_vectors(lines(tmp_path / "v.txt", text), corpus_of([0], WORDS))


def test_many_missing_words_are_counted_and_five_named(tmp_path: Path) -> None:
    corpus = corpus_of([0], [f"w{word}" for word in range(2000)])
    with pytest.raises(ValueError, match=r"no vector for 1,999 of the corpus's 2,000 words: w1, w2, w3, w4, w5, ..."):
        word_vectors(lines(tmp_path / "v.txt", "w0 1 2\n"), corpus)


def test_embedding_order_begins_at_the_most_frequent_ordinary_word(tmp_path: Path) -> None:
    """`<eos>` and `<unk>` are more frequent here; then by falling cosine, ties by id."""
    spec = lines(tmp_path / "v.txt", "the 1 1\ncat 0 1\n<unk> 1 0\n<eos> -1 -1\nsat 2 2.1\n")
    corpus = corpus_of([2, 2, 2, 3, 3, 3, 0, 0, 1], WORDS)
    for weight, widths in {"similarity": [2, 2, 2, 1, 1], "inverse_rank": [2, 2, 2, 1, 1]}.items():
        built = build_codebook(code("embedding", bits=9, weight=weight, embeddings=spec.model_dump()), corpus)
        assert built.spans is not None
        assert built.spans.order_V.tolist() == [0, 4, 1, 2, 3]
        assert np.diff(built.spans.bounds).tolist() == widths


def test_without_an_ordinary_word_there_is_no_embedding_order() -> None:
    corpus = corpus_of([0, 1, 1, 0, 0, 1], ["<unk>", "<eos>"])
    with pytest.raises(ValueError, match="no word but <unk> and <eos>"):
        build_codebook(code("embedding", bits=3), corpus)


def test_vectors_of_the_text_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Codes of the same vectors share them; another window or cut has others."""
    monkeypatch.setenv("LM_CACHE", str(tmp_path))
    corpus = random_corpus(30)
    for values in ({"kind": "simhash", "bits": 30}, {"kind": "simhash", "bits": 40}, {"kind": "hybrid", "bits": 30}):
        build_codebook(code(**values), corpus)
    assert len(list((tmp_path / "vectors").glob("*.npz"))) == 1
    first = word_vectors(PpmiSvdEmbeddings(kind="ppmi_svd"), corpus)
    word_vectors(PpmiSvdEmbeddings(kind="ppmi_svd", window=2), corpus)
    other = word_vectors(PpmiSvdEmbeddings(kind="ppmi_svd"), random_corpus(30, tokens=4990))
    assert len(list((tmp_path / "vectors").glob("*.npz"))) == 3 and not np.array_equal(first, other)
