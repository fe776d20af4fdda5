"""`--set` and `--seeds`: checked like the file, called by the change, and apart from the scale as written."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agenda.expand import looks_path
from orchestrator.execute.machine import load_sweep
from orchestrator.sweep import Changes
from orchestrator.trials.records import Records
from tests.orchestrator.commands.test_command_line import ABLATION, invoke
from tests.support.sweep_texts import SWEEPS
from tests.support.sweeps import SWEEP, furnish

LAPTOP = (ABLATION, "--scale", "laptop")


def changed(*set_: str, seeds: str | None = None, scale: str = "laptop", name: str = "awd_ablation"):
    return load_sweep(SWEEPS / f"{name}.yaml", scale, Changes.read(set_, seeds))


def test_values_and_seeds_are_replaced_and_the_scale_is_called_by_them() -> None:
    plain = changed()
    sweep = changed("base.model.hidden_size=50", "base.epochs=5", seeds="1-4")
    assert sweep.scale == "laptop+epochs=5+model.hidden_size=50+seeds=1-4"
    assert sweep.options == (
        *("--scale", "laptop", "--set", "base.model.hidden_size=50", "--set", "base.epochs=5"),
        *("--seeds", "1-4"),
    )
    base, before = sweep.baseline.spec, plain.baseline.spec
    assert sweep.seeds == (1, 2, 3, 4)
    assert base == before.model_copy(update={"epochs": 5, "model": before.model.model_copy(update={"hidden_size": 50})})
    assert changed("base.epochs=5", "base.model.hidden_size=50", seeds="1,2,3,4").scale == sweep.scale
    assert plain.options == ("--scale", "laptop")


def test_pages_of_other_seeds_are_looks_at_the_same_comparisons(tmp_path: Path) -> None:
    records = Records(tmp_path)
    plain, more = looks_path(changed(), records), looks_path(changed(seeds="1-8"), records)
    assert plain.name == more.name == "awd_ablation.laptop.looks"
    other = looks_path(changed("base.epochs=5", seeds="1-8"), records)
    assert other == looks_path(changed("base.epochs=5"), records) != plain


def test_a_change_at_the_papers_scale_is_not_the_papers_scale() -> None:
    assert changed(seeds="7", scale="paper").published_scale
    sweep = changed("base.epochs=5", scale="paper")
    assert (sweep.scale, sweep.published_scale, sweep.baseline.spec.epochs) == ("paper+epochs=5", False, 5)


def test_a_part_replaces_the_values_inside_it() -> None:
    sweep = changed("base.bptt={kind: fixed, length: 10}", name="regularizers")
    assert sweep.baseline.spec.bptt.kind == "fixed"


def test_the_trials_of_a_search_can_be_changed() -> None:
    sweep = changed("search.trials=31", name="search_awd")
    assert sweep.searching is not None and sweep.searching.trials == 31
    assert sweep.scale == "laptop+search.trials=31"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--set", "base.epoch=5"], "--set base.epoch: unknown key 'epoch' (did you mean 'epochs'?)"),
        (["--set", "base.epochs=-5"], "--set base.epochs: should be greater than or equal to 1, got -5"),
        (["--set", "base.model.layer=1"], "--set base.model.layer: unknown key 'layer' (did you mean 'layers'?)"),
        (["--set", "base.epochs"], "--set: expected PATH=VALUE, such as base.epochs=5, got 'base.epochs'"),
        (["--set", "base.epochs=["], "--set base.epochs:1: not YAML"),
        (
            ["--set", "epochs=5"],
            "--set epochs: a path begins with base., search., tune. (did you mean base.epochs?)",
        ),
        (["--set", "seeds=5"], "--set seeds: a path begins with base., search., tune. (did you mean --seeds?)"),
        (["--set", "base.epochs=5", "--set", "base.epochs=6"], "--set base.epochs: given twice"),
        (
            ["--set", "base.corpus.train_tokens=5", "--set", "base.corpus={name: pydoc}"],
            "--set base.corpus: would undo --set base.corpus.train_tokens, which stands before it: give it first",
        ),
        (["--set", "base.seed=5"], "--set base.seed: the seed is not part of a change"),
        (["--set", "search.trials=5"], "--set search.trials: the file has no 'search'"),
        (["--seeds", "five"], "--seeds: expected numbers such as 1-5 or 1,4,7, got 'five'"),
        (["--seeds", "5-1"], "--seeds: a range goes up"),
        (["--seeds", "1-99999999"], "--seeds: a range goes up, and at most 1,000 seeds are trained"),
        (["--seeds", "1,1"], "--seeds: should be distinct, got 1 twice"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "report"])
def test_what_is_wrong_is_said_of_the_option(command: str, options: list[str], said: str, tmp_path: Path) -> None:
    code, out, err = invoke(command, *LAPTOP, *options, "--runs", str(tmp_path / "runs"))
    assert (code, out) == (2, "")
    assert err.startswith(said) and len(err.splitlines()) == 1


def test_an_unknown_scale_is_said_first() -> None:
    assert "did you mean 'laptop'?" in invoke("plan", ABLATION, "--scale", "labtop", "--set", "base.epochs=5")[2]


@given(st.text(min_size=1, max_size=60), st.text(min_size=1, max_size=60))
def test_every_label_is_a_safe_name_and_tells_changes_apart(one: str, other: str) -> None:
    labels = [Changes({"base.corpus.name": text}).label("mini") for text in (one, other)]
    assert all(re.fullmatch(r"mini\+[A-Za-z0-9._=,+-]{1,60}", label) for label in labels)
    assert (labels[0] == labels[1]) == (one == other)


@pytest.mark.usefixtures("without_pictures")
def test_a_quick_look_leaves_the_scale_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    furnish(tmp_path, SWEEP.partition("components:")[0] + "variants: {GRU: {model.cell: gru}}\nseeds: [1]\n", 60)
    at = ("tiny.yaml",)
    code, out, err = invoke("sweep", *at, "--executor", "inline")
    page = Path("reports/tiny/paper/report.md")
    assert code == 0 and out.startswith("tiny: ") and "\nNot decided: GRU, because with one seed" in out
    files = [page, page.parent / "table.tex", Path("reports/README.md")]
    texts = [out, err, *invoke("plan", *at)[1:], *(file.read_text() for file in files)]
    assert not re.search(r"at scale|, scale|--scale|\| paper \|", "".join(texts)), "the file has no scale"
    with closing(sqlite3.connect("mlflow.db")) as database:
        names = {name for (name,) in database.execute("select name from runs")}
    assert names == {"tiny", "full, seed 1", "GRU, seed 1"}
    before = page.read_bytes()

    change = ("--set", "base.epochs=1", "--set", "base.finetune=null", "--seeds", "1-2")
    code, out, _ = invoke("sweep", *at, *change, "--executor", "inline")
    quick = Path("reports/tiny/paper+epochs=1+finetune=null+seeds=1-2/report.md")
    assert code == 0 and out.splitlines()[-1] == str(quick)
    assert page.read_bytes() == before
    text = quick.read_text()
    assert text.startswith("# tiny, scale epochs=1+finetune=null+seeds=1-2\n")
    assert "sweep tiny.yaml --set base.epochs=1 --set base.finetune=null --seeds 1-2" in text
    assert "paper+epochs=1" in Path("reports/README.md").read_text()

    code, out, _ = invoke("status", *at, *change)
    assert code == 0 and "4 trials: 4 done" in out
    assert "4 trials: 4 new" not in out
    assert invoke("report", *at, *change)[1].splitlines()[-1] == str(quick)
    assert "paper+epochs=1+finetune=null+seeds=1-2" in invoke("status")[1]
