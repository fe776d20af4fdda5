from __future__ import annotations

import json
from pathlib import Path

import pytest
from filelock import FileLock

from lm.record import read_record, write_record
from orchestrator.disk import set_aside
from orchestrator.hold import holding
from orchestrator.records import Records
from tests.orchestrator.places import command, make_place, settle, settle_spec, start, trials


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(make_place(tmp_path))
    monkeypatch.setenv("LM_CACHE", str(tmp_path / "cache"))
    return tmp_path


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_list_shows_what_is_on_disk(place: Path) -> None:
    full = trials()["full"]
    settle(full)
    settle_spec(full.spec.model_copy(update={"seed": 9}), place / "runs" / "0123456789abcdef")
    code, out, _ = command("runs", "list")
    assert code == 0
    assert "corpus, lstm 1x10, softmax, sgd, 2 epochs, fine-tuned, seed 1" in out
    assert "seed 9" in out
    assert out.splitlines()[-1].startswith("2 trials, ")
    (row,) = json.loads(command("runs", "list", "--sweep", "toy.yaml", "--json")[1])["runs"]
    assert set(row) == {
        "key", "variant", "what", "status", "valid_perplexity", "test_perplexity", "bytes", "finished_at",
    }  # fmt: skip
    assert (row["key"], row["variant"]) == (full.key, "full, seed 1")
    assert row["bytes"] == sum(path.stat().st_size for path in (place / "runs" / full.key).rglob("*") if path.is_file())


def test_the_default_folder_may_not_have_been_written_yet(place: Path) -> None:
    assert command("runs", "list")[1].endswith("0 trials, 0.0 MiB\n")
    assert command("runs", "gc")[1] == "0 bytes freed\n"


@pytest.mark.parametrize(
    "line",
    [
        ("runs", "list"),
        ("runs", "show", "a"),
        ("runs", "diff", "a", "b"),
        ("runs", "gc", "--dry-run"),
        ("status",),
        ("status", "toy.yaml"),
        ("why", "a"),
        ("reproduce", "a"),
        ("export", "toy.yaml", "--optuna", "sqlite:///optuna.db"),
    ],
    ids=" ".join,
)
def test_a_folder_that_is_named_and_not_there_is_told(place: Path, line: tuple[str, ...]) -> None:
    (place / "my runs").mkdir()
    assert command(*line, "--runs", "my-runs") == (2, "", "--runs: no folder 'my-runs' (did you mean 'my runs'?)\n")
    assert command(*line, "--runs", "nowhere/at/all") == (2, "", "--runs: no folder 'nowhere/at/all'\n")
    assert not (place / "optuna.db").exists()


@pytest.mark.parametrize("line", [("plan",), ("sweep", "--dry-run"), ("report",)], ids=" ".join)
def test_what_writes_or_plans_takes_a_folder_that_is_to_come(place: Path, line: tuple[str, ...]) -> None:
    assert command(line[0], "toy.yaml", "--scale", "paper", "--runs", "new", *line[1:])[0] == 0


def test_show_and_diff_take_a_part_of_a_key(place: Path) -> None:
    full, other = trials()["full"], trials()["no weight-dropping"]
    folder = settle(full)
    settle(other)
    code, out, _ = command("runs", "show", full.key[:6])
    assert code == 0
    for said in (full.key, "complete", "finetune-1", "fingerprint: ", "learning_rate: 2.0", "weight: 0.3"):
        assert said in out
    assert json.loads(command("runs", "show", full.key, "--json")[1]) == json.loads(
        (folder / "record.json").read_text()
    )
    assert command("runs", "diff", full.key, other.key)[1] == "dropout.weight 0.3 -> 0.0\n"
    assert command("runs", "diff", full.key, full.key)[1] == "no difference\n"
    record = read_record(folder)
    assert record is not None
    elsewhere = record.model_copy(update={"key": "0" * 16, "threads": 4, "versions": {"torch": "1.0"}})
    write_record(place / "runs" / ("0" * 16), elsewhere)
    out = command("runs", "diff", full.key, "0" * 16)[1]
    assert "threads 1 -> 4\n" in out
    assert " -> 1.0\n" in out


@pytest.mark.parametrize(
    ("prefix", "said"),
    [
        ("a", "'a' is ambiguous: aaaa"),
        ("aaaaaaaaaaaaaaa0", "no trial 'aaaaaaaaaaaaaaa0' in runs (did you mean 'aaaaaaaaaaaaaaa1'?)"),
        ("../../etc", "no trial '../../etc' in runs"),
        ("", "no trial '' in runs"),
        ("abbbbbbbbbbbbbb2", "the trial has not settled yet"),
    ],
)
def test_a_wrong_key_is_told(place: Path, prefix: str, said: str) -> None:
    for key in ("aaaaaaaaaaaaaaa1", "abbbbbbbbbbbbbb2"):
        (place / "runs" / key).mkdir(parents=True)
    code, out, err = command("runs", "show", prefix)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_gc_frees_what_no_report_needs(place: Path) -> None:
    full = trials()["full"]
    folder = settle(full)
    kept = files(folder)
    (folder / "checkpoints" / "00000001").mkdir(parents=True)
    (folder / "checkpoints" / "00000001" / "state.pt").write_bytes(b"x" * 100)
    (folder / ".curve.parquet.7.tmp").write_bytes(b"x" * 10)
    (folder / "codebook.npz").write_bytes(b"x")
    old = set_aside(
        settle_spec(full.spec.model_copy(update={"seed": 9}), place / "runs" / "0123456789abcdef"), place / "runs"
    )
    everything = files(place / "runs")

    code, out, _ = command("runs", "gc", "--dry-run")
    assert code == 0
    assert out.endswith(" bytes would be freed\n")
    assert files(place / "runs") == everything
    promised = out.splitlines()[-1].split()[0]

    command("runs", "gc", "--keep-weights")
    assert files(folder) == kept | {"codebook.npz"}
    assert not old.exists()
    with holding(place / "runs", "toy", "paper"):
        command("runs", "gc")
        assert files(folder) == kept | {"codebook.npz"}, "a sweep that runs may start from these weights"
    out = command("runs", "gc")[1]
    assert {path for path in kept if not path.startswith("weights/")} | {"codebook.npz"} == files(folder)
    weights = int(out.splitlines()[-1].split()[0].replace(",", ""))
    assert 0 < weights < int(promised.replace(",", ""))
    assert command("runs", "gc")[1] == "0 bytes freed\n"
    assert command("report", "toy.yaml", "--scale", "paper")[0] == 0


def test_gc_leaves_alone_what_is_unfinished_failed_or_held(place: Path) -> None:
    full, other = trials()["full"], trials()["no weight-dropping"]
    running = start(full.spec, place / "runs" / full.key)
    failed = settle(other)
    record = read_record(failed)
    assert record is not None
    write_record(failed, record.model_copy(update={"status": "failed", "reason": "no luck"}))
    held = settle(trials()["no fine-tuning"], place / "runs")
    before = files(place / "runs")
    with FileLock(held / ".lock"):
        assert command("runs", "gc")[1] == "0 bytes freed\n"
    assert files(place / "runs") == before
    del running


def test_a_trial_whose_source_lost_its_weights_trains_the_shared_stage_itself(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    full, cached = trials()["full"], trials()["neural cache"]
    assert cached.starts_from == full.key
    by_itself = read_record(settle_spec(cached.spec, place / "elsewhere"))
    settle(full)
    command("runs", "gc")
    record = read_record(settle(cached))
    assert by_itself is not None
    assert record is not None
    assert [stage.valid for stage in record.stages] == [stage.valid for stage in by_itself.stages]
    assert "train.safetensors is no longer there" in caplog.text
    assert Records(place / "runs").find(full) is not None


def test_trials_set_aside_are_numbered(place: Path) -> None:
    for n in (1, 2):
        (place / "runs" / "abc").mkdir(parents=True)
        assert set_aside(place / "runs" / "abc", place / "runs") == place / "runs" / ".old" / f"abc-{n}"
