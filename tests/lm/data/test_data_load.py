"""Where corpora are found, what is refused, and what a trial gets."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lm.data import PUBLISHED, CorpusError, fingerprint_of, load, locate, pydoc, token_counts_of, vocabulary_size_of
from lm.spec import Corpus
from tests.lm.data.toy_corpus import TOY, TOY_TOKENS, TOY_VOCABULARY, write_texts


@pytest.mark.parametrize("name", ["ptb", "wikitext-2"])
def test_real_corpora_match_the_published_figures(name: str, real: Callable[[str], Path]) -> None:
    figures = {"ptb": (929_589, 73_760, 82_430, 10_000), "wikitext-2": (2_088_628, 217_646, 245_569, 33_278)}
    real(name)
    corpus = load(Corpus(name=name))
    facts = corpus.facts
    assert (facts.train_tokens, facts.valid_tokens, facts.test_tokens, facts.vocabulary_size) == figures[name]
    assert facts.fingerprint == fingerprint_of(Corpus(name=name)) and facts.vocabulary_size == len(corpus.vocabulary)
    assert {corpus.train.dtype, corpus.valid.dtype, corpus.test.dtype} == {np.dtype(np.int32)}
    assert corpus.train.max() == facts.vocabulary_size - 1  # validation and test bring no new word

    started = time.process_time()
    again = load(Corpus(name=name))
    assert time.process_time() - started < 0.5  # the hashes and the cache
    assert again.vocabulary == corpus.vocabulary and np.array_equal(again.test, corpus.test)


def test_one_changed_byte_of_ptb_is_refused_with_what_differs(
    real: Callable[[str], Path], places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = real("ptb")
    texts = {split: (source / f"{split}.txt").read_text() for split in TOY}
    write_texts(places / "lm_data" / "ptb", texts | {"valid": texts["valid"].replace("\n", " more\n", 1)})
    monkeypatch.setenv("LM_DATA", str(places / "lm_data"))
    with pytest.raises(CorpusError) as caught:
        load(Corpus(name="ptb"))
    message = str(caught.value)
    assert "valid.txt has SHA-256" in message and "expected c9fe6985" in message
    assert "valid.txt has 73,761 tokens, expected 73,760" in message
    assert "train.txt" not in message and "vocabulary" not in message


def test_planning_needs_no_files(places: Path) -> None:
    sizes = {name: vocabulary_size_of(Corpus(name=name)) for name in PUBLISHED}
    assert sizes == {"ptb": 10_000, "wikitext-2": 33_278, "wikitext-103": 267_735, "seinfeld": 6_595}
    assert len({fingerprint_of(Corpus(name=name)) for name in ("ptb", "wikitext-2")}) == 2
    assert fingerprint_of(Corpus(name="ptb", train_tokens=1000)) == fingerprint_of(Corpus(name="ptb"))
    assert not (places / "cache").exists()
    with pytest.raises(CorpusError, match="corpus fetch wikitext-103"):
        fingerprint_of(Corpus(name="wikitext-103"))


def test_places_are_searched_in_order(toy: str, places: Path) -> None:
    for folder in (places / "cache" / "corpora" / toy, places / "here" / "data" / toy, places / "lm_data" / toy):
        write_texts(folder, TOY)
        assert locate(toy, download=False) == folder


def test_a_loaded_corpus_is_as_published(toy: str, places: Path) -> None:
    write_texts(places / "lm_data" / toy, TOY)
    corpus = load(Corpus(name=toy))
    assert [len(ids) for ids in (corpus.train, corpus.valid, corpus.test)] == list(TOY_TOKENS.values())
    assert corpus.vocabulary == ("the", "cat", "sat", "<eos>", "<unk>", "on", "mat")
    assert corpus.vocabulary[corpus.train[4]] == "<eos>"  # the empty line
    assert [corpus.vocabulary[i] for i in corpus.test[:2]] == ["<unk>", "cat"]
    assert "1 words of validation and test are not among them" in corpus.vocabulary_rule
    assert corpus.facts.vocabulary_size == TOY_VOCABULARY


@pytest.mark.parametrize("place", ["lm_data/toy", "here/data/toy", "cache/corpora/toy"])
def test_a_wrong_corpus_is_an_error_wherever_it_is_found_first(toy: str, places: Path, place: str) -> None:
    write_texts(places / "cache" / "corpora" / toy, TOY)
    write_texts(places / place, TOY | {"test": "a dog\n"})
    with pytest.raises(CorpusError, match=r"test.txt has SHA-256 \w+, expected \w+; test.txt has 3 tokens, expected 8"):
        load(Corpus(name=toy))


def test_a_part_of_a_corpus_is_an_error_never_skipped(toy: str, places: Path) -> None:
    write_texts(places / "here" / "data" / toy, TOY)
    write_texts(places / "lm_data" / toy, {"train": TOY["train"]})
    with pytest.raises(CorpusError, match=r"lm_data/toy lacks valid.txt, test.txt"):
        load(Corpus(name=toy))


def test_a_folder_with_the_same_bytes_has_the_same_fingerprint(toy: str, places: Path) -> None:
    folder = write_texts(places / "mine", TOY)
    assert fingerprint_of(Corpus(name=str(folder))) == fingerprint_of(Corpus(name=toy))
    assert vocabulary_size_of(Corpus(name=str(folder))) == TOY_VOCABULARY
    changed = write_texts(places / "changed", TOY | {"valid": "the mat sat \n"})
    assert fingerprint_of(Corpus(name=str(changed))) != fingerprint_of(Corpus(name=toy))


def test_unknown_names_and_bad_folders_say_what_is_wrong(places: Path) -> None:
    with pytest.raises(CorpusError, match=r"neither a named corpus .* nor a folder .*did you mean 'wikitext-2'"):
        load(Corpus(name="wikitext2"))
    write_texts(places / "mine", TOY)
    with pytest.raises(CorpusError, match=r"did you mean '.*/mine'\?\)$"):
        load(Corpus(name=str(places / "mien")))
    with pytest.raises(CorpusError, match=r"'~nosuchuser/mine'"):
        load(Corpus(name="~nosuchuser/mine"))
    with pytest.raises(CorpusError, match=r"lacks valid.txt, test.txt"):
        load(Corpus(name=str(write_texts(places / "part", {"train": "a\n"}))))
    with pytest.raises(CorpusError, match=r"test.txt is empty"):
        load(Corpus(name=str(write_texts(places / "empty", TOY | {"test": ""}))))
    folder = write_texts(places / "latin", TOY)
    (folder / "valid.txt").write_bytes(b"one line\ncaf\xe9 \n")
    with pytest.raises(CorpusError, match=r"valid.txt:2: not UTF-8 text \(invalid continuation byte\)$"):
        load(Corpus(name=str(folder)))
    ended = write_texts(places / "ended", TOY | {"valid": "one line\nanother <eos>\n"})
    with pytest.raises(CorpusError, match=r"ended/valid.txt:2: the text has the word <eos>, which every line's end"):
        load(Corpus(name=str(ended)))
    load(Corpus(name=str(write_texts(places / "near", TOY | {"valid": "x<eos> <eos>x\n"}))))


def test_a_cap_on_the_vocabulary_makes_another_corpus(toy: str, places: Path) -> None:
    """`the` and `sat`, the most frequent, stay beside `<eos>` and `<unk>`; the fingerprint says so."""
    write_texts(places / "lm_data" / toy, TOY)
    whole, few = load(Corpus(name=toy)), load(Corpus(name=toy, vocabulary_cap=4))
    assert few.vocabulary == ("the", "sat", "<eos>", "<unk>")
    assert " ".join(few.vocabulary[i] for i in few.test) == "<unk> <unk> sat <unk> the <unk> <eos> <eos>"
    assert "of these the 4 most frequent" in few.facts.vocabulary_rule and few.facts.vocabulary_size == 4
    assert few.fingerprint == fingerprint_of(Corpus(name=toy, vocabulary_cap=4))
    other = fingerprint_of(Corpus(name=toy, vocabulary_cap=5))
    assert len({whole.fingerprint, few.fingerprint, other}) == 3
    again = load(Corpus(name=toy, vocabulary_cap=4, train_tokens=5))  # from the store, then cut
    assert again.fingerprint == few.fingerprint and np.array_equal(again.train, few.train[:5])
    for cap, size in ((4, 4), (7, 7), (90, 7)):
        assert vocabulary_size_of(Corpus(name=toy, vocabulary_cap=cap)) == size
        assert len(load(Corpus(name=toy, vocabulary_cap=cap)).vocabulary) == size
    folder = write_texts(places / "mine", {split: text.replace("<unk>", "dog") for split, text in TOY.items()})
    assert vocabulary_size_of(Corpus(name=str(folder), vocabulary_cap=4)) == 4  # it gets an `<unk>`
    assert load(Corpus(name=str(folder), vocabulary_cap=4)).vocabulary == ("the", "sat", "<eos>", "<unk>")


def test_planning_a_large_corpus_with_a_cap_says_that_it_is_not_there(places: Path) -> None:
    corpus = Corpus(name="wikitext-103", vocabulary_cap=50_000)
    assert vocabulary_size_of(corpus) == 50_000
    for ask in (fingerprint_of, lambda c: load(c, download=False)):
        with pytest.raises(CorpusError, match="corpus fetch wikitext-103"):
            ask(corpus)


def test_a_cut_takes_training_tokens_only(toy: str, places: Path) -> None:
    write_texts(places / "lm_data" / toy, TOY)
    whole, cut = load(Corpus(name=toy)), load(Corpus(name=toy, train_tokens=5))
    assert np.array_equal(cut.train, whole.train[:5]) and np.array_equal(cut.test, whole.test)
    assert cut.vocabulary == whole.vocabulary and cut.fingerprint == whole.fingerprint
    assert "first 5 of 12 tokens with the vocabulary of the whole training text" in cut.facts.vocabulary_rule
    assert load(Corpus(name=toy, train_tokens=12)).facts.train_tokens == 12
    for ask in (load, fingerprint_of):
        with pytest.raises(CorpusError, match=r"train_tokens 13 is more than the 12 training tokens of 'toy'"):
            ask(Corpus(name=toy, train_tokens=13))


def test_a_cut_may_begin_anywhere(toy: str, places: Path) -> None:
    """Two halves are the whole, once; nothing but the training text changes."""
    write_texts(places / "lm_data" / toy, TOY)
    whole = load(Corpus(name=toy))
    halves = [load(Corpus(name=toy, train_tokens=6, train_start=start)) for start in (0, 6)]
    assert np.array_equal(np.concatenate([half.train for half in halves]), whole.train)
    assert all(half.vocabulary == whole.vocabulary and np.array_equal(half.valid, whole.valid) for half in halves)
    assert "trained on 6 tokens from token 6 of 12 tokens" in halves[1].facts.vocabulary_rule
    rest = load(Corpus(name=toy, train_start=8))
    assert np.array_equal(rest.train, whole.train[8:]) and rest.facts.train_tokens == 4
    for options, asked in (
        ({"train_start": 6, "train_tokens": 7}, "train_tokens 7 from train_start 6"),
        ({"train_start": 12}, "train_start 12"),
    ):
        for ask in (load, fingerprint_of):
            with pytest.raises(CorpusError, match=f"{asked} is more than the 12 training tokens of 'toy'"):
                ask(Corpus(name=toy, **options))


def test_a_name_that_is_too_long_for_a_folder_is_no_corpus() -> None:
    with pytest.raises(CorpusError, match="is neither a named corpus"):
        load(Corpus(name="x" * 300))


def test_counts_and_vocabulary_of_a_published_corpus_need_no_files_and_refuse_a_cut_beyond_it() -> None:
    assert token_counts_of(Corpus(name="ptb", train_start=929_000)) == (589, 73_760, 82_430)
    for ask in (vocabulary_size_of, token_counts_of):
        with pytest.raises(CorpusError, match="train_start 10,000,000 is more than the 929,589 training tokens"):
            ask(Corpus(name="ptb", train_start=10**7))


def test_pydoc_is_the_same_every_time_and_needs_nothing(places: Path) -> None:
    corpus = load(Corpus(name="pydoc"))
    sizes = [len(ids) for ids in (corpus.train, corpus.valid, corpus.test)]
    assert 60_000 < sum(sizes) < 200_000
    assert [size / sum(sizes) for size in sizes] == pytest.approx([0.4, 0.1, 0.5], abs=0.03)
    assert 1_200 < len(corpus.vocabulary) < 2_500
    assert set(np.unique(np.concatenate([corpus.valid, corpus.test]))) <= set(corpus.train.tolist())
    assert "words seen fewer than 2 times there are <unk>" in corpus.vocabulary_rule
    assert fingerprint_of(Corpus(name="pydoc")) == corpus.fingerprint
    assert vocabulary_size_of(Corpus(name="pydoc")) == len(corpus.vocabulary)
    assert not (places / "cache").exists()

    program = "from lm.data import *; from lm.spec import Corpus; print(fingerprint_of(Corpus(name='pydoc')))"
    root = Path(__file__).resolve().parents[3]
    other = subprocess.run([sys.executable, "-c", program], cwd=root, text=True, capture_output=True, check=True)
    assert other.stdout.strip() == corpus.fingerprint  # nothing depends on the hash seed


def test_pydoc_text_loads_as_a_folder_too(places: Path) -> None:
    folder = write_texts(places / "copied", pydoc.texts())
    copied, made = load(Corpus(name=str(folder))), load(Corpus(name="pydoc"))
    assert copied.fingerprint == made.fingerprint and copied.vocabulary == made.vocabulary
    assert np.array_equal(copied.train, made.train)


def test_pydoc_tests_on_text_that_training_has_not() -> None:
    texts = {
        split: [line for line in text.splitlines() if line.count(" ") > 20] for split, text in pydoc.texts().items()
    }
    assert not set(texts["train"]) & (set(texts["valid"]) | set(texts["test"]))


def test_import_is_light() -> None:
    program = (
        "import sys, lm.data, lm.data.commands;"
        "print([m for m in ('torch', 'pooch', 'platformdirs', 'requests', 'orchestrator') if m in sys.modules])"
    )
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, text=True, capture_output=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_cache_directory_is_known_without_platformdirs(monkeypatch: pytest.MonkeyPatch, places: Path) -> None:
    from lm.data import cache_folder

    monkeypatch.delenv("LM_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(places))
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    assert cache_folder() == places / ".cache" / "lm"
