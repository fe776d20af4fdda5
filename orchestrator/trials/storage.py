"""Trial folders in a storage that every machine reaches: s3://, gs:// or a mounted folder, through pyarrow.

<storage>/<key>/...   as in runs/<key>/, without locks and temporary files

What is there is always whole: a file appears at once, a checkpoint's manifest after its other files, a record after
everything else, and a checkpoint is removed only once a newer one is there.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import logging
import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
from filelock import FileLock
from pyarrow import ArrowException, parquet
from pyarrow import fs as arrow

from lm.files import WriteError, atomic, check_writable, disk_is_full, make_folder
from lm.hashes import CURVE, RECORD, UNSCORED, WEIGHTS
from lm.record import Record, read_curve_table
from orchestrator.errors import CannotStartError, redacted
from orchestrator.trials.disk import FAILURE, STALLED, set_aside_damaged
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial

CHECKPOINTS = "checkpoints"
ONLY_TRAINING = (CHECKPOINTS, WEIGHTS, UNSCORED)
"""What of a trial no report reads."""
_OF_AN_ATTEMPT = (CHECKPOINTS, STALLED, FAILURE, UNSCORED)  # go from the storage as they go from the folder
PATIENCE = (10.0, 60.0)
"""Seconds that a worker waits before it asks a storage again that did not answer."""
T = TypeVar("T")
_Stored = tuple[int, int]  # a file's time of change in ns, and its size
_log = logging.getLogger(__name__)


class StorageError(OSError):
    """A storage does not answer, or refuses."""


class FinishedElsewhereError(StorageError):
    """Another command wrote the record of the same trial to the storage; its files are left as they are."""


class Storage:
    """The folder of trial folders at a URI; `endpoint_override` and `scheme` in its query reach other servers than AWS.

    Credentials are the environment's. ValueError for a URI that names no storage; StorageError, of every method too, if
    it does not answer or refuses.
    """

    def __init__(self, uri: str) -> None:
        if "@" in urlsplit(uri).netloc:
            raise ValueError("storage: credentials belong in the environment (AWS_ACCESS_KEY_ID, ...), not in the URI")
        try:
            file_system, root = arrow.FileSystem.from_uri(uri)
        except (ArrowException, TypeError, ValueError) as error:
            expected = "storage: expected s3://, gs://, file:// or an absolute path"
            raise ValueError(f"{expected}, got {uri!r} ({error})") from error
        except OSError as error:  # a bucket's region is asked for when it is opened
            raise StorageError(f"storage {uri}: {' '.join(str(error).split())}") from error
        if not root:
            raise ValueError(f"storage: expected the name of a bucket, got {uri!r}")
        self.uri, self._fs = uri, arrow.SubTreeFileSystem(root, file_system)
        self._is_local = isinstance(file_system, arrow.LocalFileSystem)
        self._same: dict[str, tuple[_Stored, _Stored]] = {}  # files that are equal here and there, as they were then

    def check_writable(self) -> None:
        """WriteError unless it can be written to."""
        if self._is_local:
            folder = Path(self._fs.base_path)
            make_folder(folder)
            check_writable(folder)
            return
        probe = f".probe-{os.getpid()}"
        try:
            with self._named_errors():
                self._fs.open_output_stream(probe).close()
                self._fs.delete_file(probe)
        except OSError as error:
            raise WriteError(errno.EACCES, str(error)) from error

    def keys(self) -> set[str]:
        """The trials of which it holds something."""
        with self._named_errors():
            names = {info.base_name for info in self._infos("", recursive=False)}
        return {name for name in names if name and not name.startswith(".")}

    def pull(self, key: str, runs: Path, *, without: Collection[str] = ()) -> None:
        """Copy what the storage has of a trial to `runs/<key>/`, but for these folders and files; its record last."""
        with self._named_errors():
            stored = self._files(key)
            for name in sorted(stored, key=transfer_order):
                path = runs / key / name
                if name.parts[0] not in without:
                    with atomic(path) as temporary, temporary.open("wb") as copy:
                        shutil.copyfileobj(self._fs.open_input_stream(f"{key}/{name}"), copy, 8 * 2**20)
                    self._same[f"{key}/{name}"] = _state(path), stored[name]

    def push(self, key: str, runs: Path) -> None:
        """Copy what is new in `runs/<key>/`, or overwritten in the storage, to it, the record last; drop what is over.

        FinishedElsewhereError if another command wrote the record of a trial that did not fail.
        """
        paths = [path for path in (runs / key).rglob("*") if path.is_file()]
        names = {PurePosixPath(path.relative_to(runs / key)) for path in paths}
        names = {name for name in names if not any(part.startswith(".") for part in name.parts)}
        of_record = PurePosixPath(RECORD)
        with self._named_errors():
            stored = self._send(key, runs, names - {of_record})
            if of_record in names:  # what another command overwrote meanwhile is sent once more
                self._send(key, runs, names)
            for gone in stored.keys() - names:
                if gone.parts[0] in _OF_AN_ATTEMPT:
                    self._fs.delete_file(f"{key}/{gone}")

    def _send(self, key: str, runs: Path, names: Collection[PurePosixPath]) -> dict[PurePosixPath, _Stored]:
        """Upload those of these files that differ from what is stored; what was stored before."""
        stored, known = self._files(key), self._same.get(f"{key}/{RECORD}")
        of_record = stored.get(PurePosixPath(RECORD))
        if of_record not in (None, known and known[1]) and self._has_result_of_another(key, runs / key / RECORD):
            raise FinishedElsewhereError(f"storage {self.uri}: another command finished trial {key}")
        for name in sorted(names, key=transfer_order):
            path, target = runs / key / name, f"{key}/{name}"
            state = _state(path)
            if name not in stored or self._same.get(target) != (state, stored[name]):
                self._upload(path, target)
                self._same[target] = state, _stored(self._fs.get_file_info(target))
        return stored

    def _has_result_of_another(self, key: str, record: Path) -> bool:
        """Whether the stored record is another than this one here, and not that of a failure."""
        content = self._fs.open_input_stream(f"{key}/{RECORD}").read()
        if record.is_file() and record.read_bytes() == content:  # sent without hearing that it arrived
            return False
        stored = _record(content)
        return stored is not None and stored.status != "failed"

    def _upload(self, path: Path, target: str) -> None:
        if self._is_local:
            with atomic(Path(self._fs.base_path, target)) as temporary:
                shutil.copyfile(path, temporary)
        else:  # an object appears when its stream is closed
            with path.open("rb") as source, self._fs.open_output_stream(target) as copy:
                shutil.copyfileobj(source, copy, 8 * 2**20)

    def has(self, name: str) -> bool:
        """Whether it holds a file of this name, such as `<key>/record.json`."""
        with self._named_errors():
            return bool(self._fs.get_file_info(name).is_file)

    def record(self, key: str) -> Record | None:
        """The record that it holds of a trial; None if it holds none, or one that cannot be read."""
        if not self.has(f"{key}/{RECORD}"):
            return None
        with self._named_errors():
            return _record(self._fs.open_input_stream(f"{key}/{RECORD}").read())

    def evaluations(self, key: str) -> int:
        """How many evaluations its learning curve of a trial has, 0 if it holds none that can be read."""
        if not self.has(f"{key}/{CURVE}"):
            return 0
        with self._named_errors():
            content = self._fs.open_input_stream(f"{key}/{CURVE}").read()
        with suppress(ArrowException, OSError):
            return int(parquet.read_metadata(pa.BufferReader(content)).num_rows)
        return 0

    def progress(self, key: str) -> int:
        """As `_progress`; 1 if its record cannot be read, which another version may have written."""
        record = self.record(key)
        unreadable = record is None and self.has(f"{key}/{RECORD}")
        return 1 if unreadable else _progress(record, lambda: self.has(f"{key}/{UNSCORED}"))

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        if self.has(name):
            with self._named_errors():
                self._fs.delete_file(name)

    def set_aside(self, key: str) -> None:
        """Move what it holds of a trial to `.old/<key>-<n>/`, with the first free n; the record first."""
        with self._named_errors():
            taken = {info.base_name for info in self._infos(".old", recursive=False)}
            place = next(free for n in itertools.count(1) if (free := f"{key}-{n}") not in taken)
            for name in sorted(self._files(key), key=transfer_order, reverse=True):
                target = PurePosixPath(".old", place, name)
                if self._is_local:
                    self._fs.create_dir(str(target.parent))
                self._fs.move(f"{key}/{name}", str(target))
        _log.warning("what the storage had of trial %s is in its folder .old/%s", key, place)

    def _files(self, key: str) -> dict[PurePosixPath, _Stored]:
        """The files that it holds of a trial."""
        files = {PurePosixPath(info.path).relative_to(key): _stored(info) for info in self._infos(key) if info.is_file}
        if astray := next((name for name in files if ".." in name.parts), None):  # an object's name may be anything
            raise OSError(f"{key}/{astray} leads out of the trial's folder")
        return {name: stored for name, stored in files.items() if not name.name.startswith(".")}

    def _infos(self, folder: str, *, recursive: bool = True) -> list[arrow.FileInfo]:
        return list(self._fs.get_file_info(arrow.FileSelector(folder, allow_not_found=True, recursive=recursive)))

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except StorageError:
            raise
        except (OSError, ArrowException) as error:
            raise StorageError(f"storage {self.uri}: {' '.join(str(error).split())}") from error


def exchange(storage: Storage, planned: Callable[[], Sequence[Trial]], records: Records) -> None:
    """Before a sweep: fetch what a report needs, send what is lacking.

    CannotStartError if the storage is silent, WriteError if it cannot be written to.
    """
    done: set[str] = set()
    try:
        keys = storage.keys()
        storage.check_writable()
        while new := {key for trial in planned() for key in (trial.key, trial.starts_from) if key} - done:
            for key in sorted(new):
                folder = records.folder(key)
                set_aside_damaged(folder)
                kept = _progress(records.read(key), (folder / UNSCORED).exists)
                stored = storage.progress(key) if key in keys else 0
                if key in keys and kept == stored == 0 and _has_come_further(folder, key, storage):
                    storage.set_aside(key)
                    storage.push(key, records.root)
                elif key in keys and (stored > kept or kept == stored == 0):
                    storage.pull(key, records.root, without=ONLY_TRAINING)
                elif folder.exists() and stored == 0:
                    storage.push(key, records.root)
            done |= new
    except WriteError:
        raise
    except OSError as error:
        raise CannotStartError(str(error)) from error


def _progress(record: Record | None, has_unscored: Callable[[], bool]) -> int:
    """0 for a trial that is not trained, 1 if it has only to be scored on test, 2 if it is settled."""
    if record is None or record.status == "failed":
        return int(has_unscored())
    return 1 + record.tested


def _has_come_further(folder: Path, key: str, storage: Storage) -> bool:
    """Whether an unfinished trial can be continued here, from a longer curve than the storage's."""
    checkpoints = (folder / CHECKPOINTS).glob("[0-9]*/manifest.json")
    return any(checkpoints) and read_curve_table(folder, ["epoch"]).num_rows > storage.evaluations(key)


def fetch_unsettled(storage: Storage, key: str, records: Records) -> None:
    """Fetch what a report needs of a trial that has not settled here, and may have come further in the storage.

    A storage that is silent is logged: in the middle of a sweep it ends no other trial.
    """
    record = records.read(key)
    if record is None or record.status == "failed":
        try:
            storage.pull(key, records.root, without=ONLY_TRAINING)
        except OSError as error:
            _log.warning("%s: what the storage has of it is not known: %s", key, error)


@contextmanager
def borrowed(
    storage: Storage, key: str, source: str | None, seconds: float
) -> Iterator[tuple[Path, Callable[[], None]]]:
    """A private `runs/` with what the storage has of a trial and its source, and a function that sends it back.

    It is sent back every `seconds` too, for the checkpoints within an epoch, and when the block ends without an error.
    One attempt at a time on one machine; what a killed one left is removed, but for what it says of a stall. A storage
    that is silent is asked again after each wait of `PATIENCE`.
    """
    runs = _private_folder() / f"{key}-{hashlib.sha256(storage.uri.encode()).hexdigest()[:8]}"
    one_at_a_time, ended = threading.Lock(), threading.Event()

    def push() -> None:
        with one_at_a_time:
            storage.push(key, runs)

    def repeat() -> None:
        while not ended.wait(seconds):
            with suppress(OSError):  # the storage's, or of a file that training replaced: the next `push` raises it
                push()

    thread = threading.Thread(target=repeat, name="storage", daemon=True)
    with FileLock(f"{runs}.lock"):
        stalled = runs / key / STALLED
        traces = stalled.read_bytes() if stalled.is_file() else b""
        shutil.rmtree(runs, ignore_errors=True)
        try:
            patiently(partial(storage.pull, key, runs))
            if (runs / key).exists():
                set_aside_damaged(runs / key, weights=True)
                if not (runs / key).exists():  # the next attempt would set it aside too, and this one's checkpoints
                    patiently(partial(storage.set_aside, key))
            if traces:
                make_folder(stalled.parent)
                stalled.write_bytes(traces)
            if source is not None:
                patiently(partial(storage.pull, source, runs, without=[CHECKPOINTS]))
            thread.start()
            yield runs, partial(patiently, push)
            patiently(push)
        finally:
            ended.set()
            if thread.is_alive():
                thread.join()
            shutil.rmtree(runs, ignore_errors=True)


def patiently(step: Callable[[], T], waits: Sequence[float] | None = None) -> T:
    """Do this with a storage, and again after each wait if it does not answer; a full disk is not waited for."""
    for seconds in PATIENCE if waits is None else waits:
        try:
            return step()
        except StorageError as error:
            if isinstance(error, FinishedElsewhereError) or disk_is_full(error):
                raise
            _log.warning("%s; asked again in %g seconds", redacted(error), seconds)
            time.sleep(seconds)
    return step()


def _private_folder() -> Path:
    """The folder in the temporary directory that this user's workers share; OSError if anybody else can enter it."""
    folder = Path(tempfile.gettempdir()) / f"lm-trials-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()  # follows no link
    if not stat.S_ISDIR(status.st_mode) or stat.S_IMODE(status.st_mode) & 0o077 or status.st_uid != os.getuid():
        raise OSError(errno.EPERM, "is not a folder of this user alone: remove it, or set TMPDIR", str(folder))
    return folder


def transfer_order(name: PurePosixPath) -> tuple[bool, bool, str]:
    """Sorts a record after everything, and a manifest after the files that it names."""
    return name.name == RECORD, name.name == "manifest.json", str(name)


def _record(content: bytes) -> Record | None:
    try:
        return Record.model_validate_json(content)
    except ValueError:
        return None


def _state(path: Path) -> _Stored:
    status = path.stat()
    return status.st_mtime_ns, status.st_size


def _stored(info: arrow.FileInfo) -> _Stored:
    return info.mtime_ns, info.size
