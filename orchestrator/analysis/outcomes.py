"""What became of every planned trial, as the records tell it: the only input of tables, curves and report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa

from lm.kept import say_once
from lm.record import Record, StageResult, opened
from orchestrator.analysis.token_losses import TokenLosses, TokenLossReader
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial

Status = Literal["complete", "diverged", "failed", "unfinished", "missing"]


@dataclass(frozen=True)
class Outcome:
    """A planned trial and where it stands; `reason` says why it is not complete, None where it is.

    `curve` has a row an evaluation (`lm.record.CURVE_SCHEMA`), none where no epoch has ended. `losses` are those on
    test by token, None unless the trial is complete and has them.

    `unfinished` is a trial that was stopped or still runs, `missing` one that has finished no epoch, or is
    trained and not yet scored on test.
    """

    trial: Trial
    status: Status
    reason: str | None
    record: Record | None
    curve: pa.Table
    losses: TokenLosses | None = None

    @property
    def final(self) -> StageResult | None:
        """The last stage's scores, None unless the trial is complete."""
        return self.record.stages[-1] if self.record is not None and self.status == "complete" else None


def read_outcomes(trials: Iterable[Trial], records: Records) -> dict[str, tuple[Outcome, ...]]:
    """The outcomes of each variant, variants in the order of their first trial, seeds in ascending order."""
    found: dict[str, list[Outcome]] = {}
    reader = TokenLossReader()
    for trial in trials:
        found.setdefault(trial.variant, []).append(_read_outcome(trial, records, reader))
    return {variant: tuple(sorted(group, key=lambda outcome: outcome.trial.seed)) for variant, group in found.items()}


def flat(outcomes: Mapping[str, tuple[Outcome, ...]]) -> list[Outcome]:
    """All outcomes, variant by variant."""
    return [outcome for group in outcomes.values() for outcome in group]


def _read_outcome(trial: Trial, records: Records, reader: TokenLossReader) -> Outcome:
    record, curve = records.find(trial), records.curve_table(trial)
    if record is not None and record.status == "complete" and not record.tested:
        return Outcome(trial, "missing", "test not opened yet", None, curve)
    if record is not None and record.status == "complete":
        score = opened(record.stages[-1].test)
        text = f"{record.corpus.fingerprint} in {score.columns} columns after {trial.spec.corpus}"
        return Outcome(trial, "complete", None, record, curve, _losses(records.test_losses(trial), text, reader))
    if record is not None:
        return Outcome(trial, record.status, _why(record), record, curve)
    if curve:
        epoch, stage = (curve[name][-1].as_py() for name in ("epoch", "stage"))
        return Outcome(trial, "unfinished", f"stands after epoch {epoch}, stage {stage}", None, curve)
    if records.is_damaged(trial.reads_from or trial.key):
        return Outcome(trial, "missing", "damaged, to be trained again", None, curve)
    old = records.of_other_numerics(trial)
    why = "no epoch finished yet" if old is None else f"only of numerics version {old.numerics_version} ({old.key})"
    return Outcome(trial, "missing", why, None, curve)


def _losses(path: Path, text: str, reader: TokenLossReader) -> TokenLosses | None:
    try:
        return reader.read(path, text)
    except ValueError as error:  # of a record without hashes: what else it says is believed as it was before
        say_once(f"{error}; the report goes without these")
        return None


def _why(record: Record) -> str:
    said = record.reason or "no reason was recorded"
    at = record.divergence
    if at is None:
        return said
    norm = "" if at.gradient_norm is None else f", gradient norm {at.gradient_norm:.3g}"
    return f"{said}; learning rate {at.learning_rate:.3g}{norm}"
