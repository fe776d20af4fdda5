from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from lm.record import read_record
from orchestrator import api, load_records, load_sweep, run_sweep
from orchestrator.agenda.expand import expand
from orchestrator.errors import CannotStartError
from orchestrator.execute.run_trial import Allotment, write_failure
from orchestrator.report import report_sweep
from orchestrator.sweep import SweepError, read_sweep
from orchestrator.sweep.scaled import select
from orchestrator.trials.locks import holding
from orchestrator.trials.records import Records
from tests.support.found import TUNE
from tests.support.places import SWEEP, command, settle, start, trials

pytestmark = pytest.mark.usefixtures("without_pictures")


def test_the_python_interface_runs_a_part_and_then_anew(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = load_sweep("toy.yaml", "paper")
    assert sweep.file == Path("toy.yaml")
    part = run_sweep(sweep, only=["neural cache"], executor="inline")
    assert part.exit_code == 0, part
    assert part.counts == {"done": 2}, part
    assert len(load_records("runs")) == 2
    fresh = run_sweep("toy.yaml", scale="paper", only=["full"], fresh=True, executor="inline")
    assert fresh.counts == {"done": 1}, fresh
    for path in (str, Path):  # the second reads what the first left in the storage
        runs, reports = (path(f"{path.__name__}/{name}") for name in ("runs", "reports"))
        kept, file = path(place / "kept"), path("toy.yaml")
        paths = run_sweep(sweep, file=file, only=["full"], runs=runs, reports=reports, executor="inline", storage=kept)
        assert (paths.counts, list(load_records(runs))) == ({"done": 1}, list(load_records("kept"))), paths
        assert paths.report == Path(reports) / "toy/paper/report.md" and paths.report.is_file()
    assert str(fresh.report) == "reports/toy/paper/report.md"
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if "moved" in line] == [f"1 trial folder moved to {place}/runs/.old"]
    assert "3 of 4 planned trials complete" in (place / "reports/toy/paper/report.md").read_text(), "of the whole sweep"
    full = trials()["full"]
    old, new = (read_record(place / "runs" / folder) for folder in (f".old/{full.key}-1", full.key))
    assert old is not None
    assert new is not None
    assert [stage.test for stage in old.stages] == [stage.test for stage in new.stages]
    assert {path.name for path in (place / "runs" / ".old").iterdir()} == {f"{full.key}-1"}


def test_a_sweep_that_is_at_a_scale_takes_no_other(place: Path) -> None:
    with pytest.raises(
        CannotStartError, match="scale: expected none, because the sweep is at scale 'paper', got 'mini'"
    ):
        run_sweep(load_sweep("toy.yaml", "paper"), scale="mini")


@pytest.mark.parametrize("option", [("--jobs", "2"), ("--address", "10.0.0.1:6379"), ("--jobs", "2", "--dry-run")])
def test_inline_refuses_what_only_ray_can_do(place: Path, option: tuple[str, ...]) -> None:
    code, _, err = command("sweep", "toy.yaml", "--scale", "paper", "--executor", "inline", *option)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("--executor inline: ")


@pytest.mark.parametrize(
    ("resources", "advice"),
    [
        ("resources: {gpus: 1}\n", "take --gpus 0 for CPUs alone"),
        ("  slow: {resources: {gpus: 0}}\nresources: {gpus: 1}\n", "take a scale without (--scale slow) or --gpus 0"),
        (
            "  slow: {resources: {gpus: 0}}\n  short: {resources: {}}\nresources: {gpus: 1}\n",
            "take a scale without (--scale slow or --scale short) or --gpus 0",
        ),
    ],
)
def test_without_a_gpu_only_a_scale_of_the_file_is_advised(
    place: Path, monkeypatch: pytest.MonkeyPatch, resources: str, advice: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (place / "toy.yaml").write_text(SWEEP + resources)
    code, _, err = command("sweep", "toy.yaml", "--scale", "paper")
    assert (code, err) == (
        2,
        "resources.gpus: a trial asks for 1 GPU, this machine has none; "
        f"{advice}, or --address of a cluster that has some\n",
    )


def test_where_the_command_asks_for_a_gpu_no_scale_is_advised(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for name in ("plan", "sweep"):
        _, out, err = command(name, "toy.yaml", "--scale", "paper", "--seeds", "7", "--gpus", "1")
        refusal = "--gpus: a trial asks for 1 GPU, this machine has none; take --gpus 0 for CPUs alone, or --address of"
        assert refusal in out + err


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"executor": "inlin"}, "executor: expected ray or inline, got 'inlin'"),
        ({"jobs": 0}, "jobs: expected 1 or more, got 0"),
        ({"checkpoint_seconds": math.nan}, "checkpoint_seconds: expected 0 or more, got nan"),
        ({"budget": 3600}, "budget: expected a text such as '8h', got 3600"),
        ({"only": ""}, "--only: unknown variant ''"),
        ({"only": "GRUU"}, "--only: unknown variant 'GRUU'"),
    ],
)
def test_python_refuses_what_the_command_refuses(place: Path, wrong: dict[str, object], said: str) -> None:
    with pytest.raises(CannotStartError) as refused:
        run_sweep("toy.yaml", scale="paper", **wrong)  # type: ignore[arg-type]
    assert str(refused.value).startswith(said) and not (place / "runs").exists()


def test_a_bucket_that_is_not_reached_is_told_in_a_line(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreached(uri: str) -> NoReturn:
        raise OSError("When resolving region for bucket 'lab':\n  no network")  # as pyarrow says it: without a file

    pyarrow = SimpleNamespace(FileSystem=SimpleNamespace(from_uri=unreached))
    monkeypatch.setattr("orchestrator.trials.storage.arrow", pyarrow)
    code, _, err = command("sweep", "toy.yaml", "--scale", "paper", "--storage", "s3://lab/trials")
    assert (code, err) == (2, "storage s3://lab/trials: When resolving region for bucket 'lab': no network\n")


@pytest.mark.parametrize(
    ("line", "exit_code"), [(("status", "toy.yaml", "--scale", "paper"), 2), (("sweep", "toy.yaml"), 5)]
)
def test_a_file_in_the_place_of_runs_is_told_in_a_line(place: Path, line: tuple[str, ...], exit_code: int) -> None:
    (place / "runs").write_text("")
    code, _, err = command(*line)
    assert (code, err.count("\n")) == (exit_code, 1)
    assert "runs" in err


def test_a_dry_run_says_what_would_be_trained_and_writes_nothing(place: Path) -> None:
    code, out, _ = command("sweep", "toy.yaml", "--scale", "paper", "--dry-run", "--only", "neural cache")
    assert code == 0
    assert [line.split("  ")[1] for line in out.splitlines()[1:-1]] == [
        "full, seed 1: new",
        "neural cache, seed 1: new",
    ]
    assert out.splitlines()[-1] == "2 trials would be trained; nothing was written"
    settle(trials()["full"])
    out = command("sweep", "toy.yaml", "--scale", "paper", "--dry-run")[1]
    assert "full" not in out
    assert "2 trials would be trained" in out
    out = command("sweep", "toy.yaml", "--scale", "paper", "--dry-run", "--fresh")[1]
    assert "full, seed 1: done" in out
    assert f"1 trial folder would be moved to {Path('runs/.old')}" in out
    assert not {"reports", "mlflow.db"} & {path.name for path in place.iterdir()}


@pytest.mark.parametrize(("call", "refused_at"), [("run_prepared", 1), ("prepare", 2)])
def test_fresh_puts_back_what_it_moved_if_nothing_can_be_started(
    place: Path, call: str, refused_at: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settle(trials()["full"])
    before = Path("runs", trials()["full"].key, "record.json").read_bytes()

    works, calls = getattr(api, call), []

    def refuses(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        if len(calls) == refused_at:
            raise CannotStartError("--address: no cluster answers")
        return works(*arguments, **options)

    monkeypatch.setattr(api, call, refuses)
    with pytest.raises(CannotStartError):
        run_sweep("toy.yaml", scale="paper", fresh=True, executor="inline")
    assert Path("runs", trials()["full"].key, "record.json").read_bytes() == before
    assert not [*Path("runs/.old").iterdir()] and read_record(Path("runs") / trials()["full"].key) is not None
    assert "what --fresh had moved is back in its place" in capsys.readouterr().out


def test_a_dry_run_knows_what_the_storage_has(place: Path) -> None:
    """What is settled there and only there; a failure there is tried again, as is what test is still closed to."""
    full, weights, cached = (trials()[name] for name in ("full", "no weight-dropping", "neural cache"))
    for trial in (full, cached):
        settle(trial, Path("store"))
    write_failure(weights, Allotment(place / "store", 1.0, 0.0, 600.0), "it broke")
    line = ("sweep", "toy.yaml", "--scale", "paper", "--dry-run", "--storage", f"file://{place}/store")
    before = {path: path.stat().st_mtime_ns for path in place.rglob("*")}
    code, out, _ = command(*line)
    assert code == 0 and out.splitlines()[1:] == [
        f"{weights.key}  no weight-dropping, seed 1: new",
        "1 trial would be trained; nothing was written",
    ]
    data = json.loads((record := place / "store" / full.key / "record.json").read_text())
    for stage in data["stages"]:
        stage["test"] = None
    record.write_text(json.dumps(data))
    assert f"{full.key}  full" in command(*line)[1]
    record.write_text("{")
    assert f"{full.key}  full" in command(*line)[1]
    assert {path: path.stat().st_mtime_ns for path in place.rglob("*") if path not in (record, record.parent)} == {
        path: time for path, time in before.items() if path not in (record, record.parent)
    }
    for dry in ((), ("--dry-run",)):
        assert command(*line[:4], *dry, "--fresh", *line[5:]) == (
            2,
            f"{out.splitlines()[0]}\n",
            "--fresh: the storage would give the old records back; take another --storage\n",
        )
    code, _, err = command(*line[:-1], "foo://x")
    assert code == 2 and err.startswith("storage: expected s3://, gs://, file:// or an absolute path, got 'foo://x'")


@pytest.mark.parametrize("every", ["inf", "1e9", "nan", "0"])
def test_a_watched_report_waits_for_a_time_that_can_be_waited(place: Path, every: str) -> None:
    code, out, err = command("report", "toy.yaml", "--scale", "paper", "--watch", "--every", every)
    assert (code, out) == (2, "") and "'--every': " in err and every in err


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_an_unknown_variant_is_told_before_anything_starts(place: Path, options: list[str]) -> None:
    code, _, err = command("sweep", "toy.yaml", "--scale", "paper", "--only", "no finetuning", *options)
    assert code == 2
    assert err == "--only: unknown variant 'no finetuning' (did you mean 'no fine-tuning'?)\n"
    assert not (place / "runs").exists()


@pytest.mark.parametrize("line", [("plan",), ("sweep", "--dry-run"), ("sweep", "--executor", "inline")])
def test_a_grid_that_ends_sooner_for_one_variant_is_refused_for_a_part_too(place: Path, line: tuple[str, ...]) -> None:
    text = TUNE.replace("  trials: 2\n", "  trials: 6\n  sampler: {kind: grid, points: 2}\n")
    (place / "uneven.yaml").write_text(text, encoding="utf-8")
    code, _, err = command(line[0], "uneven.yaml", "--only", "full", *line[1:])
    assert code == 2 and err.startswith("tune.sampler: every variant gets the same number of trials, but the grid of ")
    assert not (place / "runs").exists()


def test_a_plan_of_a_part_has_the_trials_of_a_sweep_of_that_part(place: Path) -> None:
    part = ("toy.yaml", "--scale", "paper", "--only", "neural cache")
    code, out, _ = command("plan", *part, "--json")
    assert code == 0
    trained = [line.split()[0] for line in command("sweep", *part, "--dry-run")[1].splitlines()[1:-1]]
    assert [trial["key"] for trial in json.loads(out)["trials"]] == trained and len(trained) == 2
    code, _, err = command("plan", "toy.yaml", "--scale", "paper", "--only", "neural cash")
    assert (code, err) == (2, "--only: unknown variant 'neural cash' (did you mean 'neural cache'?)\n")


def test_the_baseline_is_always_there(place: Path) -> None:
    sweep = load_sweep("toy.yaml", "paper")
    assert [variant.name for variant in select(sweep, ["neural cache"]).variants] == ["full", "neural cache"]
    assert select(sweep, []) is sweep


def test_the_second_command_on_a_sweep_ends_with_who_holds_it(place: Path) -> None:
    with holding(place / "runs", "toy", "paper", " at scale paper"):
        code, _, err = command("sweep", "toy.yaml", "--scale", "paper", "--executor", "inline")
        assert code == 2
        assert err.startswith("toy at scale paper is run by ")
        assert f"process {os.getpid()} on " in err
        assert "`python -m orchestrator status` shows it" in err
        assert err.count("\n") == 1
    assert not (place / "mlflow.db").exists()
    assert not list(place.glob("runs/*/"))[1:], "only the folder of the locks"


def test_fresh_moves_no_folder_in_which_someone_trains(place: Path) -> None:
    full = trials()["full"]
    running = start(full.spec, place / "runs" / full.key)
    code, _, err = command("sweep", "toy.yaml", "--scale", "paper", "--executor", "inline", "--fresh")
    assert code == 2
    assert err == f"--fresh: {place / 'runs' / full.key} is in use: a process trains in it\n"
    assert not (place / "runs" / ".old").exists()
    del running


def test_records_are_loaded_by_key_and_a_damaged_one_is_named(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    full = trials()["full"]
    settle(full)
    records = load_records("runs")
    assert list(records) == [full.key]
    assert records[full.key] == Records(place / "runs").find(full)
    with pytest.raises(ValueError, match="nowhere: expected a folder of trials"):
        load_records("nowhere")
    with pytest.raises(SweepError, match="unknown scale 'papre'"):
        load_sweep("toy.yaml", "papre")
    (place / "runs" / full.key / "record.json").write_text("{}")
    assert load_records("runs") == {}
    assert f"runs/{full.key}/record.json: not a record of this version" in caplog.text
    shutil.rmtree(place / "runs")
    assert load_records() == load_records("runs") == {}, "which is to come"


@pytest.mark.parametrize("path", [str, Path])
def test_a_report_is_written_to_paths_of_either_type(place: Path, path: type[str] | type[Path]) -> None:
    sweep, records = read_sweep(path("toy.yaml")).at("paper"), Records(path("runs"))
    for trial in trials().values():
        settle(trial)
    report = report_sweep(sweep, path("toy.yaml"), expand(sweep, records), records, path("pages"), if_fuller="replace")
    assert report.page == Path("pages/toy/paper/report.md")
    assert (place / "pages/README.md").is_file()


def test_a_watched_report_follows_the_records_until_interrupted(place: Path) -> None:
    line = [sys.executable, "-m", "orchestrator", "report", "toy.yaml", "--scale", "paper", "--watch", "--every", "0.1"]
    watching = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    page = place / "reports/toy/paper/report.md"

    def wait_for(text: str) -> None:
        until = time.monotonic() + 60.0
        while not (page.exists() and text in page.read_text()):
            assert watching.poll() is None, watching.communicate()
            assert time.monotonic() < until, "waited in vain"
            time.sleep(0.05)

    wait_for("0 of 4 planned trials complete")
    settle(trials()["full"])
    wait_for("2 of 4 planned trials complete")
    written = page.stat().st_mtime_ns
    time.sleep(0.5)
    assert page.stat().st_mtime_ns == written, "nothing changed"
    (answers := place / "runs" / trials()["full"].key / "analyses").mkdir()
    (answers / "rank.json").write_text("[]")
    until = time.monotonic() + 60.0
    while page.stat().st_mtime_ns == written and time.monotonic() < until:
        time.sleep(0.05)
    assert page.stat().st_mtime_ns > written, "what a model was asked comes after its record"
    watching.send_signal(signal.SIGINT)
    _, err = watching.communicate(timeout=120)
    assert watching.returncode == 130
    assert "Traceback" not in err


def test_a_shell_completes_scales_and_variants(place: Path) -> None:
    def completed(*words: str) -> list[str]:
        line = " ".join(["orchestrator", *words])
        environment = os.environ | {
            "_ORCHESTRATOR_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words)),
        }
        code = "import sys; sys.argv = ['orchestrator']; from orchestrator.__main__ import app; app()"
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
        )
        return [word for word in done.stdout.split("\n") if word]

    assert completed("sweep", "to") == ["toy.yaml"]
    assert completed("sweep", "toy.yaml", "--scale", "m") == ["mini"]
    assert completed("sweep", "toy.yaml", "--only", "neu") == ["neural cache"]
    assert completed("sweep", "none.yaml", "--scale", "m") == []
    assert set(completed("re")) == {"report", "reproduce"}
