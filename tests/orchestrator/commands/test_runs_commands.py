from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from lm.record import read_record, write_record
from orchestrator.trials.disk import set_aside
from orchestrator.trials.locks import holding
from orchestrator.trials.records import Records
from tests.support.lm_trials import settled
from tests.support.places import command, folder_of, settle, settle_spec, start, trials

pytestmark = pytest.mark.usefixtures("without_pictures")


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_list_shows_what_is_on_disk(place: Path) -> None:
    full = trials()["full"]
    settle(full)
    other = full.spec.model_copy(update={"seed": 9})
    settle_spec(other, folder_of(other))
    code, out, _ = command("runs", "list")
    assert code == 0
    assert "corpus, lstm 1x6, softmax, sgd, 2 epochs, fine-tuned, seed 1" in out
    assert "seed 9" in out
    assert out.splitlines()[-1].startswith("2 trials, ")
    (row,) = json.loads(command("runs", "list", "--sweep", "toy.yaml", "--json")[1])["runs"]
    assert set(row) == {
        "key", "sweep", "variant", "seed", "what", "differs", "status", "valid_perplexity", "test_perplexity", "bytes",
        "finished_at",
    }  # fmt: skip
    assert (row["sweep"], row["seed"], row["differs"]) == ("toy/paper", 1, "")
    assert (row["key"], row["variant"]) == (full.key, "full, seed 1")
    assert row["bytes"] == sum(path.stat().st_size for path in (place / "runs" / full.key).rglob("*") if path.is_file())


def test_a_table_in_a_pipe_is_not_cut_by_what_asks_for_colours(place: Path) -> None:
    settle(trials()["full"])
    line = [sys.executable, "-m", "orchestrator", "runs", "list"]
    colours = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"FORCE_COLOR": "1"}
    out = subprocess.run(line, env=colours, capture_output=True, text=True, check=True).stdout
    assert "corpus, lstm 1x6, softmax, sgd, 2 epochs, fine-tuned, seed 1" in out and len(out.splitlines()) == 3


def rows_of(*options: str) -> list[dict[str, str]]:
    return list(csv.DictReader(command("runs", "list", "--csv", *options)[1].splitlines()))


def test_list_tells_trials_apart_filters_sorts_and_hides_none(place: Path) -> None:
    for variant in ("full", "no weight-dropping", "no fine-tuning"):
        settle(trials()[variant])
    assert [row["sweep"] for row in rows_of()] == ["", "", ""]
    assert command("report", "toy.yaml", "--scale", "paper")[0] == 0
    rows = {row["variant"]: row for row in rows_of("--sort", "variant")}
    assert list(rows) == ["full, seed 1", "no fine-tuning, seed 1", "no weight-dropping, seed 1"]
    assert {row["sweep"] for row in rows.values()} == {"toy/paper"}
    assert (
        rows["full, seed 1"]["differs"] == "" and rows["no weight-dropping, seed 1"]["differs"] == "dropout.weight 0.0"
    )
    assert rows["no fine-tuning, seed 1"]["differs"] == "finetune none"
    perplexities = [float(row["test_perplexity"]) for row in rows_of("--sort", "test_perplexity")]
    assert perplexities == sorted(perplexities) and len(perplexities) == 3

    damaged = place / "runs" / rows["full, seed 1"]["key"]
    (damaged / "record.json").write_text("{")
    (place / "runs/0123456789abcdef/record.json").mkdir(parents=True)
    assert len(rows_of("--status", "complete")) == 2 and not rows_of("--status", "failed")
    broken = {row["key"]: row for row in rows_of("--status", "damaged")}
    assert broken.keys() == {damaged.name, "0123456789abcdef"}
    assert "not a record" in broken[damaged.name]["what"] and broken[damaged.name]["variant"] == "full, seed 1"
    assert [row["status"] for row in rows_of("--sort", "test_perplexity")][2:] == ["damaged", "damaged"]
    code, out, _ = command("runs", "list")
    assert code == 0 and out.splitlines()[-1].startswith("4 trials, ") and "not a record" in out
    assert command("runs", "list", "--csv", "--json")[0] == 2
    assert command("runs", "list", "--sort", "colour")[0] == 2


def test_a_trial_of_two_sweeps_counts_in_both(place: Path) -> None:
    """What two share is listed under the last; what the first has beside it still differs from them."""
    for variant in ("full", "no weight-dropping", "no fine-tuning"):
        settle(trials()[variant])
    part = "  weight-dropping: {off: {dropout.weight: 0.0}}\n"
    (place / "zoo.yaml").write_text(
        (place / "toy.yaml").read_text().replace(part, "").replace("name: toy", "name: zoo")
    )
    for file in ("toy.yaml", "zoo.yaml"):
        assert command("report", file, "--scale", "paper")[0] == 0
    rows = {row["variant"]: (row["sweep"], row["differs"]) for row in rows_of()}
    assert rows["full, seed 1"][0] == "zoo/paper"
    assert rows["no weight-dropping, seed 1"] == ("toy/paper", "dropout.weight 0.0")


def test_a_trial_is_called_by_the_variant_that_trains_it_and_not_by_one_that_reads_it(place: Path) -> None:
    text = (place / "toy.yaml").read_text().replace("variants:\n", "variants:\n  fewer epochs: {epochs: 1}\n")
    (place / "toy.yaml").write_text(text + "equal_budget: true\n")
    settle(full := trials()["full"])
    assert trials()["fewer epochs (as many epochs)"].reads_from == full.key
    assert [row["variant"] for row in rows_of("--sweep", "toy.yaml", "--scale", "paper")] == ["full, seed 1"]
    assert command("report", "toy.yaml", "--scale", "paper")[0] == 0
    assert [row["variant"] for row in rows_of()] == ["full, seed 1"]


def test_the_default_folder_may_not_have_been_written_yet(place: Path) -> None:
    assert command("runs", "list")[1].endswith("0 trials, 0.00 KiB\n")
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


def test_the_key_of_a_stage_leads_to_the_trial_that_has_it(place: Path) -> None:
    full, short = trials()["full"], trials()["no fine-tuning"]
    settle(full)
    code, out, err = command("runs", "show", short.key)
    assert (code, out) == (2, "")
    assert err == f"trial '{short.key}' has no folder in runs: it is a stage of trial '{full.key}'\n"


def test_gc_frees_what_no_report_needs(place: Path) -> None:
    full = trials()["full"]
    folder = settle(full)
    kept = files(folder)
    (folder / "checkpoints" / "00000001").mkdir(parents=True)
    (folder / "checkpoints" / "00000001" / "state.pt").write_bytes(b"x" * 100)
    (folder / ".curve.parquet.7.tmp").write_bytes(b"x" * 10)
    other = full.spec.model_copy(update={"seed": 9})
    old = set_aside(settle_spec(other, folder_of(other)), place / "runs")
    everything = files(place / "runs")

    code, out, _ = command("runs", "gc", "--dry-run")
    assert code == 0
    assert out.endswith(" bytes would be freed\n")
    assert files(place / "runs") == everything
    promised = out.splitlines()[-1].split()[0]

    assert command("runs", "gc")[1].splitlines()[-1] == f"{promised} bytes freed"
    assert files(folder) == kept
    assert any(path.startswith("weights/") for path in kept)
    assert not old.exists()
    assert command("runs", "gc")[1] == "0 bytes freed\n"


def has_weights(folder: Path) -> bool:
    return (folder / "weights").exists()


def test_gc_removes_weights_of_the_named_sweep_alone(place: Path) -> None:
    found = trials()
    full, other = (settle(found[name]) for name in ("full", "no weight-dropping"))
    elsewhere = found["full"].spec.model_copy(update={"seed": 9})
    beside = settle_spec(elsewhere, folder_of(elsewhere))
    kept = files(full)
    best = min((full, other), key=lambda folder: settled(folder).stages[-1].valid.perplexity)
    line = ("runs", "gc", "--weights", "--sweep", "toy.yaml", "--scale", "paper")

    code, out, err = command(*line)
    assert (code, err) == (
        2,
        "runs gc: nothing was removed, because nobody answered; --yes removes without a question\n",
    )
    assert has_weights(full) and has_weights(other)
    assert " bytes would be freed\n" in command(*line, "--dry-run")[1]
    assert command(*line, answer="n\n")[1].endswith("nothing was removed\n")
    assert has_weights(full) and has_weights(other)
    with holding(place / "runs", "toy", "paper", " at scale paper"):
        code, _, err = command(*line, "-y")
        assert code == 2 and "a sweep runs with" in err, "it may start a trial from these weights"
    out = command(*line, "--keep-best", "1", answer="y\n")[1]
    assert "Remove the weights of 1 trial, " in out
    assert [has_weights(folder) for folder in (full, other)] == [folder == best for folder in (full, other)]
    assert command(*line, "--yes")[0] == 0
    assert not has_weights(full) and not has_weights(other) and has_weights(beside)
    assert {path for path in kept if not path.startswith("weights/")} == files(full)
    assert command("report", "toy.yaml", "--scale", "paper")[0] == 0
    counts = json.loads(command("plan", "toy.yaml", "--scale", "paper", "--json")[1])["counts"]
    assert set(counts) == {"done", "new"}, "weights that were removed are no damage"


def test_gc_looks_for_sweeps_again_once_somebody_agreed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = settle(trials()["full"])
    with ExitStack() as running:

        def agreed(text: str) -> bool:
            running.enter_context(holding(place / "runs", "toy", "paper", " at scale paper"))
            return True

        monkeypatch.setattr("typer.confirm", agreed)
        code, _, err = command("runs", "gc", "--weights", "--sweep", "toy.yaml", "--scale", "paper")
    assert (code, err) == (2, f"a sweep runs with {place}/runs, and may start a trial from weights there\n")
    assert has_weights(folder)


def test_gc_tells_what_it_may_not_remove(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = settle(trials()["full"])
    line = ("runs", "gc", "--weights", "--sweep", "toy.yaml", "--scale", "paper", "--yes")

    def denied(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as there:
        there.setattr("shutil.rmtree", denied)
        code, out, err = command(*line)
    assert (code, err) == (5, f"{place}/{folder}/weights: Permission denied\n") and "freed" not in out
    (folder / ".lock").unlink(missing_ok=True)
    (folder / ".lock").mkdir()
    code, out, err = command(*line)
    assert (code, err.count("\n")) == (5, 1) and f"{folder}/.lock" in err and "freed" not in out
    assert command("runs", "gc") == (0, "0 bytes freed\n", ""), "nothing there is to be removed"


@pytest.mark.parametrize(
    "options",
    [("--weights",), ("--sweep", "toy.yaml"), ("--keep-best", "2"), ("--scale", "paper"), ("--yes", "--weights")],
    ids=" ".join,
)
def test_gc_removes_weights_of_no_sweep_that_is_not_named(place: Path, options: tuple[str, ...]) -> None:
    folder = settle(trials()["full"])
    code, out, err = command("runs", "gc", *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert has_weights(folder)


def test_gc_leaves_alone_a_trial_in_whose_folder_a_process_trains(place: Path) -> None:
    """With a record there too, as when its test text is opened: the lock alone says that it is under way."""
    full = trials()["full"]
    record = (settle_spec(full.spec, place / "elsewhere") / "record.json").read_bytes()
    folder = place / "runs" / full.key
    running = start(full.spec, folder)
    (folder / "record.json").write_bytes(record)
    (folder / ".curve.parquet.7.tmp").write_bytes(b"x" * 10)
    before = files(folder)
    assert any(path.startswith("checkpoints/") for path in before)
    for options in ((), ("--dry-run",), ("--weights", "--sweep", "toy.yaml", "--scale", "paper", "--yes")):
        assert "\n0 bytes" in f"\n{command('runs', 'gc', *options)[1]}"
        assert files(folder) == before
    del running
    assert command("runs", "gc")[1] != "0 bytes freed\n"
    assert not (folder / "checkpoints").exists() and not (folder / ".curve.parquet.7.tmp").exists()


def test_gc_leaves_alone_what_is_unfinished_or_failed(place: Path) -> None:
    full, other = trials()["full"], trials()["no weight-dropping"]
    running = start(full.spec, place / "runs" / full.key)
    failed = settle(other)
    record = read_record(failed)
    assert record is not None
    write_record(failed, record.model_copy(update={"status": "failed", "reason": "no luck"}))
    (failed / "checkpoints").mkdir()
    before = files(place / "runs")
    assert command("runs", "gc")[1] == "0 bytes freed\n"
    assert files(place / "runs") == before and (failed / "checkpoints").exists()
    del running


def test_a_trial_whose_source_lost_its_weights_trains_the_shared_stage_itself(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    full, cached = trials()["full"], trials()["neural cache"]
    assert cached.starts_from == full.key
    by_itself = read_record(settle_spec(cached.spec, place / "elsewhere"))
    settle(full)
    assert command("runs", "gc", "--weights", "--sweep", "toy.yaml", "--scale", "paper", "--yes")[0] == 0
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
