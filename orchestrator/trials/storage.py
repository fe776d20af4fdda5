"""Trial folders in a storage that every machine reaches: s3://, gs:// or a mounted folder, through pyarrow.

<storage>/<key>/...   as in runs/<key>/, without locks and temporary files

What is there is always whole: a file appears at once, a checkpoint's manifest after its other files, a record after
everything else, and a checkpoint is removed only once a newer one is there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from filelock import FileLock
from pyarrow import ArrowException
from pyarrow import fs as arrow

from lm.files import atomic
from lm.hashes import RECORD, WEIGHTS
from orchestrator.errors import CannotStartError
from orchestrator.trials.disk import set_aside_damaged
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial

_CHECKPOINTS = "checkpoints"
_PRIVATE = "lm-trials-"


class Storage:
    """The folder of trial folders at a URI; `endpoint_override` and `scheme` in its query reach other servers than AWS.

    Credentials are the environment's. ValueError for a URI that names no storage; OSError, of every method too, if it
    does not answer or refuses.
    """

    def __init__(self, uri: str) -> None:
        if "@" in urlsplit(uri).netloc:
            raise ValueError("storage: credentials belong in the environment (AWS_ACCESS_KEY_ID, ...), not in the URI")
        try:
            self._fs, root = arrow.FileSystem.from_uri(uri)
        except (ArrowException, TypeError, ValueError) as error:
            expected = "storage: expected s3://, gs://, file:// or an absolute path"
            raise ValueError(f"{expected}, got {uri!r} ({error})") from error
        except OSError as error:  # a bucket's region is asked for when it is opened
            raise OSError(f"storage {uri}: {' '.join(str(error).split())}") from error
        if not root:
            raise ValueError(f"storage: expected the name of a bucket, got {uri!r}")
        self.uri, self._root = uri, PurePosixPath(root)
        self._same: dict[Path, tuple[int, int]] = {}  # local files that are in the storage: when changed (ns), size

    def keys(self) -> set[str]:
        """The trials of which it holds something."""
        with self._named_errors():
            return {info.base_name for info in self._infos(self._root, recursive=False) if info.base_name}

    def pull(self, key: str, runs: Path, *, checkpoints: bool = True, weights: bool = True) -> None:
        """Copy what the storage has of a trial to `runs/<key>/`, its record last."""
        left_out = {name for name, wanted in ((_CHECKPOINTS, checkpoints), (WEIGHTS, weights)) if not wanted}
        with self._named_errors():
            for name in sorted(self._files(key), key=transfer_order):
                path = runs / key / name
                if name.parts[0] not in left_out:
                    with atomic(path) as temporary, temporary.open("wb") as copy:
                        shutil.copyfileobj(self._fs.open_input_stream(self._at(key, name)), copy, 8 * 2**20)
                    self._same[path] = _state(path)

    def push(self, key: str, runs: Path) -> None:
        """Copy what is new in `runs/<key>/` to the storage, its record last; drop checkpoints that are gone there."""
        names = {
            PurePosixPath(path.relative_to(runs / key))
            for path in (runs / key).rglob("*")
            if path.is_file() and not any(part.startswith(".") for part in path.relative_to(runs / key).parts)
        }
        with self._named_errors():
            for name in sorted(names, key=transfer_order):
                path, state = runs / key / name, _state(runs / key / name)
                if self._same.get(path) != state:
                    self._upload(path, self._at(key, name))
                    self._same[path] = state
            for gone in self._files(key) - names:
                if gone.parts[0] == _CHECKPOINTS:
                    self._fs.delete_file(self._at(key, gone))

    def _upload(self, path: Path, target: str) -> None:
        if isinstance(self._fs, arrow.LocalFileSystem):
            with atomic(Path(target)) as temporary:
                shutil.copyfile(path, temporary)
        else:  # an object appears when its stream is closed
            with path.open("rb") as source, self._fs.open_output_stream(target) as copy:
                shutil.copyfileobj(source, copy, 8 * 2**20)

    def _files(self, key: str) -> set[PurePosixPath]:
        """The files that it holds of a trial."""
        folder = self._root / key
        infos = self._infos(folder, recursive=True)
        names = {PurePosixPath(info.path).relative_to(folder) for info in infos if info.is_file}
        if astray := next((name for name in names if ".." in name.parts), None):  # an object's name may be anything
            raise OSError(f"{key}/{astray} leads out of the trial's folder")
        return {name for name in names if not name.name.startswith(".")}

    def _infos(self, folder: PurePosixPath, *, recursive: bool) -> list[arrow.FileInfo]:
        selector = arrow.FileSelector(str(folder), allow_not_found=True, recursive=recursive)
        return list(self._fs.get_file_info(selector))

    def _at(self, key: str, name: PurePosixPath) -> str:
        return str(self._root / key / name)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ArrowException) as error:
            raise OSError(f"storage {self.uri}: {' '.join(str(error).split())}") from error


def exchange(storage: Storage, planned: Callable[[], Sequence[Trial]], records: Records) -> None:
    """Before a sweep: fetch what a report needs, send what is lacking; CannotStartError if the storage is silent."""
    done: set[str] = set()
    try:
        there = storage.keys()
        while new := {key for trial in planned() for key in (trial.key, trial.starts_from) if key} - done:
            for key in sorted(new):
                set_aside_damaged(records.folder(key))
                record = records.read(key)
                if key in there and (record is None or record.status == "failed" or not record.tested):
                    storage.pull(key, records.root, checkpoints=False, weights=False)
                elif key not in there and records.folder(key).exists():
                    storage.push(key, records.root)
            done |= new
    except OSError as error:
        raise CannotStartError(str(error)) from error


@contextmanager
def borrowed(
    storage: Storage, key: str, source: str | None, seconds: float
) -> Iterator[tuple[Path, Callable[[], None]]]:
    """A private `runs/` with what the storage has of a trial and its source, and a function that sends it back.

    It is sent back every `seconds` too, for the checkpoints within an epoch, and when the block ends without an error.
    One attempt at a time on one machine; what a killed one left is removed.
    """
    place = _private_folder() / hashlib.sha256(storage.uri.encode()).hexdigest()[:8]
    place.mkdir(exist_ok=True)
    runs = place / key
    with FileLock(place / f"{key}.lock"):
        shutil.rmtree(runs, ignore_errors=True)
        try:
            storage.pull(key, runs)
            if source is not None:
                storage.pull(source, runs, checkpoints=False)
            with _repeated(lambda: storage.push(key, runs), seconds) as push:
                yield runs, push
                push()
        finally:
            shutil.rmtree(runs, ignore_errors=True)


def _private_folder() -> Path:
    """The folder in the temporary directory that this user's workers share, and that nobody else can make or enter.

    Its name cannot be guessed. If workers make several at the same time, all take the oldest.
    """
    root = Path(tempfile.gettempdir())
    while True:
        for path in sorted(root.glob(f"{_PRIVATE}*")):
            with suppress(FileNotFoundError):
                status = path.lstat()  # follows no link
                is_private = stat.S_ISDIR(status.st_mode) and not stat.S_IMODE(status.st_mode) & 0o077
                if is_private and status.st_uid == os.getuid():
                    return path
        tempfile.mkdtemp(prefix=f"{_PRIVATE}{time.time_ns()}-", dir=root)


@contextmanager
def _repeated(action: Callable[[], None], seconds: float) -> Iterator[Callable[[], None]]:
    """The action for one caller at a time; a thread does it every `seconds` too, and tries again if it fails."""
    lock, ended = threading.Lock(), threading.Event()

    def do() -> None:
        with lock:
            action()

    def repeat() -> None:
        while not ended.wait(seconds):
            with suppress(OSError):  # the storage's, or of a file that training replaced: the next `push` raises it
                do()

    thread = threading.Thread(target=repeat, name="storage", daemon=True)
    thread.start()
    try:
        yield do
    finally:
        ended.set()
        thread.join()


def transfer_order(name: PurePosixPath) -> tuple[bool, bool, str]:
    """Sorts a record after everything, and a manifest after the files that it names."""
    return name.name == RECORD, name.name == "manifest.json", str(name)


def _state(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size
