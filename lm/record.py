"""What a trial says while it runs (`Evaluation`) and what it leaves on disk (`Record`), free of torch.

runs/<key>/record.json                     written last: where it stands, the trial is settled
           curve.parquet                   one row an Evaluation
           tokens/<stage>.<split>.parquet  every predicted token: position, id, how often training has it, loss in nats
           weights/<stage>.safetensors     the weights that validation chose at the end of the stage
           codebook.npz                    an ECOC head's; its weights mean nothing with another
           checkpoints/                    only while the trial is under way
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from pydantic import Field, ValidationError, model_validator

from lm.costs import HeadCost
from lm.files import DamagedError, read_regular, write_text
from lm.hashes import CODEBOOK, CURVE, RECORD, content_hash, file_hashes, is_whole
from lm.spec import Part, TrainSpec, trial_key
from lm.tables import read_table, write_table

Split = Literal["valid", "test"]


def perplexity(nats_per_token: float) -> float:
    """exp of the loss; infinite where the double overflows."""
    return math.inf if nats_per_token >= 700.0 else math.exp(nats_per_token)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One point of a learning curve: the state of a trial at the end of an epoch.

    `epoch`, `step`, `tokens` and `seconds` count from the trial's beginning, over all stages. The losses are
    natural logarithms per predicted token; `valid_nats_per_token` belongs to the averaged weights once
    `averaging` is true. `train_nats_per_token` is what the head trains on: the exact loss, with dropout, of most
    heads, else its own estimate as it is scaled, which compares with no other head's. `gradient_norm` is the epoch's
    mean, before clipping; `terms` are by name the epoch's means of what the head adds to its loss, and what the spec's
    `epoch_measures` say of the weights that were scored.
    `raw_valid_nats_per_token` is the last iterate's loss beside its average's, None where `averaging` is false or
    `scoring.raw_iterate` did not ask for it.
    """

    stage: str
    epoch: int
    step: int
    tokens: int
    seconds: float
    tokens_per_second: float
    train_nats_per_token: float
    valid_nats_per_token: float
    learning_rate: float
    gradient_norm: float
    averaging: bool
    best: bool
    terms: dict[str, float] = dataclasses.field(default_factory=dict)
    raw_valid_nats_per_token: float | None = None

    @property
    def valid_perplexity(self) -> float:
        """exp of the validation loss; infinite where the double overflows."""
        return perplexity(self.valid_nats_per_token)

    def as_metrics(self) -> dict[str, float | int | str | bool]:
        """All fields that have a value, and the validation perplexity, flat; a term is called `term.<name>`."""
        fields = {name: value for name, value in dataclasses.asdict(self).items() if value is not None}
        terms = {f"term.{name}": value for name, value in fields.pop("terms").items()}
        return fields | terms | {"valid_perplexity": self.valid_perplexity}


class Score(Part):
    """A loss over one split. `perplexity_reference` divides by all rows, as the AWD-LSTM authors' code does.

    A loss too large for its perplexity leaves that infinite: "Infinity" in a record, since JSON has no such number.
    """

    nats_per_token: float
    predicted_tokens: int
    columns: int
    perplexity: float
    perplexity_reference: float


def opened(score: Score | None) -> Score:
    """A score on test; ValueError where the test text has not been opened."""
    if score is None:
        raise ValueError("the test text has not been opened")
    return score


class CacheResult(Part):
    """The neural cache's chosen values, and the scores of the same one-column pass without it.

    `plain_test` is None while the test text has not been opened.
    """

    window: int
    weight: float
    flatness: float
    plain_valid: Score
    plain_test: Score | None


class StageResult(Part):
    """A finished stage: scores of the weights that validation chose. `key` names the trial that ends here.

    `test` is None where the test text has not been opened; its measures are missing then too.
    """

    name: str
    key: str
    epochs: int
    best_epoch: int
    steps: int
    train_seconds: float
    evaluation_seconds: float
    tokens_per_second: float
    averaging_from_epoch: int | None
    stopped_early: bool
    valid: Score
    test: Score | None
    cache: CacheResult | None
    measures: dict[Split, dict[str, float]] = Field(default={}, description="what the head reports beside perplexity")
    fitted: dict[str, float] = Field(default={}, description="what of the head's distribution validation chose")

    def without_test(self) -> StageResult:
        """This result without anything that came from the test text."""
        cache = self.cache and self.cache.model_copy(update={"plain_test": None})
        measures = {split: found for split, found in self.measures.items() if split != "test"}
        return self.model_copy(update={"test": None, "cache": cache, "measures": measures})


class Divergence(Part):
    """Where a loss was not finite any more, or too large for a perplexity."""

    stage: str
    epoch: int
    step: int
    learning_rate: float
    gradient_norm: float | None


class CorpusFacts(Part):
    """What the trial read."""

    name: str
    fingerprint: str
    train_tokens: int
    valid_tokens: int
    test_tokens: int
    vocabulary_size: int
    vocabulary_rule: str
    unigram_nats: dict[Split, float] = Field(
        default={}, description="mean loss per token of the training text's unigram model, each count raised by one"
    )


class Record(Part):
    """What a settled trial leaves: enough to believe it and to repeat it.

    Status `complete` has every stage; `diverged` and `failed` have those that ended before, and a reason.
    """

    key: str
    status: Literal["complete", "diverged", "failed"]
    reason: str | None
    divergence: Divergence | None
    spec: TrainSpec
    stages: tuple[StageResult, ...]
    parameters: int
    head_cost: HeadCost | None = Field(default=None, description="by formula, for a window of the base length")
    codebook: str | None = Field(default=None, description="fingerprint of the codebook that the weights belong to")
    corpus: CorpusFacts
    seconds: float
    tokens_per_second: float
    peak_memory_bytes: int
    device: str
    threads: int
    versions: dict[str, str]
    commit: str | None
    numerics_version: int
    finished_at: str
    note: str | None = Field(default=None, description="what happened on the way that left the numbers as they are")
    hashes: dict[str, str] = Field(default={}, description="SHA-256 of the trial's files, and of this record itself")

    @model_validator(mode="before")
    @classmethod
    def _codes_before_they_were_fitted(cls, data: Any) -> Any:
        """Until numerics version 2 a code's distribution had temperature 1, which its spec had no word for."""
        if isinstance(data, dict) and data.get("numerics_version") == 1:
            head = data.get("spec", {}).get("head", {}) if isinstance(data.get("spec"), dict) else {}
            if isinstance(head, dict) and head.get("kind") == "ecoc":
                head.setdefault("probability", {"kind": "codewords", "temperature": 1.0})
        return data

    @property
    def tested(self) -> bool:
        """Whether every finished stage has its score on test."""
        return all(stage.test is not None for stage in self.stages)

    @property
    def unfinished_seconds(self) -> float:
        """What stages took that have no result, because one diverged; 0 in records of older versions."""
        return self.seconds - sum(stage.train_seconds + stage.evaluation_seconds for stage in self.stages)

    @property
    def best_epochs(self) -> dict[str, int]:
        """The best epoch of the trial after each finished stage."""
        return {stage.name: stage.best_epoch for stage in self.stages}

    @property
    def inner_keys(self) -> list[str]:
        """The keys of shorter trials that this one contains: they end at one of its stages, or of its fine-tunings."""
        done = {stage.name: stage.key for stage in self.stages}  # keys of the numerics version that made them
        return [
            done.get(name) or trial_key(prefix, self.corpus.fingerprint)
            for name, prefix in self.spec.stages().items()
            if name in done or not prefix.stages_left(self.best_epochs)
        ]

    def through(self, key: str) -> Record:
        """The record of the trial with this key, which ends at one of this trial's stages; KeyError if none does."""
        done = {stage.name: stage.key for stage in self.stages}
        for name, prefix in self.spec.stages().items():
            if key != (done.get(name) or trial_key(prefix, self.corpus.fingerprint)):
                continue
            kept = tuple(stage for stage in self.stages if stage.name in prefix.stages())
            update: dict[str, Any] = {"key": key, "spec": prefix, "stages": kept, "hashes": {}}
            if not prefix.stages_left(self.best_epochs):
                update |= {"status": "complete", "reason": None, "divergence": None}
                update |= {"seconds": sum(s.train_seconds + s.evaluation_seconds for s in kept)}
            return self.model_copy(update=update)
        raise KeyError(f"record {self.key} has no stage {key}")


_ARROW = {
    "str": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "dict[str, float]": pa.map_(pa.string(), pa.float64()),
}
_FIELDS = [(field.name, str(field.type)) for field in dataclasses.fields(Evaluation)]
CURVE_SCHEMA = pa.schema([(name, _ARROW[form]) for name, form in _FIELDS if form in _ARROW])
RAW_NATS = pa.field("raw_valid_nats_per_token", pa.float64())
"""A column that only curves have whose spec asks for it, null before averaging begins."""


def write_record(folder: Path, record: Record) -> None:
    """Write `record.json`, the last file of a settled trial, with the hash of each file that belongs to it.

    A failed trial is tried again and writes its files meanwhile: its record speaks for itself alone.
    """
    files = [] if record.status == "failed" else [folder / CURVE, codebook_path(folder)]
    files += [path for stage in record.stages if files for path in stage_files(folder, stage)]
    hashes = file_hashes(folder, files, record.hashes) | {RECORD: content_hash(record.model_dump_json())}
    write_text(folder / RECORD, record.model_copy(update={"hashes": hashes}).model_dump_json(indent=1) + "\n")


def read_record(folder: Path) -> Record | None:
    """The record in a trial's folder, None where it has none yet.

    DamagedError names a file that is no record, or was changed since, ValueError a whole one that another version of
    this code wrote. One without hashes, from before there were any, is believed.
    """
    path = folder / RECORD
    try:
        text = read_regular(path)
        record = Record.model_validate_json(text)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DamagedError(path, error.strerror or str(error)) from error
    except ValidationError as error:
        first = error.errors()[0]
        problem = f"not a record of this version: {': '.join((*map(str, first['loc']), first['msg']))}"
        raise (ValueError(f"{path}: {problem}") if is_whole(text) else DamagedError(path, problem)) from error
    if record.hashes and record.hashes.get(RECORD) != content_hash(text):
        raise DamagedError(path, "is not the record that the trial wrote")
    return record


def write_curve(folder: Path, curve: Iterable[Evaluation]) -> None:
    """Write the learning curve as Parquet."""
    write_table(folder / CURVE, curve_table(curve))


def curve_table(curve: Iterable[Evaluation]) -> pa.Table:
    """A learning curve as a table, a row an evaluation; with `RAW_NATS` if one has it."""
    rows = [dataclasses.asdict(point) for point in curve]
    has_raw = any(row[RAW_NATS.name] is not None for row in rows)
    return pa.Table.from_pylist(rows, schema=CURVE_SCHEMA.append(RAW_NATS) if has_raw else CURVE_SCHEMA)


def read_curve(folder: Path) -> list[Evaluation]:
    """The learning curve of a trial's folder; empty where none was written. DamagedError names a damaged one."""
    return evaluations(read_curve_table(folder))


def evaluations(table: pa.Table) -> list[Evaluation]:
    """The rows of a learning curve."""
    *columns, terms = (table[name].to_pylist() for name in CURVE_SCHEMA.names)
    raw = table[RAW_NATS.name].to_pylist() if RAW_NATS.name in table.column_names else [None] * len(table)
    return [Evaluation(*row) for row in zip(*columns, map(dict, terms), raw, strict=True)]


def read_curve_table(folder: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """As `read_curve`, by column, all or some of them: nothing is made for each evaluation."""
    path, schema = folder / CURVE, pa.schema([CURVE_SCHEMA.field(name) for name in columns or CURVE_SCHEMA.names])
    if not path.exists():
        return pa.Table.from_batches([], schema)  # Arrow imports pandas to make an empty array
    try:
        # Heads had no terms of their own at first.
        return read_table(path, schema, later="terms", optional=RAW_NATS if columns is None else None)
    except (ValueError, KeyError, OSError) as error:  # no Parquet, other columns, pages that end too soon
        raise DamagedError(path, f"not a curve of this version: {' '.join(str(error).split())}") from error


def token_nats_path(folder: Path, stage: str, split: Split) -> Path:
    """Where a stage's loss of every predicted token lies; its columns are those of `lm.evaluate.TokenNats`."""
    return folder / "tokens" / f"{stage}.{split}.parquet"


def weights_path(folder: Path, stage: str) -> Path:
    """Where a stage's chosen weights lie."""
    return folder / "weights" / f"{stage}.safetensors"


def codebook_path(folder: Path) -> Path:
    """Where a trial with an ECOC head keeps its codebook."""
    return folder / CODEBOOK


def stage_files(folder: Path, result: StageResult) -> list[Path]:
    """What a finished stage leaves in its trial's folder: its weights, where it trained, and its losses."""
    splits: tuple[Split, ...] = ("valid", "test") if result.test is not None else ("valid",)
    weights = [] if result.name == "cache" else [weights_path(folder, result.name)]
    return weights + [token_nats_path(folder, result.name, split) for split in splits]
