"""The Python interface, which the command line uses itself: read a sweep, run it, look at the records."""

from __future__ import annotations

import errno
import json
import logging
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.parquet

from lm.data import CorpusError
from lm.files import WriteError, cannot_write, in_a_line, write_text
from lm.record import Record
from lm.spec import trial_key
from orchestrator.agenda.expand import SweepState, expand, unsettled
from orchestrator.errors import CannotStartError, RayLostError, redacted
from orchestrator.execute.machine import load_sweep
from orchestrator.execute.run import Executor, Options, Prepared, prepare, run_prepared
from orchestrator.report.files.folder import Summary, read_summary
from orchestrator.report.files.tables import read_csv
from orchestrator.search.ledger import SearchState, read_search_trials
from orchestrator.sweep import ScaledSweep
from orchestrator.trials.disk import aside_folder, set_aside
from orchestrator.trials.locks import holding, holding_searches, is_held
from orchestrator.trials.plan import Facts, PlanStatus, state_of
from orchestrator.trials.records import FRESH, Records, read_all
from orchestrator.trials.trial import Trial
from orchestrator.words import counted

__all__ = [
    "LoadedReport",
    "SweepResult",
    "load_records",
    "load_report",
    "load_sweep",
    "run_sweep",
]

NOTIFY_SECONDS = 60.0  # the longest that the command of `--notify` may take
_STATES = {0: "complete", 1: "failed", 3: "budget spent", 4: "Ray lost", 5: "cannot be written"}
"""What the command of `--notify` hears of an exit code."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SweepResult:
    """How a sweep ended: the command's exit code, the page, how many of its trials are in each state.

    `answer`, `verdicts` and `changes` are those of the page, by variant, in words; empty if no page was written.
    """

    exit_code: int
    report: Path
    counts: dict[PlanStatus, int]
    answer: str = ""
    verdicts: dict[str, str] = field(default_factory=dict)
    changes: dict[str, str] = field(default_factory=dict)


def run_sweep(
    sweep: ScaledSweep | Path | str,
    *,
    scale: str | None = None,
    file: Path | str | None = None,
    only: Sequence[str] | str = (),
    fresh: bool = False,
    runs: Path | str = "runs",
    reports: Path | str = "reports",
    executor: Executor = "ray",
    jobs: int | None = None,
    address: str | None = None,
    storage: Path | str | None = None,
    verbose: bool = False,
    checkpoint_seconds: float = 600.0,
    budget: str | None = None,
    cpus: float | None = None,
    gpus: float | Literal["auto"] | None = None,
    notify: str | None = None,
) -> SweepResult:
    """Train what has no record yet, mirror it to MLflow, write the report.

    `sweep` is a sweep file, or what `load_sweep` made of one; `file` is where it lies, by default where it was read.
    `only` names variants, or one, to which the baseline is added; the report is of the whole sweep all the same. With
    `fresh` the folders of these trials are first moved to `runs/.old/`. `cpus` and `gpus` are those of a trial, in
    place of the file's. `notify` is a shell command that reads how the sweep ended.
    Progress goes to stderr; the answer, the verdicts and, last, the page's path to stdout. In another thread than the
    main one Ctrl-C does not stop it.

    Raises CannotStartError, or of a file what `load_sweep` raises: then nothing was started. Raises
    `lm.files.WriteError` if `runs` or `reports` cannot be written; RayLostError if Ray did not start, or died twice;
    CorpusError if a text went away meanwhile.
    """
    if not isinstance(sweep, ScaledSweep):
        sweep = load_sweep(sweep, scale)
    elif scale is not None:
        raise CannotStartError(f"scale: expected none, because the sweep is at scale {sweep.scale!r}, got {scale!r}")
    for name, got, rule, holds in (
        ("executor", executor, " or ".join(get_args(Executor)), executor in get_args(Executor)),
        ("jobs", jobs, "1 or more", jobs is None or jobs >= 1),
        ("checkpoint_seconds", checkpoint_seconds, "0 or more", checkpoint_seconds >= 0),
        ("budget", budget, "a text such as '8h'", budget is None or isinstance(budget, str)),
    ):
        if not holds:
            raise CannotStartError(f"{name}: expected {rule}, got {got!r}")
    options = Options(
        file=Path(file or sweep.file or f"sweeps/{sweep.name}.yaml"),
        runs=Path(runs),
        reports=Path(reports),
        executor=executor,
        jobs=jobs,
        address=address,
        storage=None if storage is None else str(storage),
        verbose=verbose,
        checkpoint_minutes=checkpoint_seconds / 60,
        only=(only,) if isinstance(only, str) else tuple(only),
        budget=budget,
        cpus=cpus,
        gpus=gpus,
        notify=notify,
    )
    return run(sweep, options, fresh=fresh)


def run(sweep: ScaledSweep, options: Options, *, fresh: bool = False) -> SweepResult:
    """As `run_sweep`, with its options in one."""
    prepared = _prepared(sweep, options, fresh=fresh)
    ledgers = [search.ledger for search in prepared.state.searches if fresh or not search.ended]
    with holding(prepared.records.root, sweep.name, sweep.scale, sweep.at_scale), holding_searches(ledgers):
        moved = dict[Path, Path]()
        try:
            if fresh:
                moved = set_trials_aside(prepared.state, prepared.records.root)
                prepared = _prepared(sweep, options, fresh=True)
            code, report = run_prepared(prepared)
        except CannotStartError:
            _put_back(moved)
            raise
        except (RayLostError, OSError, CorpusError) as error:
            code = 4 if isinstance(error, RayLostError) else 1 if isinstance(error, CorpusError) else 5
            if options.notify is not None and (code != 5 or cannot_write(error, broadly=True)):
                of = {"sweep": sweep.name, "scale": sweep.scale, "error": redacted(error)}
                _notify(options.notify, code, of)
            raise
    table, records = expand(prepared.sweep, prepared.records).table, prepared.records
    counts = Counter(state_of(trial, records) for trial in table)
    if report is None:
        result = SweepResult(code, options.reports / sweep.name / sweep.scale / "report.md", dict(counts))
    else:
        result = SweepResult(code, report.page, dict(counts), report.answer, report.verdicts, report.changes)
    if options.notify is not None:
        of = asdict(result) | {"sweep": sweep.name, "scale": sweep.scale, "page": str(result.report)}
        del of["report"]
        _notify(options.notify, code, of)
    return result


def _prepared(sweep: ScaledSweep, options: Options, *, fresh: bool) -> Prepared:
    try:
        return prepare(sweep, options, fresh=fresh)
    except OSError as error:
        if cannot_write(error, broadly=True):  # it needs to write wherever it reads
            raise WriteError(error.errno or errno.EIO, error.strerror or str(error), error.filename) from error
        raise CannotStartError(in_a_line(error)) from error
    except ValueError as error:
        raise CannotStartError(str(error)) from error


def _notify(command: str, exit_code: int, summary: Mapping[str, Any]) -> None:
    """Run the user's shell command with the summary and the sweep's `state` as JSON on its standard input, one object.

    A failure of it, or more than `NOTIFY_SECONDS`, is a warning.
    """
    text = json.dumps({"state": _STATES.get(exit_code, "interrupted"), "exit_code": exit_code, **summary}) + "\n"
    try:
        done = subprocess.run(command, shell=True, input=text, text=True, check=False, timeout=NOTIFY_SECONDS)
    except subprocess.TimeoutExpired:
        _log.warning("--notify: the command was ended after %g seconds", NOTIFY_SECONDS)
    except BrokenPipeError:  # it does not read what it is given
        return
    except OSError as error:
        _log.warning("--notify: %s", redacted(in_a_line(error)))
    else:
        if done.returncode:
            _log.warning("--notify: the command ended with exit code %d", done.returncode)


def load_records(path: Path | str = "runs") -> dict[str, Record]:
    """The record of every trial in a folder that has ended, by key; one that cannot be read is named and left out.

    ValueError if there is no such folder, but for `runs`, which may not have been written yet.
    """
    path = Path(path)
    if path != Path("runs") and not path.is_dir():
        raise ValueError(f"{path}: expected a folder of trials, such as runs; there is none")
    return read_all(path)


@dataclass(frozen=True)
class LoadedReport:
    """What lies in a report's folder. A table that the report lacks has no rows.

    The columns of `table` and `trials` have the same types in every report, so that those of several can be joined.
    """

    folder: Path
    summary: Summary

    @property
    def table(self) -> pa.Table:
        """One row a variant: perplexities, difference in nats per token with its interval, verdict."""
        return self._read("table.csv")

    @property
    def trials(self) -> pa.Table:
        """One row a trial: status, perplexities, epochs, seconds."""
        return self._read("trials.csv")

    @property
    def searches(self) -> pa.Table:
        """One row a trial of a search: its values, and what became of it."""
        return self._read("searches.csv")

    @property
    def curves(self) -> pa.Table:
        """One row an evaluation of a trial."""
        return self._read("curves.parquet", pa.parquet.read_table)

    def _read(self, name: str, read: Callable[[Path], pa.Table] = read_csv) -> pa.Table:
        path = self.folder / name
        return read(path) if path.exists() else pa.table({})


def load_report(folder: Path | str) -> LoadedReport:
    """The report in a folder such as `reports/awd_ablation/laptop`; ValueError if there is none."""
    folder = Path(folder)
    summary = read_summary(folder)
    if summary is None:
        raise ValueError(f"{folder}: expected a report's folder, with its summary.json")
    return LoadedReport(folder, summary)


def to_train(
    sweep: ScaledSweep, records: Records, *, fresh: bool = False
) -> tuple[list[tuple[Trial, PlanStatus]], list[SearchState]]:
    """The trials that a run would train, with their states, and the searches that it would run first."""
    state = expand(sweep, records)
    if fresh:
        state = replace(state, searches=tuple(replace(search, trials=(), went_on=False) for search in state.searches))
    trained = state.trained if fresh else unsettled(state.table, records)
    return [(trial, state_of(trial, records)) for trial in trained], [s for s in state.searches if not s.ended]


def set_trials_aside(state: SweepState, runs: Path) -> dict[Path, Path]:
    """Move the folders of a sweep's trials and its searches to `.old/`, and mark them to be trained on their own.

    Returns where each is now. CannotStartError, and nothing is moved, if a process trains in one of the folders.
    """
    facts, keys, folders = Facts(), _table_and_searched(state), folders_to_set_aside(state, runs)
    if (held := next((folder for folder in folders if is_held(folder / ".lock")), None)) is not None:
        raise CannotStartError(f"--fresh: {held} is in use: a process trains in it")
    ledgers = [search.ledger for search in state.searches if search.ledger.exists()]
    moved = {path: set_aside(path, runs) for path in (*folders, *ledgers)}
    for key in keys:
        write_text(runs / key / FRESH, "")
    stages = [stage for trial in state.trained for stage in trial.spec.stages().values()]
    for key in (*keys, *(trial_key(stage, facts.fingerprint(stage.corpus)) for stage in stages)):
        (runs / ".stages" / f"{key}.json").unlink(missing_ok=True)
    if folders:
        print(f"{counted(len(folders), 'trial folder')} moved to {aside_folder(runs)}")
    return moved


def folders_to_set_aside(state: SweepState, runs: Path) -> list[Path]:
    """The trials' folders that `set_trials_aside` moves: those with more than its mark."""
    return [runs / key for key in _table_and_searched(state) if {p.name for p in (runs / key).glob("*")} - {FRESH}]


def _table_and_searched(state: SweepState) -> list[str]:
    searched = (trial.key for search in state.searches for trial in read_search_trials(search.ledger) if trial.key)
    return [*dict.fromkeys([*(trial.key for trial in state.table), *searched])]


def _put_back(moved: Mapping[Path, Path]) -> None:
    """Undo `set_trials_aside`, since nothing could be started."""
    for path, aside in moved.items():
        if path.is_dir():  # with the mark alone
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        aside.rename(path)
    if moved:
        print("what --fresh had moved is back in its place, because nothing could be started")
