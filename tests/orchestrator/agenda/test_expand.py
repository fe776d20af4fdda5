"""What a sweep that searches consists of, before and after its searches are over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.agenda.expand import Remaining, SweepState, expand, search_tasks, trials_to_train, what_is_left
from orchestrator.api import set_trials_aside, to_train
from orchestrator.errors import CannotStartError
from orchestrator.execute.estimate import most_trials
from orchestrator.execute.run import Options, ending, prepare
from orchestrator.sweep.scaled import BEST_FOUND, select
from orchestrator.trials.plan import plan, state_of
from orchestrator.trials.records import Records
from tests.support import tracking
from tests.support.factories import make_trial, settle
from tests.support.found import BASE, SEARCH, TUNE, at_paper, find, within
from tests.support.sweep_texts import read_text


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path / "runs")


def test_a_search_comes_first_and_its_trials_leave_test_closed(tmp_path: Path, records: Records) -> None:
    sweep = at_paper(tmp_path, SEARCH)
    now = expand(sweep, records)
    assert now.waiting
    assert {trial.variant for trial in now.trials} == {"full"}
    first = trials_to_train(sweep, records).next()
    assert first is not None
    assert (first.variant, first.seed, first.number, first.opens_test) == (BEST_FOUND, 0, 0, False)


def test_what_a_search_found_is_trained_on_the_seeds_beside_the_base(tmp_path: Path, records: Records) -> None:
    sweep = at_paper(tmp_path, SEARCH)
    (task,) = search_tasks(sweep)
    find(records, task, ({"optimizer.learning_rate": 5.0}, 4.0), ({"optimizer.learning_rate": 7.0}, 3.9))
    now = expand(sweep, records)
    assert not now.waiting
    rates = {(trial.variant, trial.seed): trial.spec.optimizer.learning_rate for trial in now.trials}
    assert rates == {("full", 1): 3.0, ("full", 2): 3.0, (BEST_FOUND, 1): 7.0, (BEST_FOUND, 2): 7.0}
    assert all(trial.opens_test for trial in now.trials)


def test_a_start_takes_the_options_true_and_false_without_quotes(tmp_path: Path) -> None:
    space = "    model.tied: {kind: choice, among: {true: true, false: false}}\n  start: [{model.tied: true}]\n"
    (task,) = search_tasks(at_paper(tmp_path, SEARCH.replace("seeds:", f"{space}seeds:")))
    assert [start["model.tied"] for start in task.starts()] == ["true"]


def test_only_as_many_trials_count_as_the_sweep_wants(tmp_path: Path, records: Records) -> None:
    """Another sweep of the same task may have searched on, which would be a larger budget than the others have."""
    sweep = at_paper(tmp_path, SEARCH)
    (task,) = search_tasks(sweep)
    values = [{"optimizer.learning_rate": rate} for rate in (5.0, 7.0, 9.0)]
    find(records, task, (values[0], 4.0), (values[1], 3.9), (values[2], 3.8))
    (searched,) = expand(sweep, records).searches
    assert searched.ended and len(searched.trials) == 2
    assert searched.best is not None and searched.best.values == values[1]


def test_without_a_complete_trial_there_is_nothing_found(tmp_path: Path, records: Records) -> None:
    sweep = at_paper(tmp_path, SEARCH)
    (task,) = search_tasks(sweep)
    find(records, task, ({"optimizer.learning_rate": 5.0}, None), ({"optimizer.learning_rate": 7.0}, None))
    now = expand(sweep, records)
    assert {trial.variant for trial in now.trials} == {"full"}
    assert ending(SweepState(now.searches, []), records) == "failed"


def test_what_a_variant_is_about_is_not_tuned_for_it(tmp_path: Path) -> None:
    tasks = {task.variant: task for task in search_tasks(at_paper(tmp_path, TUNE))}
    assert {name: task.fixed for name, task in tasks.items()} == {
        "full": (),
        "no weight-dropping": ("dropout.weight",),
        "no AR": ("penalties.activation",),
        "Adam": (),
    }
    assert tasks["Adam"].space["optimizer.learning_rate"].model_dump()["low"] == 0.0001
    assert tasks["full"].space["optimizer.learning_rate"].model_dump()["low"] == 0.1
    assert len({task.searching.trials for task in tasks.values()}) == 1


def test_a_variant_trained_for_as_many_epochs_is_tuned_as_the_variant_itself(tmp_path: Path) -> None:
    text = TUNE.replace("learning_rate: 0.001}}", "learning_rate: 0.001}, epochs: 1}") + "equal_budget: true\n"
    tasks = {task.variant: task for task in search_tasks(at_paper(tmp_path, text))}
    adam, control = tasks["Adam"], tasks["Adam (as many epochs)"]
    assert (control.space, control.fixed) == (adam.space, adam.fixed)
    assert control.base.epochs == tasks["full"].base.epochs > adam.base.epochs == 1


def test_a_named_change_is_not_tuned_for_a_variant_that_takes_away_what_it_sets(tmp_path: Path) -> None:
    amount = "{kind: change, among: {less: {dropout.weight: 0.1}, more: {dropout.weight: 0.6}}}"
    text = TUNE.replace("dropout.weight: {kind: uniform, low: 0.0, high: 0.6}", f"amount: {amount}")
    tasks = {task.variant: task for task in search_tasks(at_paper(tmp_path, text))}
    assert tasks["no weight-dropping"].fixed == ("amount",)
    assert tasks["full"].fixed == tasks["Adam"].fixed == ()


def test_every_variant_is_compared_at_its_own_best_values(tmp_path: Path, records: Records) -> None:
    sweep = at_paper(tmp_path, TUNE)
    for i, task in enumerate(search_tasks(sweep)):
        assert expand(sweep, records).waiting
        rate = 0.002 if task.variant == "Adam" else 0.5 + i
        wanted = {"optimizer.learning_rate": rate, "dropout.weight": 0.1, "penalties.activation": 1.0}
        values = {key: wanted[key] for key in task.space}
        find(records, task, (values, 4.0), (values, None))
    trials = {trial.variant: trial for trial in expand(sweep, records).trials if trial.seed == 1}
    assert {name: trial.spec.optimizer.learning_rate for name, trial in trials.items()} == {
        "full": 0.5, "no weight-dropping": 1.5, "no AR": 2.5, "Adam": 0.002,
    }  # fmt: skip
    assert {name: trial.spec.dropout.weight for name, trial in trials.items()} == {
        "full": 0.1, "no weight-dropping": 0.0, "no AR": 0.1, "Adam": 0.1,
    }  # fmt: skip
    assert trials["no AR"].spec.penalties is None
    assert trials["full"].change == "the base itself, at its tuned values"


def test_variants_whose_tuning_is_over_are_there_while_others_wait(tmp_path: Path, records: Records) -> None:
    """As after `--only`, whose report is of the whole sweep."""
    sweep = at_paper(tmp_path, TUNE)
    tasks = {task.variant: task for task in search_tasks(sweep)}
    values = {"optimizer.learning_rate": 5.0, "dropout.weight": 0.1, "penalties.activation": 1.0}
    adam = values | {"optimizer.learning_rate": 0.002}
    find(records, tasks["Adam"], (adam, 4.0), (adam | {"dropout.weight": 0.3}, None))
    assert {trial.variant for trial in expand(sweep, records).trials} == {"full"}, "nothing to compare with yet"
    find(records, tasks["full"], (values, 4.0), (values | {"dropout.weight": 0.3}, None))
    now = expand(sweep, records)
    assert now.waiting
    rates = {trial.variant: trial.spec.optimizer.learning_rate for trial in now.trials}
    assert rates == {"full": 5.0, "Adam": 0.002}
    assert not expand(select(sweep, ["Adam"]), records).waiting


def test_without_the_search_the_base_alone_is_run(tmp_path: Path, records: Records) -> None:
    sweep = at_paper(tmp_path, SEARCH)
    assert not expand(select(sweep, ["full"]), records).waiting
    assert expand(select(sweep, [BEST_FOUND]), records).waiting
    with pytest.raises(CannotStartError, match="did you mean 'best found'"):
        select(sweep, ["best fund"])


def test_what_would_be_trained_names_the_searches_and_not_what_waits_for_them(tmp_path: Path, records: Records) -> None:
    tune, search = at_paper(tmp_path, TUNE), at_paper(tmp_path, SEARCH)
    trials, searches = to_train(tune, records)
    assert not trials, "no variant is trained at the values of the file"
    assert [searched.task.variant for searched in searches] == ["full", "no weight-dropping", "no AR", "Adam"]
    find(
        records,
        search_tasks(search)[0],
        ({"optimizer.learning_rate": 5.0}, 4.0),
        ({"optimizer.learning_rate": 7.0}, 3.9),
    )
    trials, searches = to_train(search, records)
    assert [(trial.variant, trial.seed) for trial, _ in trials] == [
        ("full", 1),
        (BEST_FOUND, 1),
        ("full", 2),
        (BEST_FOUND, 2),
    ]
    assert not searches
    trials, searches = to_train(search, records, fresh=True)
    assert [(trial.variant, trial.seed) for trial, _ in trials] == [("full", 1), ("full", 2)]
    assert [len(searched.trials) for searched in searches] == [0]


def test_a_grid_that_ends_sooner_for_one_variant_is_refused(tmp_path: Path) -> None:
    """Two points of three values, and of two where a component takes one away: 8 trials against 4."""
    text = TUNE.replace("  trials: 2\n", "  trials: 6\n  sampler: {kind: grid, points: 2}\n")
    with pytest.raises(CannotStartError, match=r"the grid of 'no .*' ends after 4 .* get 6;"):
        search_tasks(read_text(tmp_path, text).at("paper"))
    assert len(search_tasks(read_text(tmp_path, text.replace("trials: 6", "trials: 4")).at("paper"))) == 4


def test_what_is_left_counts_search_trials_and_then_those_of_the_table(tmp_path: Path, records: Records) -> None:
    """Four variants with two trials of tuning each, then two seeds each; none is trained with the file's values."""
    sweep = at_paper(tmp_path, TUNE)
    now = expand(sweep, records)
    assert now.trials and not now.table
    assert what_is_left(sweep, now, records) == Remaining(8, 8, 8)
    full, *others = search_tasks(sweep)
    find(records, full, (within(full), 4.0))
    assert what_is_left(sweep, expand(sweep, records), records) == Remaining(7, 8, 8)
    for task in others:
        find(records, task, (within(task), 4.0), (within(task, 0.7), None))
    assert what_is_left(sweep, expand(sweep, records), records) == Remaining(1, 8, 8)


def test_what_is_left_of_a_finished_tuning_is_nothing(tmp_path: Path, records: Records) -> None:
    sweep = at_paper(tmp_path, TUNE)
    for task in search_tasks(sweep):
        find(records, task, (within(task), 4.0), (within(task, 0.7), None))
    now = expand(sweep, records)
    assert what_is_left(sweep, now, records) == Remaining(0, 8, 8)
    for trial in now.trials:
        settle(records.root, trial, 100.0)
    left = what_is_left(sweep, expand(sweep, records), records)
    assert left == Remaining(0, 0, 0) and left.nothing


def test_what_is_left_of_a_search_has_the_base_and_what_it_finds(tmp_path: Path, records: Records) -> None:
    sweep = at_paper(tmp_path, SEARCH)
    assert what_is_left(sweep, expand(sweep, records), records) == Remaining(2, 4, 4)
    settle(records.root, expand(sweep, records).table[0], 100.0)
    assert what_is_left(sweep, expand(sweep, records), records) == Remaining(2, 3, 3)
    until = at_paper(tmp_path, SEARCH.replace("seeds: [1, 2]", "seeds: {min: 2, max: 5, until: decided}"))
    assert what_is_left(until, expand(until, records), records) == Remaining(2, 6, 9)
    hours = at_paper(tmp_path, SEARCH.replace("trials: 2", "training_hours: 1.0"))
    assert what_is_left(hours, expand(hours, records), records).search_trials is None
    grid = at_paper(
        tmp_path, SEARCH.replace("trials: 2", "start: [{optimizer.learning_rate: 2.0}]").replace("random", "grid")
    )
    assert what_is_left(grid, expand(grid, records), records).search_trials == 1 + 3
    more = at_paper(tmp_path, SEARCH.replace("trials: 2", "trials: 100").replace("random", "grid"))
    assert what_is_left(more, expand(more, records), records).search_trials == 3, "a grid has no more points"


def test_what_is_left_counts_the_seeds_of_later_looks(tmp_path: Path, records: Records) -> None:
    text = BASE + "variants: {half: {model.embedding_size: 3}}\nseeds: {min: 2, max: 5, until: decided%s}\n"
    sweep = at_paper(tmp_path, text % "")
    now = expand(sweep, records)
    assert what_is_left(sweep, now, records) == Remaining(0, 5 + 2, 5 + 5)
    assert len(most_trials(sweep, now)) == 10 and len({trial.key for trial in most_trials(sweep, now)}) == 10
    capped = at_paper(tmp_path, text % ", total: 9")
    assert what_is_left(capped, expand(capped, records), records) == Remaining(0, 7, 9)
    for trial in most_trials(sweep, now):
        settle(records.root, trial, 90.0 if trial.variant == "half" else 100.0)
    assert what_is_left(sweep, expand(sweep, records), records).nothing


def test_what_a_search_will_find_is_estimated_for_the_seeds_of_a_variant(tmp_path: Path, records: Records) -> None:
    sweep = at_paper(tmp_path, SEARCH.replace("seeds: [1, 2]", "seeds: {baseline: 6, variants: 3}"))
    trials = most_trials(sweep, expand(sweep, records))
    assert sum(trial.variant == BEST_FOUND for trial in trials) == 3
    assert len(trials) == 2 + 6 + 3


def test_a_variant_that_is_being_tuned_is_estimated_as_new(tmp_path: Path, records: Records) -> None:
    """Records with the values of the file, as another sweep may have left, do not count for the tuned ones."""
    sweep = at_paper(tmp_path, TUNE)
    for trial in plan(sweep):
        settle(records.root, trial, 100.0)
    trials = most_trials(sweep, expand(sweep, records))
    assert len(trials) == 8 + 8
    assert {state_of(trial, records) for trial in trials} == {"new"}


def test_fresh_leaves_alone_what_the_tuning_does_not_train(tmp_path: Path, records: Records) -> None:
    sweep = at_paper(tmp_path, TUNE)
    placeholder = expand(sweep, records).trials[0]
    settle(records.root, placeholder, 100.0)
    options = Options(tmp_path / "toy.yaml", runs=records.root, reports=tmp_path / "reports", executor="inline")
    set_trials_aside(prepare(sweep, options, fresh=True).state, records.root)
    assert records.find(placeholder) is not None


def test_what_fresh_was_to_train_is_not_found_inside_another_trial_by_the_next_command(records: Records) -> None:
    """As after Ctrl-C."""
    short, longer = tracking.trial("full"), tracking.trial("full", finetune=2)
    tracking.leave(records, longer, tracking.record(longer))
    assert records.find(short) is not None
    set_trials_aside(SweepState((), [short]), records.root)
    assert records.find(short) is None and state_of(short, records) == "new"
    set_trials_aside(SweepState((), [short]), records.root)
    assert not (records.root / ".old").exists(), "there was nothing to move"
    tracking.leave(records, short, tracking.record(short))
    assert records.find(short) is not None


def test_fresh_moves_what_a_trial_left_that_is_read_from_another(records: Records) -> None:
    """Of a sweep whose base it is; else the table would have the old number beside new ones."""
    full, bare = make_trial(), make_trial("no fine-tuning", finetune=None)
    settle(records.root, bare, 123.0)
    settle(records.root, full, 100.0)
    read = replace(bare, reads_from=full.key)
    set_trials_aside(SweepState((), [full, read]), records.root)
    assert [records.find(trial) for trial in (full, read)] == [None, None]
    settle(records.root, full, 100.0)
    whole = records.read(full.key)
    assert whole is not None and records.find(read) == whole.through(bare.key)


def test_a_trial_that_failed_is_not_tried_again_by_the_same_command(tmp_path: Path, records: Records) -> None:
    sweep = at_paper(tmp_path, f"{BASE}seeds: [1, 2]\n")
    running = trials_to_train(sweep, records)
    for _ in range(2):
        trial = running.next()
        assert trial is not None
        settle(records.root, trial, 100.0, status="failed")
        running.settled(trial, records.find(trial))
    assert running.next() is None
    assert trials_to_train(sweep, records).next() is not None, "the next command tries it again"


def test_a_search_whose_trial_left_no_record_ends_the_command(tmp_path: Path, records: Records) -> None:
    """As where a worker was lost: the next command tries it again, and this one does not begin the table without it."""
    sweep = at_paper(tmp_path, SEARCH)
    running = trials_to_train(sweep, records)
    for _ in range(2):
        trial = running.next()
        assert trial is not None and trial.number is not None
        running.settled(trial, None)
    assert running.next() is None
    assert expand(sweep, records).waiting
