"""Trial folders on the disk: their size, what can be freed, old ones set aside, settled ones copied to other folders.

A copy lacks what only training needs, and is enough to make every page again:
<folder>/<key>/record.json, curve.parquet, tokens/<stage>.test.parquet   the trial's own bytes
<folder>/<key>/tokens/cache.valid.parquet                               what a neural cache saves by word
<folder>/<key>/samples/*.json, analyses/*.json                          text that its model wrote, what it was asked
<folder>/.searches/<key>.jsonl                                          the ledgers of searches
"""

from __future__ import annotations

import fcntl
import itertools
import os
import re
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import MappingProxyType

from filelock import FileLock, Timeout

from lm.files import (
    DamagedError,
    WriteError,
    atomic,
    check_regular,
    check_writable,
    make_folder,
    read_regular,
    sync,
    writing,
)
from lm.hashes import RECORD, WEIGHTS
from lm.kept import say_once
from lm.record import read_curve
from lm.trial_log import LOG
from orchestrator.trials.locks import check_no_sweep_runs, is_held
from orchestrator.trials.records import KEY, check_trial, damage_in_a_line, read_own

FAILURE = "failure.txt"
"""In a trial's folder: why its last attempt failed, with the traceback."""
STALLED = "stalled.txt"
"""In a trial's folder: empty while it trains, the tracebacks of its threads after it was ended because it stalled."""
_LONGEST_WAIT_SECONDS = 0.2
_COPY = ".new.tmp"
"""Ends the name of a copy that is not whole yet."""
_CARRIED = re.compile(
    r"record\.json|curve\.parquet|tokens/([\w-]+\.test|cache\.valid)\.parquet|(samples|analyses)/[^/]+\.json"
)


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; files that go away meanwhile count nothing."""
    total = 0
    for part in [path, *path.rglob("*")] if path.is_dir() else [path]:
        with suppress(FileNotFoundError):
            total += 0 if part.is_dir() else part.lstat().st_size
    return total


def aside_folder(runs: Path) -> Path:
    """The folder of what was damaged, or trained again for --fresh."""
    return runs / ".old"


def set_aside(path: Path, runs: Path, *, copied: bool = False) -> Path:
    """Move a trial's folder, or move or copy a search's ledger, to `.old/<name>-<n>`, with the first free n."""
    make_folder(aside_folder(runs))
    places = (aside_folder(runs) / f"{path.name}-{n}" for n in itertools.count(1))
    place = next(place for place in places if not place.exists())
    with writing(path):
        return Path(shutil.copy2(path, place)) if copied else path.rename(place)


def set_aside_damaged(folder: Path, *, weights: bool = False) -> None:
    """Move a trial aside, with a warning, if a file of it is damaged; a process that works there may mend it first."""
    try:
        check_trial(folder, weights=weights)
    except DamagedError as error:
        if isinstance(error.__cause__, OSError):
            time.sleep(_LONGEST_WAIT_SECONDS)
        with FileLock(folder / ".lock") if folder.is_dir() else nullcontext():
            try:
                check_trial(folder, weights=weights)
            except DamagedError as error:
                say_once(damage_in_a_line(error))
                set_aside(folder, folder.parent)


def collect(
    runs: Path, *, weights: Collection[str] = (), stopped: Mapping[str, int] = MappingProxyType({}), dry: bool = False
) -> Iterator[tuple[Path, int]]:
    """Remove what nobody needs, or with `dry` nothing; each thing is yielded with its bytes.

    Checkpoints of trials that are complete or diverged, or that a search `stopped` (by key, after how many epochs),
    files that were never finished, trials set aside, and the weights of the trials with these keys. Another trial that
    is under way, failed or unfinished keeps everything, as does one whose record cannot be read, of which a warning
    tells. OSError for what cannot be removed; ValueError, and nothing is removed, if a sweep runs that may need the
    weights.
    """
    if weights:  # asked here again, since somebody may have taken hours to agree
        check_no_sweep_runs(runs)
    settled = {path.parent for path in runs.glob(f"[!.]*/{RECORD}")}
    for folder in sorted(settled | {runs / key for key in stopped if KEY.fullmatch(key)}):
        try:
            if not _has_ended(folder, stopped) or is_held(folder / ".lock"):
                continue
        except (ValueError, OSError) as error:
            say_once(damage_in_a_line(error))
            continue
        if _leftovers(folder, weights):  # else a folder that cannot be written is no error
            with suppress(Timeout), nullcontext() if dry else FileLock(folder / ".lock", timeout=_LONGEST_WAIT_SECONDS):
                yield from _remove(_leftovers(folder, weights), dry)  # unless taken since it was looked at
    if copies := sorted(runs.glob(f".*{_COPY}")):
        with suppress(ValueError), _alone(runs):  # else somebody copies there now
            yield from _remove(copies, dry)
    yield from _remove(sorted(aside_folder(runs).glob("*")), dry)


def _has_ended(folder: Path, stopped: Mapping[str, int]) -> bool:
    """Whether a trial is complete or diverged, or stands at the epoch after which a search stopped it."""
    record = read_own(folder)
    if record is None:
        return max((point.epoch for point in read_curve(folder)), default=0) == stopped.get(folder.name)
    return record.status != "failed"


def _leftovers(folder: Path, weights: Collection[str]) -> list[Path]:
    parts = [folder / "checkpoints"] + ([folder / WEIGHTS] if folder.name in weights else [])
    unfinished = [path for path in folder.rglob(".*.tmp") if not {*parts} & {*path.parents}]
    return [*filter(Path.exists, parts), *unfinished]


def _remove(paths: Iterable[Path], dry: bool) -> Iterator[tuple[Path, int]]:
    for path in paths:
        size = size_of(path)
        if not dry:
            with writing(path):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
        yield path, size


def import_trials(folder: Path, runs: Path) -> tuple[int, int, tuple[str, ...]]:
    """Copy what was exported; what is there stays. Result and errors of `copy_trials`; ValueError for no trial."""
    keys = sorted(path.name for path in folder.glob("*") if KEY.fullmatch(path.name))
    if not keys:
        raise ValueError(f"{folder}: expected a folder that `runs export` wrote, which holds trials")
    return copy_trials(keys, sorted((folder / ".searches").glob("*.jsonl")), folder, runs, replace=False)


def copy_trials(
    keys: Iterable[str], ledgers: Iterable[Path], source: Path, to: Path, *, replace: bool = True
) -> tuple[int, int, tuple[str, ...]]:
    """Copy the trials that have a record, and ledgers of searches; with `replace` in place of what is no better.

    How many were copied, how many were there already; which were left out, and why, a line each.
    WriteError; ValueError while another command copies there.
    """
    make_folder(to)
    check_writable(to)
    copied, there, left_out = 0, 0, []
    with _alone(to):
        for key in dict.fromkeys(keys):
            if not KEY.fullmatch(key) or not (source / key / RECORD).exists() or is_held(source / key / ".lock"):
                continue  # no trial, or one that has not settled yet
            try:
                why = _why_it_stays(to / key, source / key, replace)
                if why is None:
                    _copy_trial(source / key, to, keep=not replace)
                    copied += 1
                elif why:
                    left_out.append(f"{to / key}: {why}; it stays as it is")
                else:
                    there += 1
            except WriteError:
                raise
            except DamagedError as error:
                left_out.append(f"{error.path}: {error.problem}")
            except (ValueError, OSError) as error:
                left_out.append(damage_in_a_line(error))
        for ledger in filter(Path.exists, ledgers):
            target = to / ledger.parent.name / ledger.name
            if (why := _copy_ledger(ledger, target, replace)) is not None:
                left_out.append(f"{target}: {why}; it stays as it is")
    return copied, there, tuple(left_out)


def _why_it_stays(other: Path, trial: Path, replace: bool) -> str | None:
    """Why a trial is not copied in place of what is in the folder `other`; None if it is, empty if it is there already.

    Without `replace` only a failure gives way. With it a result does not give way to a failure.
    """
    held = is_held(other / ".lock")
    trained = [name for name in (LOG, "checkpoints", WEIGHTS) if (other / name).exists()]
    if not replace:
        gives_way = not held and _status(other) == "failed" and _status(trial) != "failed"
        return "" if not gives_way and (held or trained or (other / RECORD).exists()) else None
    if (other / RECORD).exists() and not _differ(trial, other):
        return ""
    if held or trained:
        return "a process trains there" if held else f"has {trained[0]}, so a trial was trained there"
    if _status(trial) == "failed" and (status := _status(other)) in ("complete", "diverged"):
        return f"is {status}, while {trial} failed"
    return None


def _status(trial: Path) -> str | None:
    """How a trial ended; None if it did not, or is damaged."""
    with suppress(ValueError, OSError):
        if (record := check_trial(trial)) is not None:
            return record.status
    return None


def _copy_ledger(ledger: Path, target: Path, replace: bool) -> str | None:
    """Copy a search's ledger in place of its own beginning, with `replace` of any that is no longer; or why it is not.

    A longer one knows of trials that this one has not asked for, also if the two began differently.
    """
    check_regular(ledger)
    content, kept = ledger.read_bytes(), target.read_bytes() if target.is_file() else b""
    if kept.startswith(content):
        return None
    if not (replace or content.startswith(kept)):
        say_once(f"{target}: began differently than {ledger}; it stays, without the trials of that one")
        return None
    if is_held(target.with_suffix(".lock")):
        return "a command runs this search there"
    if kept.count(b"\n") > content.count(b"\n"):
        return f"is longer than {ledger}, and began differently"
    with atomic(target) as temporary:
        temporary.write_bytes(content)
    return None


def _copy_trial(trial: Path, to: Path, *, keep: bool) -> None:
    """Copy a trial whole, once the copy agrees with its record; DamagedError; ValueError if that has no hashes.

    With `keep` a trial in its place is set aside.
    """
    record = check_trial(trial)
    if record is None or not record.hashes:
        raise ValueError(f"{trial / RECORD}: is from before records had hashes, so that nothing can be checked")
    copy, place = to / f".{trial.name}{_COPY}", to / trial.name
    shutil.rmtree(copy, ignore_errors=True)  # a command that was killed may have left it
    try:
        for name in _files_to_copy(trial):
            content = read_regular(trial / name)
            with atomic(copy / name) as temporary:
                temporary.write_bytes(content)
        try:
            check_trial(copy)
        except DamagedError as error:  # changed since it was looked at
            raise DamagedError(trial / error.path.relative_to(copy), error.problem) from error
        with writing(place):
            sync(copy)
            if keep and (place / RECORD).exists():
                set_aside(place, to)
            elif place.exists():
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


def _files_to_copy(trial: Path) -> list[str]:
    """The files of a trial that are copied: no link, and no name that its record alone has, which others may write."""
    names = (str(path.relative_to(trial)) for path in trial.rglob("*") if not path.is_symlink())
    return sorted(name for name in names if _CARRIED.fullmatch(name))


def _differ(trial: Path, other: Path) -> bool:
    """Whether the copy of a trial is damaged, lacks a file, or has another record, text or answer of the weights."""
    names = _files_to_copy(trial)
    small = [name for name in names if name.endswith(".json")]
    try:
        check_trial(other)
        lacks = {*names} - {*_files_to_copy(other)}
        return bool(lacks) or any(read_regular(trial / name) != read_regular(other / name) for name in small)
    except (ValueError, OSError):
        return True
