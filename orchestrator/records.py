"""The records on disk, found by trial key: the truth that plans, tracking and reports read."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from lm.record import Evaluation, Record, read_curve, read_record
from lm.spec import stage_keys


class Records:
    """The folder `runs/`. A trial whose stages lie inside another trial's record is found there.

    Records are read anew at every look-up by key, since trials settle while a sweep runs; the index of
    inner stages is read once, when a key has no folder of its own.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, key: str) -> Path:
        """The folder of the trial with this key, whether it exists or not."""
        return self.root / key

    def find(self, key: str, reads_from: str | None = None) -> Record | None:
        """The record of a settled trial; its own, or cut out of the one that holds its stages.

        `reads_from` names the trial that the plan expects to hold them.
        """
        holder = self.holder(key, reads_from)
        if holder is None:
            return None
        record = read_record(self.folder(holder))
        return None if record is None else record if record.key == key else record.through(key)

    def curve(self, key: str, reads_from: str | None = None) -> list[Evaluation]:
        """The learning curve so far of a settled or unfinished trial, cut at its last stage."""
        holder = self.holder(key, reads_from)
        record = self.find(key, reads_from)
        curve = read_curve(self.folder(holder or reads_from or key))
        return curve if record is None else [point for point in curve if point.stage in record.spec.stages()]

    def holder(self, key: str, reads_from: str | None = None) -> str | None:
        """The key of the settled trial whose folder holds this trial's stages, None where there is none."""
        for candidate in (key, reads_from, self._inner_stages.get(key)):
            if candidate is not None and (self.folder(candidate) / "record.json").exists():
                return candidate
        return None

    @cached_property
    def _inner_stages(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for path in sorted(self.root.glob("*/record.json")):
            record = read_record(path.parent)
            if record is not None and record.status != "failed":
                finished = {stage.name for stage in record.stages}
                for stage, key in stage_keys(record.spec, record.corpus.fingerprint).items():
                    if stage in finished:
                        found.setdefault(key, record.key)
        return found
