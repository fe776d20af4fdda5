"""Records and curves: what is written is what is read, and JSON stays JSON."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lm.files import DamagedError
from lm.hashes import content_hash
from lm.record import (
    CorpusFacts,
    Divergence,
    Evaluation,
    Record,
    Score,
    StageResult,
    read_curve,
    read_record,
    token_nats_path,
    weights_path,
    write_curve,
    write_record,
)
from lm.resume import copy_stage
from lm.spec import TrainSpec, stage_keys, trial_key
from tests.support.tiny import tiny_spec

SPEC = tiny_spec(
    "somewhere",
    finetune={"epochs": 3, "repeats": 2},
    cache={"window": 5, "weight": 0.1, "flatness": 1.0},
)
POINT = Evaluation("train", 1, 30, 1200, 0.5, 2400.0, 3.1, 3.0, 4.0, 0.7, False, True)


def score(nats: float = 3.0) -> Score:
    return Score(nats_per_token=nats, predicted_tokens=9, columns=1, perplexity=20.1, perplexity_reference=19.0)


def record(spec: TrainSpec = SPEC, done: int = 4, **changes: Any) -> Record:
    stages = tuple(
        StageResult(
            name=name,
            key=key,
            epochs=3,
            best_epoch=2,
            steps=90,
            train_seconds=1.0,
            evaluation_seconds=0.25,
            tokens_per_second=3600.0,
            averaging_from_epoch=None,
            stopped_early=False,
            valid=score(),
            test=score(),
            cache=None,
        )
        for name, key in stage_keys(spec, "f").items()
    )
    facts = CorpusFacts(
        name="somewhere",
        fingerprint="f",
        train_tokens=9,
        valid_tokens=9,
        test_tokens=9,
        vocabulary_size=5,
        vocabulary_rule="all words",
    )
    values: dict[str, Any] = {
        "key": trial_key(spec, "f"),
        "status": "complete",
        "reason": None,
        "divergence": None,
        "spec": spec,
        "stages": stages[:done],
        "parameters": 100,
        "corpus": facts,
        "seconds": 1.25 * done,
        "tokens_per_second": 3600.0,
        "peak_memory_bytes": 10**9,
        "device": "cpu",
        "threads": 1,
        "versions": {"torch": "2"},
        "commit": None,
        "numerics_version": 1,
        "finished_at": "2017-08-07T00:00:00+00:00",
    }
    return Record(**(values | changes))


def refuse(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is no JSON")


def test_a_record_comes_back_whole(tmp_path: Path) -> None:
    assert read_record(tmp_path) is None
    divergence = Divergence(stage="train", epoch=1, step=3, learning_rate=1e9, gradient_norm=None)
    for written in (record(), record(done=0, status="diverged", reason="not finite", divergence=divergence)):
        write_record(tmp_path, written)
        read = read_record(tmp_path)
        assert read is not None and set(read.hashes) == {"record.json"}
        assert read.model_copy(update={"hashes": {}}) == written
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]


@pytest.mark.parametrize("nats", [1e4, math.inf, math.nan])
def test_a_loss_too_large_for_its_perplexity_stays_json(tmp_path: Path, nats: float) -> None:
    large = Score(
        nats_per_token=nats, predicted_tokens=9, columns=1, perplexity=math.inf, perplexity_reference=math.inf
    )
    written = record()
    written = written.model_copy(update={"stages": (written.stages[0].model_copy(update={"valid": large}),)})
    write_record(tmp_path, written)
    json.loads((tmp_path / "record.json").read_text(), parse_constant=refuse)
    read = read_record(tmp_path)
    assert read is not None and read.stages[0].valid.perplexity == math.inf
    assert read.stages[0].valid.nats_per_token == nats or math.isnan(nats)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"{}", b"\xff\x00", b'{"key": "a", "surprise": 1}'])
def test_what_is_no_record_is_named(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "record.json").write_bytes(text)
    with pytest.raises(
        ValueError, match=r"record\.json: not a record of this version: .*; once its folder is moved away"
    ):
        read_record(tmp_path)


def test_a_record_that_was_changed_is_named_and_one_without_hashes_is_believed(tmp_path: Path) -> None:
    write_record(tmp_path, record(seconds=3.0))
    path = tmp_path / "record.json"
    text = path.read_text()
    path.write_text(json.dumps(json.loads(text)))  # laid out otherwise, the same record
    assert read_record(tmp_path) is not None
    path.write_text(text.replace('"seconds":3.0', '"seconds":1.5').replace('"seconds": 3.0', '"seconds": 1.5'))
    with pytest.raises(DamagedError, match=r"record\.json: is not the record that the trial wrote; once its folder"):
        read_record(tmp_path)
    old = json.loads(path.read_text())
    del old["hashes"]
    path.write_text(json.dumps(old))
    read = read_record(tmp_path)
    assert read is not None and read.seconds == 1.5 and read.hashes == {}


def test_a_whole_record_of_another_version_is_no_damage(tmp_path: Path) -> None:
    later = json.loads(record().model_dump_json(exclude={"hashes"})) | {"a field of later": 1}
    later["hashes"] = {"record.json": content_hash(json.dumps(later))}
    (tmp_path / "record.json").write_text(json.dumps(later))
    with pytest.raises(ValueError, match="not a record of this version: a field of later") as raised:
        read_record(tmp_path)
    assert not isinstance(raised.value, DamagedError)


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10**12)


def _itself(path: Path) -> None:
    path.symlink_to(path)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _brackets(path: Path) -> None:
    path.write_text("[" * 10**6)


@pytest.mark.parametrize(
    ("put", "said"),
    [
        (os.mkfifo, "is not a regular file"),
        (Path.mkdir, "is not a regular file"),
        (_device, "is not a regular file"),
        (_huge, "has 1,000,000,000,000 bytes, at most 67,108,864 are read"),
        (_itself, "Too many levels of symbolic links"),
        (_brackets, "not a record of this version"),
    ],
)
def test_what_stands_in_the_place_of_a_record_is_named(tmp_path: Path, put: Callable[[Path], None], said: str) -> None:
    put(tmp_path / "record.json")
    with pytest.raises(DamagedError, match=rf"record\.json: {said}"):
        read_record(tmp_path)


@pytest.mark.parametrize("put", [os.mkfifo, Path.mkdir, _device])
def test_what_stands_in_the_place_of_a_curve_is_named(tmp_path: Path, put: Callable[[Path], None]) -> None:
    put(tmp_path / "curve.parquet")
    with pytest.raises(DamagedError, match=r"curve\.parquet: not a curve of this version: .*is not a regular file"):
        read_curve(tmp_path)


@pytest.mark.parametrize("table", [None, pa.table({"epoch": [1]})])
def test_what_is_no_curve_is_named(tmp_path: Path, table: pa.Table | None) -> None:
    path = tmp_path / "curve.parquet"
    path.write_bytes(b"half")
    if table is not None:
        pq.write_table(table, path)
    with pytest.raises(ValueError, match=r"curve\.parquet: not a curve of this version: .*; once its folder"):
        read_curve(tmp_path)


def test_a_curve_comes_back_whole(tmp_path: Path) -> None:
    assert read_curve(tmp_path) == []
    curve = [POINT, replace(POINT, epoch=2, averaging=True, valid_nats_per_token=2.9999999999999996)]
    write_curve(tmp_path, curve)
    assert read_curve(tmp_path) == curve
    write_curve(tmp_path, [])
    assert read_curve(tmp_path) == []


def test_metrics_of_an_evaluation() -> None:
    metrics = POINT.as_metrics()
    assert metrics["valid_perplexity"] == math.exp(3.0) and metrics["epoch"] == 1 and metrics["best"] is True
    assert len(metrics) == 13
    assert replace(POINT, valid_nats_per_token=2e3).valid_perplexity == math.inf


def test_a_record_holds_the_records_of_the_trials_that_end_at_its_stages() -> None:
    whole = record()
    for count, (name, prefix) in enumerate(SPEC.stages().items(), 1):
        part = whole.through(trial_key(prefix, "f"))
        assert part.key == trial_key(prefix, "f") and part.spec == prefix and part.status == "complete"
        assert [stage.name for stage in part.stages][-1] == name and len(part.stages) == count
        assert part.seconds == 1.25 * count
    assert whole.through(whole.key) == whole
    with pytest.raises(KeyError, match="has no stage 0123"):
        whole.through("0123")


def test_stages_before_a_divergence_are_complete_trials() -> None:
    divergence = Divergence(stage="finetune-2", epoch=7, step=200, learning_rate=4.0, gradient_norm=1.0)
    stopped = record(done=2, status="diverged", reason="not finite", divergence=divergence)
    keys = stage_keys(SPEC, "f")
    assert stopped.through(keys["train"]).status == stopped.through(keys["finetune-1"]).status == "complete"
    assert stopped.through(keys["finetune-1"]).divergence is None
    for name in ("finetune-2", "cache"):
        part = stopped.through(keys[name])
        assert (part.status, part.divergence, len(part.stages)) == ("diverged", divergence, 2)


def test_a_stage_is_copied_with_all_it_left(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    for path in (weights_path(source, "train"), *(token_nats_path(source, "train", s) for s in ("valid", "test"))):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(path.name.encode())
    copy_stage(source, target, record().stages[0])
    files = [path.relative_to(target) for path in target.rglob("*") if path.is_file()]
    assert sorted(map(str, files)) == [
        "tokens/train.test.parquet",
        "tokens/train.valid.parquet",
        "weights/train.safetensors",
    ]
    assert weights_path(target, "train").read_bytes() == b"train.safetensors"
    with pytest.raises(FileNotFoundError):
        copy_stage(source, target, record().stages[1])  # nothing there
