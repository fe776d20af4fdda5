"""A trial and its codebook: kept with the weights, used wherever they are, never exchanged for another."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lm.codebooks.build
from lm.codebooks import Codebook, build_codebook, save_codebook
from lm.data import load
from lm.record import codebook_path, read_record
from lm.rescore import rescore
from lm.spec import EcocHead, TrainSpec
from lm.train import words_for
from tests.support.lm_trials import EVERY_STEP, assert_same, killed, run, settled
from tests.support.tiny import tiny_spec

CODEBOOK = {"kind": "hybrid", "bits": 30, "embeddings": {"kind": "ppmi_svd", "size": 4}}


def ecoc_spec(folder: Path, **changes: Any) -> TrainSpec:
    parts: dict[str, Any] = {
        "model": {"layers": 2, "embedding_size": 6, "hidden_size": 10, "tied": False},
        "head": {"kind": "ecoc", "codebook": CODEBOOK},
        "penalties": None,
        "optimizer": {"kind": "sgd", "learning_rate": 2.0, "clip": 0.5},
        "epochs": 2,
    }
    return tiny_spec(folder, **(parts | changes))


@pytest.fixture
def spec(corpus_folder: Path) -> TrainSpec:
    return ecoc_spec(corpus_folder)


def built(spec: TrainSpec) -> Codebook:
    assert isinstance(spec.head, EcocHead)
    return build_codebook(spec.head.codebook, load(spec.corpus))


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], None]:
    """From its call on, as on another machine: an empty cache, and codebooks that come out otherwise."""
    construct = lm.codebooks.build._construct

    def otherwise(spec: Any, corpus: Any) -> Codebook:
        codebook = construct(spec, corpus)
        return replace(codebook, packed=codebook.packed ^ np.uint8(128))

    def move() -> None:
        monkeypatch.setenv("LM_CACHE", str(tmp_path / "elsewhere"))
        monkeypatch.setattr(lm.codebooks.build, "_construct", otherwise)

    return move


def test_only_an_ecoc_head_is_given_a_codebook(spec: TrainSpec, corpus_folder: Path) -> None:
    corpus = load(spec.corpus)
    assert words_for(tiny_spec(corpus_folder), corpus).codebook is None
    found = words_for(spec, corpus).codebook
    assert found is not None and found.fingerprint == built(spec).fingerprint and len(found) == 24


def test_a_codebook_in_a_trial_s_folder_comes_before_one_built_now(
    spec: TrainSpec, corpus_folder: Path, tmp_path: Path, elsewhere: Callable[[], None]
) -> None:
    here, corpus = built(spec), load(spec.corpus)
    save_codebook(codebook_path(tmp_path / "trial"), here)
    elsewhere()
    other = built(spec)
    assert other.fingerprint != here.fingerprint

    def given(spec: TrainSpec, *folders: Path | None) -> str:
        codebook = words_for(spec, corpus, *folders).codebook
        assert codebook is not None
        return codebook.fingerprint

    assert given(spec, tmp_path / "trial") == given(spec, tmp_path / "none", tmp_path / "trial") == here.fingerprint
    assert given(spec) == given(spec, tmp_path / "none", None) == other.fingerprint
    longer = ecoc_spec(corpus_folder, head={"kind": "ecoc", "codebook": CODEBOOK | {"bits": 31}})
    assert given(longer, tmp_path / "trial") == built(longer).fingerprint  # another spec's is no copy of it


def test_a_code_too_short_for_the_corpus_is_refused(corpus_folder: Path) -> None:
    short = ecoc_spec(corpus_folder, head={"kind": "ecoc", "codebook": {"kind": "random", "bits": 4}})
    with pytest.raises(ValueError, match="bits 4 cannot name 24 words: at least 5 are needed"):
        words_for(short, load(short.corpus))


def test_a_trial_keeps_its_codebook_and_its_record_names_it(spec: TrainSpec, tmp_path: Path) -> None:
    run(spec, tmp_path)
    kept = words_for(spec, load(spec.corpus), tmp_path).codebook
    assert kept is not None and codebook_path(tmp_path).exists()
    assert settled(tmp_path).codebook == kept.fingerprint == built(spec).fingerprint


def test_a_record_written_before_codebooks_is_read(spec: TrainSpec, corpus_folder: Path, tmp_path: Path) -> None:
    run(tiny_spec(corpus_folder, epochs=1), tmp_path)
    record = settled(tmp_path)
    assert record.codebook is None and not codebook_path(tmp_path).exists()
    (tmp_path / "record.json").write_text(record.model_dump_json(exclude={"codebook", "hashes"}))
    assert read_record(tmp_path) == record.model_copy(update={"hashes": {}})


def test_scores_are_repeated_on_a_machine_that_builds_another_codebook(
    spec: TrainSpec, tmp_path: Path, elsewhere: Callable[[], None]
) -> None:
    run(spec, tmp_path / "run")
    record = settled(tmp_path / "run")
    elsewhere()
    assert rescore(record, tmp_path / "run", device="cpu")["test"] == record.stages[-1].test
    codebook_path(tmp_path / "run").unlink()
    with pytest.raises(ValueError, match=f"its weights need codebook {record.codebook}, not {built(spec).fingerprint}"):
        rescore(record, tmp_path / "run", device="cpu")


def test_a_killed_trial_goes_on_with_its_own_codebook(
    spec: TrainSpec, tmp_path: Path, elsewhere: Callable[[], None]
) -> None:
    run(spec, tmp_path / "whole")
    killed(spec, tmp_path / "killed", "lm.epochs.train_step", 40, checkpoint_seconds=EVERY_STEP)
    lost = tmp_path / "lost"
    killed(spec, lost, "lm.epochs.train_step", 40, checkpoint_seconds=EVERY_STEP)
    codebook_path(lost).unlink()
    elsewhere()
    run(spec, tmp_path / "killed")
    assert_same(tmp_path / "killed", tmp_path / "whole")
    with pytest.raises(ValueError, match=r"lost: its checkpoint needs codebook \w+, the one at hand is \w+"):
        run(spec, lost)


def test_stages_are_taken_over_with_their_codebook(
    corpus_folder: Path, spec: TrainSpec, tmp_path: Path, elsewhere: Callable[[], None]
) -> None:
    tuned = ecoc_spec(corpus_folder, finetune={"epochs": 1})
    run(spec, tmp_path / "other")
    run(tuned, tmp_path / "whole")
    elsewhere()
    assert len(run(tuned, tmp_path / "continued", resume_from=tmp_path / "other")) == 1
    assert_same(tmp_path / "continued", tmp_path / "whole")


def test_stages_of_another_codebook_are_not_taken_over(
    corpus_folder: Path,
    spec: TrainSpec,
    tmp_path: Path,
    elsewhere: Callable[[], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As where a trial had begun on one machine, without a checkpoint, and another was settled on another."""
    tuned = ecoc_spec(corpus_folder, finetune={"epochs": 1})
    run(spec, tmp_path / "other")
    elsewhere()
    save_codebook(codebook_path(tmp_path / "continued"), built(tuned))
    with caplog.at_level(logging.WARNING):
        assert len(run(tuned, tmp_path / "continued", resume_from=tmp_path / "other")) == 3
    assert "has another codebook than" in caplog.text
    run(tuned, tmp_path / "whole")
    assert_same(tmp_path / "continued", tmp_path / "whole")
