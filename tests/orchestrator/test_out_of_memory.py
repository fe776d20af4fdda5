"""A trial that asks for more memory than there is, beside others and alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ray.tune.search import Searcher

from lm.record import read_record
from lm.spec import Model
from orchestrator.agenda.trial_source import FixedOrder
from orchestrator.execute.ray.bridge import MOST_WORKER_DEATHS, Queue, unpack
from orchestrator.execute.ray.memory import filled_by_others
from orchestrator.execute.run_trial import TRAINED_ALONE, Allotment, ran_out_of_memory, run_trial
from orchestrator.trials.trial import Trial
from tests.lm.tiny import tiny_spec, write_corpus
from tests.orchestrator.test_schedule import Heard


def trial(folder: Path, key: str, hidden: int) -> Trial:
    spec = tiny_spec(folder / "corpus", model=Model(layers=2, embedding_size=6, hidden_size=hidden), epochs=1)
    return Trial(key, "", 1, spec, key, 1)


def test_it_waits_until_it_can_run_alone_and_then_fails_for_good(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus")
    heard, allotment = Heard(), Allotment(tmp_path, cpus=1.0, gpus=0.0, checkpoint_seconds=600.0)
    queue = Queue(FixedOrder([trial(tmp_path, "big", 3_000_000), trial(tmp_path, "small", 10)]), allotment, heard)
    first, beside = queue.suggest("1"), queue.suggest("2")
    assert first is not None and beside is not None
    run_trial(unpack(first["trial"]), Allotment(**first["allotment"]), lambda evaluation: None)
    queue.on_trial_complete("1")
    assert heard.words == []
    assert queue.suggest("3") is None  # the other one still runs
    queue.on_trial_complete("2", error=False)
    again = queue.suggest("4")
    assert again is not None and again["trial"]["key"] == "big" and again["allotment"]["alone"]
    assert queue.suggest("5") is None
    run_trial(unpack(again["trial"]), Allotment(**again["allotment"]), lambda evaluation: None)
    queue.on_trial_complete("4")
    assert heard.words == ["big failed"]
    record = read_record(tmp_path / "big")
    assert record is not None and (record.reason or "").startswith("out of memory alone: RuntimeError")


def test_one_that_fits_alone_is_complete_and_says_so(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus")
    one = trial(tmp_path, "one", 10)
    allotment = Allotment(tmp_path, cpus=1.0, gpus=0.0, checkpoint_seconds=600.0)
    run_trial(one, replace(allotment, alone=True), lambda evaluation: None)
    record = read_record(tmp_path / "one")
    assert record is not None and (record.status, record.note) == ("complete", TRAINED_ALONE)


def test_one_whose_workers_die_beside_others_has_its_last_try_alone(tmp_path: Path) -> None:
    allotment = Allotment(tmp_path, cpus=1.0, gpus=0.0, checkpoint_seconds=600.0)
    queue = Queue(FixedOrder([trial(tmp_path, "a", 10), trial(tmp_path, "b", 10)]), allotment, Heard())
    queue.suggest("b")  # takes "a"
    for attempt in range(1 + MOST_WORKER_DEATHS):
        assert queue.suggest(str(attempt)) is not None
        queue.on_trial_complete(str(attempt), error=True)
    assert queue.suggest("waits") is None
    queue.on_trial_complete("b")
    last = queue.suggest("last")
    assert last is not None and last["allotment"]["alone"]


RAYS_WORDS = """\
Failure # {number} (occurred at 2026-01-31_12-00-00)
1 worker(s) were killed due to the node running low on memory. Memory on the node (IP: 127.0.0.1, ID: 33a1) was \
22.60GB used / 23.54GB limit (0.960068)
OOM kill reason: Memory usage 24266563584B exceeded threshold of 24012260761B (95.0% of 25276063744B limit)
Object store memory usage: [- objects spillable: 0
(global lru) used: 0%]
Ray killed 1 worker(s) based on the killing policy
Considered workers: [
Selected to kill: (Task: job ID=01000000, task name=ImplicitFunc.__init__, pid=24960, actual memory used={used}GB, \
worker ID=edd9)
]
Total non-selected idle workers USS bytes: 0.00GB
Top 10 memory users: PID\tMEM(GB)\tCOMMAND
24631\t17.36\tpython fill.py --token=hunter2
24457\t1.33\t/usr/lib/browser --type=renderer
22909\t0.23\tray::ImplicitFunc.train
24446\t0.02\tsh
Refer to the documentation on how to address the out of memory issue.
"""


def test_who_fills_the_memory_is_said_unless_the_trials_do() -> None:
    died = RAYS_WORDS.format(number=1, used="0.40")
    assert filled_by_others(died) == (
        "22.60 of 23.54 GB are in use, 0.4 by trials; most by python fill.py --token=*** (process 24631, 17.36 GB), "
        "/usr/lib/browser --type=renderer (process 24457, 1.33 GB), ray::ImplicitFunc.train (process 22909, 0.23 GB)"
    )
    assert filled_by_others(RAYS_WORDS.format(number=1, used="14.10")) is None
    assert filled_by_others("") is None
    assert (
        filled_by_others(died + "Failure # 2 (occurred at 2026-01-31_12-00-09)\nThe actor died unexpectedly.") is None
    )


def test_one_killed_for_others_memory_waits_and_is_never_recorded_as_failed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, heard = [0.0], Heard()
    allotment = Allotment(tmp_path, cpus=1.0, gpus=0.0, checkpoint_seconds=600.0)
    queue = Queue(FixedOrder([trial(tmp_path, "a", 10)]), allotment, heard, now=lambda: clock[0])
    deaths = "".join(RAYS_WORDS.format(number=number, used="0.40") for number in range(1, 2 + MOST_WORKER_DEATHS))
    for number, seconds in enumerate((60, 300, 900)):
        assert queue.suggest(str(number)) is not None
        queue.deaths[str(number)] = deaths
        queue.on_trial_complete(str(number), error=True)
        assert f"waits {seconds // 60} minutes" in caplog.text and "python fill.py" in caplog.text
        clock[0] += seconds - 1.0
        assert queue.suggest("early") is None
        clock[0] += 1.0
    assert queue.suggest("last") is not None
    queue.deaths["last"] = deaths
    queue.on_trial_complete("last", error=True)
    assert heard.words == ["a stopped"]
    assert read_record(tmp_path / "a") is None
    assert queue.suggest("none") == Searcher.FINISHED


def test_what_counts_as_out_of_memory() -> None:
    assert ran_out_of_memory(MemoryError())
    assert not ran_out_of_memory(RuntimeError("shapes do not match"))
