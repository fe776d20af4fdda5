"""The screenplays: how their files become turns, and that they come from an installed package alone."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from lm.data import PUBLISHED, CorpusError, fetch, load
from lm.data.corpora import Package
from lm.data.download import download_folder
from lm.data.seinfeld import texts
from lm.spec import Corpus

EPISODE = """\
# JERRY
975.851
What are you
looking at?
977.179
**LOL**
# UNCLE LEO
Jerry! {word}
# JERRY
12.5
**LOL**
"""


def write_package(site: Path, count: int = 10) -> Path:
    """As pip installs it, with made-up episodes."""
    episodes = site / "seinfeld_laugh_corpus" / "the_corpus"
    episodes.mkdir(parents=True)
    for number in range(count):
        text = EPISODE.format(word=f"señor {number}" if number % 2 else "Hello!!!")
        (episodes / f"S04E{number:02}.merged").write_bytes(text.encode("latin-1" if number == 3 else "utf-8"))
    (site / "seinfeld_laugh_corpus-1.0.13.dist-info").mkdir()
    (site / "seinfeld_laugh_corpus-1.0.13.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: seinfeld-laugh-corpus\nVersion: 1.0.13\n"
    )
    return episodes


def test_a_turn_is_a_line_with_its_speaker(tmp_path: Path) -> None:
    """Without times and laughs; of ten episodes eight are for training; a word that training has once is unknown."""
    found = texts(write_package(tmp_path))
    asked = "JERRY: what are you looking at ?\n"
    greeted, called = "UNCLE_LEO: jerry ! hello !!!\n", "UNCLE_LEO: jerry ! señor <unk>\n"
    assert found["train"] == (asked + greeted + asked + called) * 4, "one file is not UTF-8"
    assert found["valid"] == asked + greeted and found["test"] == asked + called


def test_a_folder_without_episodes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"expected episodes, \*\.merged, and there are none"):
        texts(tmp_path)


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nobody had installed it."""

    def absent(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", absent)


@pytest.mark.usefixtures("no_package")
def test_without_the_package_its_installation_is_named(places: Path) -> None:
    with pytest.raises(CorpusError) as caught:
        fetch("seinfeld")
    said = str(caught.value)
    assert "the package seinfeld-laugh-corpus is not installed" in said
    assert said.endswith("Its text comes from a package: pip install seinfeld-laugh-corpus==1.0.13")
    assert not download_folder("seinfeld").exists()


def test_another_text_in_the_package_is_refused(places: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_package(tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    with pytest.raises(CorpusError, match=r"train\.txt has SHA-256 .*, expected 39aa1370"):
        fetch("seinfeld")
    assert not download_folder("seinfeld").exists()


def test_the_package_gives_the_published_corpus(places: Path) -> None:
    source = PUBLISHED["seinfeld"].source
    assert isinstance(source, Package)
    try:
        metadata.distribution(source.name)
    except metadata.PackageNotFoundError:
        pytest.skip(f"needs {source.name}, which the extra `seinfeld` installs")
    corpus = load(Corpus(name="seinfeld"))
    assert (len(corpus.train), len(corpus.vocabulary)) == (330_855, 6_595)
