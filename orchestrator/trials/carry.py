"""Settled trials copied to another folder, without what only training needs: enough to make every page again.

<folder>/<key>/record.json, curve.parquet, tokens/<stage>.test.parquet   the trial's own bytes
<folder>/.searches/<key>.jsonl                                          the ledgers of searches
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lm.files import (
    DamagedError,
    WriteError,
    atomic,
    check_writable,
    errors_of,
    in_a_line,
    make_folder,
    read_regular,
    sync,
    writing,
)
from lm.hashes import CURVE, RECORD
from orchestrator.trials.locks import trial_is_held
from orchestrator.trials.records import check_trial

_KEY = re.compile(r"[0-9a-f]{16}")
_LOSSES = re.compile(r"tokens/[\w-]+\.test\.parquet")


@dataclass(frozen=True)
class Carried:
    """How many trials were copied, how many were there already; which were left out, and why, a line each."""

    copied: int
    there: int
    left_out: tuple[str, ...]


def export_trials(keys: Iterable[str], ledgers: Iterable[Path], runs: Path, to: Path) -> Carried:
    """Copy those of these trials that have a record, and searches; in `to` they replace trials with another record.

    WriteError if that folder cannot be written, ValueError while another command copies there.
    """
    return _carry(dict.fromkeys(keys), ledgers, runs, to, replace=True)


def import_trials(folder: Path, runs: Path) -> Carried:
    """Copy what was exported to `runs`; what is there already, finished or not, stays.

    Errors as of `export_trials`, and ValueError for a folder without any trial.
    """
    keys = sorted(path.name for path in folder.glob("*") if _KEY.fullmatch(path.name))
    if not keys:
        raise ValueError(f"{folder}: expected a folder that `runs export` wrote, which holds trials")
    return _carry(keys, sorted((folder / ".searches").glob("*.jsonl")), folder, runs, replace=False)


def _carry(keys: Iterable[str], ledgers: Iterable[Path], source: Path, to: Path, *, replace: bool) -> Carried:
    make_folder(to)
    check_writable(to)
    copied, there, left_out = 0, 0, []
    with _alone(to):
        for key in keys:
            if not _KEY.fullmatch(key) or not (source / key / RECORD).exists() or trial_is_held(source / key):
                continue  # no trial, or one that has not settled yet
            if (to / key).exists() and not (replace and _differ(source / key / RECORD, to / key / RECORD)):
                there += 1
                continue
            try:
                _copy_trial(source / key, to)
                copied += 1
            except WriteError:
                raise
            except DamagedError as error:
                left_out.append(f"{error.path}: {error.problem}")
            except (ValueError, OSError) as error:
                left_out.append(in_a_line(error) if isinstance(error, OSError) else str(error))
        for ledger in ledgers:
            target = to / ".searches" / ledger.name
            if ledger.exists() and (replace or not target.exists()):
                with atomic(target) as temporary:
                    temporary.write_bytes(read_regular(ledger))
    return Carried(copied, there, tuple(left_out))


def _copy_trial(trial: Path, to: Path) -> None:
    """Copy a trial whole: it takes its place once the copy agrees with the hashes of its record.

    DamagedError names a file that is not what the trial wrote, ValueError a record without hashes.
    """
    record = check_trial(trial)
    if record is None or not record.hashes:
        raise ValueError(f"{trial / RECORD}: is from before records had hashes, so that nothing can be checked")
    # Of the names in a record, which another person may have written, only those that lead nowhere else.
    losses = [name for name in record.hashes if _LOSSES.fullmatch(name)]
    copy, place = to / f".{trial.name}.new.tmp", to / trial.name
    shutil.rmtree(copy, ignore_errors=True)  # a command that was killed may have left it
    try:
        for name in (RECORD, *([CURVE] if (trial / CURVE).exists() else []), *losses):
            content = read_regular(trial / name)
            make_folder((copy / name).parent)
            with errors_of(copy / name):
                (copy / name).write_bytes(content)
                sync(copy / name)
        try:
            check_trial(copy)
        except DamagedError as error:  # changed since it was looked at
            raise DamagedError(trial / error.path.relative_to(copy), error.problem) from error
        with writing(place):
            sync(copy)
            if place.exists():
                shutil.rmtree(place)
            copy.rename(place)
            sync(to)
    finally:
        shutil.rmtree(copy, ignore_errors=True)


@contextmanager
def _alone(to: Path) -> Iterator[None]:
    """Hold a folder against other commands that copy there."""
    descriptor = os.open(to, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise ValueError(f"{to}: another command copies trials there") from None
    finally:
        os.close(descriptor)


def _differ(record: Path, other: Path) -> bool:
    try:
        return read_regular(record) != read_regular(other)
    except OSError:
        return True
