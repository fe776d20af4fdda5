"""Text on disk: three files of lines, their tokens and what identifies them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from lm.files import sha256

SPLITS = ("train", "valid", "test")
"""The three texts of a corpus, in the order in which words get their ids."""

EOS = "<eos>"
UNKNOWN = "<unk>"

FEWEST_ROWS = 3
"""Tokens a column of a batch has at least: they give one window of two targets."""


class CorpusError(ValueError):
    """A corpus that is not there, not what it should be, or too small: what was sought, where, and what to do.

    `field` is the field of `lm.spec.Corpus` that has to be changed, so that a message can name its line in a file.
    """

    def __init__(self, message: str, field: str = "name") -> None:
        super().__init__(message)
        self.field = field


def with_unknown(lines: Mapping[str, Sequence[Sequence[str]]], min_count: int) -> dict[str, str]:
    """The text of each split of words by line; words that training has fewer than `min_count` times are `<unk>`."""
    counts = Counter(word for line in lines["train"] for word in line)
    return {
        split: "".join(" ".join(word if counts[word] >= min_count else UNKNOWN for word in line) + "\n" for line in of)
        for split, of in lines.items()
    }


def file_in(folder: Path, split: str) -> Path:
    """Where a split's text lies in a corpus folder."""
    return folder / f"{split}.txt"


def tokens_of(lines: Iterable[str]) -> Iterator[str]:
    """Words split at white space, and one `<eos>` for every line, empty lines included (Merity et al. 2017)."""
    for line in lines:
        yield from line.split()
        yield EOS


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file; only its line ends separate them (of Unix, Windows or old Macs), as in published code.

    `str.splitlines` would also break at characters inside a line, such as U+2028. Raises CorpusError for a file
    that cannot be read or is no UTF-8.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            yield from file
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path}{_place_of_damage(path)}: not UTF-8 text ({error.reason})") from error
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error.strerror}") from error


def lines_of_split(folder: Path, split: str) -> Iterator[str]:
    """The lines of a corpus folder's split; CorpusError as `lines_of`, and where a line has the word `<eos>`.

    Each line's end counts as that word, which a text that has it already would have twice.
    """
    path = file_in(folder, split)
    for number, line in enumerate(lines_of(path), 1):
        if EOS in line and EOS in line.split():
            raise CorpusError(f"{path}:{number}: the text has the word {EOS}, which every line's end already counts as")
        yield line


def _place_of_damage(path: Path) -> str:
    """The first line that is not UTF-8, as `:12`; text is decoded ahead of its lines, so that the error has no line."""
    with suppress(OSError), path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return f":{number}"
    return ""  # written again, or removed, meanwhile


def file_hashes(folder: Path) -> dict[str, str]:
    """The SHA-256 of each split's file; CorpusError for one that cannot be read."""
    hashes = {}
    for split in SPLITS:
        path = file_in(folder, split)
        try:
            hashes[split] = sha256(path)
        except OSError as error:
            raise CorpusError(f"{path} cannot be read: {error.strerror}") from error
    return hashes


def with_cap(fingerprint: str, vocabulary_cap: int | None) -> str:
    """The fingerprint of a text whose vocabulary has a cap: another text's; without a cap the same."""
    if vocabulary_cap is None:
        return fingerprint
    return hashlib.sha256(f"{fingerprint}\nvocabulary_cap {vocabulary_cap}".encode()).hexdigest()


def fingerprint_from(hashes: Mapping[str, str]) -> str:
    """The SHA-256 over the splits' own, train, valid, test: it names the text, not the corpus's name or place."""
    return hashlib.sha256("\n".join(hashes[split] for split in SPLITS).encode()).hexdigest()
