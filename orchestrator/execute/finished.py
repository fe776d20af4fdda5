"""What the command of a finished sweep left, so that the next one makes nothing again that still stands.

runs/.sweeps/<name>.<scale>.made   from what and where the page was made, its files, and the mirror's database

The note is a cache: without it, or where it is damaged, everything is made again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import platform
from importlib.metadata import version
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

import lm
import orchestrator
from lm.files import in_a_line, read_regular, sha256, write_text
from orchestrator.agenda.expand import SweepState
from orchestrator.report import Report
from orchestrator.report.files.place import PAGE
from orchestrator.report.files.summary import read_summary
from orchestrator.sweep import ScaledSweep
from orchestrator.trials.locks import lock_path
from orchestrator.trials.records import Records
from orchestrator.watch.mlflow.store import tracking_uri
from orchestrator.watch.mlflow.unusable import sqlite_file

_LIBRARIES = ("bokeh", "jinja2", "markdown-it-py", "matplotlib", "numpy", "pyarrow", "scipy")
_SOURCES = (".py", ".jinja", ".css", ".js")
_log = logging.getLogger(__name__)


class _Made(BaseModel):
    """A page and a mirror as a command left them.

    `inputs` is the digest of all that the page is a function of, `files` has the SHA-256 of each of its files, and
    `database` the state of MLflow's file after the mirror was written, None unless it was, and is one.
    """

    model_config = ConfigDict(frozen=True)

    inputs: str
    folder: str
    files: dict[str, str]
    database: str | None


class LastMade:
    """What the last command of a sweep made; what this one finds and makes.

    Build it before anything else of the command, so that code that changes while trials train is not taken for the
    code that wrote the page.
    """

    def __init__(self, sweep: ScaledSweep, file: Path, folder: Path, records: Records) -> None:
        self._sweep, self._file, self._folder, self._records = sweep, file, folder, records
        self._path = lock_path(records.root, sweep.name, sweep.scale).with_suffix(".made")
        self._code = _code_digest()
        self._made = _read(self._path)

    def report(self, now: SweepState) -> Report | None:
        """The report where it belongs, None unless it was made of what there is now and nobody has touched it since."""
        made = self._made
        if made is None or made.folder != str(self._folder.resolve()) or made.files != _files(self._folder):
            return None
        told = read_summary(self._folder)
        if told is None or made.inputs != self._inputs(now):
            return None
        return Report(self._folder / PAGE, told.answer, told.verdicts)

    @property
    def is_mirrored(self) -> bool:
        """Whether the mirror was whole, and nobody has written to its database, or put another in its place, since."""
        return self._made is not None and self._made.database is not None and self._made.database == _database()

    def write(self, now: SweepState, report: Report, *, mirrored: bool) -> None:
        """Note what this command made; no note where the next one has to make it again."""
        files = _files(self._folder) if report.is_whole and report.beside is None else None
        inputs = self._inputs(now)
        try:
            if inputs is None or files is None:
                self._path.unlink(missing_ok=True)
                return
            made = _Made(
                inputs=inputs,
                folder=str(self._folder.resolve()),
                files=files,
                database=_database() if mirrored else None,
            )
            write_text(self._path, made.model_dump_json(indent=1) + "\n")
        except OSError as error:
            _log.warning("the next command makes the page again: %s", in_a_line(error))

    def _inputs(self, now: SweepState) -> str | None:
        """The digest of all that a finished sweep's page is a function of; None unless every trial has its hashes."""
        records, searches = self._records, now.searches
        trained = {trial.key: records.hashes(trial) for trial in now.trials}
        if not all(trained.values()):
            return None
        searched = {found.key for one in searches for found in one.trials if found.key is not None}
        found = {key: None if (record := records.read(key)) is None else record.hashes for key in searched}
        trials = [(t.variant, t.change, t.seed, t.key, t.parameters, t.reads_from, t.starts_from) for t in now.trials]
        published = {path.name: sha256(path) for path in (self._file.parent / "published").glob("*.yaml")}
        ledgers = [sha256(one.ledger) if one.ledger.exists() else None for one in searches]
        inputs = [self._code, repr(self._sweep), str(self._file), trials, trained, found, published, ledgers]
        return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def _read(path: Path) -> _Made | None:
    """The note, None where there is none or a damaged one: it is a cache."""
    try:
        return _Made.model_validate_json(read_regular(path))
    except (OSError, ValidationError):
        return None


def _code_digest() -> str:
    """The digest of this code and of the libraries that write and draw a page."""
    digest = hashlib.sha256(platform.python_version().encode())
    for package in (lm, orchestrator):
        top = Path(str(package.__file__)).parent
        for path in sorted(path for path in top.rglob("*") if path.suffix in _SOURCES):
            digest.update(f"{path.relative_to(top)}\0".encode() + path.read_bytes())
    for name in _LIBRARIES:
        digest.update(f"{name} {version(name)}\0".encode())
    return digest.hexdigest()


def _files(folder: Path) -> dict[str, str] | None:
    """The SHA-256 of every file of the report in a folder; None where one cannot be read."""
    try:
        told = read_summary(folder)
        return None if told is None else {name: sha256(folder / name) for name in told.files}
    except (OSError, ValueError):
        return None


def _database() -> str | None:
    """What changes when MLflow's file is written, or another takes its place; None of a server, or without a file."""
    file = sqlite_file(tracking_uri())
    try:
        found = None if file is None else file.stat()
    except OSError:
        return None
    if found is None:
        return None
    return f"{file} {found.st_dev} {found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"
