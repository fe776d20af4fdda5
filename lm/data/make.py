"""A corpus made of raw text: words, a vocabulary, three contiguous stretches.

Training, validation and test are stretches of the text in its order, not lines drawn at random: a model carries its
state from line to line, and the neighbours of a test line, which share its topic and its names, would be in training.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path

from lm.data.corpora import PUBLISHED, PYDOC
from lm.data.suitable import FEWEST_TEST_TOKENS, too_short
from lm.data.text import EOS, SPLITS, UNKNOWN, CorpusError, file_in
from lm.files import atomic, check_regular

NUMBER = "N"
"""Stands for every number, as in the Penn Treebank of Mikolov et al. (2010)."""

_NUMBER = re.compile(r"[+-]?\d+(?:[.,:/-]\d+)*%?")
_JOINING = dict.fromkeys((0xAD, 0x200B, 0x2060, 0xFEFF))
"""Soft hyphens and spaces without width, which say where a word may be broken and not where it ends."""


@dataclass(frozen=True)
class Tokenizer:
    """How a line becomes words: split at white space, or by `tokenize` into words, numbers and marks."""

    lower: bool = False
    tokenize: bool = False
    numbers: bool = False

    def of(self, line: str) -> list[str]:
        """The words of a line, without `<eos>`."""
        text = line.lower() if self.lower else line
        matches = _token().finditer(text.translate(_JOINING)) if self.tokenize else None
        words = text.split() if matches is None else [match.group() for match in matches]
        return [NUMBER if _NUMBER.fullmatch(word) else word for word in words] if self.numbers else words


@cache
def _token() -> re.Pattern[str]:
    """A number with its points and commas, a word with its apostrophes and hyphens, or a run of one mark.

    Letters and marks keep what combines with them, such as the vowels of Devanagari, which `\\w` lacks. Characters that
    only format are no words; those of them that part or join letters (Persian, Hindi) stay within the word.
    """
    characters = [(chr(n), unicodedata.category(chr(n))) for n in range(sys.maxunicode)]
    combining = "".join(character for character, category in characters if category.startswith("M"))
    silent = "".join(character for character, category in characters if category == "Cf")
    letter = rf"[\w{combining}]"
    word = rf"{letter}+(?:['’\u200c\u200d-]{letter}+)*"
    return re.compile(
        rf"<unk>|\d+(?:[.,]\d+)*(?!{letter})|{word}|([^\w\s{combining}{re.escape(silent)}])\1*[{combining}]*"
    )


@dataclass(frozen=True)
class MadeSplit:
    """One split as written: `tokens` and `types` count `<eos>`, `unknown` the tokens that are `<unk>`.

    `unseen` are the tokens whose word the training text lacks, before any became `<unk>`.
    """

    name: str
    lines: int
    tokens: int
    types: int
    unknown: int
    unseen: int


def make_corpus(
    source: Path,
    out: Path,
    tokenizer: Tokenizer,
    *,
    shares: Sequence[float] = (80.0, 10.0, 10.0),
    min_count: int | None = None,
    vocabulary_cap: int | None = None,
) -> list[MadeSplit]:
    """Write a file of UTF-8 text, or all `.txt` files of a folder in order of their names, as a corpus's three files.

    Lines without words are left out. `shares` divide the other lines into train, valid and test. Words that training
    has fewer than `min_count` times, or that are not among its `vocabulary_cap` most frequent (`<eos>` and `<unk>`
    among them), become `<unk>`. CorpusError, before anything is written, for text that is not there or not UTF-8, an
    empty split, a test text that tells nothing, or an `out` that is taken.
    """
    if min_count is not None and vocabulary_cap is not None:
        raise CorpusError("--min-count and --vocabulary-cap: either one limits the vocabulary; give one of them")
    _check_free(out)
    files = _files_of(source)

    def read() -> Iterator[list[str]]:
        return (line for file in files for line in _lines_of(file, tokenizer))

    sizes = _sizes(sum(1 for _ in read()), shares, source)
    lines = read()
    counts = {split: _count(islice(lines, size)) for split, size in zip(SPLITS, sizes, strict=True)}
    known = _known(counts["train"], min_count, vocabulary_cap)
    splits = [
        _facts(split, size, counts[split], counts["train"], known) for split, size in zip(SPLITS, sizes, strict=True)
    ]
    if splits[-1].tokens < FEWEST_TEST_TOKENS:
        raise CorpusError(f"{source}: {too_short(splits[-1].tokens)}")
    lines = read()
    for split, size in zip(SPLITS, sizes, strict=True):
        with atomic(file_in(out, split)) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
            for line in islice(lines, size):
                file.write(" ".join(_written(word, known) for word in line) + "\n")
    return splits


def _check_free(out: Path) -> None:
    if out.name in (*PUBLISHED, PYDOC):
        raise CorpusError(f"--out {out}: {out.name!r} is the name of a published corpus; give the folder another name")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CorpusError(f"--out {out}: is there already, and nothing is overwritten; name a new folder")


def _files_of(source: Path) -> list[Path]:
    files = sorted(source.glob("*.txt")) if source.is_dir() else [source]
    if not files:
        raise CorpusError(f"{source}: the folder has no .txt file")
    for file in files:
        try:
            check_regular(file)  # it is read three times: a pipe could be read but once
        except OSError as error:
            raise CorpusError(f"{file}: cannot be read: {error.strerror}") from error
    return files


def _lines_of(path: Path, tokenizer: Tokenizer) -> Iterator[list[str]]:
    """The words of every line that has some. Only line feeds end a line, so that the number in an error is right."""
    number = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if found := tokenizer.of(line.decode("utf-8-sig" if number == 1 else "utf-8")):
                    if EOS in found:
                        raise CorpusError(f"{path}:{number}: the text has the word {EOS}, which ends a line here")
                    yield found
    except UnicodeDecodeError as error:
        raise CorpusError(f"{path}:{number}: not UTF-8 text ({error.reason})") from error
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read: {error.strerror}") from error


def _sizes(lines: int, shares: Sequence[float], source: Path) -> list[int]:
    """How many lines each split gets; CorpusError if one gets none."""
    ends = [round(lines * sum(shares[: k + 1]) / sum(shares)) for k in range(len(shares))]
    sizes = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    if empty := [split for split, size in zip(SPLITS, sizes, strict=True) if not size]:
        raise CorpusError(
            f"{source}: {lines:,} lines with words leave none for {' and '.join(empty)}; "
            f"a split needs a line or more, so break the text into lines, or change --split"
        )
    return sizes


def _count(lines: Iterator[list[str]]) -> Counter[str]:
    return Counter(word for line in lines for word in line)


def _known(counts: Counter[str], min_count: int | None, vocabulary_cap: int | None) -> set[str] | None:
    """The words that are written as they are; None: all, in whatever split."""
    if vocabulary_cap is not None:
        frequent = (word for word, _ in counts.most_common() if word != UNKNOWN)
        known = set(islice(frequent, vocabulary_cap - 2))
    else:
        known = {word for word, count in counts.items() if count >= (min_count or 1)}
    # A model that has never seen <unk> in training could not predict it.
    return known if len(known) < len(counts) else None


def _written(word: str, known: set[str] | None) -> str:
    return word if known is None or word in known else UNKNOWN


def _facts(name: str, lines: int, counts: Counter[str], train: Counter[str], known: set[str] | None) -> MadeSplit:
    return MadeSplit(
        name=name,
        lines=lines,
        tokens=counts.total() + lines,
        types=len({_written(word, known) for word in counts} | {EOS}),
        unknown=sum(count for word, count in counts.items() if _written(word, known) == UNKNOWN),
        unseen=sum(count for word, count in counts.items() if word not in train),
    )
