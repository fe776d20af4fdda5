"""Codebooks in the cache directory and in folders: built once, known by content, damaged files made again."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lm.codebooks.build
from lm.codebooks import Codebook, build_codebook, save_codebook
from tests.lm.codebooks.made import code, corpus_of, random_corpus

ROOT = Path(__file__).parents[3]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "codebooks"


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of the codebooks that were really built."""
    kinds: list[str] = []
    construct = lm.codebooks.build._construct

    def counted(spec: Any, corpus: Any) -> Codebook:
        kinds.append(spec.kind)
        return construct(spec, corpus)

    monkeypatch.setattr(lm.codebooks.build, "_construct", counted)
    return kinds


def test_a_codebook_is_built_once(cache: Path, built: list[str]) -> None:
    for spec in (code("unigram", bits=40), code("random", bits=40)):
        first, second = (build_codebook(spec, random_corpus(30)) for _ in range(2))
        assert np.array_equal(first.packed, second.packed) and first.fingerprint == second.fingerprint
        assert (first.bits, first.origin) == (second.bits, second.origin)
        if first.spans is not None and second.spans is not None:
            assert np.array_equal(first.spans.order_V, second.spans.order_V)
            assert np.array_equal(first.spans.bounds, second.spans.bounds)
        assert (first.spans is None) == (second.spans is None) == (spec.kind == "random")
    assert built == ["unigram", "random"]
    assert len(list(cache.glob("*.npz"))) == 2


def test_what_decides_a_codebook_decides_its_name(cache: Path, built: list[str]) -> None:
    corpus = random_corpus(30)
    others = [
        replace(corpus, train=corpus.train[:-7]),
        replace(corpus, train=corpus.train[7:]),
        replace(corpus, vocabulary=(*corpus.vocabulary[:-1], "other")),
    ]
    for each in (corpus, *others):
        build_codebook(code("unigram", bits=40), each)
    build_codebook(code("unigram", bits=40, seed=1), corpus)
    assert len(built) == 5 == len(list(cache.glob("*.npz")))
    build_codebook(code("unigram", bits=40, seed=1), replace(corpus, name="renamed", valid=corpus.valid[:0]))
    assert len(built) == 5


def test_word_vectors_count_by_their_hash_and_not_by_their_place(cache: Path, tmp_path: Path) -> None:
    """Once built, a codebook needs its file of word vectors no more."""
    from tests.lm.codebooks.test_codebook_embeddings import WORDS, lines

    vectors = lines(tmp_path / "v.txt", "".join(f"{word} {number} 1\n" for number, word in enumerate(WORDS)))
    corpus = corpus_of([0, 1, 2], WORDS)
    values = {"bits": 9, "embeddings": vectors.model_dump()}
    first = build_codebook(code("embedding", **values), corpus)
    values["embeddings"]["path"] = "elsewhere"
    assert build_codebook(code("embedding", **values), corpus).fingerprint == first.fingerprint
    values["embeddings"]["sha256"] = "0" * 64
    with pytest.raises(ValueError, match="elsewhere cannot be read"):
        build_codebook(code("embedding", **values), corpus)


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "text", "method", "another archive"])
def test_a_damaged_file_is_made_again(
    cache: Path, built: list[str], damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    spec, corpus = code("unigram", bits=300), random_corpus(30)
    first = build_codebook(spec, corpus)
    (path,) = cache.glob("*.npz")
    good = path.read_bytes()
    at = good.index(first.packed.tobytes()) + 500
    entry = good.index(b"PK\1\2")
    path.write_bytes(
        {
            "cut": good[: len(good) // 2],
            "flipped": good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :],
            "empty": b"",
            "text": b"no archive",
            "method": good[: entry + 10] + b"\x63" + good[entry + 11 :],  # of compression: there is none of this number
        }.get(damage, good)
    )
    if damage == "another archive":
        with path.open("wb") as file:
            np.savez(file, vectors=np.zeros(3))
    with caplog.at_level(logging.WARNING):
        assert build_codebook(spec, corpus).fingerprint == first.fingerprint
    assert built == ["unigram", "unigram"] and f"{path} is damaged" in caplog.text
    assert path.read_bytes() == good  # the same bytes each time


def test_a_cache_that_cannot_be_written_only_costs_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, built: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("LM_CACHE", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING):
        found = {build_codebook(code("random", bits=40), random_corpus(30)).fingerprint for _ in range(2)}
    assert len(found) == 1 and built == ["random", "random"]
    assert len([record for record in caplog.records if "codebooks are not kept in" in record.message]) == 1


def test_two_processes_at_once_build_it_once(tmp_path: Path) -> None:
    program = """
import sys, time
import lm.codebooks.build
from tests.lm.codebooks.made import code, random_corpus
construct = lm.codebooks.build._construct
def slow(spec, corpus):
    print("building", flush=True)
    time.sleep(1)
    return construct(spec, corpus)
lm.codebooks.build._construct = slow
print("ready", flush=True)
sys.stdin.readline()
print(lm.codebooks.build.build_codebook(code("unigram", bits=40), random_corpus(30)).fingerprint)
"""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env=os.environ | {"LM_CACHE": str(tmp_path), "OMP_NUM_THREADS": "1"},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    printed = []
    for process in started:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in started:
        printed.append(process.communicate(timeout=60)[0].split())
        assert process.returncode == 0
    assert sorted(map(len, printed)) == [1, 2] and len({words[-1] for words in printed}) == 1


def test_a_copy_of_the_same_origin_comes_first(
    cache: Path, built: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec, corpus = code("unigram", bits=40), random_corpus(30)
    own = build_codebook(spec, corpus)
    rounded = replace(own, packed=own.packed[::-1].copy())
    copies = [tmp_path / name for name in ("none.npz", "other.npz", "damaged.npz", "copy.npz", "later.npz")]
    save_codebook(copies[1], build_codebook(code("unigram", bits=41), corpus))
    copies[2].write_bytes(b"")
    assert build_codebook(spec, corpus, copies).fingerprint == own.fingerprint
    save_codebook(copies[3], rounded)
    save_codebook(copies[4], own)
    assert build_codebook(spec, corpus, copies).fingerprint == rounded.fingerprint != own.fingerprint
    assert build_codebook(spec, corpus).fingerprint == own.fingerprint
    assert "damaged.npz is damaged" in caplog.text and "other.npz" not in caplog.text
    assert built == ["unigram", "unigram"]
