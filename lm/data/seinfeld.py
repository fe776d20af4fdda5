"""The corpus of screenplays: 96 episodes of Seinfeld, from the package `seinfeld-laugh-corpus` if it is installed.

Seasons 4 to 9, collected by Yad-Shalom and Goldberg, in files of turns: `# JERRY`, times, lines of speech, `**LOL**`.
Who speaks is not marked everywhere, so that some turns hold several speakers' words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from lm.data.corpora import Package
from lm.data.make import Tokenizer
from lm.data.text import SPLITS, CorpusError, with_unknown

_MINIMUM_COUNT = 2
"""A word seen fewer times in the training text is `<unk>` everywhere."""
_SPLIT_OF = ("train",) * 8 + ("valid", "test")
"""Of each ten episodes in order: a model that carries its state from line to line meets no episode twice."""
_NO_SPEECH = re.compile(r"[\d.]+|\*\*LOL\*\*")
_WORDS = Tokenizer(lower=True, tokenize=True)


def texts(episodes: Path) -> dict[str, str]:
    """The text of each split: a turn a line, its speaker in upper case and a colon, then lower-cased words and marks.

    CorpusError if the folder holds no episode.
    """
    turns: dict[str, list[list[str]]] = {split: [] for split in SPLITS}
    for number, path in enumerate(sorted(episodes.glob("*.merged"))):
        turns[_SPLIT_OF[number % len(_SPLIT_OF)]] += _turns(path.read_bytes())
    if not turns["train"]:
        raise CorpusError(f"{episodes}: expected episodes, *.merged, and there are none")
    return with_unknown(turns, _MINIMUM_COUNT)


def episodes_folder(package: Package) -> Path:
    """Where the installed package has its episodes; CorpusError if it is not installed."""
    try:
        found = metadata.distribution(package.name)
    except metadata.PackageNotFoundError as error:
        raise CorpusError(f"the package {package.name} is not installed") from error
    return Path(str(found.locate_file("seinfeld_laugh_corpus"))) / "the_corpus"


def _turns(episode: bytes) -> Iterator[list[str]]:
    """The turns of an episode that have words."""
    try:
        text = episode.decode("utf-8-sig")
    except UnicodeDecodeError:  # three of the files
        text = episode.decode("latin-1")
    for turn in re.split(r"^#", text, flags=re.MULTILINE)[1:]:
        speaker, *lines = turn.splitlines()
        words = _WORDS.of(" ".join(line for line in lines if not _NO_SPEECH.fullmatch(line.strip())))
        if words:
            yield ["_".join(speaker.split()).upper() + ":", *words]
