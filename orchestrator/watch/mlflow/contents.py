"""What MLflow shows of a trial and of a sweep: numbers, parameters and tags.

MLflow draws a chart for every name, in sections by what stands before the last slash, in alphabetical order:

curve/     by epoch: losses, perplexity, learning rate, gradient norm
final/     the trial's perplexities
progress/  by epoch: steps, tokens, seconds, speed
stage/     the perplexities of each stage: stage/train/test_perplexity

What is one number for a whole trial, and not a score, is a parameter or a tag.
"""

from __future__ import annotations

import hashlib
import json
import math
import posixpath
import re
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from lm.record import Evaluation, Record, StageResult
from orchestrator.trials.trial import Trial
from orchestrator.watch.mlflow.store import STEP_METRIC, Measure, Run

VERDICT = "verdict."
DONE, BEST = "curve/trials_done", "curve/best_valid_perplexity"
TEST = "/test_perplexity"
_NO_METRICS = ("stage", "epoch", "averaging", "best")
_PROGRESS = ("step", "tokens", "seconds", "tokens_per_second")
_LONGEST_PARAM = 6000
_LONGEST_TAG = 1000
_LONGEST_KEY = 250


def findings(answer: str, verdicts: Mapping[str, str]) -> dict[str, str]:
    """The tags `answer` and `verdict.<variant>` of a sweep."""
    tags = {_key(VERDICT, variant): verdict[:_LONGEST_TAG] for variant, verdict in verdicts.items()}
    return tags | {"answer": answer[:_LONGEST_TAG]}


def _key(before: str, variant: str, after: str = "") -> str:
    """A key that MLflow takes; eight digits of the name's hash keep two changed names apart."""
    key = before + variant
    plain = re.sub(r"[^\w.\- :/]", "_", key)
    if posixpath.normpath(plain) != plain or key.startswith("/"):  # MLflow reads a key as a path in its one spelling
        plain = plain.replace("/", "_")
    if plain != key or len(key + after) > _LONGEST_KEY:
        plain = f"{plain[: _LONGEST_KEY - 9 - len(after)]}-{hashlib.sha256(variant.encode()).hexdigest()[:8]}"
    return plain + after


def params(trial: Trial) -> dict[str, str]:
    """A spec's values under dotted names, each as YAML would write it, and the number of parameters."""
    return dict(_flat(trial.spec.model_dump(mode="json"))) | {"parameters": str(trial.parameters)}


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", (value if isinstance(value, str) else json.dumps(value))[:_LONGEST_PARAM]


def curve_measures(evaluation: Evaluation, times: tuple[int, int] | None) -> list[Measure]:
    """The finite numbers of one evaluation, the epoch as step, at its time within the `times` of the trial."""
    values = {name: float(value) for name, value in evaluation.as_metrics().items() if name not in _NO_METRICS}
    numbers = {f"{'progress' if name in _PROGRESS else 'curve'}/{name}": value for name, value in values.items()}
    numbers = dict(sorted(numbers.items()))  # as MLflow lists them
    numbers[STEP_METRIC] = numbers.pop(STEP_METRIC)  # last, so that MLflow holds the whole point if it holds this
    at = int(time.time() * 1000) if times is None else min(times[1], times[0] + int(1000 * evaluation.seconds))
    return _finite(numbers, at, evaluation.epoch)


def final_measures(record: Record, at: int) -> list[Measure]:
    """The results of a settled trial: `stage/<stage>/...` of every finished stage, `final/...` of a complete trial."""
    measures, epochs = list[Measure](), 0
    for stage in record.stages:
        epochs += stage.epochs
        measures += _finite({f"stage/{stage.name}/{name}": value for name, value in _scores(stage).items()}, at, epochs)
    final = _scores(record.stages[-1]) if record.status == "complete" else {}
    return measures + _finite({f"final/{name}": value for name, value in final.items()}, at, epochs)


def _scores(stage: StageResult) -> dict[str, float]:
    """A stage's perplexities, and what its head measures of itself, by split: `test.marginal_nats_per_token`."""
    scores = {f"{split}.{name}": value for split, values in stage.measures.items() for name, value in values.items()}
    for split, score in (("valid", stage.valid), ("test", stage.test)):
        if score is not None:
            scores[f"{split}_perplexity"] = score.perplexity
            scores[f"{split}_perplexity_reference"] = score.perplexity_reference
    return scores


def _finite(values: Mapping[str, float], milliseconds: int, step: int) -> list[Measure]:
    return [Measure(name, value, milliseconds, step) for name, value in values.items() if math.isfinite(value)]


def trial_tags(trial: Trial) -> dict[str, str]:
    """What is known of a trial before it runs."""
    tags = {"variant": trial.variant, "change": trial.change, "seed": str(trial.seed), "trial_key": trial.key}
    return {name: value[:_LONGEST_TAG] for name, value in tags.items()}


def record_tags(record: Record | None) -> dict[str, str]:
    """What a settled trial was, where it ran, and what it took."""
    if record is None:
        return {"reason": ""}  # in the place of an earlier one
    tags = {"device": record.device, "corpus_fingerprint": record.corpus.fingerprint, "commit": record.commit or ""}
    tags |= {name: f"{getattr(record, name):.6g}" for name in ("seconds", "tokens_per_second")}
    tags |= {"peak_memory_bytes": str(record.peak_memory_bytes), "mlflow.source.git.commit": record.commit or ""}
    for stage in record.stages:
        chosen = {"best_epoch": stage.best_epoch} | stage.fitted
        tags |= {f"{stage.name}.{name}": f"{value:.6g}" for name, value in chosen.items()}
    return tags | {"reason": (record.reason or "")[:_LONGEST_TAG]}


def sweep_numbers(runs: Sequence[Run], known: Mapping[str, float], step: int) -> list[Measure]:
    """What a sweep's run lacks: trials done and the best of them by time, and `<variant>/test_perplexity`.

    `runs` are those of complete trials, `known` the last values that the sweep's run has, `step` the step of the last.
    A perplexity is the mean over seeds, as on the page; one whose variant is gone becomes NaN.
    """
    runs = sorted(runs, key=lambda run: run.ended or 0)
    best = list(accumulate((run.metrics["final/valid_perplexity"] for run in runs), min))
    perplexities: dict[str, list[float]] = {}
    for run in runs:
        if (perplexity := run.metrics.get(f"final{TEST}")) is not None:
            perplexities.setdefault(_key("", run.tags.get("variant", ""), TEST), []).append(perplexity)
    numbers = {name: statistics.fmean(values) for name, values in perplexities.items()}
    numbers |= {DONE: float(len(runs)), BEST: best[-1]} if runs else {DONE: 0.0}
    gone = {name: math.nan for name, value in known.items() if name not in numbers and not math.isnan(value)}
    changed = {name: value for name, value in (numbers | gone).items() if known.get(name) != value}
    if not (runs or known) or not changed:
        return []
    measures = list[Measure]()
    for count in range(int(known.get(DONE, 0)), len(runs) - 1):
        step += 1
        measures += _finite({DONE: count + 1, BEST: best[count]}, runs[count].ended or 0, step)
    at = max((run.ended or 0 for run in runs), default=0)
    return measures + [Measure(name, value, at, step + 1) for name, value in changed.items()]
