"""The records on disk, found by trial key: the truth that plans, tracking and reports read."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from lm.analyzed import Found, read_analysis, trained_stage
from lm.files import DamagedError, in_a_line
from lm.hashes import CURVE, NEEDED_BY_A_MODEL, READ_BY_REPORTS, RECORD, TOKENS, check_hashes
from lm.kept import say_once
from lm.names import nearest
from lm.record import CURVE_SCHEMA, Evaluation, Record, evaluations, read_curve_table, read_record, token_nats_path
from lm.spec import NUMERICS_VERSION, Analysis, TrainSpec
from orchestrator.trials.trial import Trial

KEY = re.compile(r"[0-9a-f]{16}")
"""The names of trial folders."""
FRESH = ".fresh"
"""In a trial's folder: `--fresh` asked for it, so that it is not found inside another trial."""
DISK_FULL, TEXT_CHANGED = "the disk is full or read-only", "the text changed"
STORAGE_LOST = "the storage cannot be reached"
"""These begin the reason of a trial that failed because of them, as the others would."""


def _state_of_files(folder: Path) -> list[tuple[object, ...]]:
    """What changes when a file that reports read is changed, or another takes its place: its inode, size and times.

    Nobody can set the last of these times.
    """
    names = ["", RECORD, CURVE]  # plain text, and no Path: this is asked several times for every trial
    with suppress(OSError):  # each of its files will raise it too
        names += sorted(f"{TOKENS}/{name}" for name in os.listdir(folder / TOKENS))  # noqa: PTH208
    states: list[tuple[object, ...]] = []
    for name in names:
        with suppress(OSError):
            status = os.stat(f"{folder}/{name}")  # noqa: PTH116
            states.append((name, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    return states


def ends_the_command(record: Record | None) -> bool:
    """Whether a trial failed of what the others would fail of too; the next command tries it again, in a search too."""
    reason = "" if record is None or record.status != "failed" else record.reason or ""
    return reason.startswith((DISK_FULL, TEXT_CHANGED, STORAGE_LOST))


def is_settled(trial: Trial, record: Record | None) -> bool:
    """Whether nothing is left to do for a trial: it ended, not by a failure, and test is scored as it asks."""
    return record is not None and record.status != "failed" and (record.tested or not trial.opens_test)


def read_own(folder: Path) -> Record | None:
    """The record in a trial's folder, None if it has none yet. A folder whose name is not a key may hold any record.

    DamagedError names a file that is not a record, was changed since, or is another trial's.
    """
    record = read_record(folder)
    if record is not None and KEY.fullmatch(folder.name) and record.key != folder.name:
        raise DamagedError(folder / RECORD, f"is the record of trial {record.key}")
    return record


def find_key(runs: Path, prefix: str) -> str:
    """The key of the trial in `runs` that begins with the prefix; ValueError if there is none, or are several."""
    keys = sorted(path.name for path in runs.glob("*") if KEY.fullmatch(path.name))
    # The prefix is never joined to the path: no name leads out of the folder.
    matching = [key for key in keys if prefix and key.startswith(prefix)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise ValueError(f"{prefix!r} is ambiguous: {', '.join(matching[:8])}{', ...' if len(matching) > 8 else ''}")
    if not keys:
        raise ValueError(f"no trial {prefix!r} in {runs}, which holds none")
    for holder in read_all(runs).values():
        if prefix and any(key.startswith(prefix) for key in holder.inner_keys):
            raise ValueError(f"trial {prefix!r} has no folder in {runs}: it is a stage of trial {holder.key!r}")
    near = nearest(prefix, keys)
    raise ValueError(f"no trial {prefix!r} in {runs}{near if 'did you mean' in near or len(keys) <= 8 else ''}")


def record_of(runs: Path, prefix: str) -> Record:
    """The record of the trial whose key begins with the prefix; ValueError also if it has none, or a damaged one."""
    folder = runs / find_key(runs, prefix)
    try:
        record = read_own(folder)
    except DamagedError as error:
        raise ValueError(damage_in_a_line(error)) from error
    if record is None:
        raise ValueError(f"{folder}: no record.json: the trial has not settled yet")
    return record


def check_trial(folder: Path, *, weights: bool = False) -> Record | None:
    """The record of a trial, None if it has none yet; DamagedError if a file that reports read is not its own.

    With `weights` also if they, or the codebook, are not. The curve of an unfinished or failed trial, which goes on
    from it, has to be readable.
    """
    record = read_own(folder)
    hashes = {} if record is None else record.hashes
    check_hashes(folder, hashes, READ_BY_REPORTS + (NEEDED_BY_A_MODEL if weights else ()))
    if record is None or record.status == "failed":
        read_curve_table(folder)
    return record


def damage_in_a_line(error: ValueError | OSError) -> str:
    """Which file is not believed, or cannot be read, and what becomes of its trial."""
    if isinstance(error, DamagedError):
        return f"{error.path}: {error.problem}; a sweep that needs this trial sets it aside and trains it again"
    return in_a_line(error) if isinstance(error, OSError) else str(error)


def read_all(runs: Path) -> dict[str, Record]:
    """The record of every settled trial in a folder, by key; one that cannot be read is left out with a warning."""
    records = {}
    for folder in sorted(path.parent for path in runs.glob(f"[!.]*/{RECORD}")):
        try:
            if (record := read_own(folder)) is not None:
                records[folder.name] = record
        except ValueError as error:
            say_once(damage_in_a_line(error))
    return records


class Records:
    """The folder `runs/`. A trial whose stages lie inside another's record is found there, but not after `--fresh`.

    Trials settle while a sweep runs: a record is read, and its files hashed, again once one of them has changed. A
    damaged trial is not done; a warning names it.
    """

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        self._seen: dict[str, tuple[object, Record | None, bool]] = {}

    def folder(self, key: str) -> Path:
        """The folder of the trial with this key, whether it exists or not."""
        return self.root / key

    def read(self, key: str) -> Record | None:
        """The record in this trial's folder, None if it has none yet or is damaged."""
        return self._look(key)[0]

    def is_damaged(self, key: str) -> bool:
        """Whether a file in this trial's folder, if it has one, is not what the trial wrote there."""
        return self._look(key)[1]

    def find(self, trial: Trial) -> Record | None:
        """The record of a settled trial; its own, or cut out of the one that holds its stages."""
        _, record = self._held(trial)
        return None if record is None else self._cut(record, trial)

    def curve(self, trial: Trial) -> list[Evaluation]:
        """The learning curve so far of a settled or unfinished trial, its own stages only."""
        return evaluations(self.curve_table(trial))

    def curve_table(self, trial: Trial, columns: Sequence[str] | None = None) -> pa.Table:
        """As `curve`, by column (`lm.record.CURVE_SCHEMA`): all, or those asked for, `stage` among them."""
        holder, record = self._held(trial)
        key = holder or trial.reads_from or trial.key
        nothing = pa.Table.from_batches([], CURVE_SCHEMA).select(columns or CURVE_SCHEMA.names)
        if record is None and self.is_damaged(key):
            return nothing
        try:
            table = read_curve_table(self.folder(key), columns)
        except DamagedError as error:  # of a record without hashes, or damaged since it was checked
            say_once(f"{error.path}: {error.problem}")
            return nothing
        stages = trial.spec.stages()
        return table.slice(0, sum(stage in stages for stage in table["stage"].to_pylist()))  # its own come first

    def test_losses(self, trial: Trial) -> Path:
        """The file with the test loss of every token of a settled trial, its last stage's, whether it exists or not."""
        record = self.find(trial)
        stages = [*record.best_epochs] if record is not None else []
        return token_nats_path(self.folder(self.holder(trial)), (stages or list(trial.spec.stages()))[-1], "test")

    def analysis(self, trial: Trial, asked: Analysis) -> Found | None:
        """What was found in the weights of a settled trial's last trained stage; None if they were not asked."""
        if (record := self.find(trial)) is None:
            return None
        return read_analysis(self.folder(self.holder(trial)), asked, trained_stage(record), self.hashes(trial))

    def holder(self, trial: Trial) -> str:
        """The key of the folder that holds the stages of a settled trial; its own, if it has no record yet."""
        return self._held(trial)[0] or trial.reads_from or trial.key

    def times(self, key: str, record: Record | None) -> tuple[datetime, datetime] | None:
        """When the trial in this folder began, less its breaks, and ended, by its record or else its curve; or None."""
        seconds, ended = (0.0, None) if record is None else (record.seconds, datetime.fromisoformat(record.finished_at))
        if not seconds:  # a failed trial's record has none
            try:
                curve = read_curve_table(self.folder(key), ["seconds"])["seconds"].to_pylist()
                ended = ended or datetime.fromtimestamp((self.folder(key) / CURVE).stat().st_mtime, UTC)
                seconds = curve[-1] if curve else 0.0
            except (OSError, DamagedError):
                pass  # it is named where its curve is needed
        return None if ended is None else (ended - timedelta(seconds=seconds), ended)

    def hashes(self, trial: Trial) -> dict[str, str]:
        """The hashes of the record that holds a trial's stages and of its files; empty if there is none."""
        _, record = self._held(trial)
        return {} if record is None else record.hashes

    def source(self, trial: Trial) -> Path | None:
        """The folder with stages that this trial continues, its own record's or a longer trial's; None if none."""
        if trial.starts_from is None:
            return None
        own, (holder, _) = self.read(trial.starts_from), next(self._inner(trial.starts_from), (None, None))
        return self.folder(trial.starts_from if holder is None or (own and own.status != "failed") else holder)

    def _held(self, trial: Trial) -> tuple[str, Record] | tuple[None, None]:
        """The key of the folder that holds the trial's stages, and the record there; none if its own is damaged.

        One that settles the trial comes first: its own may be of an attempt that failed.
        """
        looks = [(key, *self._look(key)) for key in (trial.key, trial.reads_from) if key is not None]
        held = [(key, record) for key, record, _ in looks if record is not None]
        trained = any(record.status != "failed" for _, record in held)
        alone = trained or any(damaged for *_, damaged in looks)
        first: tuple[str, Record] | None = None
        for key, record in itertools.chain(held, () if alone else self._inner(trial.key)):
            if is_settled(trial, self._cut(record, trial)):
                return key, record
            first = first or (key, record)
        return first or (None, None)

    def _cut(self, record: Record, trial: Trial) -> Record | None:
        """A trial's part of a record that may be a longer trial's; None, with a warning, if that lacks its stage."""
        try:
            return record if record.key == trial.key else record.through(trial.key)
        except KeyError as error:  # of a record without hashes that was changed by hand
            say_once(f"{self.root}: {error.args[0]}")
            return None

    def _inner(self, key: str) -> Iterator[tuple[str, Record]]:
        """The whole trials that went through the stages of the trial with this key, and their records."""
        for holder in self._inner_stages.get(key, ()):
            if (record := self.read(holder)) is not None and not (self.folder(key) / FRESH).exists():
                yield holder, record

    def _look(self, key: str) -> tuple[Record | None, bool]:
        """The record in a trial's folder, and whether a file there is damaged, of which a warning is logged."""
        folder = self.folder(key)
        state = _state_of_files(folder)
        if (seen := self._seen.get(key)) is not None and seen[0] == state:
            return seen[1:]
        record, damaged = None, False
        try:
            record = check_trial(folder)
        except DamagedError as error:
            say_once(damage_in_a_line(error))
            damaged = True
            if isinstance(error.__cause__, OSError):  # it could not be read, which may pass
                return None, True
        self._seen[key] = state, record, damaged
        return record, damaged

    @cached_property
    def of_other_numerics(self) -> dict[TrainSpec, Record]:
        """Records by spec that another version of the numerics made, and that no longer count."""
        records = read_all(self.root).values()
        return {record.spec: record for record in records if record.numerics_version != NUMERICS_VERSION}

    @cached_property
    def _inner_stages(self) -> dict[str, list[str]]:
        """The keys of the trials that went through each stage, by the stage's key."""
        holders: dict[str, list[str]] = {}
        for record in read_all(self.root).values():
            if record.status != "failed":
                for key in record.inner_keys:
                    holders.setdefault(key, []).append(record.key)
        return holders
