"""Trials carried elsewhere without their weights: whole or not at all, their own bytes, and the same page."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from lm.files import sha256
from lm.hashes import RECORD
from orchestrator.execute.run_trial import Allotment, write_failure
from orchestrator.trials.disk import copy_trials
from orchestrator.trials.records import check_trial
from orchestrator.trials.trial import Trial
from tests.orchestrator.search import test_search_end_to_end as searching
from tests.support.places import command, process, settle, trials

pytestmark = pytest.mark.usefixtures("without_pictures")

RUNS, THERE = Path("runs"), Path("there")
OPTIONS = ("toy.yaml", "--scale", "paper")


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def report(file: str, runs: Path) -> dict[str, bytes]:
    """What `report` writes of these records, in a folder that is made anew."""
    shutil.rmtree("pages", ignore_errors=True)
    code, _, err = command("report", file, "--scale", "paper", "--runs", str(runs), "--reports", "pages")
    assert code == 0, err
    return files(Path("pages"))


def exported(*keys: Trial, code: int = 0) -> str:
    """What the export of all says; these trials are settled first."""
    for trial in keys:
        settle(trial)
    done, out, err = command("runs", "export", *OPTIONS, "--to", str(THERE))
    assert done == code, err
    return out.splitlines()[-1] + err


def test_the_page_of_what_was_exported_is_the_same_to_the_byte(place: Path) -> None:
    """Also where a variant is read from another's stage, one failed and one has not settled."""
    full, weights, tuned, cache = (trials()[name] for name in trials())
    assert tuned.reads_from == full.key
    settle(full)
    settle(weights)
    write_failure(cache, Allotment(RUNS, 1.0, 0.0, 600.0), "it broke")
    assert exported().startswith("3 trials copied to there, which has ")
    assert report("toy.yaml", THERE) == report("toy.yaml", RUNS)
    names = {path.split("/", 1)[1] for path in files(THERE)}
    losses = {f"tokens/{stage}.test.parquet" for stage in ("train", "finetune-1")}
    assert names == {"record.json", "curve.parquet"} | losses
    for folder in THERE.iterdir():
        assert all(content == (RUNS / folder.name / name).read_bytes() for name, content in files(folder).items())


@pytest.mark.slow
def test_the_page_of_an_exported_search_is_the_same_to_the_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = searching.make_place(tmp_path, monkeypatch)
    line = ("-m", "orchestrator", "sweep", "tiny.yaml", "--scale", "paper", "--executor", "inline")
    assert process(place, *line).returncode == 0
    code, _, err = command("runs", "export", "tiny.yaml", "--scale", "paper", "--to", "there")
    assert code == 0, err
    assert len(list(THERE.glob(".searches/*.jsonl"))) == 1
    assert report("tiny.yaml", THERE) == report("tiny.yaml", RUNS)
    code, _, _ = command("runs", "import", "there", "--runs", "elsewhere")
    assert code == 0
    assert report("tiny.yaml", Path("elsewhere")) == report("tiny.yaml", RUNS)


def test_what_was_imported_counts_as_done(place: Path) -> None:
    exported(trials()["full"])
    assert command("runs", "import", "there", "--runs", "elsewhere")[0] == 0
    plan = json.loads(command("plan", *OPTIONS, "--runs", "elsewhere", "--json")[1])
    assert plan["counts"] == {"done": 2, "new": 2}, "and what is read from it"


def test_a_table_of_further_seeds_is_exported_too(place: Path) -> None:
    one = settle(trials()["full"])
    line = ("runs", "export", *OPTIONS, "--to", str(THERE))
    assert "\n0 trials copied" in command(*line, "--seeds", "2-3")[1]
    assert "\n1 trial copied" in command(*line, "--seeds", "1-3")[1]
    assert files(THERE) == {f"{one.name}/{name}": (one / name).read_bytes() for name in files(THERE / one.name)}


def test_the_pages_that_were_read_go_along_and_add_to_those_of_there(place: Path) -> None:
    """Or the page elsewhere would have narrower intervals than the page here."""
    looks = Path(".sweeps/toy.paper.looks")
    pages = {RUNS: '{"seeds": [1, 2]}\n', Path("elsewhere"): '{"seeds": [2, 3]}\n'}
    for runs, page in pages.items():
        (runs / looks).parent.mkdir(parents=True, exist_ok=True)
        (runs / looks).write_text(page)
    exported(trials()["full"])
    assert command("runs", "import", "there", "--runs", "elsewhere")[0] == 0
    assert (THERE / looks).read_text() == pages[RUNS]
    assert (Path("elsewhere") / looks).read_text() == pages[Path("elsewhere")] + pages[RUNS]
    (THERE / looks).write_text(pages[Path("elsewhere")])
    exported()
    assert (THERE / looks).read_text() == pages[Path("elsewhere")] + pages[RUNS], "what was read there counts as well"
    (THERE / looks).write_text("seven\n")
    code, _, err = command("runs", "import", "there", "--runs", "elsewhere")
    assert code == 2 and f"{looks}:1: expected a line such as" in err


def test_what_is_exported_again_mends_a_damaged_copy(place: Path) -> None:
    keys = [trial.key for trial in trials().values()]
    exported(*trials().values())
    before = files(THERE)
    with (THERE / keys[0] / "curve.parquet").open("ab") as file:
        file.write(b"x")
    (THERE / keys[1] / "curve.parquet").unlink()
    assert exported().startswith("2 trials copied") and files(THERE) == before


def test_a_folder_without_a_trial_is_taken_by_an_import(place: Path) -> None:
    full = trials()["full"]
    exported(full)
    lock = Path("elsewhere") / full.key / ".lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    assert command("runs", "import", "there", "--runs", "elsewhere")[1].startswith("1 trial copied")
    assert (lock.parent / "record.json").exists()


def test_a_copy_that_was_killed_is_no_trial_and_is_freed(place: Path) -> None:
    full = trials()["full"]
    exported(full)
    ghost = RUNS / f".{full.key}.new.tmp"
    shutil.copytree(THERE / full.key, ghost)
    assert ghost.name not in command("runs", "list")[1]
    assert str(ghost) in command("runs", "gc")[1] and not ghost.exists()


def test_a_trial_that_is_here_already_stays_as_it_is(place: Path) -> None:
    full, weights = trials()["full"], trials()["no weight-dropping"]
    exported(full, weights)
    unfinished = Path("elsewhere") / full.key / "checkpoints"
    unfinished.mkdir(parents=True)
    _, out, _ = command("runs", "import", "there", "--runs", "elsewhere")
    assert out.startswith("1 trial copied to elsewhere") and out.endswith("1 there already\n")
    assert [path.name for path in unfinished.parent.iterdir()] == ["checkpoints"]
    before = {path: path.stat().st_mtime_ns for path in Path("elsewhere").rglob("*")}
    assert command("runs", "import", "there", "--runs", "elsewhere")[1].startswith("0 trials copied")
    assert {path: path.stat().st_mtime_ns for path in Path("elsewhere").rglob("*")} == before


def test_an_export_replaces_the_trial_that_was_trained_anew_since_and_no_other(place: Path) -> None:
    full, weights = trials()["full"], trials()["no weight-dropping"]
    exported(full, weights)
    shutil.rmtree(RUNS / full.key)
    record = settle(full) / RECORD
    data = json.loads(record.read_text())
    assert exported().startswith("1 trial copied to there") and data["key"] == full.key
    assert (THERE / full.key / RECORD).read_bytes() == record.read_bytes()
    assert sorted(path.name for path in THERE.iterdir()) == sorted([full.key, weights.key])


def failed(trial: Trial, runs: Path = RUNS) -> Path:
    """The folder of a trial that failed at once."""
    write_failure(trial, Allotment(runs.resolve(), 1.0, 0.0, 600.0), "it broke")
    return runs / trial.key


def test_a_failure_replaces_no_result_in_an_export_and_any_result_a_failure(place: Path) -> None:
    full = trials()["full"]
    exported(full)
    before = files(THERE)
    shutil.rmtree(RUNS / full.key)
    failed(full)
    said = exported(code=1)
    assert said.startswith("0 trials copied") and said.endswith(
        f"left out: there/{full.key}: is complete, while {place}/runs/{full.key} failed; it stays as it is\n"
    )
    assert files(THERE) == before
    (THERE / full.key / "curve.parquet").write_bytes(b"x")
    assert exported().startswith("1 trial copied"), "it was damaged there"
    shutil.rmtree(RUNS / full.key)
    settle(full)
    assert exported().startswith("1 trial copied")


def test_an_import_takes_a_result_in_place_of_a_failure_and_sets_that_aside(place: Path) -> None:
    full, weights = trials()["full"], trials()["no weight-dropping"]
    failed(weights)
    exported(full)
    runs = Path("elsewhere")
    for trial in (full, weights):
        (failed(trial, runs) / "log.txt").write_text("it began")
    left = files(runs / full.key)
    _, out, _ = command("runs", "import", "there", "--runs", "elsewhere")
    assert out.startswith("1 trial copied to elsewhere") and out.endswith("1 there already\n")
    assert (runs / full.key / RECORD).read_bytes() == (THERE / full.key / RECORD).read_bytes()
    assert files(runs / ".old" / f"{full.key}-1") == left


@pytest.mark.parametrize(
    "line", [("import", "there", "--runs", "elsewhere"), ("export", *OPTIONS, "--to", "elsewhere")]
)
def test_no_copy_takes_the_place_of_a_trial_that_a_process_holds(place: Path, line: tuple[str, ...]) -> None:
    full = trials()["full"]
    exported(full)
    held = failed(full, Path("elsewhere"))
    before = files(held)
    with FileLock(held / ".lock"):
        code, out, err = command("runs", *line)
        assert out.splitlines()[-1].startswith("0 trials copied")
        assert (code, err) in [(0, ""), (1, f"left out: {held}: a process trains there; it stays as it is\n")]
        assert files(held) == before | {".lock": b""}
    assert command("runs", *line)[1].splitlines()[-1].startswith("1 trial copied")


@pytest.mark.parametrize(
    ("there", "by_export", "by_import"),
    [
        ("", "ab", "ab"),
        ("a", "ab", "ab"),
        ("ab", "ab", "ab"),
        ("abc", "abc", "abc"),
        ("x", "ab", "x"),
        ("xy", "ab", "xy"),
        ("xyz", "xyz", "xyz"),
    ],
)
def test_a_longer_ledger_of_a_search_stays_and_a_beginning_goes_on(
    tmp_path: Path, there: str, by_export: str, by_import: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each letter is a line; ab comes."""
    for replace, expected in ((True, by_export), (False, by_import)):
        ledger, target = (tmp_path / str(replace) / name / ".searches/one.jsonl" for name in ("from", "to"))
        for path, content in ((ledger, "ab"), (target, there)):
            path.parent.mkdir(parents=True)
            path.write_text("".join(f"{line}\n" for line in content))
        with FileLock(target.with_suffix(".lock")):
            held = copy_trials([], [ledger], ledger.parents[1], target.parents[1], replace=replace)[2]
            assert target.read_text().replace("\n", "") == there
        left_out = copy_trials([], [ledger], ledger.parents[1], target.parents[1], replace=replace)[2]
        assert target.read_text().replace("\n", "") == expected
        assert len(left_out) == (there == "xyz" and replace)
        told = "began differently than" in caplog.text or "and began differently" in str(left_out)
        assert told == (there[:1] == "x" and target.read_text().replace("\n", "") == there)
        caplog.clear()
        assert len(held) == (there != expected or len(left_out))


@pytest.mark.parametrize("kept", ["log.txt", "checkpoints", "weights"])
def test_an_export_to_another_runs_folder_replaces_no_trial_that_was_trained_there(place: Path, kept: str) -> None:
    full = trials()["full"]
    exported(full)
    shutil.rmtree(RUNS / full.key)
    settle(full)
    there = THERE / full.key
    (there / kept).mkdir()
    before = files(there)
    said = exported(code=1)
    assert said.startswith("0 trials copied") and f"{there}: has {kept}, so a trial was trained there" in said
    assert files(there) == before


def test_an_export_that_was_cleaned_up_is_still_one(place: Path) -> None:
    full = trials()["full"]
    exported(full)
    assert command("runs", "gc", "--runs", str(THERE))[0] == 0
    shutil.rmtree(RUNS / full.key)
    settle(full)
    assert exported().startswith("1 trial copied to there")


def truncated(folder: Path) -> None:
    os.truncate(folder / "tokens/finetune-1.test.parquet", 200)


def pipe(folder: Path) -> None:
    (folder / "curve.parquet").unlink()
    os.mkfifo(folder / "curve.parquet")


def gone(folder: Path) -> None:
    (folder / "tokens/finetune-1.test.parquet").unlink()


def halved(folder: Path) -> None:
    data = json.loads((folder / RECORD).read_text())
    data["stages"][-1]["test"]["perplexity"] /= 2
    (folder / RECORD).write_text(json.dumps(data))


def without_hashes(folder: Path) -> None:
    data = json.loads((folder / RECORD).read_text())
    del data["hashes"]
    (folder / RECORD).write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (truncated, "tokens/finetune-1.test.parquet: is not the file that the trial wrote"),
        (gone, "tokens/finetune-1.test.parquet: is gone"),
        (pipe, "curve.parquet: is not a regular file"),
        (halved, "record.json: is not the record that the trial wrote"),
        (without_hashes, "record.json: is from before records had hashes, so that nothing can be checked"),
    ],
)
def test_a_damaged_trial_is_named_and_left_out_and_the_others_come(
    place: Path, damage: Callable[[Path], None], said: str
) -> None:
    full, weights = trials()["full"], trials()["no weight-dropping"]
    exported(full, weights)
    shutil.move(THERE, "whole")
    damage(RUNS / full.key)
    assert f"left out: {place}/runs/{full.key}/{said}\n" in exported(code=1)
    assert [path.name for path in THERE.iterdir()] == [weights.key]

    damage(Path("whole") / full.key)
    code, out, err = command("runs", "import", "whole", "--runs", "elsewhere")
    assert (code, err) == (1, f"left out: whole/{full.key}/{said}\n")
    assert out.startswith("1 trial copied to elsewhere")
    assert [path.name for path in Path("elsewhere").iterdir()] == [weights.key]


def test_the_record_of_another_trial_is_left_out(place: Path) -> None:
    full, weights = trials()["full"], trials()["no weight-dropping"]
    exported(full)
    (THERE / full.key).rename(THERE / weights.key)
    code, _, err = command("runs", "import", "there", "--runs", "elsewhere")
    assert (code, err) == (1, f"left out: there/{weights.key}/record.json: is the record of trial {full.key}\n")


def test_names_in_a_record_lead_nowhere_else(place: Path) -> None:
    full = trials()["full"]
    exported(full)
    (place / "mine.test.parquet").write_text("mine")
    record = THERE / full.key / RECORD
    data = json.loads(record.read_text())
    data["hashes"]["tokens/../../../mine.test.parquet"] = sha256(place / "mine.test.parquet")
    record.write_text(json.dumps(data))
    code, _, err = command("runs", "import", "there", "--runs", "a/b/elsewhere")
    assert (code, err.count("left out: ")) == (1, 1)
    assert not [path for path in Path("a").rglob("*") if path.is_file()]


KILLED = """
import os, signal, sys
from pathlib import Path
from lm import files
from orchestrator.trials import disk
left = int(sys.argv[1])
sync = disk.sync
def counted(path):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    sync(path)
disk.sync = files.sync = counted
disk.import_trials(Path("there"), Path("elsewhere"))
"""


def test_a_killed_import_leaves_nothing_half_copied_and_the_next_one_goes_on(place: Path) -> None:
    full, weights = trials()["full"], trials()["no weight-dropping"]
    exported(full, weights)
    for step in (2, 10, 11):  # its first file, the copy whole but not in its place, in its place
        shutil.rmtree("elsewhere", ignore_errors=True)
        assert process(place, "-c", KILLED, str(step)).returncode == -signal.SIGKILL
        for key in (full.key, weights.key):
            if (Path("elsewhere") / key).exists():
                assert check_trial(Path("elsewhere") / key) is not None
        assert command("runs", "import", "there", "--runs", "elsewhere")[0] == 0
        assert files(Path("elsewhere")) == files(THERE), "nor is anything left over"


def test_a_folder_that_holds_no_trial_is_refused(place: Path) -> None:
    for folder in ("nowhere", "corpus"):
        code, _, err = command("runs", "import", folder, "--runs", "elsewhere")
        assert (code, err) == (2, f"{folder}: expected a folder that `runs export` wrote, which holds trials\n")
    assert not Path("elsewhere").exists()


def test_two_commands_do_not_copy_to_one_folder_at_once(place: Path) -> None:
    exported(trials()["full"])
    descriptor = os.open(THERE, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        code, _, err = command("runs", "export", *OPTIONS, "--to", "there")
    finally:
        os.close(descriptor)
    assert (code, err) == (2, "there: another command copies trials there\n")


def test_losses_on_validation_may_be_gone_and_those_on_test_may_not(place: Path) -> None:
    folder = settle(trials()["full"])
    (folder / "tokens/train.valid.parquet").unlink()
    assert check_trial(folder) is not None
    (folder / "tokens/train.test.parquet").unlink()
    with pytest.raises(ValueError, match=r"train\.test\.parquet: is gone"):
        check_trial(folder)
