"""A full disk, folders that cannot be written, names that are not UTF-8: one line and the exit code, no half a page."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from lm.__main__ import app as lm_app
from lm.files import WriteError, cannot_write, check_writable, in_a_line
from lm.record import Evaluation
from lm.spec import TrainSpec
from lm.train import train
from orchestrator.agenda.expand import disk_failure, expand
from orchestrator.api import load_sweep
from orchestrator.execute.run_trial import Allotment, write_failure
from orchestrator.search.events import SearchTrial
from orchestrator.trials.records import DISK_FULL, Records
from tests.support.places import command, make_place, process, settle, trials

pytestmark = pytest.mark.usefixtures("without_pictures")

SEARCH = """
search:
  trials: 2
  training_seed: 9
  space: {optimizer.learning_rate: {kind: log_uniform, low: 0.1, high: 5.0}}
"""
INLINE = ("sweep", "toy.yaml", "--scale", "paper", "--executor", "inline")
REPORT = ("report", "toy.yaml", "--scale", "paper")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a sweep, a spec, a search, and one settled trial."""
    monkeypatch.chdir(make_place(tmp_path))
    monkeypatch.setenv("LM_CACHE", str(tmp_path / "cache"))
    text = (tmp_path / "toy.yaml").read_text(encoding="utf-8")
    (tmp_path / "search.yaml").write_text(text.partition("components:")[0] + "seeds: [1]" + SEARCH, encoding="utf-8")
    spec = trials()["full"].spec.model_dump(mode="json")
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec), encoding="utf-8")
    settle(trials()["full"])
    return tmp_path


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """No file may be larger: as on an almost full disk, a record has room and a checkpoint has not."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.fixture
def full(place: Path) -> Iterator[None]:
    """No file may grow, which is to a writer as a full disk."""
    with files_of_at_most(0):
        yield


@pytest.fixture
def small_disk(place: Path) -> Iterator[Path]:
    """A disk with 40 KiB left."""
    folder = place / "disk"
    folder.mkdir()
    line = ["mount", "-t", "tmpfs", "-o", "size=40k", "tmpfs", str(folder)]
    mounted = subprocess.run(line, check=False, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"mounting a tmpfs is not permitted here ({mounted.stderr.strip()})")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"}


def lines_of_errors(err: str) -> int:
    """Without what `plan` says of a small test text before."""
    return sum("the test text has" not in line for line in err.splitlines())


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize(
    ("line", "named"),
    [
        (REPORT, "reports/toy/paper/"),
        (("plan", "toy.yaml", "--scale", "paper", "--write-specs", "specs"), "specs/"),
        (("export", "search.yaml", "--scale", "paper", "--optuna", "sqlite:///o.db"), "."),
        (INLINE, "runs"),
    ],
    ids=lambda line: line[0],
)
def test_on_a_full_disk_a_command_ends_with_one_line(place: Path, line: tuple[str, ...], named: str) -> None:
    before = contents(place)
    code, _, err = command(*line)
    assert (code, lines_of_errors(err)) == (5, 1)
    assert err.splitlines()[-1].startswith(named) and err.endswith(": File too large\n")
    assert contents(place) == before


def ends_of_the_search(place: Path) -> list[str]:
    """How its trials ended, as its ledger has them."""
    (ledger,) = (place / "runs/.searches").glob("*.jsonl")
    return [event["state"] for line in ledger.read_text().splitlines() if "ended" in (event := json.loads(line))]


def test_a_search_on_a_disk_with_room_for_records_alone_goes_on_when_there_is_more(place: Path) -> None:
    search = ("sweep", "search.yaml", *INLINE[2:])
    with files_of_at_most(6 * 1024):
        code, _, err = command(*search)
    assert (code, err.count("failed: the disk is full or read-only")) == (5, 1), "and nothing else starts"
    assert command(*search)[0] == 0
    assert ends_of_the_search(place) == ["complete", "complete"]


def test_a_full_disk_is_told_also_if_the_budget_is_spent_meanwhile(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []

    def filling(spec: TrainSpec, **options: Any) -> Iterator[Evaluation]:
        begun.append(spec)
        with files_of_at_most(6 * 1024):  # there is room for the page, whose failure would be told as well
            yield from train(spec, **options)

    clock = SimpleNamespace(monotonic=lambda: 7200.0 if begun else 0.0)
    monkeypatch.setattr("lm.train.train", filling)
    monkeypatch.setattr("orchestrator.execute.run.time", clock)
    code, _, err = command("sweep", "search.yaml", *INLINE[2:], "--budget", "1h")
    assert begun and code == 5 and "failed: the disk is full or read-only" in err, err


def test_on_a_disk_without_room_for_a_record_nothing_more_starts(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun = []

    def filled(spec: TrainSpec, **options: Any) -> Iterator[Evaluation]:
        begun.append(spec)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        return train(spec, **options)

    monkeypatch.setattr("lm.train.train", filled)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        code, _, _ = command(*INLINE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (code, len(begun)) == (5, 1) and "no further trial is started" in caplog.text


def test_a_search_whose_storage_is_full_goes_on_when_there_is_room(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "storage").mkdir()
    search, copyfile = ("sweep", "search.yaml", *INLINE[2:], "--storage", f"file://{place}/storage"), shutil.copyfile
    shutil.rmtree("runs")  # it would be sent at once

    def full(source: str, to: str) -> None:
        if str(place / "storage") in str(to):
            raise OSError(errno.ENOSPC, "No space left on device", str(to))
        copyfile(source, to)

    with monkeypatch.context() as there:
        there.setattr("shutil.copyfile", full)
        code, _, err = command(*search)
    assert code == 5 and err.count("failed: the disk is full") == 1, err
    assert command(*search)[0] == 0
    assert ends_of_the_search(place) == ["complete", "complete"]


def test_a_text_that_is_edited_meanwhile_ends_the_command_and_no_trial_of_a_search(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    text, before = place / "corpus/train.txt", (place / "corpus/train.txt").read_text()

    def edited(spec: TrainSpec, **options: Any) -> Iterator[Evaluation]:
        yield from train(spec, **options)
        text.write_text(before + "one more line\n")

    search = ("sweep", "search.yaml", *INLINE[2:])
    with monkeypatch.context() as there:
        there.setattr("lm.train.train", edited)
        code, _, err = command(*search)
    assert code == 1 and err.count("failed: the text changed since the command began") == 1, err
    assert "no further trial is started" in caplog.text
    text.write_text(before)
    assert command(*search)[0] == 0
    assert ends_of_the_search(place) == ["complete", "complete"]


@pytest.mark.parametrize(
    "line",
    [("lm", "--help"), ("lm", "corpus", "list"), ("orchestrator", "--version"), ("orchestrator", "plan", "--help")],
)
def test_what_is_printed_may_find_a_full_disk(line: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", *line], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, len(done.stderr.splitlines())) == (5, 1), done.stderr


def test_a_full_disk_of_the_past_is_no_reason_of_today(place: Path) -> None:
    """Of a trial that the search stopped meanwhile, and that nobody trains again."""
    sweep, records, other = load_sweep("search.yaml", "paper"), Records(Path("runs")), trials()["no weight-dropping"]
    write_failure(other, Allotment(Path("runs"), 1.0, 0.0, checkpoint_seconds=1.0), f"{DISK_FULL}: ...")
    state, search_trial = expand(sweep, records), SearchTrial(0, {}, other.key, "running", 0, 0.0, None, None, None)
    for how, found in (("running", True), ("stopped", False)):
        tried = replace(search_trial, state=how)
        searches = (replace(state.searches[0], trials=[tried]),)
        assert (disk_failure(replace(state, searches=searches, trials=[]), records) is not None) == found


@pytest.mark.usefixtures("full")
def test_a_trial_of_its_own_ends_with_one_line_on_a_full_disk(place: Path) -> None:
    result = CliRunner().invoke(lm_app, ["train", "spec.yaml", "--out", "out"])
    assert result.exit_code == 5 and isinstance(result.exception, SystemExit), result.exception
    assert result.stderr.count("\n") == 1 and result.stderr.endswith(" File too large\n")
    assert not (place / "out/record.json").exists()


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("runs2", (*INLINE, "--runs", "runs2")),
        ("reports", INLINE),
        ("reports", REPORT),
        ("runs/.stages", INLINE),
        ("runs/.old", (*INLINE, "--fresh")),
        ("specs", ("plan", "toy.yaml", "--scale", "paper", "--write-specs", "specs")),
    ],
)
def test_a_file_in_the_place_of_a_folder_is_one_line(place: Path, file: str, line: tuple[str, ...]) -> None:
    (place / file).write_text("")
    code, _, err = command(*line)
    assert (code, lines_of_errors(err)) == (5, 1)
    assert file in err and " lies where a folder is needed)" in err


def test_no_temporary_directory_is_one_line(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = trials()["full"].key
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: ["/dev/null/none"])
    code, _, err = command("reproduce", key)
    assert code == 5
    assert err.splitlines()[-1] == "No usable temporary directory found in ['/dev/null/none']"


def test_a_folder_that_cannot_be_cleared_is_one_line(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    (place / "runs" / ".old" / "0123456789abcdef-1").mkdir(parents=True)
    monkeypatch.setattr("shutil.rmtree", denied)
    code, _, err = command("runs", "gc")
    assert (code, err.count("\n")) == (5, 1)
    assert err.endswith("/.old/0123456789abcdef-1: Permission denied\n")


def test_what_a_reader_is_denied_is_not_what_a_writer_is() -> None:
    denied = PermissionError(13, "Permission denied", "runs/x/record.json")
    assert not cannot_write(denied) and cannot_write(denied, broadly=True)
    assert cannot_write(WriteError(13, "Permission denied", "runs"))
    assert cannot_write(OSError(28, "No space left on device"))
    assert not cannot_write(FileNotFoundError(2, "No such file or directory"), broadly=True)
    assert not cannot_write(ValueError("28"))
    assert in_a_line(OSError("network\n down")) == "network down"


def test_a_folder_that_can_be_written_is_left_as_it_was(tmp_path: Path) -> None:
    check_writable(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(WriteError) as error:
        check_writable(tmp_path / "none")
    assert in_a_line(error.value) == f"{tmp_path / 'none'}: No such file or directory"


@pytest.mark.slow
def test_a_disk_that_fills_up_in_training_is_the_reason_and_the_exit_code(place: Path, small_disk: Path) -> None:
    done = process(place, "-m", "orchestrator", *INLINE, "--runs", "disk/runs")
    assert done.returncode == 5, done.stderr
    assert "failed" in done.stderr and "No space left on device: '" in done.stderr
    assert done.stdout.endswith("reports/toy/paper/report.md\n")
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"{place}/disk/runs/") and ": the disk is full or read-only: " in last


@pytest.mark.slow
def test_no_room_for_the_page_after_training_leaves_the_trials_and_no_half_a_page(
    place: Path, small_disk: Path
) -> None:
    done = process(place, "-m", "orchestrator", *INLINE, "--reports", "disk/reports")
    assert done.returncode == 5, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("disk/reports/toy/paper/")
    assert done.stderr.splitlines()[-1].endswith(": No space left on device")
    assert list((small_disk / "reports/toy/paper").iterdir()) == []
    for trial in trials().values():
        assert (place / "runs" / (trial.reads_from or trial.key) / "record.json").exists()


@pytest.mark.slow
def test_a_sweep_needs_no_home(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "MPLCONFIGDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, "/dev/null")
    done = process(place, "-m", "orchestrator", "sweep", "toy.yaml", "--scale", "paper")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert (place / "reports/toy/paper/overview.svg").exists()


@pytest.mark.parametrize(
    ("folder", "line"),
    [
        (b".", [b"orchestrator", b"plan", b"caf\xe9.yaml"]),
        (b".", [b"lm", b"train", b"caf\xe9.yaml"]),
        (b"caf\xe9", [b"orchestrator", b"sweep", b"../toy.yaml"]),
        (b"caf\xe9", [b"lm", b"corpus", b"list"]),
    ],
)
def test_a_name_that_is_not_utf8_is_one_line(tmp_path: Path, folder: bytes, line: list[bytes]) -> None:
    place = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + folder))
    place.mkdir(exist_ok=True)
    done = subprocess.run([sys.executable, "-m", *line], cwd=place, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "expected a name in UTF-8, got " in done.stderr and r"caf\udce9" in done.stderr
