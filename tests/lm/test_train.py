"""Stages of a trial: what each begins from, when it ends, which weights it keeps, what its record says."""

from __future__ import annotations

import json
import math
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from filelock import FileLock
from torch import Tensor

import lm.epochs
import lm.scoring
import lm.train
from lm.checkpoint import load_weights
from lm.data import CorpusError, load
from lm.data.batches import columns
from lm.evaluate import token_nats, validation_nats
from lm.record import Evaluation, read_curve, token_nats_path, weights_path, write_record
from lm.spec import NUMERICS_VERSION, TrainSpec, stage_keys
from lm.stage import Stage
from lm.train import build_model, choose_device, load_model, train
from tests.support.lm_trials import assert_same, run, settled
from tests.support.tiny import AVERAGING, even, tiny_spec

CPU = torch.device("cpu")
SGD = {"kind": "sgd", "learning_rate": 4.0}
CLOCKS = {"seconds": 0.0, "tokens_per_second": 0.0}
WILD = {"learning_rate": 1e6, "weight_decay": 1.0}
"""Each step multiplies every weight by a million."""


def refuse(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is no JSON")


def strict_json(folder: Path) -> Any:
    return json.loads((folder / "record.json").read_text(encoding="utf-8"), parse_constant=refuse)


GOLDEN: dict[str, Any] = {
    "optimizer": {"kind": "adam", "learning_rate": 0.02, "clip": 0.5, "weight_decay": 1e-4},
    "penalties": {"activation": 0.5, "temporal_activation": 0.5},
    "bptt": {"kind": "variable", "length": 6, "minimum": 3, "deviation": 2.0},
    "epochs": 4,
    "finetune": {"epochs": 2, "learning_rate": 3.0},
}
GOLDEN_TRAIN = [3.158937, 3.142653, 3.11463, 3.009505, 2.91097, 2.857329]
GOLDEN_VALID = [3.160444, 3.16055, 3.078949, 2.903212, 2.824697, 2.766151]
GOLDEN_STEPS = [57, 118, 181, 243, 305, 367]


def test_golden_curve(corpus_folder: Path, tmp_path: Path) -> None:
    """Losses of a trial with every regulariser on; where they move on purpose, `NUMERICS_VERSION` is raised.

    A tenth less of any dropout, penalty or decay moves the last of them by several times the tolerance.
    """
    curve = run(tiny_spec(corpus_folder, **GOLDEN), tmp_path)
    assert [point.train_nats_per_token for point in curve] == pytest.approx(GOLDEN_TRAIN, rel=1e-4)
    assert [point.valid_nats_per_token for point in curve] == pytest.approx(GOLDEN_VALID, rel=1e-4)
    assert [point.step for point in curve] == GOLDEN_STEPS


def test_a_record_and_what_lies_beside_it(corpus_folder: Path, tmp_path: Path) -> None:
    cache = {"window": [5, 50], "weight": [0.1, 0.4], "flatness": [0.0, 0.5], "mode": "full"}
    spec = tiny_spec(corpus_folder, epochs=3, finetune={"epochs": 2}, cache=cache)
    curve, record, corpus = run(spec, tmp_path), settled(tmp_path), load(spec.corpus)
    assert record.status == "complete" and record.reason is None and record.divergence is None
    assert record.spec == spec and record.corpus == corpus.facts and record.numerics_version == NUMERICS_VERSION
    assert record.parameters == sum(
        p.numel() for p in build_model(spec, even(len(corpus.vocabulary)), CPU).parameters()
    )
    assert record.threads == 1 and record.versions["torch"] == torch.__version__
    instructions = torch.backends.cpu.get_cpu_capability()
    assert record.device.startswith("cpu (") and record.device.endswith(f", {instructions})")
    assert record.versions["lm-ablation"] == lm.__version__
    assert record.peak_memory_bytes > 10**7
    keys = stage_keys(spec, corpus.fingerprint)
    assert {stage.name: stage.key for stage in record.stages} == keys and record.key == keys["cache"]
    assert list(keys) == ["train", "finetune-1", "cache"]

    assert curve == read_curve(tmp_path)
    assert [(point.stage, point.epoch) for point in curve] == [
        *(("train", epoch) for epoch in (1, 2, 3)),
        *(("finetune-1", epoch) for epoch in (4, 5)),
    ]
    assert all(later.seconds > point.seconds for point, later in pairwise(curve))
    rows = len(corpus.train) // spec.batch_size
    assert all(0 < 4 * rows * point.epoch - point.tokens <= 2 * 4 * point.epoch for point in curve)
    steps = [stage.steps for stage in record.stages]
    assert steps == [curve[2].step, curve[4].step - curve[2].step, 0]
    assert [stage.epochs for stage in record.stages] == [3, 2, 0]
    total = sum(stage.train_seconds + stage.evaluation_seconds for stage in record.stages)
    assert record.seconds == pytest.approx(total) and record.tokens_per_second > 0

    for stage in record.stages:
        for split, score in (("valid", stage.valid), ("test", stage.test)):
            table = pq.read_table(token_nats_path(tmp_path, stage.name, split))  # type: ignore[arg-type]
            nats, token, position = (table[name].to_numpy() for name in ("nats", "token", "position"))
            assert (nats.dtype, token.dtype, position.dtype) == (np.float32, np.int32, np.int32)
            assert score.predicted_tokens == len(nats)
            assert score.nats_per_token == pytest.approx(nats.mean(dtype=np.float64), rel=1e-12)
            text = corpus.valid if split == "valid" else corpus.test
            assert (text[position] == token).all()
            assert table["training_count"].to_pylist() == [(corpus.train == word).sum() for word in token]
        assert stage.valid.columns == (1 if stage.name == "cache" else 3) and stage.test.columns == 1
    for name in ("train", "finetune-1"):
        model = build_model(spec, even(len(corpus.vocabulary)), CPU)
        model.load_weights(load_weights(weights_path(tmp_path, name), CPU))
        (stage,) = (stage for stage in record.stages if stage.name == name)
        assert token_nats(model, columns(corpus.valid, 3, CPU), 20)[0].score() == stage.valid
        assert token_nats(model, columns(corpus.test, 1, CPU), 20)[0].score() == stage.test
    assert load_model(record, tmp_path, even(len(corpus.vocabulary)), CPU).weights().keys() == model.weights().keys()

    chosen = record.stages[2].cache
    assert chosen is not None and record.stages[2].valid.nats_per_token < chosen.plain_valid.nats_per_token
    assert chosen.plain_test == record.stages[1].test  # test is one column anyway
    assert (chosen.window, chosen.weight, chosen.flatness) != (5, 0.1, 0.0)
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    tokens = {f"tokens/{name}.{split}.parquet" for name in keys for split in ("valid", "test")}
    weights = {f"weights/{name}.safetensors" for name in ("train", "finetune-1")}
    assert files == {"record.json", "curve.parquet", "log.txt", ".lock"} | tokens | weights
    strict_json(tmp_path)


def test_training_learns(corpus_folder: Path, tmp_path: Path) -> None:
    """Better than a model of word frequencies: what came before is used."""
    adam = {"kind": "adam", "learning_rate": 0.02, "clip": 1.0}
    run(tiny_spec(corpus_folder, optimizer=adam, dropout={}, penalties=None, epochs=8), tmp_path)
    corpus = load(tiny_spec(corpus_folder).corpus)
    shares = np.bincount(corpus.test, minlength=24) / len(corpus.test)
    unigram = -(shares[shares > 0] * np.log(shares[shares > 0])).sum()
    assert settled(tmp_path).stages[0].test.nats_per_token < 0.85 * unigram


def test_other_seeds_are_other_trials(corpus_folder: Path, tmp_path: Path) -> None:
    curves = [run(tiny_spec(corpus_folder, seed=seed, epochs=1), tmp_path / str(seed)) for seed in (1, 2)]
    assert curves[0][0].valid_nats_per_token != curves[1][0].valid_nats_per_token


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> list[Stage]:
    """Every stage that begins in this process, its state open to the test."""
    begun: list[Stage] = []
    begin = lm.train.begin_stage

    def noted(*arguments: Any) -> Stage:
        begun.append(begin(*arguments))
        return begun[-1]

    monkeypatch.setattr(lm.train, "begin_stage", noted)
    return begun


def clone(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: weight.clone() for name, weight in weights.items()}


def equal(some: dict[str, Tensor], others: dict[str, Tensor]) -> bool:
    return some.keys() == others.keys() and all(torch.equal(weight, others[name]) for name, weight in some.items())


def test_averaged_weights_are_scored_and_kept_once_averaging_has_begun(
    corpus_folder: Path, tmp_path: Path, stages: list[Stage]
) -> None:
    spec = tiny_spec(corpus_folder, optimizer=AVERAGING, epochs=8, finetune={"epochs": 2})
    valid_RB = columns(load(spec.corpus).valid, 3, CPU)
    other = build_model(spec, even(24), CPU)
    candidates: list[tuple[float, dict[str, Tensor]]] = []
    averaging = []
    for point in train(spec, out=tmp_path, device="cpu"):
        stage = stages[-1]
        began = point.epoch >= (stage.at.averaging_from_epoch or 99)
        averaging.append(began)
        assert point.averaging == began
        weights = stage.average.weights if began and stage.average is not None else stage.model.weights()
        other.load_weights(weights)
        assert validation_nats(other, valid_RB, 20) == point.valid_nats_per_token
        assert not began or not equal(stage.model.weights(), weights)  # training goes on from the raw ones
        candidates.append((point.valid_nats_per_token, clone(weights)))
        assert point.best == (point.valid_nats_per_token == min(nats for nats, _ in candidates))
    assert averaging[-2:] == [True, True] and True in averaging[:8] and averaging[0] is False
    record = settled(tmp_path)
    for stage_result, count in zip(record.stages, (8, 10), strict=True):
        best = min(range(count), key=lambda k: candidates[k][0])
        assert stage_result.best_epoch == best + 1
        assert stage_result.valid.nats_per_token == pytest.approx(candidates[best][0], rel=1e-6)
        assert equal(load_weights(weights_path(tmp_path, stage_result.name), CPU), candidates[best][1])
    assert averaging[record.stages[0].best_epoch - 1] is True  # averaging won
    assert [stage.averaging_from_epoch for stage in record.stages] == [averaging.index(True) + 1, 9]


def test_the_iterate_is_scored_beside_its_average_and_nothing_else_changes(
    corpus_folder: Path, tmp_path: Path, stages: list[Stage]
) -> None:
    parts: dict[str, Any] = {"optimizer": AVERAGING, "epochs": 6, "finetune": {"epochs": 2}}
    scoring = {"valid_columns": 3, "window": 20}
    plain = run(tiny_spec(corpus_folder, **parts, scoring=scoring), tmp_path / "plain")
    spec = tiny_spec(corpus_folder, **parts, scoring=scoring | {"raw_iterate": True})
    valid_RB = columns(load(spec.corpus).valid, 3, CPU)
    other = build_model(spec, even(24), CPU)
    raw = []
    for point in train(spec, out=tmp_path / "raw", device="cpu"):
        other.load_weights(stages[-1].model.weights())
        raw.append(point.raw_valid_nats_per_token)
        assert raw[-1] == (validation_nats(other, valid_RB, 20) if point.averaging else None)
        assert (raw[-1] is not None) == ("raw_valid_nats_per_token" in point.as_metrics())
    assert None in raw[:6] and None not in raw[6:]
    curves = [read_curve(tmp_path / name) for name in ("plain", "raw")]
    assert [point.raw_valid_nats_per_token for point in curves[1]] == raw
    assert [replace(p, **CLOCKS) for p in plain] == [
        replace(p, raw_valid_nats_per_token=None, **CLOCKS) for p in curves[1]
    ]
    names = [pq.read_schema(tmp_path / name / "curve.parquet").names for name in ("plain", "raw")]
    assert names[1] == [*names[0], "raw_valid_nats_per_token"]
    weights = [weights_path(tmp_path / name, "finetune-1").read_bytes() for name in ("plain", "raw")]
    assert weights[0] == weights[1]


def test_a_head_stays_fitted_to_the_average(corpus_folder: Path, tmp_path: Path) -> None:
    """A code's temperature is fitted before each score; the iterate's would be wrong for what is kept."""
    codebook = {"kind": "random", "bits": 12}
    parts: dict[str, Any] = {
        "model": {"layers": 1, "embedding_size": 6, "hidden_size": 8, "tied": False},
        "head": {"kind": "ecoc", "codebook": codebook},
        "finetune": {"epochs": 1},
    }
    found = []
    for raw_iterate in (False, True):
        scoring = {"valid_columns": 3, "window": 20, "raw_iterate": raw_iterate}
        run(tiny_spec(corpus_folder, **parts, scoring=scoring), tmp_path / str(raw_iterate))
        record = settled(tmp_path / str(raw_iterate))
        found.append([(stage.fitted, stage.valid, stage.test) for stage in record.stages])
    assert found[0] == found[1] and found[0][-1][0]


def scripted(monkeypatch: pytest.MonkeyPatch, values: list[float]) -> None:
    """Validation losses as written here, epoch after epoch."""
    script: Iterator[float] = iter(values)
    monkeypatch.setattr(lm.epochs, "validation_nats", lambda *_: next(script))


Run = Callable[..., list[Evaluation]]


@pytest.fixture
def scripted_run(corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A trial whose validation losses are given and whose epochs are a single step."""

    def go(values: list[float], **changes: Any) -> list[Evaluation]:
        scripted(monkeypatch, values)
        options = {"bptt": {"kind": "fixed", "length": 1000}, "epochs": len(values), "optimizer": SGD}
        return run(tiny_spec(corpus_folder, **(options | changes)), tmp_path)

    return go


def test_the_best_epoch_is_kept(scripted_run: Run, tmp_path: Path, stages: list[Stage]) -> None:
    curve = scripted_run([3.0, 2.0, 2.5, 2.0, 1.9, 4.0])
    assert [point.best for point in curve] == [True, True, False, False, True, False]
    assert settled(tmp_path).stages[0].best_epoch == 5 and stages[0].at.best_nats == 1.9


def test_early_stop(scripted_run: Run, tmp_path: Path) -> None:
    curve = scripted_run([3.0, 2.0, 2.5, 1.9, 2.4, 2.3, 1.9, 1.0], early_stop=3)
    (stage,) = settled(tmp_path).stages
    assert (len(curve), stage.epochs, stage.best_epoch, stage.stopped_early) == (7, 7, 4, True)


def test_early_stop_counts_from_the_beginning_of_a_leg(scripted_run: Run, tmp_path: Path) -> None:
    legs = [{"epochs": 4, "optimizer": SGD}]
    scripted_run([3.0, 2.0, 2.5, 2.6, 9.0, 9.1, 9.2, 9.3], early_stop=2, epochs=4, legs=legs)
    assert [stage.epochs for stage in settled(tmp_path).stages] == [4, 2]


def test_a_failed_record_of_another_trial_stays(corpus_folder: Path, tmp_path: Path) -> None:
    run(tiny_spec(corpus_folder, epochs=1), tmp_path)
    record = settled(tmp_path).model_copy(update={"status": "failed", "reason": "?"})
    write_record(tmp_path, record)
    with pytest.raises(ValueError, match="holds the record of trial"):
        run(tiny_spec(corpus_folder, epochs=2), tmp_path)
    assert settled(tmp_path).status == "failed"


def test_without_a_stage_the_weights_are_of_the_last_that_ended(corpus_folder: Path, tmp_path: Path) -> None:
    spec = tiny_spec(corpus_folder, epochs=1, finetune={"epochs": 1})
    run(spec, tmp_path)
    record = settled(tmp_path)
    record = record.model_copy(update={"status": "diverged", "stages": record.stages[:1]})
    words = lm.train.words_for(spec, load(spec.corpus), tmp_path)
    model = load_model(record, tmp_path, words, torch.device("cpu"))
    assert equal(model.weights(), load_weights(weights_path(tmp_path, "train"), torch.device("cpu")))


def test_a_gpu_computes_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    allowed = torch.backends.cudnn.allow_tf32
    try:
        torch.backends.cudnn.allow_tf32 = True
        assert choose_device("cpu").type == "cpu" and torch.backends.cudnn.allow_tf32
        assert choose_device("auto").type == "cuda" and not torch.backends.cudnn.allow_tf32
    finally:
        torch.backends.cudnn.allow_tf32 = allowed


def test_a_stage_that_runs_its_course_did_not_stop_early(scripted_run: Run, tmp_path: Path) -> None:
    scripted_run([3.0, 2.0, 2.5, 2.4], early_stop=3)
    assert settled(tmp_path).stages[0].stopped_early is False


def test_sgd_halves_at_every_trigger(scripted_run: Run, tmp_path: Path) -> None:
    """With an interval of 2, at 79, 72 and 71, all worse than the 70 of over two epochs ago; the log is not cleared."""
    values = [100.0, 80.0, 70.0, 75.0, 78.0, 79.0, 60.0, 72.0, 71.0, 59.0]
    halving = {"kind": "sgd_halving", "learning_rate": 8.0, "nonmonotone_interval": 2}
    curve = scripted_run(values, optimizer=halving)
    assert [point.learning_rate for point in curve] == [8.0, 8.0, 8.0, 8.0, 8.0, 8.0, 4.0, 4.0, 2.0, 1.0]
    assert not any(point.averaging for point in curve) and settled(tmp_path).stages[0].stopped_early is False


def test_sgd_halving_ends_at_its_least_rate(scripted_run: Run, tmp_path: Path) -> None:
    halving = {"kind": "sgd_halving", "learning_rate": 8.0, "trigger": "monotonic", "minimum_learning_rate": 2.0}
    curve = scripted_run([5.0, 6.0, 7.0, 6.5, 6.6, 5.0], optimizer=halving)
    assert [point.learning_rate for point in curve] == [8.0, 8.0, 4.0, 2.0, 2.0]
    assert settled(tmp_path).stages[0].stopped_early is True


@pytest.mark.parametrize(("trigger", "epoch"), [("code", 11), ("literal", 7), ("monotonic", 6)])
def test_averaging_begins_after_the_trigger(scripted_run: Run, tmp_path: Path, trigger: str, epoch: int) -> None:
    """The trigger table once more, through a whole trial."""
    values = [100, 90, 80, 75, 74, 74.5, 74.2, 74.6, 74.3, 74.8, 74.9, 75, 75.1]
    curve = scripted_run(values, optimizer={"kind": "nt_asgd", "learning_rate": 4.0, "trigger": trigger})
    assert [point.averaging for point in curve] == [False] * epoch + [True] * (13 - epoch)
    assert {point.learning_rate for point in curve} == {4.0}
    assert settled(tmp_path).stages[0].averaging_from_epoch == epoch + 1


def test_a_trigger_at_the_last_epoch_begins_no_averaging(scripted_run: Run, tmp_path: Path) -> None:
    curve = scripted_run([5.0, 6.0], optimizer={"kind": "nt_asgd", "learning_rate": 4.0, "trigger": "monotonic"})
    assert not any(point.averaging for point in curve) and settled(tmp_path).stages[0].averaging_from_epoch is None


def test_fine_tuning_begins_averaging_at_once_and_ends_at_its_own_trigger(
    scripted_run: Run, tmp_path: Path, stages: list[Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = lm.train.save_weights
    files: list[dict[str, Tensor]] = []
    monkeypatch.setattr(
        lm.train, "save_weights", lambda path, weights: (files.append(clone(weights)), kept(path, weights))
    )
    monkeypatch.setattr(
        lm.scoring, "token_nats", lambda *given: given_score(token_nats(*given), stages[-1].at.best_nats)
    )
    begun: list[dict[str, Tensor]] = []
    begin = lm.train.begin_stage  # the one that notes stages

    def noted(spec: TrainSpec, model: Any, *rest: Any) -> Stage:
        begun.append(clone(model.weights()))
        return begin(spec, model, *rest)

    monkeypatch.setattr(lm.train, "begin_stage", noted)
    first = [5.0, 4.0, 4.5]
    second = [3.9, 3.8, 3.85, 3.87]  # interval 2: 3.87 > min(3.9)? no; ends by its epochs
    third = [3.5, 3.6, 3.7, 3.8, 3.9]  # 3.8 > 3.5: ends at the fourth
    curve = scripted_run(
        first + second + third[:4],
        epochs=3,
        finetune={"epochs": 4, "nonmonotone_interval": 2, "repeats": 2, "learning_rate": 2.5},
    )
    assert [point.stage for point in curve] == ["train"] * 3 + ["finetune-1"] * 4 + ["finetune-2"] * 4
    assert [point.averaging for point in curve] == [False] * 3 + [True] * 8
    assert [point.learning_rate for point in curve] == [4.0] * 3 + [2.5] * 8
    stages_of = settled(tmp_path).stages
    assert [(stage.best_epoch, stage.averaging_from_epoch) for stage in stages_of] == [(2, None), (5, 4), (8, 8)]
    assert equal(begun[1], files[0]) and equal(begun[2], files[1])  # from the best weights before


def given_score(scored: tuple[Any, dict[str, float]], mean: float) -> Any:
    """Losses whose mean is the one that a scripted validation chose its best weights by."""
    nats, measures = scored
    return type(nats)(nats.position, nats.token, np.full_like(nats.nats, mean), nats.rows, nats.columns), measures


def test_fine_tuning_that_does_not_help_keeps_what_it_began_from(
    scripted_run: Run, tmp_path: Path, stages: list[Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        lm.scoring, "token_nats", lambda *given: given_score(token_nats(*given), stages[-1].at.best_nats)
    )
    values = [5.0, 4.0, 4.5, 4.2, 4.3, 4.25]  # fine-tuning: 4.3 > 4.2 ends it
    curve = scripted_run(values, epochs=3, finetune={"epochs": 9, "nonmonotone_interval": 1})
    assert len(curve) == 6 and not any(point.best for point in curve[3:])
    record = settled(tmp_path)
    assert [(stage.epochs, stage.best_epoch) for stage in record.stages] == [(3, 2), (3, 2)]
    assert [stage.stopped_early for stage in record.stages] == [False, True]
    files = [weights_path(tmp_path, name).read_bytes() for name in ("train", "finetune-1")]
    assert files[0] == files[1]


def test_only_fine_tuning_caps_windows(corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: dict[str, list[int]] = {}
    step = lm.epochs.train_step

    def noted(stage: Stage, input_TB: Tensor, *rest: Any) -> None:
        lengths.setdefault(stage.at.stage, []).append(len(input_TB))
        step(stage, input_TB, *rest)

    monkeypatch.setattr(lm.epochs, "train_step", noted)
    bptt = {"kind": "variable", "length": 12, "deviation": 5.0}
    run(tiny_spec(corpus_folder, bptt=bptt, epochs=2, finetune={"epochs": 2, "cap_extra": 2}), tmp_path)
    assert max(lengths["train"]) > 14 == max(lengths["finetune-1"])


def test_stages_draw_their_own_windows_and_masks(
    corpus_folder: Path, tmp_path: Path, stages: list[Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each stage, and each of the two generators of a stage, has a seed of its own."""
    states: list[bytes] = []
    begin = lm.train.begin_stage

    def noted(*arguments: Any) -> Stage:
        stage = begin(*arguments)
        states.extend(bytes(generator.get_state().tolist()) for generator in (stage.windows, stage.noise))
        return stage

    monkeypatch.setattr(lm.train, "begin_stage", noted)
    run(tiny_spec(corpus_folder, epochs=1, finetune={"epochs": 1, "repeats": 2}), tmp_path / "1")
    run(tiny_spec(corpus_folder, epochs=1, seed=2), tmp_path / "2")
    assert len(states) == len(set(states)) == 8


DIVERGING: list[dict[str, Any]] = [
    {"kind": "softmax"},
    {"kind": "mixture", "experts": [0, 1, 2], "prior_penalty": 0.01},
    {"kind": "sampled", "loss": {"kind": "nce", "samples": 8}},
]


def watch_failure(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, float, float]]:
    """Stage, step, rate and gradient norm of the first step that leaves a sum of losses or norms not finite."""
    found: list[tuple[str, int, float, float]] = []
    step = lm.epochs.train_step

    def watched(stage: Stage, input_TB: Tensor, targets_TB: Tensor, rate: float) -> None:
        before = stage.sums[1].item()
        step(stage, input_TB, targets_TB, rate)
        if not found and not torch.isfinite(stage.sums).all():
            found.append((stage.at.stage, stage.at.step, rate, stage.sums[1].item() - before))

    monkeypatch.setattr(lm.epochs, "train_step", watched)
    return found


@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("head", DIVERGING, ids=lambda head: head["kind"])
def test_a_trial_whose_loss_is_not_finite_is_settled_as_diverged(
    corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: dict[str, Any], clip: float | None
) -> None:
    found = watch_failure(monkeypatch)
    optimizer = SGD | WILD | {"clip": clip}
    spec = tiny_spec(corpus_folder, head=head, optimizer=optimizer, finetune={"epochs": 1})
    assert run(spec, tmp_path) == []
    (stage, step, rate, norm) = found[0]
    record = settled(tmp_path)
    assert record.status == "diverged" and record.stages == () and record.divergence is not None
    assert record.reason == f"not finite in train, epoch 1, step {step}"
    assert (record.divergence.stage, record.divergence.epoch) == (stage, 1) == ("train", 1)
    assert record.divergence.step == step > 0
    assert record.divergence.learning_rate == pytest.approx(rate, rel=1e-6)
    assert record.divergence.gradient_norm == (pytest.approx(norm, rel=1e-6) if math.isfinite(norm) else None)
    assert record.seconds == record.unfinished_seconds > 0.0, "what it cost before it diverged"
    strict_json(tmp_path)
    assert run(spec, tmp_path) == [] and not (tmp_path / "checkpoints").exists()


def test_a_trial_that_another_process_trains_is_waited_for(
    corpus_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    taken = threading.Event()

    def hold() -> None:
        with FileLock(tmp_path / ".lock"):
            taken.set()
            time.sleep(0.5)

    other = threading.Thread(target=hold)
    other.start()
    assert taken.wait(60.0) and len(run(tiny_spec(corpus_folder, epochs=1), tmp_path)) == 1
    other.join()
    assert f"{tmp_path}: another process trains this trial; waiting for it" in caplog.text


def test_a_divergence_keeps_no_curve_of_an_attempt_without_checkpoint(corpus_folder: Path, tmp_path: Path) -> None:
    spec = tiny_spec(corpus_folder)
    longer = train(spec, out=tmp_path, device="cpu")
    next(longer), next(longer)
    longer.close()
    shutil.rmtree(tmp_path / "checkpoints")
    assert len(read_curve(tmp_path)) == 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lm.epochs, "validation_nats", lambda *given: math.nan)
        assert list(train(spec, out=tmp_path, device="cpu")) == []
    assert settled(tmp_path).status == "diverged"
    assert read_curve(tmp_path) == [] and "curve.parquet" not in settled(tmp_path).hashes


def test_divergence_in_fine_tuning_leaves_what_ended_before(corpus_folder: Path, tmp_path: Path) -> None:
    tuned = {"epochs": 2, "learning_rate": 1e6}
    decayed = SGD | {"weight_decay": 1e-4}  # overflows at the rate of fine-tuning alone
    curve = run(tiny_spec(corpus_folder, optimizer=decayed, finetune=tuned), tmp_path / "once")
    assert [point.stage for point in curve] == ["train"] * 3 == [p.stage for p in read_curve(tmp_path / "once")]
    record = settled(tmp_path / "once")
    assert record.status == "diverged" and [stage.name for stage in record.stages] == ["train"]
    assert record.divergence is not None and record.divergence.stage == "finetune-1"
    assert record.divergence.epoch == 4 and record.divergence.step > curve[-1].step
    assert record.divergence.learning_rate > 1e5
    of_train = record.stages[0].train_seconds + record.stages[0].evaluation_seconds
    assert record.seconds == pytest.approx(of_train + record.unfinished_seconds) and record.unfinished_seconds > 0.0

    longer = tiny_spec(corpus_folder, optimizer=decayed, finetune=tuned | {"repeats": 2})
    run(longer, tmp_path / "whole")
    assert run(longer, tmp_path / "continued", resume_from=tmp_path / "once") == []
    assert_same(tmp_path / "continued", tmp_path / "whole")
    bare = tiny_spec(corpus_folder, optimizer=decayed, finetune=tuned | {"learning_rate": 4.0})
    assert len(run(bare, tmp_path / "bare", resume_from=tmp_path / "once")) == 2
    assert settled(tmp_path / "bare").status == "complete"


def test_folders_may_be_text(corpus_folder: Path, tmp_path: Path) -> None:
    short, longer = tiny_spec(corpus_folder, epochs=1), tiny_spec(corpus_folder, epochs=1, finetune={"epochs": 1})
    for spec, options in ((short, {"shared_stages": ".stages"}), (longer, {"resume_from": "short"})):
        name = "short" if spec is short else "longer"
        run(spec, tmp_path / name, **{key: tmp_path / folder for key, folder in options.items()})
        text = {key: f"{tmp_path}/text/{folder}" for key, folder in options.items()}
        list(train(spec, out=f"{tmp_path}/text/{name}", device="cpu", **text))
        assert_same(tmp_path / "text" / name, tmp_path / name)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_validation_loss_that_is_not_finite_ends_the_trial(scripted_run: Run, tmp_path: Path, value: float) -> None:
    curve = scripted_run([3.0, value, 2.0])
    assert len(curve) == 1
    record = settled(tmp_path)
    assert record.status == "diverged" and record.divergence is not None
    assert (record.divergence.epoch, record.divergence.learning_rate) == (2, 4.0)
    assert record.divergence.gradient_norm is not None
    strict_json(tmp_path)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e4])
def test_a_test_loss_that_is_not_finite_ends_the_trial(
    corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    monkeypatch.setattr(lm.scoring, "token_nats", lambda *given: given_score(token_nats(*given), value))
    assert len(run(tiny_spec(corpus_folder, epochs=1), tmp_path)) == 1
    assert settled(tmp_path).status == "diverged" and settled(tmp_path).stages == ()
    assert settled(tmp_path).seconds > read_curve(tmp_path)[-1].seconds > 0.0, "training and scoring"
    strict_json(tmp_path)


def test_a_loss_whose_perplexity_overflows_ends_the_trial(corpus_folder: Path, tmp_path: Path) -> None:
    """Finite losses of hundreds of nats say no more than infinite ones."""
    optimizer = SGD | {"learning_rate": 1e4}
    assert run(tiny_spec(corpus_folder, optimizer=optimizer, epochs=2, penalties=None), tmp_path) == []
    record = settled(tmp_path)
    assert record.status == "diverged" and record.divergence is not None
    assert (record.divergence.epoch, record.divergence.learning_rate) == (1, 1e4)
    assert record.divergence.gradient_norm is not None and record.reason is not None
    assert re.fullmatch(
        r"validation loss of [\d.e+]+ nats a token, too large for a perplexity, in train, epoch 1", record.reason
    )
    strict_json(tmp_path)


def test_what_cannot_be_trained_is_said_before_training(corpus_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="neither a named corpus"):
        run(tiny_spec("no such corpus"), tmp_path / "a")
    for changes, text in (
        ({"batch_size": 900}, r"^batch_size: \d+ tokens in 900 columns give 1 rows"),
        ({"scoring": {"valid_columns": 200}}, r"^scoring.valid_columns: \d+ tokens in 200 columns give 1 rows"),
        ({"scoring": {"test_columns": 150}}, r"^scoring.test_columns: \d+ tokens in 150 columns give 1 rows"),
    ):
        with pytest.raises(ValueError, match=text):
            run(tiny_spec(corpus_folder, **changes), tmp_path / "b")
        assert not (tmp_path / "b" / "curve.parquet").exists()
    with pytest.raises(ValueError, match="device tpu: not auto, cpu or cuda"):
        list(train(tiny_spec(corpus_folder), out=tmp_path / "c", device="tpu"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_gpu_that_is_not_there(corpus_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="torch sees no GPU"):
        list(train(tiny_spec(corpus_folder), out=tmp_path, device="cuda"))


def test_train_tokens_cut_the_training_text_only(corpus_folder: Path, tmp_path: Path) -> None:
    whole = tiny_spec(corpus_folder, epochs=1)
    cut = tiny_spec(corpus_folder, epochs=1, corpus={"name": str(corpus_folder), "train_tokens": 400})
    records = []
    for spec in (whole, cut):
        run(spec, tmp_path / str(len(records)))
        records.append(settled(tmp_path / str(len(records))))
    assert records[1].corpus.train_tokens == 400 < records[0].corpus.train_tokens
    assert records[1].corpus.fingerprint == records[0].corpus.fingerprint and records[0].key != records[1].key
    assert records[1].corpus.vocabulary_size == records[0].corpus.vocabulary_size
    assert records[1].stages[0].test.predicted_tokens == records[0].stages[0].test.predicted_tokens
    assert "first 400 of" in records[1].corpus.vocabulary_rule


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_learns_what_the_cpu_learns(corpus_folder: Path, tmp_path: Path) -> None:
    """Without masks, which a GPU draws otherwise, both train the same weights but for rounding."""
    spec = tiny_spec(corpus_folder, dropout={}, finetune={"epochs": 1}, optimizer=AVERAGING)
    curves = [list(train(spec, out=tmp_path / device, device=device)) for device in ("cpu", "cuda")]
    for left, right in zip(*curves, strict=True):
        assert left.valid_nats_per_token == pytest.approx(right.valid_nats_per_token, rel=0.01)
        assert left.step == right.step
    assert settled(tmp_path / "cuda").status == "complete"
    assert not settled(tmp_path / "cuda").device.startswith("cpu")
