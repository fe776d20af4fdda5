"""Which text stands for a variant: its first seed's, by the weights of the stage that is best on validation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lm.files import DamagedError
from lm.kept import say_once
from lm.record import Record, weights_path
from lm.samples import Samples, read_samples, samples_path
from lm.spec import Generate
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial


@dataclass(frozen=True)
class Writer:
    """A complete trial, its folder with the record there, which may be a longer trial's, and the stage that writes."""

    trial: Trial
    folder: Path
    record: Record
    stage: str

    @property
    def has_weights(self) -> bool:
        """Whether the stage's weights are still there."""
        return weights_path(self.folder, self.stage).exists()

    def path(self, how: Generate) -> Path:
        """Where its samples lie."""
        return samples_path(self.folder, self.stage, how)

    @property
    def weights_hash(self) -> str | None:
        """The SHA-256 of its weights; None in a record from before there were hashes."""
        return self.record.hashes.get(str(weights_path(self.folder, self.stage).relative_to(self.folder)))

    def samples(self, how: Generate) -> Samples | None:
        """What it wrote with these settings; None if nothing yet, or if other weights wrote the file that is there."""
        try:
            written = read_samples(self.path(how))
        except DamagedError as error:
            say_once(f"{error.path}: {error.problem}; it counts as not written")
            return None
        return written if written is not None and written.weights == self.weights_hash else None


def first_trials(trials: Iterable[Trial]) -> list[Trial]:
    """The trial with the lowest seed of each variant; none of a variant with a neural cache, which writes nothing."""
    of_variants: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.spec.cache is None:
            of_variants.setdefault(trial.variant, []).append(trial)
    return [min(seeds, key=lambda trial: trial.seed) for seeds in of_variants.values()]


def writer(trial: Trial, records: Records) -> Writer | None:
    """What writes the trial's text; None unless the trial is complete."""
    record, holder = records.find(trial), records.holder(trial)
    held = records.read(holder)
    if record is None or held is None or record.status != "complete":
        return None
    best = min(record.stages, key=lambda stage: stage.valid.nats_per_token)
    return Writer(trial, records.folder(holder), held, best.name)


def without_text(trials: Iterable[Trial], how: Generate, records: Records) -> list[Writer]:
    """What could write a variant's text and has not; each once."""
    writers = [by for trial in first_trials(trials) if (by := writer(trial, records)) is not None]
    lacking = {each.path(how): each for each in writers if each.has_weights and each.samples(how) is None}
    return list(lacking.values())
