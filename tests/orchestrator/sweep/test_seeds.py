"""Which variant gets which seeds, and what else changes with a seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.agenda.expand import expand, search_tasks
from orchestrator.api import load_sweep
from orchestrator.commands.plan import print_plan
from orchestrator.sweep import SweepError
from orchestrator.trials.plan import plan
from orchestrator.trials.records import Records
from tests.support.found import TUNE, find, within
from tests.support.sweep_texts import GOOD, edited, errors_of, read_text

CODES = """\
name: toy
question: Does the code matter?
base:
  corpus: {name: pydoc, train_tokens: 1000}
  model: {layers: 1, embedding_size: 8, hidden_size: 8, tied: false}
  optimizer: {kind: sgd, learning_rate: 3.0}
  epochs: 1
variants:
  random: {head: {kind: ecoc, codebook: {kind: random, bits: 20}}}
  binary: {head: {kind: ecoc, codebook: {kind: binary}}}
seeds: [3, 1]
"""


@pytest.mark.parametrize("seeds", ["{baseline: 3, variants: 1}", "{baseline: [1, 2, 3], variants: [1]}"])
def test_the_baseline_may_have_more_seeds(tmp_path: Path, seeds: str) -> None:
    sweep = read_text(tmp_path, edited("seeds: [1, 2]", f"seeds: {seeds}")).at("paper")
    trials = [(trial.variant, trial.seed) for trial in plan(sweep)]
    assert [seed for variant, seed in trials if variant == "full"] == [1, 2, 3]
    assert {seed for variant, seed in trials if variant != "full"} == {1}
    assert len(trials) == 6 and sweep.looks == (3,)


@pytest.mark.parametrize(
    ("seeds", "text"),
    [
        ("{baseline: 2, variants: [1, 5]}", "the baseline must have every seed that the variants have, and lacks 5"),
        ("{baseline: 0, variants: 2}", "seeds.baseline"),
        ("{baseline: 2}", "variants"),
        ("3", "should be a list such as [1, 2, 3], {min, max, until: decided}, or {baseline: 6, variants: 3}, got 3"),
    ],
)
def test_seeds_that_cannot_be_are_refused(tmp_path: Path, seeds: str, text: str) -> None:
    (line,) = errors_of(tmp_path, edited("seeds: [1, 2]", f"seeds: {seeds}"))
    assert text in line


def test_what_varies_has_the_seed_s_number_and_its_own_stretch_of_text(tmp_path: Path) -> None:
    text = CODES + "varies: [head.codebook.seed, corpus.train_start]\n"
    specs = {(trial.variant, trial.seed): trial.spec for trial in plan(read_text(tmp_path, text).at("paper"))}
    codes = {key: getattr(getattr(spec.head, "codebook", None), "seed", None) for key, spec in specs.items()}
    assert codes == {
        ("full", 3): None,
        ("random", 3): 3,
        ("binary", 3): None,
        ("full", 1): None,
        ("random", 1): 1,
        ("binary", 1): None,
    }
    starts = {(seed, spec.corpus.train_start) for (_, seed), spec in specs.items()}
    assert starts == {(3, 0), (1, 1000)}, "the first seed has the file's stretch, the next one the stretch behind it"


def test_without_varies_only_the_seed_differs(tmp_path: Path) -> None:
    sweep = read_text(tmp_path, CODES).at("paper")
    assert all(sweep.spec(v, 3).model_copy(update={"seed": v.spec.seed}) == v.spec for v in sweep.variants)


@pytest.mark.parametrize(
    ("varies", "text"),
    [
        ("[head.codebook.bits]", "corpus.train_start, or a path that ends in .seed, such as head.codebook.seed"),
        ("[head.codebok.seed]", "has 'head.codebok.seed'; unknown key 'codebok' (did you mean 'codebook'?)"),
        ("[head.code.seed]", "neither the base nor a variant has 'head.code.seed'"),
        ("[corpus.train_start, corpus.train_start]", "should be distinct"),
    ],
)
def test_what_cannot_vary_is_refused(tmp_path: Path, varies: str, text: str) -> None:
    (line,) = errors_of(tmp_path, CODES + f"varies: {varies}\n")
    assert text in line


def test_a_stretch_needs_a_length(tmp_path: Path) -> None:
    (line,) = errors_of(tmp_path, CODES.replace(", train_tokens: 1000", "") + "varies: [corpus.train_start]\n")
    assert "corpus.train_start needs base.corpus.train_tokens, the length of each stretch" in line
    whole = CODES.replace("variants:\n", "variants:\n  whole: {corpus.train_tokens: null}\n")
    (line,) = errors_of(tmp_path, whole + "varies: [corpus.train_start]\n")
    assert "corpus.train_start needs in every variant corpus.train_tokens, the length of each stretch" in line


def test_the_stretches_of_each_variant_must_fit_the_text(tmp_path: Path) -> None:
    text = CODES.replace("variants:\n", "variants:\n  long: {corpus.train_tokens: 20000}\n")
    (file := tmp_path / "toy.yaml").write_text(text + "varies: [corpus.train_start]\n")
    with pytest.raises(SweepError, match=r"toy.yaml:13: varies.0: each seed of 'long' has a stretch of its own"):
        load_sweep(file, "paper")


def test_an_equal_budget_adds_the_variant_that_trains_as_many_epochs(tmp_path: Path) -> None:
    sweep = read_text(tmp_path, GOOD + "equal_budget: true\n").at("paper")
    (control,) = [variant for variant in sweep.variants if "as many epochs" in variant.name]
    assert control.name == "no fine-tuning (as many epochs)" and not control.removed
    assert control.spec.finetune is None
    assert control.spec.epochs == 6 == sweep.baseline.spec.most_epochs == control.spec.most_epochs


def test_the_same_grid_is_not_tried_for_each_seed(tmp_path: Path) -> None:
    text = TUNE.replace("  trials: 2\n", "  trials: 2\n  sampler: {kind: grid}\n  repeats: 2\n")
    said = "repeats do not go with sampler grid, which would try the same combinations each time"
    assert said in errors_of(tmp_path, text)[0]


def test_a_repeated_search_gives_each_seed_values_of_its_own(tmp_path: Path) -> None:
    text = TUNE.replace("  trials: 2\n", "  trials: 1\n  repeats: 2\n")
    sweep, records = read_text(tmp_path, text).at("paper"), Records(tmp_path / "runs")
    tasks = [task for task in search_tasks(sweep) if task.variant == "full"]
    assert [(task.title, task.searching.sampler_seed) for task in tasks] == [
        ("full for seed 1", 0),
        ("full for seed 2", 1),
    ]
    for number, task in enumerate(search_tasks(sweep)):
        find(records, task, (within(task, number / 10), 4.0))
    state = expand(sweep, records)
    assert not state.waiting
    rates = {(t.variant, t.seed): t.spec.optimizer.learning_rate for t in state.trials}
    assert rates["full", 1] != rates["full", 2]
    assert {t.change for t in state.trials if t.variant == "full"} == {"the base itself, at its tuned values"}


@pytest.mark.parametrize("seeds", ["[1, 2, 3]", "{baseline: 2, variants: 2}"])
def test_repeats_need_a_search_for_each_seed(tmp_path: Path, seeds: str) -> None:
    text = TUNE.replace("  trials: 2\n", "  trials: 2\n  repeats: 2\n").replace("seeds: [1, 2]", f"seeds: {seeds}")
    (line,) = errors_of(tmp_path, text)
    assert "repeats: should be 1, or as many as 'seeds' lists, each of which gets a search; got 2" in line


def test_plan_says_what_more_seeds_of_the_baseline_would_bring(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def printed(text: str) -> str:
        sweep, records = read_text(tmp_path, text).at("paper"), Records(tmp_path / "runs")
        print_plan(sweep, expand(sweep, records), records)
        return capsys.readouterr().out

    three = edited("seeds: [1, 2]", "seeds: [1, 2, 3]")
    advice = "'seeds: {baseline: 5, variants: 3}' makes intervals up to 11% narrower for 2 trials more"
    assert f"the baseline is in all 3 comparisons: {advice}" in printed(three)
    assert "narrower" not in printed(edited("seeds: [1, 2]", "seeds: [11, 12, 13]")), "which the advice would not use"
    split = printed(edited("seeds: [1, 2]", "seeds: {baseline: 5, variants: 3}"))
    assert "3 variants x 3 seeds, the baseline x 5" in split and "narrower" not in split
