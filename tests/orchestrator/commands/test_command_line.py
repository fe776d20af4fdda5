from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import lm
from orchestrator.__main__ import app
from orchestrator.agenda.standing import seeds_advice
from orchestrator.execute import machine
from orchestrator.execute.machine import default_scale, has_gpu
from orchestrator.sweep import read_sweep
from orchestrator.sweep.schema import schema_text
from orchestrator.trials.plan import plan
from tests.support.places import fake_smi
from tests.support.sweep_texts import GOOD, SWEEPS, edited, read_text

HEAVY = ("torch", "ray", "mlflow", "matplotlib", "bokeh", "optuna", "pandas")
ABLATION = str(SWEEPS / "awd_ablation.yaml")


def invoke(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["schema"],
        ["plan", ABLATION, "--scale", "paper"],
        ["plan", "no.yaml"],
        ["status", ABLATION],
    ],
)
def test_nothing_heavy_is_imported(arguments: list[str]) -> None:
    assert heavy_modules(arguments) == "HEAVY []"


def test_help_imports_no_arrow() -> None:
    assert heavy_modules(["--help"], ("pyarrow", "numpy")) == "HEAVY []"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["status", "--scale", "laptop"], "--scale: goes with FILE, a sweep file\n"),
        (["plan", ABLATION, "--steps", "3"], "--steps: goes with --estimate\n"),
        (["runs", "list", "--scale", "laptop"], "--scale: goes with --sweep FILE\n"),
        (["report", ABLATION, "--every", "5"], "--every: goes with --watch\n"),
    ],
)
def test_an_option_without_the_one_that_it_goes_with_is_refused(arguments: list[str], said: str) -> None:
    assert invoke(*arguments) == (2, "", said)


def test_a_report_needs_neither_torch_nor_ray_nor_records(tmp_path: Path) -> None:
    folders = ["--runs", str(tmp_path / "runs"), "--reports", str(tmp_path)]
    assert heavy_modules(["report", ABLATION, "--scale", "paper", *folders]) == "HEAVY ['matplotlib', 'bokeh']"
    assert "0 of 36 planned trials complete" in (tmp_path / "awd_ablation/paper/report.md").read_text()


def heavy_modules(arguments: list[str], names: tuple[str, ...] = HEAVY) -> str:
    """The last line of a run that names those of these modules that it imported."""
    code = (
        "import sys\nfrom orchestrator.__main__ import app\n"
        f"try: app({arguments!r})\nexcept SystemExit: pass\n"
        f"print('HEAVY', [name for name in {names!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=SWEEPS.parent)
    return done.stdout.splitlines()[-1]


def test_help_answers_in_a_blink() -> None:
    """In processor time, beside that of the libraries that it needs; torch alone takes ten times as much."""

    def seconds(*line: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *line], capture_output=True, check=True, cwd=SWEEPS.parent)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    libraries = min(seconds("-c", "import typer, pydantic, rich.console") for _ in range(3))
    assert min(seconds("-m", "orchestrator", "--help") for _ in range(3)) < 4 * libraries


def test_plan_shows_a_line_a_trial_and_a_summary(tmp_path: Path) -> None:
    code, out, _ = invoke("plan", ABLATION, "--scale", "paper", "--runs", str(tmp_path))
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "awd_ablation at scale paper (as asked): Which parts of AWD-LSTM carry its perplexity?"
    assert lines[1].split() == ["variant", "changes", "seed", "key", "parameters", "state"]
    assert sum("read from full" in line for line in lines) == 3
    assert sum("goes on from full" in line for line in lines) == 3
    assert lines[-5] == "no verdict on neural cache: a neural cache adapts to the text that is scored"
    untold = "no fine-tuning and no NT-ASGD"
    assert lines[-4] == f"no verdict on {untold}: other epochs, or another training text, than full"
    assert lines[-3:-1] == ["36 trials (12 variants x 3 seeds): 33 new, 3 read", "33 to train"]
    assert lines[-1].startswith(
        "the baseline is in all 11 comparisons: 'seeds: {baseline: 6, variants: 3}' makes intervals"
    )


def test_plan_says_that_one_seed_gets_no_verdict(tmp_path: Path) -> None:
    at = ("plan", ABLATION, "--scale", "paper", "--runs", str(tmp_path))
    said = "with one seed no change gets an interval or a verdict, because the noise of seeds is unknown"
    assert said in invoke(*at, "--seeds", "1")[1].splitlines()
    assert "with one seed" not in invoke(*at, "--seeds", "1", "--only", "full")[1]
    assert "no verdict" not in invoke(*at, "--only", "full", "--only", "no AR/TAR")[1]


def test_plan_advises_no_seeds_that_repeated_searches_refuse(tmp_path: Path) -> None:
    space = "{dropout.output: {kind: uniform, low: 0.0, high: 0.5}}"
    for repeats in (1, 2):
        text = edited("finetune: {epochs: 2}\n", "finetune: {epochs: 2}\ntune: {trials: 2, repeats: %d, space: %s}\n")
        text = text[: text.index("scales:")].replace("variants:\n", "variants:\n  a GRU: {model.cell: gru}\n")
        sweep = read_text(tmp_path, text % (repeats, space)).at("paper")
        assert (seeds_advice(sweep, plan(sweep)) is None) == (repeats == 2)


def test_plan_names_what_is_scored_on_another_test_text(tmp_path: Path) -> None:
    text = edited("epochs: 4", "epochs: 4\n  scoring: {test_columns: 2}")
    text = text[: text.index("components:")] + (
        "variants:\n  one column: {scoring.test_columns: 1}\n  fewer words: {corpus.vocabulary_cap: 50}\n"
        "  part: {corpus.train_tokens: 500}\nseeds: [1, 2]\n"
    )
    (file := tmp_path / "sweep.yaml").write_text(text)
    code, out, err = invoke("plan", str(file), "--runs", str(tmp_path))
    assert code == 0, err
    words = "another test text, or other columns of it, than full"
    assert f"no verdict on one column and fewer words: {words}" in out.splitlines()
    assert "no verdict on part: other epochs, or another training text, than full" in out.splitlines()


def test_plan_writes_specs(tmp_path: Path) -> None:
    code, out, _ = invoke("plan", ABLATION, "--scale", "mini", "--write-specs", str(tmp_path / "specs"))
    assert code == 0
    assert out.splitlines()[-1].startswith("33 specs written to ")
    assert len(list((tmp_path / "specs").glob("*.yaml"))) == 33


def test_what_is_wrong_goes_to_stderr_with_exit_code_2(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(edited("epochs: 4", "epoch: 4").replace("question: Does it matter?\n", ""))
    code, out, err = invoke("plan", str(wrong))
    assert (code, out) == (2, "")
    assert f"{wrong}:7: base.epoch: unknown key 'epoch' (did you mean 'epochs'?)" in err.splitlines()
    assert f"{wrong}:1: missing key 'question'" in err.splitlines()
    code, out, err = invoke("plan", str(tmp_path / "none.yaml"))
    assert (code, out) == (2, "")
    assert "none.yaml: cannot be read: No such file" in err
    code, out, err = invoke("plan", ABLATION, "--scale", "labtop")
    assert (code, out) == (2, "")
    assert "--scale: unknown scale 'labtop' (did you mean 'laptop'?)" in err
    assert invoke("plan")[0] == 2
    assert invoke("paln")[0] == 2
    assert invoke("plan", ABLATION, "--scael", "x")[0] == 2


def test_a_head_that_cannot_name_every_word_is_told_before_anything_starts(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    head = "{kind: ecoc, codebook: {kind: random, bits: 13}}"
    wrong.write_text(
        edited("{cache: {window: 10, weight: 0.1, flatness: 1.0}}", f"{{model.tied: false, head: {head}}}")
    )
    for command in ("plan", "sweep", "report"):
        code, out, err = invoke(command, str(wrong), "--scale", "paper", "--runs", str(tmp_path / "runs"))
        assert (code, out) == (2, "")
        assert err.strip() == (
            f"{wrong}:14: variants.neural cache.head: head.codebook.bits 13 cannot name 10,000 words: "
            "at least 14 are needed (at scale paper)"
        )
    assert invoke("status", str(wrong), "--scale", "paper") == (2, "", err)
    assert not (tmp_path / "runs").exists()


def test_a_corpus_that_is_not_there_is_told(tmp_path: Path) -> None:
    sweep = tmp_path / "toy.yaml"
    sweep.write_text(edited("{name: ptb}", "{name: nowhere/at/all}"))
    code, _, err = invoke("plan", str(sweep), "--scale", "paper")
    assert code == 2
    assert "nowhere/at/all" in err


def test_the_version_is_that_of_the_package() -> None:
    assert invoke("--version") == (0, f"lm-ablation {lm.__version__}\n", "")


def test_the_committed_schema_is_the_printed_one() -> None:
    assert (SWEEPS / "schema.json").read_text(encoding="utf-8") == schema_text(), (
        "write it anew: python -m orchestrator schema > sweeps/schema.json"
    )
    code, out, _ = invoke("schema")
    assert (code, out) == (0, schema_text())


def test_the_schema_completes_the_base_and_leaves_changes_open() -> None:
    schema = json.loads(schema_text())
    spec = schema["$defs"]["TrainSpec"]
    assert schema["properties"]["base"]["$ref"] == "#/$defs/TrainSpec"
    assert "seed" not in spec["properties"]
    assert not spec["additionalProperties"]
    assert schema["$defs"]["Component"]["properties"]["off"]["additionalProperties"] is True
    (variant,) = schema["properties"]["variants"]["patternProperties"].values()
    assert variant["additionalProperties"] is True


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("sweep", ABLATION, "--jobs", "-1"), ("'--jobs': ", "-1")),
        (("plan", ABLATION, "--steps", "0"), ("'--steps': ", "0")),
        (("plan", ABLATION, "--steps", "few"), ("'--steps': should be a whole number, got few\n",)),
    ],
)
def test_a_value_out_of_range_is_told_with_what_was_got(arguments: tuple[str, ...], said: tuple[str, ...]) -> None:
    code, out, err = invoke(*arguments)
    assert (code, out) == (2, "")
    assert all(part in err for part in said), err
    assert err.count("Error: ") == 1


@pytest.mark.parametrize(
    ("script", "there"),
    [
        ("echo 'NVIDIA H200, 143771'", True),
        ("exit 9", False),
        ("echo No devices were found", False),
        ("echo A, 1; exit 1", False),
    ],
)
def test_a_gpu_is_what_nvidia_smi_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, there: bool
) -> None:
    fake_smi(tmp_path, monkeypatch, script)
    assert has_gpu() is there
    for hidden in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert not has_gpu()


def test_the_scale_fits_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = read_sweep(SWEEPS / "awd_ablation.yaml")
    (tmp_path / "toy.yaml").write_text(GOOD)
    without_laptop = read_sweep(tmp_path / "toy.yaml")
    monkeypatch.setattr(machine, "has_gpu", lambda: False)
    assert default_scale(sweep) == ("laptop", "no NVIDIA GPU was found")
    assert default_scale(without_laptop) == ("paper", "no GPU was found, but the sweep has no scale 'laptop'")
    assert invoke("plan", ABLATION)[1].startswith("awd_ablation at scale laptop (no NVIDIA GPU was found): ")
    monkeypatch.setattr(machine, "has_gpu", lambda: True)
    assert default_scale(sweep) == ("paper", "this machine has an NVIDIA GPU")
