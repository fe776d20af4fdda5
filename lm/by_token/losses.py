"""The losses of every token that trials left on disk, free of torch. N predicted tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from lm.hashes import TOKENS, check_hashes
from lm.names import nearest
from lm.record import Record, Split, read_record, token_nats_path

Array = NDArray[np.float64]
NATS_WITHOUT_CACHE, CACHE_USED = "nats_without_cache", "cache_used"
"""The further columns of a neural cache's losses by token: those of the same pass without it; 1 where it was used."""


@dataclass(frozen=True)
class Losses:
    """The loss of every predicted token of a text, nats, in the order of the text; arrays (N,).

    `position` counts from the text's first token, `token` is the predicted token's id.
    """

    position: NDArray[np.int32]
    token: NDArray[np.int32]
    nats: Array

    def is_of_the_text_of(self, other: Losses) -> bool:
        """Whether both predict the same tokens at the same positions."""
        return np.array_equal(self.position, other.position) and np.array_equal(self.token, other.token)


@dataclass(frozen=True)
class TrialLosses:
    """A settled trial, and the losses of one of its stages on one split."""

    folder: Path
    record: Record
    stage: str
    losses: Losses


def read_losses(path: Path) -> Losses:
    """The losses in a file; FileNotFoundError if it is gone, ValueError names one that cannot be read."""
    found = read_columns(path, ("position", "token", "nats"))
    return Losses(found["position"], found["token"], found["nats"].astype(np.float64))


def read_cache(path: Path) -> tuple[Losses, Array] | None:
    """The losses with a neural cache where it was used, and those of the same pass without it, nats.

    None if the file has no losses without a cache. Errors as those of `read_losses`.
    """
    try:
        found = read_columns(path, ("position", "token", "nats", NATS_WITHOUT_CACHE, CACHE_USED))
    except KeyError:
        return None
    position, token, nats, plain, used = found.values()
    at = used.astype(bool)
    return Losses(position[at], token[at], nats[at].astype(np.float64)), plain[at].astype(np.float64)


def read_columns(path: Path, names: Sequence[str]) -> Mapping[str, NDArray[Any]]:
    """Columns of numbers, read-only; errors as those of `read_losses`, and KeyError for a column it has not."""
    try:
        with pq.ParquetFile(path) as file:
            table = file.read(columns=list(names), use_threads=False)
        # Not by Arrow's own `to_numpy`, which imports pandas first.
        return {name: np.from_dlpack(table[name].combine_chunks()) for name in names}
    except (FileNotFoundError, KeyError):
        raise
    except (ValueError, OSError, TypeError, pa.ArrowException) as error:
        raise ValueError(f"{path}: not losses by token: {error}") from error


def read_run(folder: Path, split: Split, stage: str | None = None) -> TrialLosses:
    """A trial's losses on a split after a stage, its last one if none is named.

    ValueError says in one line what is wrong: no record, no such stage, a split that was not opened, files that are
    gone; DamagedError, which is one, if a file is not what the trial wrote.
    """
    record, name, path = _scored(folder, split, stage)
    return TrialLosses(folder, record, name, read_losses(path))


def read_cache_run(folder: Path, split: Split) -> tuple[TrialLosses, Array]:
    """A trial's losses with its neural cache where that was used, and those without it; errors as of `read_run`."""
    record, name, path = _scored(folder, split, "cache")
    if (found := read_cache(path)) is None:
        raise ValueError(f"{path}: from before losses without the cache were kept")
    return TrialLosses(folder, record, name, found[0]), found[1]


def _scored(folder: Path, split: Split, stage: str | None) -> tuple[Record, str, Path]:
    """The record of a trial, the stage, and the file of its losses."""
    record = read_record(folder)
    if record is None:
        raise ValueError(f"{folder}: no record.json; only a settled trial has losses to read")
    stages = [result.name for result in record.stages if split == "valid" or result.test is not None]
    if not stages:
        raise ValueError(f"{folder}: no stage of this {record.status} trial was scored on {split}")
    name = stages[-1] if stage is None else stage
    if name not in stages:
        raise ValueError(f"{folder}: no stage {name!r} was scored on {split}{nearest(name, stages)}")
    check_hashes(folder, record.hashes, (TOKENS,))
    path = token_nats_path(folder, name, split)
    if not path.exists():
        raise ValueError(f"{path}: is gone")
    return record, name, path


def check_same_text(runs: Sequence[TrialLosses]) -> None:
    """ValueError names the first run that was not scored on the very tokens of the first."""
    first = runs[0]
    for run in runs[1:]:
        other, corpus = run.record.corpus, first.record.corpus
        if other.fingerprint != corpus.fingerprint:
            same = f"{corpus.name} with the same text and {corpus.vocabulary_size:,} words"
            why = f"corpus {other.name} with {other.vocabulary_size:,} words, not {same}"
        elif not run.losses.is_of_the_text_of(first.losses):
            why = f"{run.losses.position.size:,} tokens in other columns, not {first.losses.position.size:,}"
        else:
            continue
        raise ValueError(f"{run.folder} ({run.stage}): should predict what {first.folder} ({first.stage}) does: {why}")
