"""What became of every planned trial, as the records tell it: the only input of tables, curves and report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lm.by_token.losses import read_columns
from lm.kept import say_once
from lm.record import Record, StageResult, opened
from orchestrator.analysis.noise import BLOCKS, Array
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial, budget_of
from orchestrator.words import counted

OutcomeStatus = Literal["complete", "diverged", "failed", "unfinished", "missing"]
_EDGES = (1, 10, 100, 1_000, 10_000)
CLASSES = ("never", "1–9", "10–99", "100–999", "1,000–9,999", "10,000+")
"""How often the training text has a word: a decade a class."""


@dataclass(frozen=True)
class TokenLosses:
    """Mean losses, nats per token: of consecutive blocks of the test text, and of the words of each class.

    A class without tokens has nan; `shares` are the classes' shares of the tokens.
    """

    blocks: Array
    classes: Array
    shares: Array


@dataclass(frozen=True)
class Outcome:
    """A planned trial and where it stands; `reason` says why it is not complete, None where it is.

    `curve` has a row an evaluation (`lm.record.CURVE_SCHEMA`), none where no epoch has ended. `losses` are those on
    test by token, None unless the trial is complete and has them.

    `unfinished` is a trial that was stopped or still runs, `missing` one that has finished no epoch, or is
    trained and not yet scored on test.
    """

    trial: Trial
    status: OutcomeStatus
    reason: str | None
    record: Record | None
    curve: pa.Table
    losses: TokenLosses | None = None

    @property
    def final(self) -> StageResult | None:
        """The last stage's scores, None unless the trial is complete."""
        return self.record.stages[-1] if self.record is not None and self.status == "complete" else None


Group = tuple[Outcome, ...]
"""A variant's outcomes, one a seed."""


class Outcomes(dict[str, Group]):
    """The outcomes of each variant, variants in the plan's order, seeds in ascending order; and which is the baseline.

    ValueError if the baseline is not among them.
    """

    def __init__(self, groups: Mapping[str, Group], baseline: str) -> None:
        super().__init__(groups)
        self.baseline = baseline
        if baseline not in self:
            raise ValueError(f"a report compares with the variant {baseline!r}, got {sorted(self)}")

    @property
    def of_baseline(self) -> Group:
        """The baseline's outcomes."""
        return self[self.baseline]

    @property
    def seeds(self) -> int:
        """The most seeds of a variant; of the baseline, if there is no other."""
        others = (len(group) for name, group in self.items() if name != self.baseline)
        return max(others, default=len(self.of_baseline))

    @property
    def all(self) -> list[Outcome]:
        """All outcomes, variant by variant."""
        return [outcome for group in self.values() for outcome in group]


def read_outcomes(trials: Iterable[Trial], records: Records, baseline: str) -> Outcomes:
    """What became of the trials; variants in the order of their first trial. ValueError if the baseline has none."""
    groups: dict[str, list[Outcome]] = {}
    reader = TokenLossReader()
    for trial in trials:
        groups.setdefault(trial.variant, []).append(_read_outcome(trial, records, reader))
    by_seed = {name: tuple(sorted(group, key=lambda outcome: outcome.trial.seed)) for name, group in groups.items()}
    return Outcomes(by_seed, baseline)


def is_adaptive(group: Sequence[Outcome]) -> bool:
    """Whether the variant's scores come from a model that adapts to the text it is scored on."""
    return group[0].trial.spec.cache is not None


def last_trained(record: Record) -> StageResult:
    """The last stage that trains, whose weights the results are of; the cache trains nothing."""
    return [stage for stage in record.stages if stage.name != "cache"][-1]


def incomplete_seeds(group: Sequence[Outcome]) -> str:
    """How many seeds of a variant are not complete, and why: `1 of 3 seeds diverged`; empty if all are."""
    statuses = Counter(outcome.status for outcome in group if outcome.final is None)
    seeds = counted(len(group), "seed")
    return ", ".join(f"{count} of {seeds} {status}" for status, count in statuses.items())


@dataclass(frozen=True, eq=False)
class Curve:
    """A learning curve: evaluations in the order of their epochs; fields and units of `lm.record.Evaluation`.

    Arrays, because a page reads half a million evaluations. The raw iterate's loss is nan where there is none.
    """

    epoch: NDArray[np.int64]
    seconds: NDArray[np.float64]
    train_nats_per_token: NDArray[np.float64]
    valid_nats_per_token: NDArray[np.float64]
    averaging: NDArray[np.bool_]
    stage: NDArray[np.str_]
    raw_valid_nats_per_token: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.epoch)

    def at(self, places: NDArray[np.bool_]) -> Curve:
        """The evaluations at these places alone."""
        return Curve(*(values[places] for values in vars(self).values()))


def curve_of(table: pa.Table) -> Curve:
    """The arrays of `lm.record.read_curve_table`'s columns; TypeError where numbers are nulls."""

    def numbers(name: str) -> NDArray[Any]:  # Arrow's own `to_numpy` imports pandas first, in a quarter second
        return np.from_dlpack(table[name].combine_chunks())

    raw = "raw_valid_nats_per_token"
    return Curve(
        numbers("epoch"),
        numbers("seconds"),
        numbers("train_nats_per_token"),
        numbers("valid_nats_per_token"),
        np.array(table["averaging"].to_pylist(), dtype=bool),
        np.array(table["stage"].to_pylist(), dtype=str),
        np.array(table[raw].to_pylist() if raw in table.column_names else [np.nan] * len(table), dtype=float),
    )


def averaged_seeds(group: Sequence[Outcome]) -> tuple[int, int] | None:
    """In how many of its complete seeds NT-ASGD began to average before fine-tuning; None without NT-ASGD."""
    final = [outcome for outcome in group if outcome.final]
    if not final or final[0].trial.spec.optimizer.kind != "nt_asgd":
        return None
    curves = [curve_of(outcome.curve) for outcome in final]
    began = [(curve.averaging & ~np.char.startswith(curve.stage, "finetune")).any() for curve in curves]
    return sum(map(bool, began)), len(final)


def budget(group: Sequence[Outcome]) -> tuple[int, int | None, int | None]:
    """What a trial of the variant may train on: epochs, length of the training text, and its start, if all have one."""
    epochs, length, _ = budget_of(group[0].trial.spec)
    starts = {outcome.trial.spec.corpus.train_start for outcome in group}  # several where the stretch `varies`
    return epochs, length, starts.pop() if len(starts) == 1 else None


def budgets_of(groups: Iterable[Sequence[Outcome]]) -> set[tuple[int, int | None, int | None]]:
    """The budgets of some variants; if one of them has several starts, because they vary with the seed, without any."""
    budgets = {budget(group) for group in groups}
    varies = any(start is None for _, _, start in budgets)
    return {(epochs, length, None) for epochs, length, _ in budgets} if varies else budgets


class TokenLossReader:
    """Reads losses by token; which words a text has is read once, for all trials scored on it."""

    def __init__(self) -> None:
        self._classes: dict[str, NDArray[np.int64]] = {}

    def read(self, path: Path, text: str) -> TokenLosses | None:
        """A trial's losses on the named text; None where the file is gone, is older than its word counts,
        or has fewer tokens than a text is cut into blocks.

        ValueError names a file that cannot be read.
        """
        try:
            losses = read_columns(path, ["nats"])["nats"].astype(np.float64)
            if text not in self._classes:
                counts = read_columns(path, ["training_count"])["training_count"]
                self._classes[text] = np.searchsorted(_EDGES, counts, side="right")
        except (FileNotFoundError, KeyError):
            return None
        if losses.size < BLOCKS:
            return None
        if losses.size != self._classes[text].size:
            raise ValueError(f"{path}: {losses.size} losses of a text of {self._classes[text].size} tokens")
        edges = np.linspace(0, losses.size, BLOCKS + 1).astype(np.int64)
        sizes = np.bincount(self._classes[text], minlength=len(CLASSES))
        totals = np.bincount(self._classes[text], weights=losses, minlength=len(CLASSES))
        means = np.divide(totals, sizes, out=np.full(len(CLASSES), np.nan), where=sizes > 0)
        return TokenLosses(np.add.reduceat(losses, edges[:-1]) / np.diff(edges), means, sizes / losses.size)


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
    old = records.of_other_numerics.get(trial.spec)
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
