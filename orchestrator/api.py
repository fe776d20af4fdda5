"""The Python interface, which the command line uses itself: read a sweep, run it, look at the records."""

from __future__ import annotations

import dataclasses
import errno
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lm.files import WriteError, cannot_write, in_a_line
from lm.record import Record
from lm.spec import trial_key
from orchestrator.agenda.expand import BEST_FOUND, expand, unsettled
from orchestrator.errors import CannotStartError, nearest
from orchestrator.execute.opening import load_sweep
from orchestrator.execute.options import Executor, Options
from orchestrator.execute.run import Prepared, prepare
from orchestrator.execute.run import run_sweep as run_prepared
from orchestrator.search.ledger import SearchState
from orchestrator.sweep import ScaledSweep
from orchestrator.sweep.searches import Search
from orchestrator.trials.disk import aside_folder, set_aside
from orchestrator.trials.facts import Facts
from orchestrator.trials.locks import HeldError, holding, holding_searches, trial_is_held
from orchestrator.trials.plan import TrialStatus, state_of
from orchestrator.trials.records import Records, damage_in_a_line, read_own
from orchestrator.trials.trial import Trial
from orchestrator.words import counted

__all__ = ["SweepResult", "load_records", "load_sweep", "run_sweep", "select", "to_train"]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SweepResult:
    """How a sweep ended: the command's exit code, the page, how many of its trials are in each state."""

    exit_code: int
    report: Path
    counts: dict[TrialStatus, int]


def run_sweep(
    sweep: ScaledSweep | Path | str,
    *,
    scale: str | None = None,
    file: Path | str | None = None,
    only: Sequence[str] = (),
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
    mps: bool = False,
    cpus: float | None = None,
    gpus: float | Literal["auto"] | None = None,
) -> SweepResult:
    """Train what has no record yet, mirror it to MLflow, write the report.

    `sweep` is a sweep file, or what `load_sweep` made of `file` (by default `sweeps/<name>.yaml`). `only` names
    variants, to which the baseline is added; the report is of the whole sweep all the same. With `fresh` the folders of
    these trials are first moved to `runs/.old/`. `cpus` and `gpus` are those of a trial, in place of the file's.
    Progress goes to stderr, the page's path to stdout.

    Raises CannotStartError, or of a file what `load_sweep` raises: then nothing was started. Raises
    `lm.files.WriteError` if the disk is full, or `runs` or `reports` cannot be written; RayLostError if Ray was lost
    and could not be started again: the same call goes on.
    """
    if not isinstance(sweep, ScaledSweep):
        file = sweep
        sweep = load_sweep(file, scale)
    options = Options(
        file=Path("sweeps") / f"{sweep.name}.yaml" if file is None else Path(file),
        runs=Path(runs),
        reports=Path(reports),
        executor=executor,
        jobs=jobs,
        address=address,
        storage=None if storage is None else str(storage),
        verbose=verbose,
        checkpoint_seconds=checkpoint_seconds,
        only=tuple(only),
        budget=budget,
        mps=mps,
        cpus=cpus,
        gpus=gpus,
    )
    chosen = select(sweep, only)
    try:
        prepared = prepare(chosen, options, whole=sweep, fresh=fresh)
    except OSError as error:
        if cannot_write(error, broadly=True):  # it needs to write wherever it reads
            raise WriteError(error.errno or errno.EIO, error.strerror or str(error), error.filename) from error
        raise CannotStartError(in_a_line(error)) from error
    except ValueError as error:
        raise CannotStartError(str(error)) from error
    ledgers = [searched.ledger for searched in prepared.state.searches if fresh or not searched.ended]
    with holding(prepared.records.root, sweep.name, sweep.scale), holding_searches(ledgers):
        if fresh:
            _set_aside(prepared)
            prepared = prepare(chosen, options, whole=sweep, fresh=True)
        code, page = run_prepared(prepared)
    records = Records(prepared.records.root) if fresh else prepared.records
    counts = Counter(state_of(trial, records) for trial in expand(chosen, records).table)
    return SweepResult(code, page or options.reports / sweep.name / sweep.scale / "report.md", dict(counts))


def load_records(path: Path | str = "runs") -> dict[str, Record]:
    """The record of every settled trial in a folder of trials, by key.

    One that is damaged, or that another version wrote, is left out, and a warning of the log names it.
    """
    found = {}
    for folder in sorted(place.parent for place in Path(path).glob("*/record.json")):
        try:
            record = read_own(folder)
        except ValueError as error:
            _log.warning("%s", damage_in_a_line(error))
            continue
        if record is not None:
            found[folder.name] = record
    return found


def select(sweep: ScaledSweep, only: Sequence[str]) -> ScaledSweep:
    """The sweep with the baseline and these variants alone, the whole if none is named.

    What a search of the base finds is a variant of its own, and the search belongs to it.
    Raises CannotStartError for a name that it does not have.
    """
    if not only:
        return sweep
    searches_base = isinstance(sweep.searching, Search)
    names = [variant.name for variant in sweep.variants] + [BEST_FOUND] * searches_base
    for name in only:
        if name not in names:
            raise CannotStartError(f"--only: unknown variant {name!r}{nearest(name, names)}")
    kept = {sweep.baseline.name, *only}
    return dataclasses.replace(
        sweep,
        variants=tuple(v for v in sweep.variants if v.name in kept),
        searching=None if searches_base and BEST_FOUND not in only else sweep.searching,
    )


def to_train(
    sweep: ScaledSweep, records: Records, *, fresh: bool = False
) -> tuple[list[tuple[Trial, TrialStatus]], list[SearchState]]:
    """The trials that a run would train as far as they are known, longest first, and where they stand.

    Then the searches that it would go through first, from their beginning with `fresh`: what they ask for, and the
    trials of the variants that wait for them, are not known. Nothing is written.
    """
    now = expand(sweep, records)
    searches = [searched for searched in now.searches if fresh or not searched.ended]
    waiting = {searched.task.variant for searched in searches}
    trials = [trial for trial in now.trials if trial.variant not in waiting]
    trained = [trial for trial in trials if trial.reads_from is None] if fresh else unsettled(trials, records)
    states = [(trial, state_of(trial, records)) for trial in trained]
    return states, [dataclasses.replace(searched, trials=()) if fresh else searched for searched in searches]


def _set_aside(prepared: Prepared) -> None:
    """Move the trials' folders and searches aside, and forget which other trial went through the same stages."""
    root, now = prepared.records.root, prepared.state
    trained = [trial for trial in now.table if trial.reads_from is None]
    keys = [trial.key for trial in trained]
    keys += [found.key for searched in now.searches for found in searched.trials if found.key]
    folders = [folder for key in dict.fromkeys(keys) if (folder := root / key).exists()]
    for folder in folders:
        if trial_is_held(folder):
            raise HeldError(f"--fresh: {folder} is in use: a process trains in it")
    facts = Facts()
    for path in (*folders, *(searched.ledger for searched in now.searches if searched.ledger.exists())):
        set_aside(path, root)
    for key in keys:
        (root / ".stages" / f"{key}.json").unlink(missing_ok=True)
    for trial in trained:
        for stage in trial.spec.stages().values():
            (root / ".stages" / f"{trial_key(stage, facts.fingerprint(stage.corpus))}.json").unlink(missing_ok=True)
    if folders:
        print(f"{counted(len(folders), 'trial folder')} moved to {aside_folder(root)}")
