"""What trained weights are asked before a sweep's page; when the page is written, and when it is kept.

runs/.sweeps/<name>.<scale>.made   what a command made: digests of the page with its inputs, and of the mirror

The note is a cache: if it is missing or damaged, the next command makes everything again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import platform
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path

from pydantic import BaseModel, ValidationError

from lm.analyzed import trained_stage
from lm.files import WriteError, in_a_line, read_regular, sha256, write_text
from lm.record import Record, weights_path
from lm.samples import Samples, write_samples
from lm.spec import Analysis, Generate, unanswerable
from orchestrator.agenda.expand import SweepState
from orchestrator.agenda.trial_source import first_compared
from orchestrator.execute.machine import code_digest
from orchestrator.report.files.folder import PAGE, Report, read_summary
from orchestrator.sweep import ScaledSweep
from orchestrator.sweep.scaled import Resources
from orchestrator.trials.locks import lock_path
from orchestrator.trials.records import Records, is_settled
from orchestrator.trials.samples import Writer, first_trials, without_text, writer
from orchestrator.trials.trial import Trial
from orchestrator.watch.mlflow.store import sqlite_file, tracking_uri

_LIBRARIES = ("bokeh", "jinja2", "markdown-it-py", "matplotlib", "numpy", "pyarrow", "scipy")
_log = logging.getLogger(__name__)

Question = tuple[str, Callable[[], object]]
"""What is asked of whose weights, in words; and a function that asks, and keeps the answer beside the record."""


def questions(sweep: ScaledSweep, trials: Sequence[Trial], records: Records) -> list[Question]:
    """What was not yet asked of complete trials that still have their weights.

    Text is written by each variant's first seed, on the CPU, so that a page does not depend on where it was made.
    """
    resources, asked = sweep.resources, list[Question]()
    if sweep.generate is not None:
        for by in without_text(trials, sweep.generate, records):
            write = partial(_write, by, sweep.generate, resources.threads)
            asked.append((f"{by.trial.title}: text by its weights", write))
    for trial in trials if sweep.analyses else ():
        record, holder = records.find(trial), records.holder(trial)
        held, folder = records.read(holder), records.folder(holder)
        if record is None or held is None or record.status != "complete":
            continue
        if not weights_path(folder, stage := trained_stage(record)).exists():
            continue
        for analysis in sweep.analyses:
            if unanswerable(analysis, trial.spec) is None and records.analysis(trial, analysis) is None:
                analyze = partial(_analyze, analysis, held, folder, stage, resources)
                asked.append((f"{trial.title}: {analysis.kind} of its weights", analyze))
    return asked


def ask(asked: Sequence[Question], say: Callable[[str], None]) -> None:
    """Ask all; one that fails is a warning, because the page may stand for hours. WriteError if no text can be kept."""
    for words, question in asked:
        say(words)
        try:
            question()
        except WriteError:
            raise
        except Exception as error:
            _log.warning("no answer: %s (%s: %s)", words, type(error).__name__, error)
            _log.debug("%s", words, exc_info=True)


def _write(by: Writer, how: Generate, threads: int) -> None:
    from lm.generate import generate  # loads torch
    from lm.kept_model import open_model

    kept = open_model(by.record, by.folder, stage=by.stage, device="cpu", threads=threads)
    texts = tuple(passage.words for passage in generate(kept.model, kept.corpus.vocabulary, how))
    samples = Samples(stage=by.stage, weights=by.weights_hash, settings=how, texts=texts)
    write_samples(by.path(how), samples)


def _analyze(analysis: Analysis, record: Record, folder: Path, stage: str, resources: Resources) -> None:
    from lm.analyze.ask import analyze  # loads torch

    device = "auto" if resources.gpus else "cpu"
    analyze(analysis, record, folder, stage=stage, device=device, threads=resources.threads)


class Interim:
    """Writes the page when the first comparison stands, then as variants are complete.

    After each page it rests, `rest` times as long as writing it took.
    None is written in the first `quiet_seconds`: a sweep of seconds soon has its page at the end.
    """

    def __init__(
        self,
        state: Callable[[], SweepState],
        write: Callable[[SweepState], Report],
        records: Records,
        say: Callable[[str], None],
        rest: float = 60.0,
        quiet_seconds: float = 20.0,
    ) -> None:
        self._state, self._write, self._records, self._say, self._rest = state, write, records, say, rest
        self._complete: set[str] = set()
        self._has_announced = False
        self._not_before = time.monotonic() + quiet_seconds

    def started(self, *_: object) -> None:
        """Nothing to compare yet."""

    evaluated = started

    def settled(self, trial: Trial, record: Record | None) -> None:
        """Write the page if a variant of the table is complete that it lacks."""
        if record is None or trial.number is not None or time.monotonic() < self._not_before:
            return
        state = self._state()
        unsettled = {t.variant for t in state.table if not is_settled(t, self._records.find(t))}
        complete = {trial.variant for trial in state.table} - unsettled
        first = first_compared(state.table)
        stands = first is not None and {state.table[0].variant, first} <= complete
        if not stands or complete <= self._complete or not unsettled:  # the page at the end follows
            return
        began = time.monotonic()
        try:
            report = self._write(state)
        finally:
            ended = time.monotonic()  # no trial has started meanwhile
            self._not_before = ended + self._rest * (ended - began)
        self._complete = complete
        variant = first if first in report.changes else next(iter(report.changes), None)
        if variant is not None and not self._has_announced:
            self._has_announced = True
            self._say(f"first comparison: {variant}: test perplexity {report.changes[variant]}; {report.page}")


class _LastPage(BaseModel):
    """Digests of the page with its inputs, and of MLflow's database (None: behind, or a server); what is printed."""

    page: str
    database: str | None
    changes: dict[str, str] = {}
    link: str = ""


class LastMade:
    """What the last command made. Build it first: code that changes while trials train did not write the page."""

    def __init__(self, sweep: ScaledSweep, file: Path, folder: Path, records: Records) -> None:
        self._sweep, self._file, self._folder, self._records = sweep, file, folder, records
        self._path = lock_path(records.root, sweep.name, sweep.scale).with_suffix(".made")
        self._code = code_digest() + platform.python_version() + "".join(map(version, _LIBRARIES))
        self._made: _LastPage | None = None
        with suppress(OSError, ValidationError):
            self._made = _LastPage.model_validate_json(read_regular(self._path))

    def report(self, state: SweepState) -> Report | None:
        """The report in its folder; None if it is of other inputs, or one of its files has changed since."""
        made = self._made
        if made is None or made.page != self._digest(state) or (summary := read_summary(self._folder)) is None:
            return None
        return Report(self._folder / PAGE, summary.answer, summary.verdicts, changes=made.changes)

    @property
    def link(self) -> str | None:
        """How a browser gets to the mirror; None unless it was complete and its database has not changed since."""
        made = self._made
        return made.link if made is not None and made.database is not None and made.database == _database() else None

    def write(self, state: SweepState, report: Report, *, mirrored: bool, link: str = "") -> None:
        """Note what this command made; nothing if the next one has to make it again."""
        page = self._digest(state) if report.is_whole and report.beside is None else None
        try:
            self._path.unlink(missing_ok=True)
            if page is not None:
                database = _database() if mirrored else None
                made = _LastPage(page=page, database=database, changes=report.changes, link=link)
                write_text(self._path, made.model_dump_json(indent=1) + "\n")
        except OSError as error:
            _log.warning("the next command makes the page again: %s", in_a_line(error))

    def _digest(self, state: SweepState) -> str | None:
        """Of a finished sweep's page and all that it is a function of; None if a trial or a file cannot be read."""
        records, searches = self._records, state.searches
        trained = {trial.key: records.hashes(trial) for trial in state.trials}
        if not all(trained.values()):
            return None
        keys = {trial.key for search in searches for trial in search.trials if trial.key}
        searched = {key: None if (record := records.read(key)) is None else record.hashes for key in keys}
        trials = [(t.variant, t.change, t.seed, t.key, t.parameters, t.reads_from, t.starts_from) for t in state.trials]
        tables = (self._file.parent / "published").glob("[!.]*.yaml")  # not what an editor locks a file with
        how, texts = self._sweep.generate, []
        if how is not None:
            if without_text(state.table, how, records):
                return None
            writers = [writer(trial, records) for trial in first_trials(state.table)]
            texts = [None if by is None else (by.has_weights, repr(by.samples(how))) for by in writers]
        try:
            summary = read_summary(self._folder)
            if summary is None:
                return None
            files = {name: sha256(self._folder / name) for name in summary.files}
            published = {path.name: sha256(path) for path in tables}
        except (OSError, ValueError):
            return None
        answers = [
            None if (answer := records.analysis(trial, asked)) is None else answer.model_dump_json()
            for asked in self._sweep.analyses
            for trial in state.table
        ]
        inputs: list[object] = [self._code, repr(self._sweep), str(self._file), str(self._folder.resolve())]
        asked_for = [repr(search.trials) for search in searches]  # and not what else its ledger has
        inputs += [trials, trained, searched, published, asked_for, files, *filter(None, (texts, answers))]
        inputs.append(repr(state.looks))
        return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def _database() -> str | None:
    """What changes if MLflow's file is written or replaced; None for a server, or without a file."""
    file = sqlite_file(tracking_uri())
    if file is None or not file.exists():
        return None
    state = file.stat()
    return f"{file} {state.st_dev} {state.st_ino} {state.st_size} {state.st_mtime_ns} {state.st_ctime_ns}"
