"""What counts as trained: better than guessing by the words' frequencies."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from lm.record import Record, write_curve, write_record
from lm.spec import TrainSpec
from orchestrator.analysis.comparison import guesses, reference_corpus, untrained
from orchestrator.analysis.outcomes import Outcome, read_outcomes
from orchestrator.trials.records import Records
from tests.support.factories import CACHE, CORPUS, FULL, make_curve, make_record, make_trial

MEASURED = CORPUS.model_copy(update={"unigram_nats": {"valid": math.log(720.0), "test": math.log(700.0)}})


def outcome(runs: Path, record: Record, spec: TrainSpec = FULL) -> Outcome:
    trial = make_trial(**{name: value for name, value in spec if name not in ("seed",)})
    write_curve(runs / trial.key, make_curve(trial.spec, 60.0))
    write_record(runs / trial.key, record.model_copy(update={"key": trial.key, "spec": trial.spec}))
    (group,) = read_outcomes([trial], Records(runs), trial.variant).values()
    return group[0]


@pytest.mark.parametrize(("test", "failed"), [(699.0, False), (701.0, True), (6_500.0, True)])
def test_a_trial_above_the_unigram_models_perplexity_did_not_train(tmp_path: Path, test: float, failed: bool) -> None:
    one = outcome(tmp_path, make_record(make_trial(), test, corpus=MEASURED))
    assert bool(untrained([one])) == failed
    for found in untrained([one]):
        assert (found.outcome, found.split, found.guess.model) == (one, "test", "unigram")
        assert (found.perplexity, found.guess.perplexity) == (pytest.approx(test), pytest.approx(700.0))


@pytest.mark.parametrize(("test", "failed"), [(5_999.0, False), (6_001.0, True)])
def test_without_the_unigram_models_loss_the_uniform_model_decides(tmp_path: Path, test: float, failed: bool) -> None:
    one = outcome(tmp_path, make_record(make_trial(), test))
    assert [(found.guess.model, found.guess.perplexity) for found in untrained([one])] == [
        ("uniform", 6_000.0)
    ] * failed


def test_as_bad_as_guessing_is_not_worse(tmp_path: Path) -> None:
    record = make_record(make_trial(), 60.0, corpus=MEASURED)
    last = record.stages[-1]
    assert last.test is not None
    alike = last.test.model_copy(update={"nats_per_token": MEASURED.unigram_nats["test"]})
    stages = (*record.stages[:-1], last.model_copy(update={"test": alike}))
    assert not untrained([outcome(tmp_path, record.model_copy(update={"stages": stages}))])


def test_a_loss_that_is_no_number_did_not_train(tmp_path: Path) -> None:
    one = outcome(tmp_path, make_record(make_trial(), 60.0))
    assert one.record is not None and one.final is not None and one.final.test is not None
    lost = one.final.model_copy(update={"test": one.final.test.model_copy(update={"nats_per_token": math.nan})})
    record = one.record.model_copy(update={"stages": (*one.record.stages[:-1], lost)})
    assert untrained([replace(one, record=record)])


def test_the_last_stage_decides_also_with_a_neural_cache(tmp_path: Path) -> None:
    trial = make_trial(cache=CACHE)
    record = make_record(trial, 690.0, corpus=MEASURED)
    assert record.stages[0].test is not None and record.stages[0].test.perplexity > 700.0, "the stage before is worse"
    assert not untrained([outcome(tmp_path, record, trial.spec)])
    assert untrained([outcome(tmp_path, make_record(trial, 710.0, corpus=MEASURED), trial.spec)])


def test_a_trial_that_is_not_complete_has_not_failed_to_train(tmp_path: Path) -> None:
    assert not untrained([outcome(tmp_path, make_record(make_trial(), 9_000.0, status="diverged", reason="?"))])


def test_the_guesses_of_a_corpus_and_the_corpus_of_the_references(tmp_path: Path) -> None:
    assert [(guess.model, guess.nats) for guess in guesses(MEASURED, "valid")] == [
        ("unigram", math.log(720.0)),
        ("uniform", math.log(6_000.0)),
    ]
    assert [guess.model for guess in guesses(CORPUS, "valid")] == ["uniform"]
    old = outcome(tmp_path / "old", make_record(make_trial(), 60.0))
    new = outcome(tmp_path / "new", make_record(make_trial(), 60.0, corpus=MEASURED))
    assert reference_corpus([old, new]) == MEASURED
    assert reference_corpus([old]) == CORPUS
    assert reference_corpus([]) is None
