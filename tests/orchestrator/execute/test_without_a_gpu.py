"""What is granted in place of the file's resources, and scales that are meant for a GPU where there is none."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from pathlib import Path

import pytest

from lm.cpus import cpu_count
from orchestrator import load_sweep
from orchestrator.errors import CannotStartError
from orchestrator.execute import machine, run
from orchestrator.execute.estimate import AtMost
from orchestrator.execute.machine import gpus_of, granted
from orchestrator.sweep import Resources
from tests.support.places import SWEEP, command, fake_smi, make_place
from tests.support.sweep_texts import SWEEPS

pytestmark = pytest.mark.usefixtures("without_pictures")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`toy.yaml` asks for a GPU where there is one, and there is none."""
    monkeypatch.chdir(make_place(tmp_path))
    monkeypatch.setenv("LM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (tmp_path / "toy.yaml").write_text(SWEEP + "resources: {gpus: auto}\n")
    return tmp_path


def test_auto_is_a_quarter_of_a_gpu_where_there_is_one_and_none_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_smi(tmp_path, monkeypatch, 'echo "A, 24576"')
    assert gpus_of(Resources(gpus="auto")) == 0.25
    assert gpus_of(Resources(gpus=0.5)) == 0.5
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpus_of(Resources(gpus="auto")) == 0.0
    assert gpus_of(Resources(gpus=0.5)) == 0.5


def test_a_control_groups_quota_counts_as_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quota = tmp_path / "cpu.max"
    monkeypatch.setattr("lm.cpus.QUOTA", quota)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(64))
    counts = []
    for text in ("max 100000\n", "250000 100000\n", "50000 100000\n"):
        quota.write_text(text)
        counts.append(cpu_count())
    assert counts == [64, 2, 1]
    quota.unlink()
    first = tmp_path / "cfs_quota_us", tmp_path / "cfs_period_us"  # of version 1 of control groups
    monkeypatch.setattr("lm.cpus.QUOTA_1", first)
    first[1].write_text("100000\n")
    for text, count in (("-1\n", 64), ("250000\n", 2)):
        first[0].write_text(text)
        assert cpu_count() == count


def test_what_is_granted_replaces_the_files_own_and_leaves_the_rest() -> None:
    file = Resources(cpus=4, gpus=0.5, stall_minutes=5)
    assert granted(file) == file
    assert granted(file, 2, "auto") == Resources(cpus=2, gpus="auto", stall_minutes=5)
    assert granted(file, gpus="0") == Resources(cpus=4, gpus=0, stall_minutes=5)


@pytest.mark.parametrize("name", ["plan", "sweep"])
@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--gpus=half", "--gpus: expected a number or auto, got half"),
        ("--gpus=-1", "--gpus: should be greater than or equal to 0, got -1"),
        ("--gpus=1.5", "--gpus: a share of one GPU or a whole number of them, got 1.5"),
        ("--gpus=nan", "--gpus: should be a finite number, got nan"),
        ("--cpus=0", "--cpus: should be greater than 0, got 0.0"),
    ],
)
def test_what_no_trial_can_be_granted_is_told_in_a_line(place: Path, name: str, option: str, said: str) -> None:
    code, _, err = command(name, "toy.yaml", "--scale", "paper", option)
    assert (code, err) == (2, f"{said}\n")
    assert not (place / "runs").exists()


def test_more_cpus_than_there_are_are_refused_with_the_option_that_takes_fewer(place: Path) -> None:
    code, _, err = command("sweep", "toy.yaml", "--scale", "paper", "--cpus", "4096")
    had = f"a trial asks for 4096, this machine grants {cpu_count()}"
    assert (code, err) == (2, f"resources.cpus: {had}; --cpus takes fewer\n")


def test_auto_for_a_cluster_has_to_be_said_where_this_machine_has_no_gpu(place: Path) -> None:
    code, _, err = command("sweep", "toy.yaml", "--scale", "paper", "--address", "10.0.0.1:6379")
    assert (code, err.count("\n")) == (2, 1)
    assert "for the cluster at 10.0.0.1:6379 say --gpus 0.25" in err


def test_what_is_granted_changes_no_key_but_the_threads_of_a_trial(place: Path) -> None:
    def keys(*options: str) -> list[str]:
        return [
            t["key"]
            for t in json.loads(command("plan", "toy.yaml", "--scale", "paper", "--json", *options)[1])["trials"]
        ]

    assert keys("--cpus", "2", "--gpus", "0", "--jobs", "1") == keys("--gpus", "1") == keys()
    said = command("plan", "toy.yaml", "--scale", "paper", "--cpus", "3", "--write-specs", "a folder")[1]
    assert said.endswith("python -m lm train 'a folder/KEY.yaml' --threads 3 --device cpu\n")


def test_a_model_that_asks_for_a_gpu_is_measured_on_cpus_if_that_is_asked_for(place: Path) -> None:
    (place / "toy.yaml").write_text(SWEEP + "resources: {gpus: 0.5}\n")
    code, _, err = command("plan", "toy.yaml", "--scale", "paper", "--estimate")
    assert (code, err.count("resources.gpus: ")) == (2, 2), "a warning beside the plan, and why it is not measured"
    assert err.endswith("this machine has none to measure it on; --gpus 0 measures it on CPUs\n")


def test_without_a_gpu_a_sweep_says_its_core_hours_and_the_line_of_a_part_and_trains(place: Path) -> None:
    """What it says first is not known before `plan --estimate`, whose line it gives."""
    line = ("sweep", "toy.yaml", "--scale", "paper", "--executor", "inline", "--cpus", "1")
    part = (
        "to train only no weight-dropping and the baseline:\n  python -m orchestrator sweep toy.yaml --scale paper "
        "--executor inline --budget 0.0000001s --cpus 1.0 --only 'no weight-dropping'\n"
    )
    code, _, before = command(*line, "--budget", "0.0000001s")
    assert code == 3, before
    told = "  python -m orchestrator plan toy.yaml --scale paper --cpus 1.0 --estimate"
    assert f"no GPU: trials train on CPUs; to see how many core-hours they take:\n{told}\n{part}" in before

    _, _, of_part = command(*line, "--budget", "0.0000001s", "--only", "no weight-dropping")
    assert (
        "  python -m orchestrator plan toy.yaml --scale paper --only 'no weight-dropping' --cpus 1.0 --estimate"
        in of_part
    )

    code, estimated, err = command(*told.split()[3:])
    assert code == 0, err
    hours = re.search(r"at once, ([\d.,]+) core-hours; ", estimated)
    assert hours is not None
    _, _, after = command(*line, "--budget", "0.0000001s")
    assert f"no GPU: trials train on CPUs and take at most {hours[1]} core-hours\n{part}" in after

    code, _, trained = command(*line, "--only", "no weight-dropping")
    assert code == 0, trained
    assert "no GPU: trials train on CPUs and take at most" in trained
    assert "to train only" not in trained
    code, _, again = command(*line, "--only", "no weight-dropping")
    assert code == 0 and "no GPU" not in again, "nothing is left to train"


def test_a_sweep_that_asks_for_no_gpu_says_nothing_of_one(place: Path) -> None:
    (place / "toy.yaml").write_text(SWEEP)
    code, _, err = command("sweep", "toy.yaml", "--scale", "paper", "--executor", "inline", "--budget", "0.0000001s")
    assert code == 3 and "GPU" not in err


def test_a_long_scale_that_nobody_asked_for_is_said_first_with_the_line_of_a_smaller_one(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "toy.yaml").write_text(SWEEP + "  laptop: {base: {epochs: 1}}\n")
    fake_smi(place, monkeypatch, 'echo "A, 24576"')

    def said(scale: str | None = None, seconds: float | None = None) -> list[str]:
        if seconds is not None:
            monkeypatch.setattr(run, "at_most", lambda *_: AtMost(4, 2_400_000, seconds, seconds / 3600))
        of_text, *rest = run._before_training(run.prepare(load_sweep("toy.yaml", scale), run.Options(Path("toy.yaml"))))
        assert of_text.startswith("warning: corpus: the test text has 280 tokens")
        return rest

    smaller = "a smaller one:\n  python -m orchestrator sweep toy.yaml --scale laptop"
    measure = "; to see how long they take:\n  python -m orchestrator plan toy.yaml --scale paper --estimate"
    assert said() == [f"to train: up to 3 trials at scale paper with up to 1K parameters each{measure}", smaller]
    assert said(seconds=7200.0) == [
        "to train: up to 4 trials at scale paper with up to 2.4M parameters each, at most 2 h 0 min",
        smaller,
    ]
    assert said("paper", 7200.0) == said(seconds=600.0) == []


def test_time_is_reckoned_one_after_the_other_if_all_train_in_this_process(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_smi(place, monkeypatch, 'echo "A, 24576"')
    at_once: list[object] = []

    def reckoned(*arguments: object) -> AtMost:
        at_once.append(arguments[-1])
        return AtMost(1, 1, 1.0, 1.0)

    monkeypatch.setattr(run, "at_most", reckoned)
    for options in (run.Options(Path("toy.yaml"), executor="inline"), run.Options(Path("toy.yaml"), jobs=3)):
        list(run._before_training(run.prepare(load_sweep("toy.yaml", None), options)))
    assert at_once == [1, 3]


@pytest.mark.parametrize("path", sorted(SWEEPS.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_published_scale_of_every_sweep_takes_the_gpu_there_is_or_half_of_one_or_is_for_cpus(path: Path) -> None:
    for_cpus, large = ("precision",), ("heads", "doc_dropout", "doc_final", "doc_lambda", "doc_layers", "doc_reruns")
    expected = 0.0 if path.stem in for_cpus else 0.5 if path.stem in large else "auto"
    assert load_sweep(path, "paper").resources.gpus == expected


@pytest.mark.parametrize(
    ("flags", "rounds", "refused"),
    [
        ("fpu avx2", True, True),
        ("fpu avx2 avx512bw", True, False),
        ("fpu avx2 avx512bw", False, True),
        ("fpu avx2 avx512bw avx512_bf16", True, False),
        ("fpu avx2 avx512bw avx512_bf16", False, True),
    ],
)
def test_bfloat16_is_refused_before_anything_starts_on_a_cpu_without_it(
    flags: str, rounds: bool, refused: bool, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "cpuinfo").write_text(f"flags: {flags}\n")
    monkeypatch.setattr(machine, "CPU_FLAGS", place / "cpuinfo")
    monkeypatch.setattr("lm.precision.can_round", lambda: rounds)
    (place / "toy.yaml").write_text(SWEEP.replace("\nbase:\n", "\nbase:\n  precision: bfloat16\n"))
    sweep = load_sweep("toy.yaml")
    with pytest.raises(CannotStartError, match="precision: bfloat16 takes a CPU with") if refused else nullcontext():
        assert run.prepare(sweep, run.Options(Path("toy.yaml"))).state.table
    assert (place / "runs").exists() is not refused


def test_bfloat16_is_refused_before_anything_starts_on_a_gpu(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "list_gpus", lambda: [machine.Gpu("A", None)])
    monkeypatch.setattr(machine, "bfloat16_products", lambda: "fast")
    text = SWEEP.replace("\nbase:\n", "\nbase:\n  precision: bfloat16\n") + "resources: {gpus: auto}\n"
    (place / "toy.yaml").write_text(text)
    sweep = load_sweep("toy.yaml")
    with pytest.raises(CannotStartError, match="precision: bfloat16 trains on CPUs alone"):
        run.prepare(sweep, run.Options(Path("toy.yaml")))
    assert not (place / "runs").exists()
    assert run.prepare(sweep, run.Options(Path("toy.yaml"), gpus=0.0)).state.table
