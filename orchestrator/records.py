"""The records on disk, found by trial key: the truth that plans, tracking and reports read."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from lm.record import Evaluation, Record, evaluations, read_curve_table, read_record, token_nats_path
from lm.spec import NUMERICS_VERSION, TrainSpec
from orchestrator.trial import Trial

_log = logging.getLogger(__name__)


def is_settled(trial: Trial, record: Record | None) -> bool:
    """Whether nothing is left to do for a trial: it ended, not by a failure, and test is scored as it asks."""
    return record is not None and record.status != "failed" and (record.tested or not trial.opens_test)


class Records:
    """The folder `runs/`. A trial whose stages lie inside another trial's record is found there.

    Records are read anew at every look-up by key, since trials settle while a sweep runs; the index of
    inner stages is read once, when a key has no folder of its own. With `own_only` nobody looks inside other trials:
    all that has no folder of its own is to be trained anew.
    """

    def __init__(self, root: Path | str, *, own_only: bool = False) -> None:
        self.root = Path(root)
        self._own_only = own_only

    def folder(self, key: str) -> Path:
        """The folder of the trial with this key, whether it exists or not."""
        return self.root / key

    def find(self, trial: Trial) -> Record | None:
        """The record of a settled trial; its own, or cut out of the one that holds its stages."""
        holder = self._holder(trial)
        record = None if holder is None else read_record(self.folder(holder))
        return record if record is None or record.key == trial.key else record.through(trial.key)

    def curve(self, trial: Trial) -> list[Evaluation]:
        """The learning curve so far of a settled or unfinished trial, its own stages only."""
        return evaluations(self.curve_table(trial))

    def curve_table(self, trial: Trial) -> pa.Table:
        """As `curve`, by column (`lm.record.CURVE_SCHEMA`)."""
        table = read_curve_table(self.folder(self._holder(trial) or trial.reads_from or trial.key))
        stages = trial.spec.stages()
        return table.slice(0, sum(stage in stages for stage in table["stage"].to_pylist()))  # its own come first

    def test_losses(self, trial: Trial) -> Path:
        """Where the test loss of every token of a settled trial lies, its last stage's; whether it exists or not."""
        folder = self.folder(self._holder(trial) or trial.key)
        return token_nats_path(folder, list(trial.spec.stages())[-1], "test")

    def source(self, trial: Trial) -> Path | None:
        """The folder with stages that this trial goes on from, its own record's or a longer trial's; None if none."""
        if trial.starts_from is None:
            return None
        own = self.folder(trial.starts_from)
        holder = self._inner_stages.get(trial.starts_from)
        return own if holder is None or (own / "record.json").exists() else self.folder(holder)

    def of_other_numerics(self, trial: Trial) -> Record | None:
        """A record of this very spec that another version of the numerics made, and that no longer counts."""
        return self._other_numerics.get(trial.spec)

    def _holder(self, trial: Trial) -> str | None:
        for key in (trial.key, trial.reads_from):
            if key is not None and (self.folder(key) / "record.json").exists():
                return key
        return self._inner_stages.get(trial.key)

    @cached_property
    def _other_numerics(self) -> dict[TrainSpec, Record]:
        return {record.spec: record for record in self._readable() if record.numerics_version != NUMERICS_VERSION}

    @cached_property
    def _inner_stages(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for record in () if self._own_only else self._readable():
            if record.status != "failed":
                for stage in record.stages:
                    found.setdefault(stage.key, record.key)
        return found

    def _readable(self) -> Iterator[Record]:
        for path in sorted(self.root.glob("*/record.json")):
            try:
                record = read_record(path.parent)
            except ValueError as error:
                _log.warning("%s", error)  # nobody has asked for this very trial
                continue
            if record is not None:
                yield record
