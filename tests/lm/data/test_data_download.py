"""Downloads, from a server on this machine."""

from __future__ import annotations

import sys
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lm.data import PUBLISHED, CorpusError, fetch, load
from lm.data.corpora import Archive, Files
from lm.files import WriteError
from lm.spec import Corpus
from tests.lm.data.toy_corpus import TOY, publish, write_texts


@dataclass
class Site:
    """A small web site: what it serves at each path, and what it was asked for."""

    address: str
    pages: dict[str, bytes]
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    served = Site("", {f"/toy.{split}.txt": text.encode() for split, text in TOY.items()})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.asked.append(self.path)
            page = served.pages.get(self.path)
            self.send_response(200 if page is not None else 404)
            self.send_header("Content-Length", str(len(page or b"")))
            self.end_headers()
            self.wfile.write(page or b"")

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        served.address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setitem(PUBLISHED, "toy", publish({split: f"{served.address}/toy.{split}.txt" for split in TOY}))
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield served
        server.shutdown()


def left(places: Path) -> list[str]:
    """Everything below the download folder but locks."""
    return sorted(path.name for path in (places / "cache" / "corpora").iterdir() if path.suffix != ".lock")


def test_good_bytes_are_put_in_place_once(site: Site, places: Path) -> None:
    assert load(Corpus(name="toy")).facts.train_tokens == 12
    folder = places / "cache" / "corpora" / "toy"
    assert {path.name: path.read_text() for path in folder.iterdir()} == {f"{s}.txt": text for s, text in TOY.items()}
    assert left(places) == ["toy"]
    assert fetch("toy") == folder and len(site.asked) == 3


def test_eight_at_once_download_once(site: Site, places: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        folders = set(pool.map(fetch, ["toy"] * 8))
    assert folders == {places / "cache" / "corpora" / "toy"} and len(site.asked) == 3


@pytest.mark.parametrize("page", [b"something else\n", b"", None], ids=["other bytes", "nothing", "404"])
def test_bad_bytes_are_refused_and_nothing_is_left(site: Site, places: Path, page: bytes | None) -> None:
    good = site.pages.pop("/toy.test.txt")
    if page is not None:
        site.pages["/toy.test.txt"] = page
    with pytest.raises(CorpusError, match="downloading it failed") as caught:
        load(Corpus(name="toy"))
    assert ("404" if page is None else PUBLISHED["toy"].sha256["test"]) in str(caught.value)  # type: ignore[index]
    assert left(places) == []
    site.pages["/toy.test.txt"] = good
    assert load(Corpus(name="toy")).facts.test_tokens == 8


def test_what_a_killed_download_left_is_swept_away(site: Site, places: Path) -> None:
    write_texts(places / "cache" / "corpora" / ".toy.partial", {"train": "half a li"})
    assert load(Corpus(name="toy")).facts.train_tokens == 12
    assert left(places) == ["toy"]


def test_offline_says_where_to_put_the_files(toy: str, places: Path) -> None:
    with pytest.raises(CorpusError) as caught:
        load(Corpus(name=toy))
    message = str(caught.value)
    for split in TOY:
        assert f"http://127.0.0.1:9/{split}.txt as {split}.txt" in message
    assert message.endswith(f"in the folder {places / 'lm_data' / 'toy'}") and "\n" not in message
    assert left(places) == []


def test_without_the_downloader_the_error_is_the_same(toy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(CorpusError, match=r"pooch.*By hand: save"):
        load(Corpus(name=toy))


def test_a_download_folder_that_cannot_be_made_is_a_write_error_that_says_the_same(
    site: Site, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (places / "file").write_text("not a folder")
    monkeypatch.setenv("LM_CACHE", str(places / "file"))
    with pytest.raises(WriteError, match="By hand: save"):
        fetch("toy")
    assert site.asked == []


def test_the_real_addresses_are_https() -> None:
    sources = [published.source for published in PUBLISHED.values()]
    addresses = [source.address for source in sources if isinstance(source, Archive)]
    addresses += [address for source in sources if isinstance(source, Files) for address in source.addresses.values()]
    assert len(set(addresses)) == 7 and all(address.startswith("https://") for address in addresses)


def publish_archive(site: Site, path: Path, members: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    site.pages["/toy.zip"] = path.read_bytes()
    source = Archive(f"{site.address}/toy.zip", {split: f"toy/wiki.{split}.tokens" for split in TOY})
    monkeypatch.setitem(PUBLISHED, "toy", replace(PUBLISHED["toy"], sha256=None, source=source))


def test_an_archive_gives_three_texts_and_nothing_else(
    site: Site, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = {f"toy/wiki.{split}.tokens": text for split, text in TOY.items()} | {"../../escaped.txt": "no"}
    publish_archive(site, places / "made.zip", members, monkeypatch)
    assert load(Corpus(name="toy")).facts.vocabulary_size == 7
    assert sorted(path.name for path in fetch("toy").iterdir()) == ["test.txt", "train.txt", "valid.txt"]
    assert not list(places.rglob("escaped.txt"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"toy/wiki.test.tokens": "too short\n"}, "test.txt has 3 tokens, expected 8"),
        ({"toy/wiki.train.tokens": TOY["train"].replace("cat", "sat")}, "vocabulary has 6 words, expected 7"),
    ],
)
def test_an_archive_of_other_texts_is_refused(
    site: Site, places: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, str], said: str
) -> None:
    members = {f"toy/wiki.{split}.tokens": text for split, text in TOY.items()} | change
    publish_archive(site, places / "made.zip", members, monkeypatch)
    with pytest.raises(CorpusError, match=said):
        fetch("toy")
    assert left(places) == []


def test_an_archive_without_a_member_or_no_archive_is_refused(
    site: Site, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_archive(site, places / "made.zip", {"toy/wiki.train.tokens": TOY["train"]}, monkeypatch)
    with pytest.raises(CorpusError, match=r"the archive has no toy/wiki.valid.tokens"):
        fetch("toy")
    site.pages["/toy.zip"] = b"<html>gone</html>"
    with pytest.raises(CorpusError, match="BadZipFile"):
        fetch("toy")
    assert left(places) == []


def test_an_archive_that_came_damaged_is_refused(site: Site, places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = {f"toy/wiki.{split}.tokens": text for split, text in TOY.items()}
    publish_archive(site, places / "made.zip", members, monkeypatch)
    path = places / "packed.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
        begins = 30 + len(archive.namelist()[0])  # after the first member's header and name
    packed = path.read_bytes()
    site.pages["/toy.zip"] = packed[:begins] + b"\xff" + packed[begins + 1 :]  # a kind of block that there is not
    with pytest.raises(CorpusError, match="Error -3 while decompressing data"):
        fetch("toy")
    assert left(places) == []
