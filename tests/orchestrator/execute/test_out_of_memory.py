"""A trial that asks for more memory than there is, beside others and alone."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

from lm.data import fingerprint_of
from lm.files import ran_out_of_memory
from lm.record import read_record
from lm.spec import Model, trial_key
from orchestrator.agenda.trial_source import FixedOrder
from orchestrator.execute.ray.bridge import PAUSES, Queue
from orchestrator.execute.run_trial import TRAINED_ALONE, Allotment, run_trial
from orchestrator.trials.trial import Trial
from tests.orchestrator.execute.test_schedule import Heard
from tests.support.tiny import tiny_spec, write_corpus


def trial(folder: Path, variant: str, hidden: int) -> Trial:
    """One of the corpus that lies in the folder."""
    spec = tiny_spec(folder / "corpus", model=Model(layers=2, embedding_size=6, hidden_size=hidden), epochs=1)
    return Trial(variant, "", 1, spec, trial_key(spec, fingerprint_of(spec.corpus)), 1)


def test_it_waits_until_it_can_run_alone_and_then_fails_for_good(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus")
    heard, allotment = Heard(), Allotment(tmp_path, cpus=1.0, gpus=0.0, checkpoint_seconds=600.0)
    big = trial(tmp_path, "big", 100_000)
    queue = Queue(FixedOrder([big, trial(tmp_path, "small", 10)]), allotment, heard)
    first, beside = queue.suggest("1"), queue.suggest("2")
    assert first is not None and beside is not None
    run_trial(first["trial"], first["allotment"], lambda evaluation: None)
    queue.on_trial_complete("1")
    assert heard.words == [f"{big.key} stopped"], "it does not run meanwhile"
    assert queue.suggest("3") is None  # the other one still runs
    queue.on_trial_complete("2", error=False)
    again = queue.suggest("4")
    assert again is not None and again["trial"].key == big.key and again["allotment"].alone
    assert queue.suggest("5") is None
    run_trial(again["trial"], again["allotment"], lambda evaluation: None)
    queue.on_trial_complete("4")
    assert heard.words == [f"{big.key} stopped", f"{big.key} failed"]
    record = read_record(tmp_path / big.key)
    assert record is not None and (record.reason or "").startswith("out of memory alone: RuntimeError")


def test_one_that_fits_alone_is_complete_and_says_so(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus")
    one = trial(tmp_path, "one", 10)
    allotment = Allotment(tmp_path, cpus=1.0, gpus=0.0, checkpoint_seconds=600.0)
    run_trial(one, replace(allotment, alone=True), lambda evaluation: None)
    record = read_record(tmp_path / one.key)
    assert record is not None and (record.status, record.note) == ("complete", TRAINED_ALONE)


def test_one_whose_workers_die_beside_others_has_its_last_try_alone(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus")
    allotment = Allotment(tmp_path, cpus=1.0, gpus=0.0, checkpoint_seconds=600.0)
    hours = itertools.count(0.0, 3600.0)
    heard, again = Heard(), trial(tmp_path, "b", 12)
    queue = Queue(FixedOrder([trial(tmp_path, "a", 10), again]), allotment, heard, hours.__next__)
    queue.suggest("b")  # takes "a"
    for attempt in range(1 + len(PAUSES)):
        assert queue.suggest(str(attempt)) is not None
        queue.on_trial_complete(str(attempt), error=True)
        assert heard.words[attempt:] == [f"{again.key} stopped"], "until its next attempt it does not run"
    assert queue.suggest("waits") is None
    queue.on_trial_complete("b")
    last = queue.suggest("last")
    assert last is not None and last["allotment"].alone


def test_what_counts_as_out_of_memory() -> None:
    assert ran_out_of_memory(MemoryError())
    assert not ran_out_of_memory(RuntimeError("shapes do not match"))
