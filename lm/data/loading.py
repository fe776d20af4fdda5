"""From a spec's corpus to what it is: its fingerprint, its vocabulary's size, its token ids."""

from __future__ import annotations

import functools
import io
from dataclasses import replace
from pathlib import Path

from lm.data import pydoc
from lm.data.corpora import PUBLISHED, PYDOC, check_bytes, check_counts, find, places, user_folder
from lm.data.download import by_hand, fetch
from lm.data.encode import EncodedCorpus, Encoding, capped, check_cut, cut, encode
from lm.data.store import stored
from lm.data.text import SPLITS, UNKNOWN, CorpusError, file_hashes, fingerprint_from, lines_of_split, with_cap
from lm.spec import Corpus


def load(corpus: Corpus, *, download: bool = True) -> EncodedCorpus:
    """Find a corpus, check it, encode it (or read the cache) and cut its training text.

    Looked for in `$LM_DATA/<name>/`, `data/<name>/` and the cache directory, then downloaded unless `download` is
    false; any other name is a folder with `train.txt`, `valid.txt` and `test.txt`. What is found first must be right:
    CorpusError says what is missing or differs.
    """
    if corpus.name == PYDOC:
        return _prepared(_encode_pydoc(), fingerprint_from(pydoc.hashes()), corpus)
    folder = locate(corpus.name, download=download)
    hashes = file_hashes(folder)
    published = corpus.name in PUBLISHED
    if published:
        check_bytes(corpus.name, folder, hashes)
    fingerprint = fingerprint_from(hashes)

    def encode_files() -> Encoding:
        encoding = encode({split: lines_of_split(folder, split) for split in SPLITS})
        if file_hashes(folder) != hashes:
            raise CorpusError(f"corpus {corpus.name!r} in {folder} was changed while it was read")
        return encoding

    encoding = stored(fingerprint, encode_files)
    if published:
        counts = {"train": len(encoding.train), "valid": len(encoding.valid), "test": len(encoding.test)}
        check_counts(corpus.name, folder, counts, len(encoding.vocabulary))
    return _prepared(encoding, fingerprint, corpus)


def _prepared(encoding: Encoding, fingerprint: str, corpus: Corpus) -> EncodedCorpus:
    """With the vocabulary and the training text cut as asked."""
    if (most := corpus.vocabulary_cap) is not None:
        fingerprint = with_cap(fingerprint, most)
        encoding = stored(fingerprint, lambda: capped(encoding, most))
    return cut(encoding, fingerprint, corpus)


def fingerprint_of(corpus: Corpus) -> str:
    """The SHA-256 that names a corpus's whole text and the cap on its words; it does not depend on `train_tokens`.

    Of published files whose hashes are known it needs no files, of `pydoc` only this Python; else the files are
    read and never downloaded. CorpusError where they are not there.
    """
    return with_cap(_fingerprint_of_text(corpus), corpus.vocabulary_cap)


def _fingerprint_of_text(corpus: Corpus) -> str:
    if corpus.name == PYDOC:
        return fingerprint_from(pydoc.hashes())
    if (published := PUBLISHED.get(corpus.name)) is not None:
        check_cut(corpus, published.tokens["train"])
        if published.sha256 is not None:
            return fingerprint_from(published.sha256)
    return fingerprint_from(file_hashes(locate(corpus.name, download=False)))


def vocabulary_size_of(corpus: Corpus) -> int:
    """The number of words a model of this corpus predicts; of the published corpora it needs no files.

    CorpusError where another corpus's files are not there, or the training text is shorter than the cut.
    """
    if (published := PUBLISHED.get(corpus.name)) is not None:
        check_cut(corpus, published.tokens["train"])
        return min(published.vocabulary_size, corpus.vocabulary_cap or published.vocabulary_size)  # all have <unk>
    return len(load(corpus, download=False).vocabulary)


def token_counts_of(corpus: Corpus) -> tuple[int, int, int]:
    """The tokens of its training text after the cut, its validation text and its test text; raises as the above."""
    if (published := PUBLISHED.get(corpus.name)) is None:
        facts = load(corpus, download=False).facts
        return facts.train_tokens, facts.valid_tokens, facts.test_tokens
    check_cut(corpus, published.tokens["train"])
    there = published.tokens["train"] - corpus.train_start
    return min(corpus.train_tokens or there, there), published.tokens["valid"], published.tokens["test"]


def locate(name: str, *, download: bool) -> Path:
    """The folder of any corpus but `pydoc`; CorpusError where it has none."""
    if name not in PUBLISHED:
        return user_folder(name)
    if (folder := find(name)) is not None:
        return folder
    if download:
        return fetch(name)
    looked = ", ".join(map(str, places(name)))
    raise CorpusError(
        f"corpus {name!r} is in none of {looked}. Fetch it with `python -m lm corpus fetch {name}`. {by_hand(name)}"
    )


@functools.cache  # the text of this Python stays as it is, and nobody can write to its ids
def _encode_pydoc() -> Encoding:
    texts = pydoc.texts()
    encoding = encode({split: io.StringIO(texts[split]) for split in SPLITS})
    rule = f"{encoding.rule}; words seen fewer than {pydoc.MINIMUM_COUNT} times there are {UNKNOWN}"
    return replace(encoding, rule=rule)
