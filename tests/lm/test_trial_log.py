"""`log.txt` of a trial: every attempt in order, its evaluations, warnings, and how it ended."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from lm.trial_log import LOG, captured, evaluation_in_a_line
from tests.support.lm_trials import run
from tests.support.tiny import tiny_spec

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ (INFO|WARNING|ERROR) (.*)")


def lines(folder: Path) -> list[tuple[str, str]]:
    """Level and message of each line that begins an entry."""
    text = (folder / LOG).read_text(encoding="utf-8")
    return [(match[1], match[2]) for line in text.splitlines() if (match := LINE.fullmatch(line))]


def test_it_has_the_evaluations_between_beginning_and_end(corpus_folder: Path, tmp_path: Path) -> None:
    curve = run(tiny_spec(corpus_folder, epochs=2, finetune={"epochs": 1}), tmp_path)
    first, *middle, last = lines(tmp_path)
    assert first[1].startswith("begins: process ") and last == ("INFO", "ended")
    assert middle == [("INFO", evaluation_in_a_line(point)) for point in curve]


def test_a_settled_trial_adds_nothing_and_a_test_score_one_attempt(corpus_folder: Path, tmp_path: Path) -> None:
    run(tiny_spec(corpus_folder, epochs=1), tmp_path, test=False)
    before = lines(tmp_path)
    run(tiny_spec(corpus_folder, epochs=1), tmp_path, test=False)
    assert lines(tmp_path) == before
    run(tiny_spec(corpus_folder, epochs=1), tmp_path)
    assert [text.split(":")[0] for _, text in lines(tmp_path)[len(before) :]] == ["begins", "ended"]


def test_an_interrupted_attempt_is_followed_by_the_next(corpus_folder: Path, tmp_path: Path) -> None:
    from lm.train import train

    spec = tiny_spec(corpus_folder, epochs=3)
    points = train(spec, out=tmp_path, device="cpu")
    next(points)
    points.close()
    assert not logging.getLogger("lm").handlers
    run(spec, tmp_path)
    words = [text.split()[0] for _, text in lines(tmp_path)]
    assert words == ["begins:", "train", "stopped:", "begins:", "train", "train", "ended"]
    assert lines(tmp_path)[2] == ("WARNING", "stopped: GeneratorExit")


def test_a_failure_has_its_traceback_and_what_was_warned_of(
    corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        logging.getLogger("lm.stage").warning("the %s is odd", "stage")
        raise RuntimeError("no luck")

    monkeypatch.setattr("lm.train.settle", fail)
    with pytest.raises(RuntimeError, match="no luck"):
        run(tiny_spec(corpus_folder, epochs=1), tmp_path)
    assert lines(tmp_path)[-2:] == [("WARNING", "the stage is odd"), ("ERROR", "failed: RuntimeError")]
    assert (tmp_path / LOG).read_text(encoding="utf-8").endswith("\nRuntimeError: no luck\n")
    assert "Traceback (most recent call last):" in (tmp_path / LOG).read_text(encoding="utf-8")


@pytest.mark.parametrize("ends_by", [None, RuntimeError, SystemExit])
def test_what_a_process_prints_goes_to_the_log_and_afterwards_where_it_went_before(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], ends_by: type[BaseException] | None
) -> None:
    descriptors = {path.name for path in Path("/proc/self/fd").iterdir()}
    print("before")
    with pytest.raises(ends_by) if ends_by else nullcontext(), captured(tmp_path / "new"):
        print("in Python", end="", flush=True)
        os.write(2, b", below it")
        subprocess.run(["echo", " and in a child"], check=True)
        print("not flushed")
        print("an error", file=sys.stderr)
        if ends_by is not None:
            raise ends_by
    print("after", file=sys.stderr)
    text = (tmp_path / "new" / LOG).read_text()
    assert text == "in Python, below it and in a child\nnot flushed\nan error\n"
    assert capfd.readouterr() == ("before\n", "after\n")
    assert {path.name for path in Path("/proc/self/fd").iterdir()} == descriptors


def test_a_trials_own_lines_stand_between_what_it_prints(corpus_folder: Path, tmp_path: Path) -> None:
    with captured(tmp_path):
        print("hello", flush=True)
        run(tiny_spec(corpus_folder, epochs=1), tmp_path)
        print("goodbye", flush=True)
    first, *_, last = (tmp_path / LOG).read_text().splitlines()
    assert (first, last) == ("hello", "goodbye")
    assert [text.split()[0] for _, text in lines(tmp_path)] == ["begins:", "train", "ended"]
