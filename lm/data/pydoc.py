"""The corpus that needs no download: the English text of the language reference that every CPython ships."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterator

from lm.data.text import SPLITS, CorpusError, with_unknown

MINIMUM_COUNT = 2
"""A word seen fewer times in the training text is `<unk>` everywhere; gives a vocabulary of about 1,500."""

BLOCK_TOKENS = 500
"""Text goes to a split in runs of about this many tokens: long enough to carry context, short enough to mix topics."""

_BLOCKS = ("train", "test", "train", "test", "valid", "train", "test", "train", "test", "test")

_SHORT = 12
"""Paragraphs of fewer tokens ("Note:") may repeat: they are phrases, not copied text."""

# A word, a number, or a run of one punctuation mark.
_TOKEN = re.compile(r"\w+|([^\w\s])\1*")
# Underlines of headings and the frames of tables, which are layout, not language.
_RULE = re.compile(r"^[\W_]{4,}$")


@functools.cache
def texts() -> dict[str, str]:
    """The text of each split: a paragraph a line, lower-cased words and punctuation split by spaces.

    Topics quote each other, so a paragraph is kept only where it first stands; otherwise much of validation and
    test would have been seen in training. About 40, 10 and 50 percent of the text, in blocks that take turns: a
    small model learns 20,000 tokens by heart, while the test text bounds what a comparison can tell. The same for
    every run of one Python version; another version's text differs. CorpusError where `pydoc_data` is not installed.
    """
    lines: dict[str, list[list[str]]] = {split: [] for split in SPLITS}
    tokens = 0
    for paragraph in _paragraphs():
        lines[_BLOCKS[tokens // BLOCK_TOKENS % len(_BLOCKS)]].append(paragraph)
        tokens += len(paragraph) + 1
    return with_unknown(lines, MINIMUM_COUNT)


def hashes() -> dict[str, str]:
    """The SHA-256 of each split's text, as if it were a file."""
    return {split: hashlib.sha256(text.encode()).hexdigest() for split, text in texts().items()}


def _paragraphs() -> Iterator[list[str]]:
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise CorpusError("corpus 'pydoc' needs the standard library's pydoc_data, which this Python lacks") from error
    seen: set[str] = set()
    for topic in sorted(topics):
        for paragraph in re.split(r"\n\s*\n", topics[topic]):
            text = " ".join(line for line in paragraph.splitlines() if not _RULE.match(line.strip()))
            words = [match.group().lower() for match in _TOKEN.finditer(text)]
            key = " ".join(words)
            if words and (len(words) < _SHORT or key not in seen):
                seen.add(key)
                yield words
