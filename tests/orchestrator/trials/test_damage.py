"""Files of a trial that somebody changed: named in a line, believed by nobody, and trained again by the next sweep."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import lm.hashes
from lm.record import Evaluation, Record
from lm.rescore import rescore
from orchestrator.agenda.expand import unsettled
from orchestrator.agenda.trial_source import FixedOrder
from orchestrator.api import load_records
from orchestrator.execute.interrupt import Interrupt
from orchestrator.execute.run_trial import TRAINED_ALONE, Allotment, run_inline, run_trial
from orchestrator.trials.disk import set_aside_damaged
from orchestrator.trials.plan import PlanStatus, state_of
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from tests.support.lm_trials import assert_same, settled
from tests.support.places import command, make_place, process, trials, working_in

pytestmark = pytest.mark.usefixtures("without_pictures")

PAPER = ("toy.yaml", "--scale", "paper")
ODD: list[Callable[[Path], None]] = [
    os.mkfifo,
    Path.mkdir,
    lambda path: path.symlink_to("/dev/zero"),
    lambda path: path.symlink_to("/proc/self/mem"),  # whose every read fails, for root too
    lambda path: path.write_bytes(b"\xff\xfe" * 50) and None,
]
ODD_NAMES = ["pipe", "folder", "device", "unreadable", "no text"]
ODDLY = pytest.mark.parametrize("odd", ODD, ids=ODD_NAMES)


class Silent:
    def started(self, trial: Trial) -> None: ...

    def evaluated(self, trial: Trial, evaluation: Evaluation) -> None: ...

    def settled(self, trial: Trial, record: Record | None) -> None: ...


def granted(runs: Path, *, alone: bool = False) -> Allotment:
    return Allotment(runs=runs, cpus=1, gpus=0, checkpoint_seconds=600.0, alone=alone)


def train_missing(runs: Path) -> None:
    """What a sweep trains, without MLflow and the report."""
    missing = unsettled(list(trials().values()), Records(runs))
    run_inline(FixedOrder(missing), granted(runs), Silent(), Interrupt())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A place whose sweep is complete."""
    place = make_place(tmp_path_factory.mktemp("whole"))
    with working_in(place):
        train_missing(place / "runs")
    return place


@pytest.fixture
def place(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("runs", "cache", "corpus"):
        shutil.copytree(whole / name, tmp_path / name)
    shutil.copy(whole / "toy.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LM_CACHE", str(tmp_path / "cache"))
    return tmp_path


def states(place: Path) -> dict[str, PlanStatus]:
    records = Records(place / "runs")
    return {name: state_of(trial, records) for name, trial in trials().items()}


def folders(place: Path) -> tuple[Path, Path]:
    found = trials()
    return place / "runs" / found["full"].key, place / "runs" / found["no weight-dropping"].key


def cached_in(place: Path) -> Path:
    return place / "runs" / trials()["neural cache"].key


def on_disk(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Everything below a folder, with what any change of it would change."""
    found = {path: path.lstat() for path in folder.rglob("*")}
    return {str(path): (state.st_ino, state.st_mtime_ns, state.st_size) for path, state in found.items()}


def put(path: Path, odd: Callable[[Path], None]) -> None:
    path.unlink()
    odd(path)


def without_hashes(folder: Path, **changes: object) -> None:
    """The record as trials wrote it before there were hashes."""
    data = json.loads((folder / "record.json").read_text()) | changes
    del data["hashes"]
    (folder / "record.json").write_text(json.dumps(data))


# What a damage is, and what becomes of it


def halve(full: Path, other: Path) -> None:
    data = json.loads((full / "record.json").read_text())
    data["stages"][-1]["test"]["perplexity"] /= 2
    (full / "record.json").write_text(json.dumps(data, indent=1))


def replace_record(full: Path, other: Path) -> None:
    shutil.copy(other / "record.json", full)


def replace_old_record(full: Path, other: Path) -> None:
    replace_record(full, other)
    without_hashes(full)


def truncate_curve(full: Path, other: Path) -> None:
    os.truncate(full / "curve.parquet", 300)


def replace_curve(full: Path, other: Path) -> None:
    shutil.copy(other / "curve.parquet", full)


def remove_curve(full: Path, other: Path) -> None:
    (full / "curve.parquet").unlink()


def replace_losses(full: Path, other: Path) -> None:
    name = "tokens/finetune-1.test.parquet"
    shutil.copy(other / name, full / name)


def truncate_losses(full: Path, other: Path) -> None:
    os.truncate(full / "tokens/train.valid.parquet", 20)


DAMAGES = {
    halve: "record.json: is not the record that the trial wrote",
    replace_record: "record.json: is the record of trial ",
    replace_old_record: "record.json: is the record of trial ",
    truncate_curve: "curve.parquet: is not the file that the trial wrote",
    replace_curve: "curve.parquet: is not the file that the trial wrote",
    remove_curve: "curve.parquet: is gone",
    replace_losses: "tokens/finetune-1.test.parquet: is not the file that the trial wrote",
    truncate_losses: "tokens/train.valid.parquet: is not the file that the trial wrote",
}


@pytest.mark.parametrize(("damage", "said"), DAMAGES.items(), ids=[damage.__name__ for damage in DAMAGES])
def test_what_was_changed_is_named_and_trained_again(
    place: Path, whole: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path, Path], None], said: str
) -> None:
    full, other = folders(place)
    damage(full, other)
    before = on_disk(place / "runs")
    code, out, _ = command("plan", *PAPER, "--json")
    assert code == 0
    assert {trial["variant"]: trial["state"] for trial in json.loads(out)["trials"]} == {
        "full": "damaged", "no weight-dropping": "done", "no fine-tuning": "read", "neural cache": "done",
    }  # fmt: skip
    (line,) = caplog.messages
    assert line.startswith(f"{full}/{said}")
    assert line.endswith("; a sweep that needs this trial sets it aside and trains it again")
    assert "1 to train" in command("plan", *PAPER)[1]
    assert "1 damaged" in command("status", *PAPER)[1]
    assert on_disk(place / "runs") == before

    train_missing(place / "runs")
    assert [path.name for path in (place / "runs/.old").iterdir()] == [f"{full.name}-1"]
    assert_same(full, whole / "runs" / full.name)
    after = on_disk(place / "runs")
    elsewhere = {path for path in before if full.name not in path and ".stages" not in path}
    assert {path: after[path] for path in elsewhere} == {path: before[path] for path in elsewhere}
    assert set(states(place).values()) == {"done"}


@pytest.mark.parametrize("name", ["record.json", "curve.parquet", "tokens/finetune-1.test.parquet"])
@ODDLY
def test_what_stands_in_the_place_of_a_file_hangs_nothing(
    place: Path, caplog: pytest.LogCaptureFixture, name: str, odd: Callable[[Path], None]
) -> None:
    full, _ = folders(place)
    put(full / name, odd)
    assert states(place)["full"] == "damaged"
    (line,) = caplog.messages
    assert line.startswith(f"{full / name}: ")


def test_a_file_in_the_place_of_a_trial_and_a_huge_record_are_trained_again(place: Path, whole: Path) -> None:
    full, other = folders(place)
    shutil.rmtree(full)
    full.write_text("no folder")
    with (other / "record.json").open("wb") as file:
        file.truncate(65 * 2**20)
    assert [states(place)[name] for name in ("full", "no weight-dropping")] == ["damaged", "damaged"]
    train_missing(place / "runs")
    for folder in (full, other):
        assert_same(folder, whole / "runs" / folder.name)


def test_two_records_that_changed_places_are_both_trained_again(
    place: Path, whole: Path, caplog: pytest.LogCaptureFixture
) -> None:
    full, other = folders(place)
    texts = [(folder / "record.json").read_bytes() for folder in (full, other)]
    for folder, text in zip((other, full), texts, strict=True):
        (folder / "record.json").write_bytes(text)
    found = states(place)
    assert [found[name] for name in ("full", "no weight-dropping", "no fine-tuning")] == ["damaged", "damaged", "read"]
    assert len(caplog.messages) == 2
    train_missing(place / "runs")
    for folder in (full, other):
        assert_same(folder, whole / "runs" / folder.name)


def test_a_damaged_curve_of_an_unfinished_or_failed_trial_fails_it_no_more(place: Path, whole: Path) -> None:
    full, other = folders(place)
    (full / "record.json").unlink()
    without_hashes(other, status="failed", reason="no luck")
    for folder in (full, other):
        (folder / "checkpoints" / "00000001").mkdir(parents=True)
        os.truncate(folder / "curve.parquet", 300)
    found = states(place)
    assert [found[name] for name in ("full", "no weight-dropping")] == ["damaged", "damaged"]
    train_missing(place / "runs")
    for folder in (full, other):
        assert_same(folder, whole / "runs" / folder.name)


def test_weights_that_were_removed_and_records_without_hashes_are_no_damage(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    places = [path.parent for path in (place / "runs").glob("*/record.json")]
    before = {folder: settled(folder) for folder in places}
    for folder in places:
        shutil.rmtree(folder / "weights")
    assert set(states(place).values()) == {"done"}
    for folder in places:
        without_hashes(folder)
        assert settled(folder) == before[folder].model_copy(update={"hashes": {}})
    assert set(states(place).values()) == {"done"}
    full, other = folders(place)
    truncate_curve(full, other)
    os.truncate(other / "tokens/finetune-1.test.parquet", 20)
    assert command("report", *PAPER)[0] == 0
    assert [line.split(": ")[0] for line in caplog.messages] == [
        str(full / "curve.parquet"), str(other / "tokens/finetune-1.test.parquet"),
    ]  # fmt: skip


# Weights, which are read only where they are needed


def test_damaged_weights_are_taken_over_and_scored_by_nobody(
    place: Path, whole: Path, caplog: pytest.LogCaptureFixture
) -> None:
    full, _ = folders(place)
    cached, weights = cached_in(place), full / "weights/finetune-1.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert set(states(place).values()) == {"done"}, "the trial's numbers are what they were"
    with pytest.raises(ValueError, match=r"finetune-1\.safetensors: is not the file that the trial wrote"):
        rescore(settled(full), full, device="cpu")
    shutil.rmtree(cached)
    shutil.rmtree(place / "runs/.stages")
    train_missing(place / "runs")
    assert f"{weights}: is not the file that the trial wrote" in caplog.text
    assert "trains all its stages itself" in caplog.text
    assert_same(cached, whole / "runs" / cached.name)


def test_a_trial_whose_weights_are_damaged_when_its_test_text_is_opened_is_trained_again(
    place: Path, whole: Path
) -> None:
    full, _ = folders(place)
    trial, allotment = trials()["full"], granted(place / "runs")
    shutil.rmtree(place / "runs")
    assert run_trial(replace(trial, opens_test=False), allotment, lambda _: None) is None
    assert not settled(full).tested
    os.truncate(full / "weights/train.safetensors", 50)
    assert run_trial(trial, allotment, lambda _: None) is None
    assert (place / "runs/.old" / f"{full.name}-1").is_dir()
    assert_same(full, whole / "runs" / full.name)


@pytest.mark.parametrize("test", [True, False])
def test_a_record_that_is_written_once_more_has_the_hashes_of_its_files(place: Path, test: bool) -> None:
    """With a note that the trial ran alone, or when its test text is opened later."""
    full, _ = folders(place)
    trial = trials()["full"]
    shutil.rmtree(place / "runs")
    if not test:
        run_trial(replace(trial, opens_test=False), granted(place / "runs"), lambda _: None)
    run_trial(trial, granted(place / "runs", alone=True), lambda _: None)
    record = settled(full)
    assert record.note == TRAINED_ALONE
    files = {
        str(path.relative_to(full))
        for path in full.rglob("*")
        if path.is_file() and path.name not in (".lock", "log.txt")
    }
    assert set(record.hashes) == files
    assert states(place)["full"] == "done"


# Shared stages


@ODDLY
def test_a_note_of_a_shared_stage_that_cannot_be_read_is_passed_over(
    place: Path, whole: Path, odd: Callable[[Path], None]
) -> None:
    cached = cached_in(place)
    shutil.rmtree(cached)
    for note in (place / "runs/.stages").glob("*.json"):
        put(note, odd)
    train_missing(place / "runs")
    assert_same(cached, whole / "runs" / cached.name)


def test_a_shared_stage_whose_epochs_were_replaced_is_not_taken_over(
    place: Path, whole: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cached = cached_in(place)
    shutil.rmtree(cached)
    replace_curve(*folders(place))
    run_trial(replace(trials()["neural cache"], starts_from=None), granted(place / "runs"), lambda _: None)
    assert "its epochs in the curve are not what they were" in caplog.text
    assert_same(cached, whole / "runs" / cached.name)


# Commands


def odd_everywhere(place: Path) -> None:
    """Two damaged trials, and beside them what does not belong there."""
    full, other = folders(place)
    replace_record(other, full)
    truncate_curve(full, other)
    runs = place / "runs"
    (runs / ".sweeps").mkdir(exist_ok=True)
    for number, odd in enumerate(ODD):
        (runs / f".sweeps/odd{number}.paper.lock").touch()
        odd(runs / f".sweeps/odd{number}.paper.json")
        odd(runs / f".stages/{number:016x}.json")
        (runs / f"{number:016x}").mkdir()
        for name in ("record.json", "failure.txt", "stalled.txt", "curve.parquet"):
            odd(runs / f"{number:016x}" / name)
    for name, text in (("brackets", "[" * 10**5), ("numbers", '{"sweep": 5, "since": null}')):
        (runs / f".sweeps/{name}.paper.lock").touch()
        (runs / f".sweeps/{name}.paper.json").write_text(text)
    (runs / "0123456789abcdef").write_text("no folder")
    os.mkfifo(runs / "fedcba9876543210")


READING = [
    ("plan", *PAPER),
    ("plan", *PAPER, "--json"),
    ("sweep", *PAPER, "--dry-run"),
    ("status", *PAPER),
    ("status", *PAPER, "--json"),
    ("status",),
    ("status", "--json"),
    ("report", *PAPER),
    ("runs", "list"),
    ("runs", "list", "--sweep", *PAPER),
    ("runs", "gc", "--dry-run"),
    ("runs", "gc", "--weights", "--sweep", *PAPER, "--dry-run"),
]


@pytest.mark.parametrize("line", READING, ids=" ".join)
def test_commands_that_only_read_go_on_and_change_nothing(place: Path, line: tuple[str, ...]) -> None:
    odd_everywhere(place)
    before = on_disk(place / "runs")
    code, out, _ = command(*line)
    assert code == 0 and out
    assert on_disk(place / "runs") == before


@pytest.mark.parametrize("line", [("runs", "show"), ("runs", "diff"), ("why",), ("reproduce",)], ids=" ".join)
def test_commands_of_one_trial_name_what_is_damaged(place: Path, line: tuple[str, ...]) -> None:
    odd_everywhere(place)
    full, other = folders(place)
    for key in (full.name, other.name, *(f"{number:016x}" for number in range(len(ODD))), "0123456789abcdef"):
        code, out, err = command(*line, key, *([key] if line[-1] == "diff" else []))
        if key == full.name and line[0] == "runs":
            assert code == 0  # the record is whole, and the curve is not asked for
            continue
        assert code == (0 if line == ("why",) else 2)
        assert (out + err).count("\n") == 1
        assert f"runs/{key}/" in out + err


def test_damaged_records_are_passed_over_by_what_goes_through_all(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    full, other = folders(place)
    halve(full, other)
    put(other / "record.json", os.mkfifo)
    cached = cached_in(place)
    rows = {row["key"]: row["status"] for row in json.loads(command("runs", "list", "--json")[1])["runs"]}
    assert rows == {cached.name: "complete", full.name: "damaged", other.name: "damaged"}
    for folder in (full, cached):
        (folder / "checkpoints").mkdir()
    assert command("runs", "gc")[0] == 0
    assert (full / "checkpoints").exists() and not (cached / "checkpoints").exists()


def test_a_sweep_says_one_line_of_each_and_completes(place: Path, whole: Path) -> None:
    odd_everywhere(place)
    (place / "runs/.sweeps/toy.paper.json").mkdir()
    full, other = folders(place)
    done = process(place, "-m", "orchestrator", "sweep", *PAPER, "--executor", "inline")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    for folder, file in ((full, "curve.parquet"), (other, "record.json")):
        (line,) = [line for line in done.stderr.splitlines() if str(folder) in line]
        assert line.startswith(f"{folder / file}: ")
        assert_same(folder, whole / "runs" / folder.name)
    assert {path.name for path in (place / "runs/.old").iterdir()} >= {f"{full.name}-1", f"{other.name}-1"}


def test_a_read_that_fails_once_is_no_damage(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with too many open files: the next look finds the trial whole, and nothing is set aside."""
    full, trial, records = folders(place)[0], trials()["full"], Records(place / "runs")
    fails = [OSError(errno.EMFILE, "Too many open files")] * 1
    real = lm.hashes.sha256

    def once(path: Path) -> str:
        if fails:
            raise fails.pop()
        return real(path)

    monkeypatch.setattr(lm.hashes, "sha256", once)
    assert records.find(trial) is None
    assert records.find(trial) is not None
    fails.append(OSError(errno.EMFILE, "Too many open files"))
    set_aside_damaged(full)
    assert full.exists() and not (place / "runs" / ".old").exists()


def test_another_trial_that_holds_the_same_stages_is_found_behind_a_damaged_one(place: Path) -> None:
    """The stages of a trial without fine-tuning lie in every longer one of its seed."""
    records = Records(place / "runs")
    holders: dict[str, list[str]] = {}
    for record in load_records(place / "runs").values():
        for stage in record.stages:
            holders.setdefault(stage.key, []).append(record.key)
    stage, (first, second, *_) = next((s, keys) for s, keys in holders.items() if len(keys) > 1 and s not in keys)
    with (place / "runs" / first / "curve.parquet").open("ab") as file:
        file.write(b"x")
    inner = replace(trials()["full"], key=stage, reads_from=None)
    found = records.find(inner)
    assert found is not None and found.key == stage
    assert records.test_losses(inner).is_relative_to(place / "runs" / second)
