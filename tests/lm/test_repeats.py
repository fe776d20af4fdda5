"""Fine-tuning that is repeated until validation shows no gain: when it ends, what it leaves, who shares it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

import lm.epochs
import lm.scoring
from lm.analyzed import trained_stage
from lm.data import load
from lm.evaluate import token_nats
from lm.record import read_curve, weights_path
from lm.rescore import rescore
from lm.spec import TrainSpec, stage_keys, trial_key
from lm.train import load_model, words_for
from tests.support.lm_trials import EVERY_STEP, assert_same, killed, run, settled
from tests.support.tiny import AVERAGING, tiny_spec, write_corpus

CACHE = {"window": 5, "weight": 0.1, "flatness": 0.5, "chunk": 100}
STAGES = ["train", "finetune-1", "finetune-2", "finetune-3", "finetune-4", "cache"]
"""Of the trial below: its fourth pass gains nothing."""


def repeated(folder: Path, most: int = 8, **changes: Any) -> TrainSpec:
    finetune = {"epochs": 2, "repeats": {"most": most, "until": "no_gain"} if most > 1 else 1}
    return tiny_spec(folder, **({"optimizer": AVERAGING, "epochs": 4, "finetune": finetune, "cache": CACHE} | changes))


@pytest.fixture(scope="module")
def corpus_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"), tokens=(600, 200, 150))


@pytest.fixture(scope="module")
def undisturbed(corpus_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    run(repeated(corpus_folder), folder)
    return folder


def scripted(corpus_folder: Path, out: Path, values: list[float], most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial of three epochs and passes of two whose validation losses are given; each must be asked for."""
    script, best = iter(values), values[0]

    def next_loss(*_: Any) -> float:
        nonlocal best
        loss = next(script)
        best = min(best, loss)
        return loss

    def scored(*given: Any, **options: Any) -> Any:
        nats, measures = token_nats(*given, **options)
        return type(nats)(nats.position, nats.token, 0 * nats.nats + best, nats.rows, nats.columns), measures

    monkeypatch.setattr(lm.epochs, "validation_nats", next_loss)
    monkeypatch.setattr(lm.scoring, "token_nats", scored)
    run(repeated(corpus_folder, most, epochs=3, cache=None, bptt={"kind": "fixed", "length": 1000}), out)
    assert next(script, None) is None


def test_the_first_pass_without_gain_is_the_last(
    corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third pass reaches the best loss, 3.5, and comes not below it."""
    values = [5.0, 4.0, 4.5, 3.75, 3.625, 3.5, 3.75, 3.625, 3.5]
    scripted(corpus_folder, tmp_path, values, 5, monkeypatch)
    record = settled(tmp_path)
    assert record.status == "complete"
    best = [("train", 2), ("finetune-1", 5), ("finetune-2", 6), ("finetune-3", 6)]
    assert list(record.best_epochs.items()) == best
    assert [point.stage for point in read_curve(tmp_path)][3:] == [
        name for name in STAGES[1:4] for _ in range(2)
    ]  # every pass by its name
    kept = [weights_path(tmp_path, name).read_bytes() for name, _ in best]
    assert kept[3] == kept[2] and len(set(kept)) == 3
    assert record.stages[-1].valid.nats_per_token == pytest.approx(3.5)


def test_gains_end_at_the_most_passes(corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(corpus_folder, tmp_path, [5.0, 4.0, 4.5, 3.875, 3.75, 3.625, 3.5], 2, monkeypatch)
    assert list(settled(tmp_path).best_epochs) == STAGES[:3]


def test_the_cache_comes_after_the_last_pass(corpus_folder: Path, undisturbed: Path) -> None:
    record = settled(undisturbed)
    assert list(record.best_epochs) == STAGES and record.key == trial_key(record.spec, record.corpus.fingerprint)
    assert record.stages[-1].cache is not None
    words = words_for(record.spec, load(record.spec.corpus), undisturbed)
    model = load_model(record, undisturbed, words, torch.device("cpu"))
    score = rescore(record, undisturbed, device="cpu")["test"]
    assert score == record.stages[-2].test and model.weights()


@pytest.mark.parametrize(
    ("function", "call", "after", "checkpoint_seconds"),
    [
        ("lm.epochs.train_step", 95, False, EVERY_STEP),  # in the second pass
        ("lm.train.begin_stage", 4, True, 1e9),  # the second pass is done, the third has no checkpoint
        ("lm.train.save_weights", 5, False, 1e9),  # the last pass has ended, nothing of it is kept
        ("lm.scoring.score_with_cache", 1, False, 1e9),  # it is kept, and must not be followed by another
        ("lm.settle.write_record", 1, False, 1e9),
    ],
)
def test_it_goes_on_from_anywhere(
    corpus_folder: Path,
    undisturbed: Path,
    tmp_path: Path,
    function: str,
    call: int,
    after: bool,
    checkpoint_seconds: float,
) -> None:
    killed(repeated(corpus_folder), tmp_path, function, call, after=after, checkpoint_seconds=checkpoint_seconds)
    run(repeated(corpus_folder), tmp_path)
    assert_same(tmp_path, undisturbed)


def test_fewer_passes_are_stages_of_more(corpus_folder: Path, undisturbed: Path, tmp_path: Path) -> None:
    """One pass is today's one pass; a trial of at most five is whole inside one of eight that stopped at four."""
    record = settled(undisturbed)
    for most, names in ((1, STAGES[:2]), (3, STAGES[:4]), (5, STAGES[:5])):
        spec = repeated(corpus_folder, most, cache=None)
        key = trial_key(spec, record.corpus.fingerprint)
        inner = record.through(key)
        assert key in record.inner_keys and inner.status == "complete" and inner.spec == spec
        assert list(inner.best_epochs) == names
    once = repeated(corpus_folder, 1, cache=None)
    assert once == tiny_spec(corpus_folder, optimizer=AVERAGING, epochs=4, finetune={"epochs": 2})
    twice = once.model_copy(update={"finetune": once.finetune and once.finetune.first(2)})
    assert trial_key(twice, record.corpus.fingerprint) not in record.inner_keys  # the second of two, gain or not
    assert run(repeated(corpus_folder, 5), tmp_path, resume_from=undisturbed) == []
    assert list(settled(tmp_path).best_epochs) == STAGES


def test_what_a_record_holds_of_a_trial_with_unfinished_passes(corpus_folder: Path, undisturbed: Path) -> None:
    whole = settled(undisturbed)
    cut = whole.model_copy(update={"stages": whole.stages[:3], "status": "failed", "reason": "killed"})
    assert len(cut.inner_keys) == 3
    later = stage_keys(whole.spec, whole.corpus.fingerprint)["finetune-3"]
    assert cut.through(later).status == "failed" and list(cut.through(later).best_epochs) == STAGES[:3]


@pytest.mark.parametrize(
    ("repeats", "where"),
    [
        ({"most": 1, "until": "no_gain"}, r"until\.most"),
        ({"most": 3}, "until"),
        ({"most": 3, "until": "gain"}, "until"),
        ({"most": 3, "until": "no_gain", "least": 1}, "least"),
    ],
)
def test_wrong_repeats_are_refused(repeats: dict[str, Any], where: str) -> None:
    with pytest.raises(ValidationError, match=where):
        tiny_spec("somewhere", finetune={"epochs": 1, "repeats": repeats})


def test_an_analysis_asks_the_weights_of_the_pass_that_was_the_last(undisturbed: Path) -> None:
    record = settled(undisturbed)
    assert trained_stage(record) == "finetune-4", "the spec allows eight passes, and a cache has no weights"
    assert weights_path(undisturbed, trained_stage(record)).exists()
