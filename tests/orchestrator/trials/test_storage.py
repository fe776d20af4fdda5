"""Trials in a storage: a folder, and a real S3-compatible server on a loopback port."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs

from lm.files import WriteError, atomic
from lm.hashes import file_hashes
from lm.record import Evaluation, read_record, write_record
from orchestrator.errors import CannotStartError
from orchestrator.execute.run_trial import Allotment, forget_failure, run_trial, settled_record, write_failure
from orchestrator.sweep import read_sweep
from orchestrator.trials.plan import plan
from orchestrator.trials.records import STORAGE_LOST, Records, ends_the_command
from orchestrator.trials.storage import (
    ONLY_TRAINING,
    FinishedElsewhereError,
    Storage,
    StorageError,
    borrowed,
    exchange,
    fetch_unsettled,
    transfer_order,
)
from orchestrator.trials.trial import Trial
from tests.orchestrator.execute.test_sweep_end_to_end import place
from tests.support.seen import eventually
from tests.support.sweeps import SWEEP, finish, report, start
from tests.support.tracking import leave, record, trial

__all__ = ["place"]


@dataclass
class Server:
    """Moto's S3 with an empty bucket."""

    moto: ThreadedMotoServer
    uri: str


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    bucket = f"lab-{uuid4().hex[:8]}"  # the servers of one process share what they keep
    address = ":".join(map(str, moto.get_host_and_port()))
    fs.S3FileSystem(endpoint_override=address, scheme="http", allow_bucket_creation=True).create_dir(bucket)
    yield Server(moto, f"s3://{bucket}/trials?scheme=http&endpoint_override={address}")
    moto.stop()


@pytest.fixture(params=["folder", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "folder":
        return Storage((tmp_path / "there").as_uri())
    return Storage(request.getfixturevalue("s3").uri)


def written(runs: Path, *names: str) -> None:
    for name in names:
        path = runs / "key" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name} for the first time")


def checkpoint(records: Records, of: Trial) -> None:
    folder = records.folder(of.key) / "checkpoints/00000001"
    folder.mkdir(parents=True)
    for name in ("state.pt", "manifest.json"):
        (folder / name).write_text(name)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_pushed_comes_back_byte_for_byte_without_locks_and_halves(storage: Storage, tmp_path: Path) -> None:
    whole = ["curve.parquet", "checkpoints/00000002/state.pt", "weights/train.safetensors"]
    written(tmp_path / "a", *whole, ".lock", "checkpoints/.00000003.tmp/state.pt", ".curve.parquet.77.tmp")
    assert storage.keys() == set()
    storage.push("key", tmp_path / "a")
    assert storage.keys() == {"key"}
    storage.pull("key", tmp_path / "b")
    assert sorted(content(tmp_path / "b" / "key")) == sorted(whole)
    assert all(content(tmp_path / "a" / "key")[name] == data for name, data in content(tmp_path / "b" / "key").items())
    storage.pull("key", tmp_path / "c", without=ONLY_TRAINING)
    assert list(content(tmp_path / "c" / "key")) == ["curve.parquet"]
    storage.pull("nobody", tmp_path / "d")
    assert not (tmp_path / "d").exists()


def test_a_second_push_brings_what_changed_and_drops_old_checkpoints(storage: Storage, tmp_path: Path) -> None:
    runs = tmp_path / "a"
    written(runs, "checkpoints/00000001/state.pt", "curve.parquet")
    storage.push("key", runs)
    (runs / "key/checkpoints/00000001/state.pt").unlink()
    written(runs, "checkpoints/00000002/state.pt")
    (runs / "key/curve.parquet").write_text("CURVE.parquet for the first time")  # other bytes
    storage.push("key", runs)
    storage.pull("key", tmp_path / "b")
    assert content(tmp_path / "b/key") == content(runs / "key")


def test_the_record_goes_last_and_a_manifest_behind_what_it_speaks_of() -> None:
    names = ["record.json", "checkpoints/2/manifest.json", "checkpoints/2/weights", "weights/z", "curve.parquet"]
    assert sorted(map(PurePosixPath, names), key=transfer_order)[-2:] == [
        PurePosixPath(names[1]),
        PurePosixPath(names[0]),
    ]


@pytest.mark.parametrize("method", ["push", "pull"])
def test_a_transfer_that_breaks_off_before_its_end_leaves_no_record(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, copied = Storage(str(tmp_path / "there")), list[str]()
    here = tmp_path / ("here" if method == "push" else "there")
    written(here, "record.json", "curve.parquet", "tokens/train.test.parquet", "weights/train.safetensors")

    def breaking(path: Path) -> AbstractContextManager[Path]:
        if len(copied) == 3:
            raise ConnectionError("lost")
        copied.append(path.name)
        return atomic(path)

    monkeypatch.setattr("orchestrator.trials.storage.atomic", breaking)
    with pytest.raises(OSError, match=r"^storage .*: lost$"):
        getattr(storage, method)("key", tmp_path / "here")
    assert sorted(copied) == ["curve.parquet", "train.safetensors", "train.test.parquet"]
    assert not (tmp_path / ("there" if method == "push" else "here") / "key/record.json").exists()


def test_a_storage_that_is_silent_for_a_moment_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, asked, infos = Storage(str(tmp_path / "there")), count(), Storage._infos

    def seldom(*args: Any, **options: Any) -> list[fs.FileInfo]:
        if next(asked) % 3 == 0:
            raise ConnectionError("no answer")
        return infos(*args, **options)

    monkeypatch.setattr(Storage, "_infos", seldom)
    monkeypatch.setattr("orchestrator.trials.storage.PATIENCE", (0.0,))
    with borrowed(storage, "key", "source", 60.0) as (runs, push):
        written(runs, "curve.parquet")
        push()
        written(runs, "record.json")
    assert sorted(content(tmp_path / "there/key")) == ["curve.parquet", "record.json"]


def test_a_trial_that_another_command_finished_meanwhile_is_left_as_that_one_wrote_it(storage: Storage) -> None:
    """A laptop and a cluster, each with its own `runs`, may train the same trial."""
    with borrowed(storage, "key", None, 60.0) as (runs, push):
        written(runs, "curve.parquet")
        push()
        other, one = Storage(storage.uri), trial("one")
        written(runs / "other", "curve.parquet")
        for status in ("failed", "complete"):
            write_record(runs / "other/key", record(one).model_copy(update={"status": status}))
            other.push("key", runs / "other")
            other.push("key", runs / "other")  # its own record is no hindrance
            (runs / "key/curve.parquet").write_text(f"the epoch after it {status}")
            if status == "failed":
                push()  # nor is one of a failure
        with pytest.raises(FinishedElsewhereError, match="another command finished trial key"):
            push()
        shutil.rmtree(runs / "key")
        storage.pull("key", runs)
        assert content(runs / "key") == content(runs / "other/key")


def test_a_record_that_arrived_unheard_is_no_other_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, upload = Storage(str(tmp_path / "there")), Storage._upload
    monkeypatch.setattr("orchestrator.trials.storage.PATIENCE", (0.0,))

    def unheard(self: Storage, path: Path, target: str) -> None:
        known = (tmp_path / "there" / target).exists()
        upload(self, path, target)
        if not known:
            raise StorageError("no answer")

    monkeypatch.setattr(Storage, "_upload", unheard)
    with borrowed(storage, "key", None, 60.0) as (runs, _):
        write_record(runs / "key", record(trial("one")))
    assert storage.has("key/record.json")


def test_a_file_that_another_command_overwrote_is_sent_again_with_the_record(storage: Storage, tmp_path: Path) -> None:
    written(tmp_path / "a", "curve.parquet")
    storage.push("key", tmp_path / "a")
    written(tmp_path / "b", "curve.parquet")
    (tmp_path / "b/key/curve.parquet").write_text("another's")
    Storage(storage.uri).push("key", tmp_path / "b")
    written(tmp_path / "a", "record.json")
    storage.push("key", tmp_path / "a")
    storage.pull("key", tmp_path / "c")
    assert content(tmp_path / "c/key") == content(tmp_path / "a/key")


@pytest.mark.parametrize("damaged", ["record.json", "curve.parquet"])
def test_a_damaged_trial_is_set_aside_in_the_storage_too_so_that_the_next_attempt_goes_on(
    damaged: str, storage: Storage, tmp_path: Path
) -> None:
    for number in (1, 2):
        written(tmp_path / "a", damaged)  # neither a record nor a curve
        Storage(storage.uri).push("key", tmp_path / "a")
        with pytest.raises(KeyError), borrowed(storage, "key", None, 60.0) as (runs, push):
            assert not (runs / "key").exists()
            written(runs, "checkpoints/00000001/state.pt")
            push()
            raise KeyError  # the attempt is killed
        with borrowed(storage, "key", None, 60.0) as (runs, _):
            assert list(content(runs / "key")) == ["checkpoints/00000001/state.pt"]
        assert storage.has(f".old/key-{number}/{damaged}") and storage.keys() == {"key"}


def test_damaged_weights_are_set_aside_in_the_storage_with_their_trial(storage: Storage, tmp_path: Path) -> None:
    names = ["curve.parquet", "tokens/train.test.parquet", "weights/train.safetensors"]
    written(tmp_path / "a", *names)
    folder = tmp_path / "a/key"
    hashes = file_hashes(folder, [folder / name for name in names], {})
    write_record(folder, record(trial("one")).model_copy(update={"hashes": hashes}))
    (folder / names[-1]).write_text("of another model")
    storage.push("key", tmp_path / "a")
    with borrowed(storage, "key", None, 60.0) as (runs, _):
        assert not (runs / "key").exists()
    assert all(storage.has(f".old/key-1/{name}") for name in (*names, "record.json"))


def test_what_a_failed_attempt_left_goes_from_the_storage_with_it(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "there"))
    written(tmp_path / "there", "failure.txt", "log.txt")
    with borrowed(storage, "key", None, 60.0) as (runs, _):
        (runs / "key/failure.txt").unlink()
    assert list(content(tmp_path / "there/key")) == ["log.txt"]


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("runs", "expected s3://.*got 'runs'"),
        ("ftp://host/x", "expected s3://.*got 'ftp://host/x'"),
        ("s3://", "expected the name of a bucket"),
        ("s3://key:hidden@lab/runs", "credentials belong in the environment"),
    ],
)
def test_what_is_no_storage_is_told_without_its_secrets(uri: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as error:
        Storage(uri)
    assert "hidden" not in str(error.value)


def test_an_objects_name_cannot_lead_out_of_the_trials_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Storage((tmp_path / "there").as_uri())
    astray = fs.FileInfo("key/../../outside", type=fs.FileType.File)
    monkeypatch.setattr(Storage, "_infos", lambda *_, **__: [astray])
    (tmp_path / "outside").write_text("secret")
    with pytest.raises(OSError, match="leads out of the trial's folder"):
        storage.pull("key", tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_a_block_that_raises_sends_nothing_back(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "there"))
    with pytest.raises(KeyError), borrowed(storage, "key", None, 60.0) as (runs, _):
        written(runs, "curve.parquet")
        raise KeyError
    assert storage.keys() == set()
    assert not runs.exists()
    with borrowed(storage, "key", None, 60.0) as (runs, _):
        written(runs, "curve.parquet")
    assert storage.keys() == {"key"}, "one that ends sends it"


def test_a_trial_whose_storage_is_lost_fails_with_what_ends_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def silent(*_: object, **__: object) -> None:
        raise ConnectionError("no answer")

    monkeypatch.setattr(Storage, "_infos", silent)
    monkeypatch.setattr("orchestrator.trials.storage.PATIENCE", (0.0, 0.0))
    allotment = Allotment(tmp_path / "here", 1.0, 0.0, 600.0, storage=str(tmp_path / "there"))
    lost = run_trial(trial("one"), allotment, lambda _: None)
    assert lost is not None and not lost.recorded
    unopened = SimpleNamespace(FileSystem=SimpleNamespace(from_uri=silent))  # as where a bucket's region is asked for
    monkeypatch.setattr("orchestrator.trials.storage.arrow", unopened)
    caplog.clear()
    lost = run_trial(trial("one"), allotment, lambda _: None)
    assert lost is not None and lost.reason.startswith(STORAGE_LOST) and caplog.text.count("asked again in") == 2
    write_failure(trial("one"), allotment, lost.reason)
    assert ends_the_command(read_record(allotment.runs / trial("one").key))


def test_the_record_of_a_failure_goes_from_the_storage_too_before_the_next_attempt(tmp_path: Path) -> None:
    allotment = Allotment(tmp_path / "here", 1.0, 0.0, 600.0, storage=str(tmp_path / "there"))
    write_failure(trial("one"), allotment, "it broke")
    Storage(str(tmp_path / "there")).push(trial("one").key, allotment.runs)
    assert settled_record(trial("one"), allotment) is not None
    forget_failure(trial("one"), allotment)
    assert settled_record(trial("one"), allotment) is None


def test_a_result_that_another_machine_sent_stays_although_the_trial_failed_here(tmp_path: Path) -> None:
    allotment = Allotment(tmp_path / "here", 1.0, 0.0, 600.0, storage=str(tmp_path / "there"))
    write_failure(trial("one"), allotment, "it broke")
    leave(Records(tmp_path / "there"), trial("one"), record(trial("one")))
    forget_failure(trial("one"), allotment)
    stored = settled_record(trial("one"), allotment)
    assert stored is not None and stored.status == "complete"


def test_a_record_beside_a_failure_goes_from_the_storage_with_it_and_not_to_the_driver(tmp_path: Path) -> None:
    storage, here, driver = Storage(str(tmp_path / "there")), tmp_path / "here", tmp_path / "driver"
    for name in ("record.unscored.json", "log.txt"):
        (here / "one").mkdir(parents=True, exist_ok=True)
        (here / "one" / name).write_text("of an attempt")
    storage.push("one", here)
    storage.pull("one", driver, without=ONLY_TRAINING)
    assert sorted(path.name for path in (driver / "one").iterdir()) == ["log.txt"]
    (here / "one" / "record.unscored.json").unlink()
    storage.push("one", here)
    storage.pull("one", tmp_path / "worker")
    assert sorted(path.name for path in (tmp_path / "worker" / "one").iterdir()) == ["log.txt"]


def test_a_finished_trial_whose_storage_is_silent_for_a_moment_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would count as interrupted, and of a search the table would not be trained."""
    allotment = Allotment(tmp_path / "here", 1.0, 0.0, 600.0, storage=str(tmp_path / "there"))
    write_failure(trial("one"), allotment, "it broke")
    Storage(str(tmp_path / "there")).push(trial("one").key, allotment.runs)
    shutil.rmtree(allotment.runs)
    whole, asked = Storage.pull, list[str]()

    def silent_at_first(self: Storage, key: str, runs: Path, **options: Any) -> None:
        asked.append(key)
        if len(asked) == 1:
            raise StorageError("no answer")
        whole(self, key, runs, **options)

    monkeypatch.setattr(Storage, "pull", silent_at_first)
    assert settled_record(trial("one"), allotment, waits=()) is None and len(asked) == 1
    asked.clear()
    assert settled_record(trial("one"), allotment, waits=(0.0,)) is not None and len(asked) == 2


def test_what_a_stalled_attempt_left_is_there_for_the_next_one(tmp_path: Path) -> None:
    """It ended with its process, which could send nothing back."""
    storage, left = Storage(str(tmp_path / "there")), tmp_path / "left"
    with borrowed(storage, "key", None, 60.0) as (runs, _):
        written(runs, "stalled.txt", "curve.parquet")
        shutil.copytree(runs, left)
    shutil.copytree(left, runs)
    with borrowed(storage, "key", None, 60.0) as (again, _):
        assert again == runs
        assert (runs / "key/stalled.txt").read_bytes() == (left / "key/stalled.txt").read_bytes() != b""


def test_checkpoints_within_an_epoch_are_sent_meanwhile(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "there"))
    with borrowed(storage, "key", None, 0.02) as (runs, _):
        written(runs, "checkpoints/00000001/state.pt")
        eventually((tmp_path / "there/key/checkpoints/00000001/state.pt").exists)


def test_before_a_sweep_each_side_gets_what_it_lacks(tmp_path: Path) -> None:
    here, there = Records(tmp_path / "here"), Records(tmp_path / "there")
    one, other = trial("one"), trial("other")
    leave(here, one, record(one))
    leave(there, other, record(other))
    storage = Storage(str(there.root))
    exchange(storage, lambda: [one, other], here)
    assert here.find(other) == there.find(other) is not None
    assert there.find(one) == here.find(one) is not None


def test_what_a_trial_did_that_has_not_settled_here_comes_from_the_storage(tmp_path: Path) -> None:
    here, there = Records(tmp_path / "here"), Records(tmp_path / "there")
    one, settled = trial("one"), trial("settled")
    leave(here, one, epochs=1)
    leave(there, one, epochs=2)
    leave(here, settled, record(settled))
    leave(there, settled, epochs=1)
    for each in (one, settled):
        fetch_unsettled(Storage(str(there.root)), each.key, here)
    assert here.curve(one) == there.curve(one) and len(here.curve(one)) == 2
    assert here.find(settled) is not None


def test_a_storage_that_falls_silent_is_logged_and_leaves_what_is_here(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = Records(tmp_path / "here"), Records(tmp_path / "there")
    one = trial("one")
    leave(here, one, epochs=1)
    leave(there, one, epochs=2)
    storage = Storage(str(there.root))

    def silent(*_: object, **__: object) -> None:
        raise OSError("no answer")

    monkeypatch.setattr(storage, "_infos", silent)
    fetch_unsettled(storage, one.key, here)
    assert f"{one.key}: what the storage has of it is not known: storage {storage.uri}: no answer" in caplog.text
    assert len(here.curve(one)) == 1


def test_a_finished_trial_is_sent_where_only_checkpoints_of_it_are(tmp_path: Path) -> None:
    here, there = Records(tmp_path / "here"), Records(tmp_path / "there")
    one = trial("one")
    leave(here, one, record(one))
    checkpoint(there, one)
    exchange(Storage(str(there.root)), lambda: [one], here)
    assert there.find(one) == here.find(one) is not None


def test_a_failure_replaces_no_result_and_a_result_every_failure(tmp_path: Path) -> None:
    """Also a result that has only to be scored on test."""
    here, there = Records(tmp_path / "here"), Records(tmp_path / "there")
    scored, unscored = trial("scored"), trial("unscored")
    leave(here, scored, record(scored))
    whole = record(unscored)
    leave(here, unscored, whole.model_copy(update={"stages": tuple(stage.without_test() for stage in whole.stages)}))
    (here.folder(unscored.key) / "weights").mkdir()
    (here.folder(unscored.key) / "weights/train.safetensors").write_text("weights")
    for each in (scored, unscored):
        leave(there, each, record(each, status="failed", reason="out of memory"), epochs=1)
    exchange(Storage(str(there.root)), lambda: [scored, unscored], here)
    for each in (scored, unscored):
        kept = here.find(each)
        assert kept is not None and kept.status == "complete" and there.find(each) == kept
        assert there.curve(each) == here.curve(each) and len(here.curve(each)) > 1
    assert (there.folder(unscored.key) / "weights/train.safetensors").exists()


@pytest.mark.parametrize("failed", [False, True])
def test_an_unfinished_trial_that_has_come_further_here_is_sent(tmp_path: Path, failed: bool) -> None:
    """As by commands without `--storage`; what the storage had is kept there."""
    here, there = Records(tmp_path / "here"), Records(tmp_path / "there")
    further, behind, lost = trial("further"), trial("behind"), trial("lost")
    for each, epochs in ((further, 3), (behind, 1), (lost, 3)):
        leave(here, each, epochs=epochs)
        leave(there, each, *([record(each, status="failed", reason="killed")] if failed else []), epochs=2)
    for each in (further, behind):
        checkpoint(here, each)
    (here.folder(lost.key) / "checkpoints/.00000001.tmp").mkdir(parents=True)  # of a command that was killed
    exchange(Storage(str(there.root)), lambda: [further, behind, lost], here)
    for side in (here, there):
        assert [len(side.curve(each)) for each in (further, behind, lost)] == [3, 2, 2], "a curve alone goes on nowhere"
    assert there.find(further) is None and (there.folder(further.key) / "checkpoints/00000001/state.pt").exists()
    assert [path.name for path in (there.root / ".old").iterdir()] == [f"{further.key}-1"]


def test_a_damaged_curve_in_the_storage_stops_no_command(tmp_path: Path) -> None:
    here, there = Records(tmp_path / "here"), Records(tmp_path / "there")
    leave(here, trial("one"), epochs=1)
    leave(there, trial("one"), epochs=2)
    checkpoint(here, trial("one"))
    path = there.folder(trial("one").key) / "curve.parquet"
    path.write_bytes(path.read_bytes()[:-100] + b"x" * 92 + path.read_bytes()[-8:])
    storage = Storage(str(there.root))
    assert storage.evaluations(trial("one").key) == 0
    exchange(storage, lambda: [trial("one")], here)
    assert len(there.curve(trial("one"))) == 1


def test_what_has_only_to_be_scored_again_and_what_cannot_be_read_is_replaced_by_no_less(tmp_path: Path) -> None:
    here, there = Records(tmp_path / "here"), Records(tmp_path / "there")
    unscored, newer = trial("unscored"), trial("newer")
    leave(here, unscored, record(unscored, status="failed", reason="the disk is full"))
    (here.folder(unscored.key) / "record.unscored.json").write_text("whole")
    leave(there, unscored, record(unscored, status="failed", reason="killed"), epochs=1)
    for side in (here, there):
        leave(side, newer, record(newer))
    path = there.folder(newer.key) / "record.json"
    path.write_text(path.read_text().replace('"note"', '"remark": 1, "note"', 1))
    before = path.read_bytes()
    exchange(Storage(str(there.root)), lambda: [unscored, newer], here)
    assert len(here.curve(unscored)) == len(there.curve(unscored)) == 3
    assert (there.folder(unscored.key) / "record.unscored.json").read_text() == "whole"
    assert path.read_bytes() == before and here.find(newer) is not None


def test_a_damaged_trial_is_fetched_once_more_and_never_sent(tmp_path: Path) -> None:
    here, there = Records(tmp_path / "here"), Records(tmp_path / "there")
    one, other = trial("one"), trial("other")
    leave(there, one, record(one))
    for damaged in (one, other):
        leave(here, damaged, record(damaged))
        (here.folder(damaged.key) / "curve.parquet").write_bytes(b"half")
    exchange(Storage(str(there.root)), lambda: [one, other], here)
    assert here.find(one) == there.find(one) is not None
    assert here.find(other) is None and not there.folder(other.key).exists()
    assert sorted(path.name for path in (here.root / ".old").iterdir()) == sorted(f"{t.key}-1" for t in (one, other))


def test_a_storage_that_does_not_answer_is_told_before_anything_starts(tmp_path: Path, s3: Server) -> None:
    storage = Storage(s3.uri)
    s3.moto.stop()
    with pytest.raises(CannotStartError, match=r"storage s3://.*onnect"):
        exchange(storage, lambda: [trial("one")], Records(tmp_path))


def test_a_storage_that_cannot_be_written_is_told_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match="Not a directory"):
        exchange(Storage(str(tmp_path / "file" / "storage")), lambda: [trial("one")], Records(tmp_path))


@pytest.mark.slow
def test_a_lost_storage_fails_its_trial_with_the_reason(
    place: Path, monkeypatch: pytest.MonkeyPatch, s3: Server
) -> None:
    monkeypatch.setenv("LM_CACHE", str(place / "cache"))
    monkeypatch.chdir(place)
    [first, *_] = plan(read_sweep(Path("tiny.yaml")).at("paper"))
    allotment = Allotment(place / "runs", 1.0, 0.0, 600.0, s3.uri)
    monkeypatch.setattr("orchestrator.trials.storage.PATIENCE", (0.1,))

    def lose(evaluation: Evaluation) -> None:
        if evaluation.epoch == 1:
            s3.moto.stop()

    lost = run_trial(replace(first, starts_from=None), allotment, lose)
    assert lost is not None and lost.reason.startswith(STORAGE_LOST) and "connect" in lost.reason.lower()
    assert settled_record(first, allotment) is None  # logs; raises nothing
    assert read_record(allotment.runs / first.key) is None


@pytest.mark.slow
def test_a_sweep_over_s3_reports_the_same_and_goes_on_from_there_on_another_machine(
    place: Path, tmp_path_factory: pytest.TempPathFactory, s3: Server
) -> None:
    (place / "tiny.yaml").write_text(SWEEP.replace("seeds: [1, 2]", "seeds: [1]"))
    calm, other = tmp_path_factory.mktemp("calm"), tmp_path_factory.mktemp("other")
    for elsewhere in (calm, other):
        for name in ("corpus", "tiny.yaml"):
            (elsewhere / name).symlink_to(place / name)
    finish(start(calm, "--executor", "inline"))
    finish(start(place, "--executor", "inline", "--storage", s3.uri))
    assert report(place) == report(calm)
    assert Storage(s3.uri).keys() == {path.parent.name for path in place.glob("runs/*/record.json")}
    assert not list(place.glob("runs/*/weights"))  # they stay in the storage

    output = finish(start(other, "--executor", "inline", "--storage", s3.uri))
    assert "started" not in output
    assert report(other) == report(calm)
