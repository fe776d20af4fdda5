"""What a run in MLflow holds: parameters, numbers and tags, as plain data."""

from __future__ import annotations

import hashlib
import json
import math
import posixpath
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from lm.record import Evaluation, Record, StageResult
from lm.spec import TrainSpec
from orchestrator.trials.trial import Trial
from orchestrator.watch.mlflow.store import STEP_METRIC, Measure

_NO_METRICS = ("stage", "epoch", "averaging", "best")
_STATUSES = {"running": "RUNNING", "complete": "FINISHED", "diverged": "FAILED", "failed": "FAILED"}
_LONGEST_PARAM = 6000
_LONGEST_TAG = 1000
_LONGEST_KEY = 250
VERDICT = "verdict."
"""How the tag of a variant's verdict begins; the variant follows."""


def findings(answer: str, verdicts: Mapping[str, str]) -> dict[str, str]:
    """The tags `answer` and `verdict.<variant>` of a sweep.

    If MLflow does not take a variant's name, characters that it forbids are replaced and the end is cut; eight digits
    of the name's hash keep two variants from sharing a tag.
    """
    tags = {_verdict_key(variant): verdict[:_LONGEST_TAG] for variant, verdict in verdicts.items()}
    return tags | {"answer": answer[:_LONGEST_TAG]}


def _verdict_key(variant: str) -> str:
    key = VERDICT + variant
    plain = re.sub(r"[^\w.\- :/]", "_", key)
    if posixpath.normpath(plain) != plain:  # MLflow reads a key as a path, and wants one spelling of it
        plain = plain.replace("/", "_")
    if plain == key and len(key) <= _LONGEST_KEY:
        return key
    return f"{plain[: _LONGEST_KEY - 9]}-{hashlib.sha256(variant.encode()).hexdigest()[:8]}"


def run_status(status: str) -> str:
    """MLflow's word for the status of a trial or a sweep; KILLED is everything that can go on later."""
    return _STATUSES.get(status, "KILLED")


def params(spec: TrainSpec) -> dict[str, str]:
    """The whole spec, flat and dotted, each value as YAML would write it."""
    return {
        name: (value if isinstance(value, str) else json.dumps(value))[:_LONGEST_PARAM]
        for name, value in _flat(spec.model_dump(mode="json"))
    }


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def curve_measures(evaluation: Evaluation, record: Record | None) -> list[Measure]:
    """The finite numbers of one evaluation, the epoch as step; of a settled trial at the time they were made."""
    numbers = {name: float(value) for name, value in evaluation.as_metrics().items() if name not in _NO_METRICS}
    numbers[STEP_METRIC] = numbers.pop(STEP_METRIC)  # last, so that MLflow holds the whole point if it holds this
    at = int(time.time() * 1000)
    if record is not None:
        at = milliseconds(record)[0] + int(1000 * min(evaluation.seconds, record.seconds))
    return _finite(numbers, at, evaluation.epoch)


def final_measures(record: Record) -> list[Measure]:
    """The results of a settled trial: `<stage>/...` of every finished stage, `final/...` of the trial."""
    _, at = milliseconds(record)
    measures, epochs = list[Measure](), 0
    for stage in record.stages:
        epochs += stage.epochs
        measures += _finite({f"{stage.name}/{name}": value for name, value in _scores(stage).items()}, at, epochs)
    names = ("seconds", "tokens_per_second", "peak_memory_bytes", "parameters")
    final = {name: float(getattr(record, name)) for name in names}
    if record.status == "complete":
        final |= _scores(record.stages[-1])
    return measures + _finite({f"final/{name}": value for name, value in final.items()}, at, epochs)


def _scores(stage: StageResult) -> dict[str, float]:
    """A stage's perplexities, and what its head measures of itself, by split: `test.marginal_nats_per_token`."""
    scores = {f"{split}.{name}": value for split, values in stage.measures.items() for name, value in values.items()}
    for split, score in (("valid", stage.valid), ("test", stage.test)):
        if score is not None:
            scores[f"{split}_perplexity"] = score.perplexity
            scores[f"{split}_perplexity_reference"] = score.perplexity_reference
    fitted = {f"fitted.{name}": value for name, value in stage.fitted.items()}
    return scores | fitted | {"best_epoch": stage.best_epoch}


def _finite(values: Mapping[str, float], milliseconds: int, step: int) -> list[Measure]:
    return [Measure(name, value, milliseconds, step) for name, value in values.items() if math.isfinite(value)]


def trial_tags(trial: Trial) -> dict[str, str]:
    """What names a trial."""
    tags = {"variant": trial.variant, "change": trial.change, "seed": str(trial.seed), "trial_key": trial.key}
    return {name: value[:_LONGEST_TAG] for name, value in tags.items()}


def record_tags(record: Record | None) -> dict[str, str]:
    """What a record says of its trial; of one without a record, an empty reason in the place of an earlier one."""
    if record is None:
        return {"reason": ""}
    tags = {"device": record.device, "corpus_fingerprint": record.corpus.fingerprint, "commit": record.commit or ""}
    return tags | {"reason": (record.reason or "")[:_LONGEST_TAG]}


def mirrored(record: Record | None, epochs: Iterable[int]) -> str:
    """The tag `mirrored` of a run that holds all of this record, or of an unfinished trial's curve."""
    if record is None:
        return f"epoch {max(epochs, default=0)}"
    return f"{record.status} {record.finished_at}"


def milliseconds(record: Record) -> tuple[int, int]:
    """When the trial began and settled; always the same, so that MLflow keeps one of two equal numbers."""
    settled = int(datetime.fromisoformat(record.finished_at).timestamp() * 1000)
    return settled - int(1000 * record.seconds), settled
