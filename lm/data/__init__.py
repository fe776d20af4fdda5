"""Corpora: made of raw text, found by name or folder, checked against published figures, encoded once and kept."""

from lm.data.corpora import PUBLISHED, PYDOC, Published, cache_folder, find, places
from lm.data.download import fetch
from lm.data.encode import EncodedCorpus
from lm.data.loading import fingerprint_of, load, locate, token_counts_of, vocabulary_size_of
from lm.data.suitable import corpus_warnings
from lm.data.text import EOS, FEWEST_ROWS, UNKNOWN, CorpusError

__all__ = [
    "EOS",
    "FEWEST_ROWS",
    "PUBLISHED",
    "PYDOC",
    "UNKNOWN",
    "CorpusError",
    "EncodedCorpus",
    "Published",
    "cache_folder",
    "corpus_warnings",
    "fetch",
    "find",
    "fingerprint_of",
    "load",
    "locate",
    "places",
    "token_counts_of",
    "vocabulary_size_of",
]
