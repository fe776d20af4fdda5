"""Trials that are killed, and the comparison of what two trials left."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any, NoReturn

import pyarrow.parquet as pq

from lm.record import Evaluation, Record, read_record
from lm.spec import TrainSpec
from lm.train import train
from lm.trial_log import LOG

EVERY_STEP, NEVER = 0.0, 1e9
"""Seconds between checkpoints within an epoch."""

_CLOCKED = {"seconds", "tokens_per_second", "train_seconds", "evaluation_seconds", "peak_memory_bytes", "finished_at"}
_CLOCKED |= {"hashes"}  # of the curve, whose times are its own

# Each trial runs in a process of its own, forked from one that has loaded torch already; an optimizer loads _dynamo.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["lm.train", "torch._dynamo"])


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_times(part) for name, part in value.items() if name not in _CLOCKED}
    return [_without_times(part) for part in value] if isinstance(value, list) else value


def contents(folder: Path) -> dict[str, Any]:
    """All that a settled trial left, log and times aside: the record, the curve's columns, every other file's bytes."""
    found: dict[str, Any] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in (".lock", LOG)):
        name = str(path.relative_to(folder))
        if name == "curve.parquet":
            found[name] = _without_times(pq.read_table(path).to_pydict())
        elif name == "record.json":
            found[name] = _without_times(settled(folder).model_dump(mode="json"))
        else:
            found[name] = path.read_bytes()
    return found


def assert_same(folder: Path, other: Path) -> None:
    """Both trials left the same, to the last bit."""
    left, right = contents(folder), contents(other)
    assert left.keys() == right.keys()
    for name, value in left.items():
        assert value == right[name], name


def settled(folder: Path) -> Record:
    record = read_record(folder)
    assert record is not None, f"{folder} has no record"
    return record


def run(spec: TrainSpec, out: Path, **options: Any) -> list[Evaluation]:
    """The whole trial, or the rest of it, in this process."""
    return list(train(spec, out=out, device="cpu", **options))


def before_call(owner: str, name: str, call: int, act: Callable[[], None], *, after: bool = False) -> None:
    """In this process have something done before (or after) the given call of a function."""
    module = __import__(owner, fromlist=[name])
    original: Callable[..., Any] = getattr(module, name)
    calls = 0

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call and not after:
            act()
        result = original(*arguments, **options)
        if calls == call and after:
            act()
        return result

    setattr(module, name, counted)


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


def _train_and_die(
    spec: TrainSpec, out: Path, moment: tuple[str, str, int], after: bool, options: dict[str, Any]
) -> None:
    os.fsync = lambda _: None  # as tests/conftest.py does for other tests
    before_call(*moment, die, after=after)
    run(spec, out, **options)


def killed(spec: TrainSpec, out: Path, function: str, call: int, *, after: bool = False, **options: Any) -> None:
    """Train in a process that is killed by SIGKILL before (or after) the given call of a function (`module.name`)."""
    module, name = function.rsplit(".", 1)
    options = {"checkpoint_seconds": NEVER} | options
    process = processes.Process(target=_train_and_die, args=(spec, out, (module, name, call), after, options))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL, f"ended with {process.exitcode} before call {call} of {function}"


def _train_and_tell(spec: TrainSpec, out: Path, told: Queue[int]) -> None:
    told.put(len(run(spec, out)))


def at_once(spec: TrainSpec, out: Path, count: int) -> list[int]:
    """Train in several processes on one folder; how many evaluations each of them yielded."""
    told: Queue[int] = processes.Queue()
    started: list[BaseProcess] = [
        processes.Process(target=_train_and_tell, args=(spec, out, told)) for _ in range(count)
    ]
    for process in started:
        process.start()
    yielded = [told.get(timeout=60) for _ in started]
    for process in started:
        process.join(60)
        assert process.exitcode == 0
    told.close()
    told.join_thread()
    return yielded
