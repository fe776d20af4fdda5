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
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate

from lm.record import Evaluation, Record, StageResult
from orchestrator.trials.plan import flattened
from orchestrator.trials.trial import Trial
from orchestrator.watch.mlflow.store import MetricPoint, Run

VERDICT = "verdict."
STEP_METRIC = "progress/seconds"
"""Every point of a curve has it, so its history tells which steps MLflow holds."""
DONE, BEST, JUDGED = "curve/trials_done", "curve/best_valid_perplexity", "final/valid_perplexity"
_TEST = "/test_perplexity"
_NO_METRICS = ("stage", "epoch", "averaging", "best")
_PROGRESS = ("step", "tokens", "seconds", "tokens_per_second")


def findings(answer: str, verdicts: Mapping[str, str]) -> dict[str, str]:
    """The tags `answer` and `verdict.<variant>` of a sweep."""
    return {_key(VERDICT, variant): verdict for variant, verdict in verdicts.items()} | {"answer": answer}


def _key(before: str, variant: str, after: str = "") -> str:
    """A key that MLflow takes, which reads it as a path; eight digits of its hash keep two changed names apart."""
    key = before + variant + after
    if re.fullmatch(r"(?!/|\.\.)[\w.\- :/]{1,250}", key) and posixpath.normpath(key) == key:
        return key
    plain, digest = re.sub(r"^\.+|[^\w.\- :]", "_", variant), hashlib.sha256(key.encode()).hexdigest()
    return f"{before}{plain[:200]}-{digest[:8]}{after}"


def params(trial: Trial) -> dict[str, str]:
    """A spec's values under dotted names, each as YAML would write it, and the number of parameters."""
    values = dict(flattened(trial.spec.model_dump(mode="json")))
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
    return texts | {"parameters": str(trial.parameters)}


def curve_measures(evaluation: Evaluation, times: tuple[int, int] | None) -> list[MetricPoint]:
    """The finite numbers of one evaluation, the epoch as step, at its time within the `times` of the trial."""
    values = {name: float(value) for name, value in evaluation.as_metrics().items() if name not in _NO_METRICS}
    numbers = {f"{'progress' if name in _PROGRESS else 'curve'}/{name}": value for name, value in values.items()}
    numbers = dict(sorted(numbers.items()))  # as MLflow lists them
    numbers[STEP_METRIC] = numbers.pop(STEP_METRIC)  # last, so that MLflow holds the whole point if it holds this
    at = int(time.time() * 1000) if times is None else min(times[1], times[0] + int(1000 * evaluation.seconds))
    return _finite(numbers, at, evaluation.epoch)


def final_measures(record: Record, at: int) -> list[MetricPoint]:
    """The results of a settled trial: `stage/<stage>/...` of every finished stage, `final/...` of a complete trial."""
    measures, epochs = list[MetricPoint](), 0
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


def _finite(values: Mapping[str, float], milliseconds: int, step: int) -> list[MetricPoint]:
    return [MetricPoint(name, value, milliseconds, step) for name, value in values.items() if math.isfinite(value)]


def trial_tags(trial: Trial) -> dict[str, str]:
    """What is known of a trial before it runs."""
    return {"variant": trial.variant, "change": trial.change, "seed": str(trial.seed), "trial_key": trial.key}


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
    return tags | {"reason": record.reason or ""}


def sweep_numbers(runs: Sequence[Run], known: Mapping[str, float], step: int) -> list[MetricPoint]:
    """What a sweep's run lacks: trials done and the best of them by time, and `<variant>/test_perplexity`.

    `runs` are those of complete trials, `known` the last values that the sweep's run has; the last step is `step`. A
    perplexity is the mean over seeds, as on the page; one whose variant is gone becomes NaN.
    """
    runs, measures = sorted(runs, key=lambda run: run.ended or 0), list[MetricPoint]()
    best = list(accumulate((run.metrics[JUDGED] for run in runs), min))
    for place in range(int(known.get(DONE, 0)), len(runs) - 1):
        numbers = {DONE: place + 1.0, BEST: best[place]}
        measures += _finite(numbers, runs[place].ended or 0, step - len(runs) + place + 1)
    perplexities = defaultdict[str, list[float]](list)
    for run in runs:
        if (perplexity := run.metrics.get(f"final{_TEST}")) is not None:
            perplexities[_key("", run.tags.get("variant", ""), _TEST)].append(perplexity)
    numbers = {name: statistics.fmean(values) for name, values in perplexities.items()}
    numbers |= {DONE: float(len(runs)), BEST: best[-1]} if runs else dict.fromkeys(known.keys() & {DONE}, 0.0)
    numbers |= {name: math.nan for name, value in known.items() if name not in numbers and not math.isnan(value)}
    now = int(1000 * time.time())
    return measures + [
        MetricPoint(name, value, now, step) for name, value in numbers.items() if known.get(name) != value
    ]
