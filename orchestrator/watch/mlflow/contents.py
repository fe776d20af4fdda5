"""What a trial's run in MLflow holds: its parameters, numbers and tags, as plain data."""

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
from orchestrator.watch.mlflow.store import STEP_METRIC, Measure, RunStatus

_CURVE = (
    "train_nats_per_token",
    "valid_nats_per_token",
    "learning_rate",
    "gradient_norm",
    "tokens_per_second",
    "step",
    "tokens",
    STEP_METRIC,  # last: where it stands, the whole point stands
)
_LONGEST_PARAM = 6000
_LONGEST_TAG = 1000
_LONGEST_KEY = 250
VERDICT = "verdict."
"""How the tag of a variant's verdict begins; the variant follows."""


def findings(answer: str, verdicts: Mapping[str, str]) -> dict[str, str]:
    """The tags `answer` and `verdict.<variant>` of a sweep.

    A variant's name that MLflow does not take as it is loses the characters that it forbids and what is too long, and
    ends in eight digits of its hash, so that no two variants share a tag.
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


def run_status(status: str) -> RunStatus:
    """MLflow's word for where a trial or a sweep stands; everything that can go on later is KILLED."""
    words: dict[str, RunStatus] = {
        "running": "RUNNING",
        "complete": "FINISHED",
        "diverged": "FAILED",
        "failed": "FAILED",
    }
    return words.get(status, "KILLED")


def params(spec: TrainSpec) -> dict[str, str]:
    """The whole spec, flat and dotted, each value as YAML would write it."""
    return {
        name: (value if isinstance(value, str) else json.dumps(value))[:_LONGEST_PARAM]
        for name, value in _flat(spec.model_dump(mode="json"))
    }


def curve_measures(evaluation: Evaluation, record: Record | None) -> list[Measure]:
    """The finite numbers of one evaluation, the epoch as step; of a settled trial at the time they were made."""
    at = int(time.time() * 1000)
    if record is not None:
        at = finished_milliseconds(record) - int(1000 * max(0.0, record.seconds - evaluation.seconds))
    metrics = evaluation.as_metrics()
    terms = [name for name in metrics if name.startswith("term.")]
    numbers = [(name, float(metrics[name])) for name in ("valid_perplexity", *terms, *_CURVE)]
    return [Measure(name, value, evaluation.epoch, at) for name, value in numbers if math.isfinite(value)]


def final_measures(record: Record) -> list[Measure]:
    """The results of a settled trial: `<stage>/...` of every finished stage, `final/...` of the trial."""
    at, epochs = finished_milliseconds(record), 0
    measures: list[Measure] = []
    for stage in record.stages:
        epochs += stage.epochs
        measures += [Measure(f"{stage.name}/{name}", value, epochs, at) for name, value in _scores(stage).items()]
    final = {
        "seconds": record.seconds,
        "tokens_per_second": record.tokens_per_second,
        "peak_memory_bytes": record.peak_memory_bytes,
        "parameters": record.parameters,
    }
    if record.status == "complete":
        final |= _scores(record.stages[-1])
    measures += [Measure(f"final/{name}", value, epochs, at) for name, value in final.items()]
    return [measure for measure in measures if math.isfinite(measure.value)]


def settled_tags(record: Record | None) -> dict[str, str]:
    """What only a settled trial knows of itself; nothing but an empty reason for another."""
    if record is None:
        return {"reason": ""}
    tags = {"device": record.device, "corpus_fingerprint": record.corpus.fingerprint, "commit": record.commit or ""}
    return tags | {"reason": (record.reason or "")[:_LONGEST_TAG]}


def trial_tags(trial: Trial) -> dict[str, str]:
    """What names a trial."""
    named = {"variant": trial.variant, "change": trial.change, "seed": str(trial.seed), "trial_key": trial.key}
    return {name: value[:_LONGEST_TAG] for name, value in named.items()}


def marker(record: Record | None, epochs: Iterable[int]) -> str:
    """The tag `mirrored` of a run that holds this record, or an unfinished trial's curve."""
    if record is None:
        return f"epoch {max(epochs, default=0)}"
    return f"{record.status} {record.finished_at}"


def finished_milliseconds(record: Record) -> int:
    """When the trial settled; the same at every mirroring, so that MLflow keeps one of two equal numbers."""
    return int(datetime.fromisoformat(record.finished_at).timestamp() * 1000)


def _scores(stage: StageResult) -> dict[str, float]:
    """A stage's perplexities, and what its head measures of itself, by split: `test.marginal_nats_per_token`."""
    scores = {f"{split}.{name}": value for split, found in stage.measures.items() for name, value in found.items()}
    for split, score in (("valid", stage.valid), ("test", stage.test)):
        if score is not None:
            scores[f"{split}_perplexity"] = score.perplexity
            scores[f"{split}_perplexity_reference"] = score.perplexity_reference
    fitted = {f"fitted.{name}": value for name, value in stage.fitted.items()}
    return scores | fitted | {"best_epoch": stage.best_epoch}


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
