"""The vocabulary rule, against a form that is slow and plain, and the stored encodings."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm.data import load
from lm.data.encode import Encoding, capped, encode
from lm.data.text import CorpusError, lines_of
from lm.kept import say_once
from lm.spec import Corpus
from tests.lm.data.toy_corpus import TOY, write_texts

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"]), min_size=1, max_size=4)
LINES = st.lists(st.lists(WORDS | st.just("<unk>"), max_size=6).map(" ".join), min_size=1, max_size=6)


def plain_tokens(lines: list[str]) -> list[str]:
    return [word for line in lines for word in (line + " <eos>").split()]


@given(train=LINES, valid=LINES, test=LINES)
def test_ids_stand_for_the_words(train: list[str], valid: list[str], test: list[str]) -> None:
    encoding = encode({"train": train, "valid": valid, "test": test})
    known = set(plain_tokens(train))
    closed = "<unk>" in known
    for ids, lines in ((encoding.train, train), (encoding.valid, valid), (encoding.test, test)):
        expected = [word if word in known or not closed else "<unk>" for word in plain_tokens(lines)]
        assert [encoding.vocabulary[i] for i in ids] == expected
    every = plain_tokens(train) if closed else plain_tokens([*train, *valid, *test])
    assert encoding.vocabulary == tuple(dict.fromkeys(every))
    new = set(plain_tokens([*valid, *test])) - known
    assert (f"{len(new):,} words" in encoding.rule) == bool(new)
    assert encoding.rule.endswith("count as <unk>" if closed else "follow (there is no <unk>)") or not new


def test_every_line_ends_in_eos_the_empty_ones_too() -> None:
    encoding = encode({"train": ["\n", " b a \n", "\n"], "valid": ["a"], "test": ["\n"]})
    assert encoding.vocabulary == ("<eos>", "b", "a")
    assert encoding.train.tolist() == [0, 1, 2, 0, 0]
    assert encoding.valid.tolist() == [2, 0]
    assert encoding.test.tolist() == [0]


def test_only_line_ends_end_a_line(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_bytes("\ufeffa\u2028b\x0bc\r\nd\r\n\ne".encode())
    lines = [line.split() for line in lines_of(path)]
    assert lines == [["a", "b", "c"], ["d"], [], ["e"]]


def test_the_second_load_reads_the_stored_encoding(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = Corpus(name=str(write_texts(places / "mine", TOY)))
    first = load(corpus)
    monkeypatch.setattr("lm.data.loading.encode", None)
    second = load(corpus)
    assert second.facts == first.facts and second.vocabulary == first.vocabulary
    assert all(np.array_equal(getattr(first, split), getattr(second, split)) for split in TOY)
    assert not first.train.flags.writeable and not second.train.flags.writeable


@pytest.mark.parametrize("damage", ["cut", "flipped", "offset", "empty"])
def test_a_damaged_stored_encoding_is_made_again(places: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    corpus = Corpus(name=str(write_texts(places / "mine", TOY)))
    first = load(corpus)
    (path,) = (places / "cache" / "encoded").glob("*.arrow")
    good = path.read_bytes()
    at = good.index(first.train.tobytes())
    ends = np.cumsum([len(word.encode()) for word in first.vocabulary], dtype=np.int32)
    last = good.index(ends.tobytes()) + ends.nbytes - 1
    path.write_bytes(
        {
            "cut": good[: len(good) // 2],
            "flipped": good[:at] + b"\1" + good[at + 1 :],
            "offset": good[:last] + b"\x7f" + good[last + 1 :],  # where the last word ends: far outside of the file
            "empty": b"",
        }[damage]
    )
    again = load(corpus)
    assert np.array_equal(again.train, first.train) and "is damaged" in caplog.text
    assert path.read_bytes() == good


def test_a_text_that_changes_while_it_is_read_is_not_kept(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_texts(places / "mine", TOY)

    def read_another(lines: Mapping[str, Iterable[str]]) -> Encoding:
        write_texts(folder, TOY | {"valid": "another text\n"})
        return encode(lines)

    monkeypatch.setattr("lm.data.loading.encode", read_another)
    with pytest.raises(CorpusError, match="mine was changed while it was read"):
        load(Corpus(name=str(folder)))
    assert not list((places / "cache").rglob("*.arrow"))


def test_a_cache_that_cannot_be_written_is_said_once(
    places: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (places / "file").write_text("not a folder")
    monkeypatch.setenv("LM_CACHE", str(places / "file"))
    say_once.cache_clear()
    corpus = Corpus(name=str(write_texts(places / "mine", TOY)))
    with caplog.at_level(logging.WARNING):
        assert np.array_equal(load(corpus).train, load(corpus).train)
    assert len([record for record in caplog.records if "are not kept" in record.message]) == 1


def test_eight_processes_at_once_get_the_same_corpus(places: Path) -> None:
    words = np.random.default_rng(0).integers(0, 5000, size=200_000)
    text = "".join(f"w{word}" + ("\n" if word % 20 == 0 else " ") for word in words)
    folder = write_texts(places / "mine", dict.fromkeys(TOY, text))
    program = (
        "import sys, hashlib; from lm.data import load; from lm.spec import Corpus;"
        "c = load(Corpus(name=sys.argv[1])); print(c.fingerprint, hashlib.sha256(c.train.tobytes()).hexdigest())"
    )
    root = Path(__file__).resolve().parents[3]
    command = [sys.executable, "-c", program, str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            command, cwd=root, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        for _ in range(8)
    ]
    said = {process.communicate(timeout=60)[0] for process in started}
    assert len(said) == 1 and all(process.returncode == 0 for process in started), said
    assert not list((places / "cache" / "encoded").glob(".*.tmp"))


@given(train=LINES, valid=LINES, test=LINES, most=st.integers(3, 12))
def test_a_cap_keeps_the_most_frequent_words(train: list[str], valid: list[str], test: list[str], most: int) -> None:
    """Against sorting by count and place; a text with no more words than the cap is what it was."""
    whole = encode({"train": train, "valid": valid, "test": test})
    found = capped(whole, most)
    if len(whole.vocabulary) <= most:
        assert found is whole
        return
    assert len(found.vocabulary) == len(set(found.vocabulary)) == most
    count, first = Counter(plain_tokens(train)), whole.vocabulary.index
    ordinary = [word for word in whole.vocabulary if word not in ("<eos>", "<unk>")]
    kept = {*sorted(ordinary, key=lambda word: (-count[word], first(word)))[: most - 2], "<eos>", "<unk>"}
    assert set(found.vocabulary) == kept
    in_order = [word for word in found.vocabulary if word in whole.vocabulary]
    assert in_order == sorted(in_order, key=first)

    def words(encoding: Encoding, split: str) -> list[str]:
        return [encoding.vocabulary[i] for i in getattr(encoding, split)]

    for split in ("train", "valid", "test"):
        assert words(found, split) == [word if word in kept else "<unk>" for word in words(whole, split)]
        assert getattr(found, split).dtype == np.int32 and not getattr(found, split).flags.writeable
    assert f"of these the {most} most frequent in training, all others are <unk>" in found.rule
