"""What a sweep file may not search, and how it is told."""

# ruff: noqa: E501 (one case a line reads best)

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.agenda.expand import search_tasks
from orchestrator.search.optuna.study import Study
from orchestrator.sweep import read_sweep
from orchestrator.sweep.changes import Changes
from orchestrator.sweep.searches import RandomSampler, Search, TpeSampler, Tune
from tests.support.sweep_texts import errors_of, read_text

SEARCH = """\
name: toy
question: What is best?
base:
  corpus: {name: pydoc}
  model: {layers: 1, embedding_size: 8, hidden_size: 8}
  optimizer: {kind: sgd, learning_rate: 3.0}
  epochs: 4
search:
  trials: 4
  space:
    optimizer.learning_rate: {kind: log_uniform, low: 0.1, high: 10.0}
    head:
      kind: choice
      among:
        softmax: {kind: softmax}
        mixture: {kind: mixture, experts: [0, 2]}
    head.dropout: {kind: uniform, low: 0.0, high: 0.5, when: {head.kind: mixture}}
    size:
      kind: change
      among:
        small: {}
        large: {model.hidden_size: 16, model.embedding_size: 16}
  start: [{optimizer.learning_rate: 1.0, head: mixture, size: small}]
seeds: [1, 2]
scales:
  tiny: {search: {trials: 2}}
"""
TUNE = (
    SEARCH.replace("search:\n", "tune:\n")
    .replace("{search:", "{tune:")
    .replace("seeds: [1, 2]\n", "components:\n  clip: {off: {optimizer.clip: 0.5}}\nseeds: [1, 2]\n")
)

RATE = "optimizer.learning_rate: {kind: log_uniform, low: 0.1, high: 10.0}"
WRONG_SEARCHES = {
    "a path": (RATE, "optimiser.learning_rate: {kind: uniform, low: 0.1, high: 10.0}", "11: search.space.optimiser.learning_rate: unknown key 'optimiser' (did you mean 'optimizer'?)"),
    "trials without end": ("  trials: 4\n", "  trials: 1000000000\n", "9: search.trials: should be less than or equal to 10000, got 1000000000"),
    "an end that is a switch": ("low: 0.1, high: 10.0", "low: true, high: 10.0", "11: search.space.optimizer.learning_rate.low: should be a number, got true"),
    "options that are the same": ("mixture: {kind: mixture, experts: [0, 2]}", "mixture: {kind: softmax}", "14: search.space.head.among: among must hold distinct values, but options 'softmax' and 'mixture' are the same"),
    "changes that are the same": ("large: {model.hidden_size: 16, model.embedding_size: 16}", "large: {}", "20: search.space.size.among: among must hold distinct values, but options 'small' and 'large' are the same"),
    "a kind": ("kind: log_uniform", "kind: loguniform", "11: search.space.optimizer.learning_rate.kind: unknown kind 'loguniform' (did you mean 'log_uniform'?)"),
    "ends": ("low: 0.1, high: 10.0", "low: 10.0, high: 0.1", "11: search.space.optimizer.learning_rate.low: low must be below high, got 10 and 0.1"),
    "an end that no spec can have": ("low: 0.0, high: 0.5,", "low: 0.0, high: 1.5,", "17: search.space.head.dropout.high: should be less than 1, got 1.5"),
    "an option that no spec can have": ("experts: [0, 2]", "experts: [2]", "16: search.space.head.among.mixture.experts"),
    "an option that does not fit": ("experts: [0, 2]", "experts: [0, 0, 2]", "16: search.space.head.among.mixture: head.experts lists 3 counts; the embedding and 1 layers need 2"),
    "a condition that never holds": ("{head.kind: mixture}", "{head.kind: ecoc}", "17: search.space.head.dropout.when.head.kind: never holds: nothing before 'head.dropout' gives 'head.kind' the value 'ecoc'"),
    "a change": ("large: {model.hidden_size", "large: {model.hiden_size", "22: search.space.size.among.large.model.hiden_size: unknown key 'hiden_size' (did you mean 'hidden_size'?)"),
    "seeds": (RATE, "seed: {kind: integer, low: 1, high: 9}", "11: search.space.seed: the seed is never searched over: replicates are listed under 'seeds'"),
    "a corpus in a change": ("small: {}", "small: {corpus: {name: ptb}}", "18: search.space.size: the corpus is never searched over: losses on different texts do not compare"),
    "a start outside": ("{optimizer.learning_rate: 1.0,", "{optimizer.learning_rate: 11,", "23: search.start.0.optimizer.learning_rate: should be a number from 0.1 to 10, got 11"),
    "a start of no option": ("head: mixture,", "head: mixtur,", "23: search.start.0.head: should be one of softmax, mixture, got 'mixtur' (did you mean 'mixture'?)"),
    "a start of nothing": ("size: small}]", "sise: small}]", "23: search.start.0.sise: unknown key 'sise' (did you mean 'size'?)"),
    "no end": ("  trials: 4\n", "", "8: search.trials: trials or training_hours must say when the search ends"),
    "several objectives stopped early": ("  trials: 4\n", "  trials: 4\n  objectives: [validation, seconds]\n  scheduler: {kind: asha}\n", "11: search.scheduler: scheduler must be null for several objectives: a stopped trial has no place on a front"),
    "an objective": ("  trials: 4\n", "  trials: 4\n  objectives: [test]\n", "10: search.objectives.0: should be"),
    "a training seed that judges": ("  trials: 4\n", "  trials: 4\n  training_seed: 2\n", "10: search.training_seed: should not be among 'seeds', on which the result is judged, got 2"),
    "a scale": ("{trials: 2}", "{trials: 0}", "26: scales.tiny.search.trials: should be greater than or equal to 1, got 0"),
    "a scale's unknown key": ("{trials: 2}", "{trails: 2}", "26: scales.tiny.search.trails: unknown key 'trails' (did you mean 'trials'?)"),
    "a scale's dimension": ("{trials: 2}", "{space: {head.dropout: {kind: uniform, low: 0.0, high: 2.0}}}", "26: scales.tiny.search.space.head.dropout: unknown key 'dropout'"),
    "a scale's other word": ("tiny: {search:", "tiny: {tune:", "26: scales.tiny.tune: the sweep has no 'tune' to replace values of"),
    "a population with a number of trials": ("  trials: 4\n", "  trials: 4\n  scheduler: {kind: population, population: 4, interval_epochs: 1}\n", "9: search.trials: trials and training_hours do not go with a population, which ends with the epochs"),
    "a population of heads": ("  trials: 4\n", "  scheduler: {kind: population, population: 4, interval_epochs: 1}\n", "12: search.space.head: a population changes values in mid-training: only those of optimizer, dropout and penalties"),
    "a small population": ("  trials: 4\n", "  scheduler: {kind: population, population: 3, interval_epochs: 1}\n", "9: search.scheduler.population: should be greater than or equal to 4, got 3"),
    "a population on a grid": ("  trials: 4\n", "  sampler: {kind: grid}\n  scheduler: {kind: population, population: 4, interval_epochs: 1}\n", "9: search.sampler: sampler grid does not go with a population: it draws a first generation, not all"),
    "a part that replaces what was drawn": (RATE, RATE + "\n    optimizer: {kind: choice, among: {adam: {kind: adam, learning_rate: 0.01}, sgd: {kind: sgd, learning_rate: 1.0}}}", "11: search.space.optimizer.learning_rate: 'optimizer' comes later and replaces it: put it first"),
    "two changes of one value": (RATE, "width: {kind: change, among: {one: {model.hidden_size: 4}, two: {}}}", "11: search.space.width: 'size' comes later and replaces it: put it first"),
    "a condition on what comes later": (RATE, "batch_size: {kind: integer, low: 2, high: 9, when: {head.kind: softmax}}", "11: search.space.batch_size.when.head.kind: is drawn later: 'head' must come before 'batch_size'"),
    "more starts than trials": ("size: small}]", "size: small}, {size: small}, {size: large}, {head: softmax}, {head: mixture}]", "9: search.trials: should be at least 5, for the starts, got 4"),
    "a start of what is not searched": ("head: mixture, size: small}]", "head: softmax, head.dropout: 0.1}]", "23: search.start.0.head.dropout: is not searched with the other values of this start"),
    "a start whose choice is open": ("head: mixture, size: small}]", "head.dropout: 0.1}]", "23: search.start.0.head.dropout: is not searched"),
    "a front without validation": ("  trials: 4\n", "  trials: 4\n  objectives: [parameters]\n", "10: search.objectives: should hold validation, by which the best values are chosen"),
    "a choice without its kind": (RATE, "optimizer.clip: [1, null]", "11: search.space.optimizer.clip: a list here has ranges; values to choose from are {kind: choice, among: [1, null]}"),
    "one number written twice": (RATE, "optimizer.clip: {kind: choice, among: [1, 1.0]}", "11: search.space.optimizer.clip.among: among must hold distinct values, but options '1' and '1.0' are the same"),
    "fewer trials than the first round": ("seeds: [1, 2]", "seeds: {min: 2, max: 3, until: decided, total: 4}", "24: seeds.total: the first round alone has 5: `max` of the baseline and `min` of each variant, got 4"),
    "both": ("seeds: [1, 2]", "tune: {trials: 3, space: {batch_size: {kind: integer, low: 2, high: 9}}}\nseeds: [1, 2]", "24: tune: a sweep either searches (for the base) or tunes (every variant), not both"),
}  # fmt: skip
RANGED = SEARCH.replace(
    RATE
    + """
    head:
      kind: choice
      among:
        softmax: {kind: softmax}
        mixture: {kind: mixture, experts: [0, 2]}
""",
    """head: {kind: choice, among: {softmax: {kind: softmax}, mixture: {kind: mixture, experts: [0, 2]}}}
    optimizer.learning_rate:
      - {kind: log_uniform, low: 0.1, high: 2.0, when: {head.kind: mixture}}
      - {kind: log_uniform, low: 5.0, high: 50.0, when: {head.kind: softmax}}
""",
).replace("trials: 4", "trials: 4\n  min_trials_per_option: {head: 1}")
"""A range of rates for each head; the first of its ranges stands in line 14."""
WRONG_RANGES = {
    "the same condition": ("when: {head.kind: softmax}", "when: {head.kind: mixture}", "13: search.space.optimizer.learning_rate: ranges 1 and 2 may hold for the same trial: their 'when' must give one path two values"),
    "conditions on other paths": ("when: {head.kind: softmax}", "when: {model.tied: true}", "13: search.space.optimizer.learning_rate: ranges 1 and 2 may hold for the same trial: their 'when' must give one path two values"),
    "no condition": (", when: {head.kind: softmax}", "", "13: search.space.optimizer.learning_rate: ranges 1 and 2 may hold for the same trial: their 'when' must give one path two values"),
    "a condition that never holds": ("when: {head.kind: softmax}", "when: {head.kind: ecoc}", "15: search.space.optimizer.learning_rate.1.when.head.kind: never holds: nothing before 'optimizer.learning_rate' gives 'head.kind' the value 'ecoc'"),
    "an option that the change does not have": ("when: {head.kind: softmax}", "when: {head.kind: softmax, size: small}", "15: search.space.optimizer.learning_rate.1.when.size: never holds: nothing before 'optimizer.learning_rate' gives 'size' the value 'small'"),
    "ends": ("low: 5.0, high: 50.0", "low: 50.0, high: 5.0", "15: search.space.optimizer.learning_rate.1.low: low must be below high, got 50 and 5"),
    "an end that no spec can have": ("log_uniform, low: 5.0", "uniform, low: -5.0", "15: search.space.optimizer.learning_rate.1.low: should be greater than 0, got -5.0"),
    "a key": ("low: 5.0, high: 50.0", "low: 5.0, hihg: 50.0", "15: search.space.optimizer.learning_rate.1.hihg: unknown key 'hihg' (did you mean 'high'?)"),
    "a kind that is no range": ("kind: log_uniform, low: 5.0, high: 50.0", "kind: choice, among: [1.0, 2.0]", "15: search.space.optimizer.learning_rate.1.kind: unknown kind 'choice'"),
    "one range alone": ("      - {kind: log_uniform, low: 5.0, high: 50.0, when: {head.kind: softmax}}\n", "", "13: search.space.optimizer.learning_rate: should have at least 2 items"),
    "whole numbers beside others": ("log_uniform, low: 5.0, high: 50.0", "integer, low: 5, high: 50", "13: search.space.optimizer.learning_rate: ranges of one path must be all of whole numbers (kind integer), or none of them"),
    "a start in no range": ("{optimizer.learning_rate: 1.0,", "{optimizer.learning_rate: 3.0,", "22: search.start.0.optimizer.learning_rate: should be a number from 0.1 to 2 if head.kind is 'mixture' or a number from 5 to 50 if head.kind is 'softmax', got 3.0"),
    "a start in another's range": ("{optimizer.learning_rate: 1.0,", "{optimizer.learning_rate: 7.0,", "22: search.start.0.optimizer.learning_rate: should be a number from 0.1 to 2 if head.kind is 'mixture' or a number from 5 to 50 if head.kind is 'softmax', got 7.0"),
    "a least number of a range": ("{head: 1}", "{head.dropout: 1}", "10: search.min_trials_per_option.head.dropout: should name a choice or change of the space, got 'head.dropout'"),
    "a least number of nothing": ("{head: 1}", "{sise: 1}", "10: search.min_trials_per_option.sise: should name a choice or change of the space, got 'sise' (did you mean 'size'?)"),
    "a least number of none": ("{head: 1}", "{head: 0}", "10: search.min_trials_per_option.head: should be greater than or equal to 1, got 0"),
    "fewer trials than that": ("{head: 1}", "{head: 3}", "9: search.trials: should be at least 6, for the starts and the least number of trials of every option, got 4"),
    "a least number on a grid": ("  trials: 4\n", "  trials: 4\n  sampler: {kind: grid}\n", "11: search.min_trials_per_option: min_trials_per_option does not go with sampler grid, which tries every combination once"),
    "what a start leaves out": ("  trials: 4\n", "  trials: 4\n  start_rest: bass\n", "10: search.start_rest: should be 'sampled' or 'base', got 'bass' (did you mean 'base'?)"),
}  # fmt: skip
WRONG_TUNING = {
    "epochs": (RATE, "epochs: {kind: integer, low: 1, high: 9}", "11: tune.space.epochs: tuning gives every trial the same budget: epochs are not tuned"),
    "no number of trials": ("  trials: 4\n", "", "8: tune.trials: trials must be given: every variant gets the same number"),
    "a population": ("  trials: 4\n", "  trials: 4\n  scheduler: {kind: population, population: 4, interval_epochs: 1}\n", "10: tune.scheduler: scheduler population finds schedules, not values: it goes with 'search', not with 'tune'"),
    "legs": (RATE, "legs: {kind: choice, among: {none: [], one: [{epochs: 2, optimizer: {kind: sgd, learning_rate: 1.0}}]}}", "11: tune.space.legs: tuning gives every trial the same budget: epochs are not tuned"),
    "passes of fine-tuning": (RATE, "finetune.repeats.most: {kind: integer, low: 2, high: 9}", "11: tune.space.finetune.repeats.most: tuning gives every trial the same budget: epochs are not tuned"),
    "a variant's part that replaces what was drawn": ("  trials: 4\n", "  trials: 4\n  variants: {no clip: {optimizer: {kind: choice, among: {adam: {kind: adam, learning_rate: 0.01}, sgd: {kind: sgd, learning_rate: 1.0}}}}}\n", "10: tune.variants.no clip.optimizer: replaces what 'optimizer.learning_rate' of the space, which comes first, has drawn"),
    "a variant's options and too few trials": ("  trials: 4\n", "  trials: 4\n  min_trials_per_option: {head: 1}\n  variants: {no clip: {head: {kind: choice, among: {a: {kind: softmax}, b: {kind: mixture, experts: [0, 1]}, c: {kind: mixture, experts: [0, 3]}, d: {kind: mixture, experts: [0, 4]}, mixture: {kind: mixture, experts: [0, 2]}}}}}\n", "9: tune.trials: should be at least 5, for the starts and the least number of trials of every option of 'no clip', got 4"),
    "a range of no variant": ("  trials: 4\n", "  trials: 4\n  variants: {no clp: {batch_size: {kind: integer, low: 2, high: 9}}}\n", "10: tune.variants.no clp: unknown key 'no clp' (did you mean 'no clip'?)"),
    "a range that does not fit": ("  trials: 4\n", "  trials: 4\n  variants: {no clip: {batch_size: {kind: integer, low: 0, high: 9}}}\n", "10: tune.variants.no clip.batch_size.low: should be greater than or equal to 1, got 0"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_SEARCHES)
def test_a_wrong_search_is_told_at_its_line(case: str, tmp_path: Path) -> None:
    old, new, line = WRONG_SEARCHES[case]
    assert SEARCH.count(old) == 1, old
    lines = errors_of(tmp_path, SEARCH.replace(old, new))
    assert any(error.startswith(line) for error in lines), lines


DESIGN = SEARCH.replace("seeds: [1, 2]\n", "components:\n  clip: {off: {optimizer.clip: 0.5}}\nseeds: [1, 2]\n")
"""What is found becomes the base; its component stands in line 25."""
HEAD = SEARCH[SEARCH.index("    head:") : SEARCH.index("  start:")]
WRONG_DESIGNS = {
    "a population": ("  trials: 4\n", "  scheduler: {kind: population, population: 4, interval_epochs: 1}\n", "9: search.scheduler: a population finds a schedule, which has no components to take away: use another scheduler, or put components and variants in a file of their own"),
    "an unknown budget": ("seeds: [1, 2]", "equal_budget: true\nseeds: [1, 2]", "18: search.space.size: equal_budget must know the epochs of the base before they are searched: set it to false, or do not search them"),
    "a baseline called by hand": ("base:\n", "baseline: by hand\nbase:\n", "3: baseline: the name 'by hand' is taken by the base as it was before the search"),
    "a variant called by hand": ("seeds: [1, 2]", "variants:\n  by hand: {batch_size: 9}\nseeds: [1, 2]", "27: variants.by hand: the name 'by hand' is taken by the base as it was before the search"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_DESIGNS)
def test_a_design_that_a_search_cannot_be_the_base_of_is_told_at_its_line(case: str, tmp_path: Path) -> None:
    old, new, line = WRONG_DESIGNS[case]
    text = DESIGN.replace("large: {", "large: {epochs: 5, ") if case == "an unknown budget" else DESIGN
    if case == "a population":
        text = text.replace(HEAD, "").replace(", head: mixture, size: small", "").replace("{trials: 2}", "{}")
    assert text.count(old) == 1, old
    assert line in errors_of(tmp_path, text.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("base:\n", "baseline: best found\nbase:\n", "3: baseline: "),
        ("seeds: [1, 2]", "variants: {}\nbaseline: best found\nseeds: [1, 2]", "25: baseline: "),
    ],
)
def test_what_a_search_finds_has_its_name_for_itself(old: str, new: str, line: str, tmp_path: Path) -> None:
    assert errors_of(tmp_path, SEARCH.replace(old, new)) == [
        f"{line}the name 'best found' is taken by what the search finds"
    ]
    read_text(tmp_path, DESIGN.replace("base:\n", "baseline: best found\nbase:\n"))  # there the base is what is found


def test_a_wrong_search_is_not_taken_for_a_variant_that_changes_nothing(tmp_path: Path) -> None:
    text = SEARCH.replace(
        "seeds: [1, 2]\n", "variants: {as in the file: {optimizer.learning_rate: 3.0}}\nseeds: [1, 2]\n"
    )
    read_text(tmp_path, text)  # which rate is changed, the search decides
    assert errors_of(tmp_path, text.replace("{trials: 2}", "{trials: 0}")) == [
        "27: scales.tiny.search.trials: should be greater than or equal to 1, got 0"
    ]


def test_a_variant_that_sets_a_part_of_a_named_change_needs_a_space_of_its_own(tmp_path: Path) -> None:
    text = TUNE.replace("clip: {off: {optimizer.clip: 0.5}}", "width: {off: {model.embedding_size: 4}}")
    said = (
        "variant 'no width' sets model.embedding_size, but not all that this change sets: give it a space of its own "
    )
    assert errors_of(tmp_path, text) == [f"18: tune.space.size: {said}under 'variants'"]
    own = "  variants:\n    no width: {size: {kind: change, among: {one: {}, two: {model.layers: 2}}}}\n  start:"
    read_text(tmp_path, text.replace("  start:", own))


WHOLE = "{trials: 2, space: {optimizer.learning_rate: {kind: uniform, low: 1.0, high: 2.0}}}"
PLAIN = DESIGN[: DESIGN.index("search:")] + DESIGN[DESIGN.index("components:") :]
"""Neither searches nor tunes but for what its scale has, in line 12."""


def test_a_scale_may_search_or_tune_although_the_file_does_not(tmp_path: Path) -> None:
    for word, kind in (("search", Search), ("tune", Tune)):
        sweep = read_text(tmp_path, PLAIN.replace("{search: {trials: 2}}", f"{{{word}: {WHOLE}}}"))
        assert sweep.at("paper").searching is None and not sweep.at("paper").base_is_found
        tiny = sweep.at("tiny")
        assert isinstance(tiny.searching, kind) and tiny.searching.trials == 2
        assert tiny.base_is_found == (word == "search")
        changed = read_sweep(tmp_path / "toy.yaml", Changes.read([f"{word}.trials=3"]), "tiny").at("tiny").searching
        assert changed is not None and changed.trials == 3


@pytest.mark.parametrize(
    ("scale", "line"),
    [
        ("{search: {trials: 2}}", "12: scales.tiny.search: missing key 'space'"),
        ("{tune: " + WHOLE.replace("trials: 2, ", "") + "}", "12: scales.tiny.tune.trials: trials must be given"),
        ("{tune: " + WHOLE.replace("trials", "trails") + "}", "12: scales.tiny.tune.trails: unknown key 'trails'"),
        ("{tune: " + WHOLE.replace("_rate", "_rat") + "}", "12: scales.tiny.tune.space.optimizer.learning_rat: unknown"),
        (f"{{search: {WHOLE}, tune: {WHOLE}}}", "12: scales.tiny.tune: a sweep either searches"),
    ],
)  # fmt: skip
def test_a_search_of_a_scale_alone_is_checked_whole(tmp_path: Path, scale: str, line: str) -> None:
    lines = errors_of(tmp_path, PLAIN.replace("{search: {trials: 2}}", scale))
    assert any(error.startswith(line) for error in lines), lines


@pytest.mark.parametrize("case", WRONG_TUNING)
def test_wrong_tuning_is_told_at_its_line(case: str, tmp_path: Path) -> None:
    old, new, line = WRONG_TUNING[case]
    assert TUNE.count(old) == 1, old
    lines = errors_of(tmp_path, TUNE.replace(old, new))
    assert any(error.startswith(line) for error in lines), lines


def test_a_scale_replaces_single_values(tmp_path: Path) -> None:
    search = read_text(tmp_path, SEARCH)
    assert isinstance(search.at("paper").searching, Search)
    small = search.at("tiny").searching
    assert small is not None and search.search is not None and small.trials == 2 and small.space == search.search.space


def test_a_scale_replaces_single_dimensions(tmp_path: Path) -> None:
    own = "{space: {optimizer.learning_rate: {kind: uniform, low: 1.0, high: 2.0}}}"
    sweep = read_text(tmp_path, SEARCH.replace("{trials: 2}", own))
    assert sweep.search is not None
    small = sweep.at("tiny").searching
    assert small is not None
    assert list(small.space) == list(sweep.search.space)
    assert {key for key in small.space if small.space[key] != sweep.search.space[key]} == {"optimizer.learning_rate"}


def test_tuning_is_read(tmp_path: Path) -> None:
    assert isinstance(read_text(tmp_path, TUNE).at("tiny").searching, Tune)


@pytest.mark.parametrize(("old", "new", "problem"), WRONG_RANGES.values(), ids=WRONG_RANGES)
def test_wrong_ranges_are_told_with_line_and_path(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in RANGED
    lines = errors_of(tmp_path, RANGED.replace(old, new, 1))
    assert any(line.startswith(problem) for line in lines), lines


def test_ranges_for_each_head_are_read(tmp_path: Path) -> None:
    sweep = read_text(tmp_path, RANGED)
    assert sweep.search is not None
    ranges = sweep.search.space["optimizer.learning_rate"]
    assert isinstance(ranges, tuple)
    assert [dict(one.when) for one in ranges] == [{"head.kind": "mixture"}, {"head.kind": "softmax"}]
    named = RANGED.replace("{head.kind: softmax}", "{head: softmax}").replace(
        "when: {head.kind: mix", "when: {head: mix", 1
    )
    assert read_text(tmp_path, named).search is not None, "a condition may name the option"


def test_a_condition_may_name_the_option_of_a_choice_that_has_a_condition_itself(tmp_path: Path) -> None:
    codes = "codes: {model.tied: false, head: {kind: ecoc, codebook: {kind: random, bits: 50}}}"
    space = """
    layer: {kind: change, among: {words: {}, CODES}}
    head.codebook:
      kind: choice
      among: {random: {kind: random, bits: 50}, unigram: {kind: unigram, bits: 50}}
      when: {layer: codes}
    batch_size: {kind: integer, low: 2, high: 9, when: {layer: codes, head.codebook: unigram}}
""".replace("CODES", codes)
    text = SEARCH[: SEARCH.index("  space:")] + "  space:" + space + SEARCH[SEARCH.index("seeds:") :]
    assert read_text(tmp_path, text).search is not None


def test_a_choice_that_only_another_leads_to_needs_that_one_named_too(tmp_path: Path) -> None:
    text = RANGED.replace(
        "    size:\n",
        "    head.mask: {kind: choice, among: [shared, independent], when: {head.kind: mixture}}\n    size:\n",
    )
    text = (
        text.replace("trials: 4", "trials: 9")
        .replace("{trials: 2}", "{trials: 9}")
        .replace("{head: 1}", "{head.mask: 2}")
    )
    (first, second) = errors_of(tmp_path, text)
    assert "no trial has the option 'shared' if all else is as in the base: name the choice that leads" in first
    assert "'independent'" in second
    assert read_text(tmp_path, text.replace("{head.mask: 2}", "{head: 1, head.mask: 2}")).search is not None


def test_a_population_changes_what_its_named_changes_set_not_what_they_are_called(tmp_path: Path) -> None:
    text = SEARCH.replace(HEAD, "").replace(", head: mixture, size: small", "").replace("{trials: 2}", "{}")
    text = text.replace("  trials: 4\n", "  scheduler: {kind: population, population: 4, interval_epochs: 1}\n")
    change = "NAME: {kind: change, among: {one: {PATH: 0.1}, two: {PATH: 0.4}}}"
    named = text.replace(
        RATE, RATE + "\n    " + change.replace("NAME", "regularization").replace("PATH", "dropout.output")
    )
    assert read_text(tmp_path, named).search is not None
    other = text.replace(
        RATE, RATE + "\n    " + change.replace("NAME", "dropout.x").replace("PATH", "model.init_range")
    )
    (line,) = errors_of(tmp_path, other)
    assert "search.space.dropout.x: a population changes values in mid-training" in line


def test_what_a_variants_own_range_cannot_give_is_left_out_of_its_start(tmp_path: Path) -> None:
    clip = "    optimizer.clip: {kind: choice, among: [null, 0.5]}\n  start: [{optimizer.clip: null}]\n"
    own = "  variants: {no width: {optimizer.clip: {kind: uniform, low: 0.1, high: 0.5}}}\n"
    text = TUNE[: TUNE.index("    head:")] + clip + own + TUNE[TUNE.index("components:") :]
    text = text.replace("clip: {off: {optimizer.clip: 0.5}}", "width: {off: {model.embedding_size: 4}}")
    full, width = search_tasks(read_text(tmp_path, text).at("paper"))
    assert full.starts() == [{"optimizer.clip": "null"}]
    for sampler in (RandomSampler(kind="random"), TpeSampler(kind="tpe")):
        values = Study(replace(width, searching=width.searching.model_copy(update={"sampler": sampler}))).next_values()
        assert 0.1 <= values["optimizer.clip"] <= 0.5


def test_a_number_of_a_start_is_the_option_of_that_value(tmp_path: Path) -> None:
    clip = "    optimizer.clip: {kind: choice, among: [1.0, 0.5]}\n  start: [{optimizer.clip: 1}]\n"
    text = SEARCH[: SEARCH.index("    head:")] + clip + SEARCH[SEARCH.index("seeds:") :]
    (task,) = search_tasks(read_text(tmp_path, text).at("paper"))
    assert task.starts() == [{"optimizer.clip": "1.0"}]


def test_no_trial_is_stopped_early_unless_the_file_asks_for_it(tmp_path: Path) -> None:
    search, tune = read_text(tmp_path, SEARCH).search, read_text(tmp_path, TUNE).tune
    assert search is not None and search.scheduler is None
    assert tune is not None and tune.scheduler is None


def test_a_misspelt_option_does_not_make_the_rest_of_its_start_look_wrong(tmp_path: Path) -> None:
    assert errors_of(tmp_path, RANGED.replace("head: mixture, size", "head: mixtur, size")) == [
        "22: search.start.0.head: should be one of softmax, mixture, got 'mixtur' (did you mean 'mixture'?)"
    ]
