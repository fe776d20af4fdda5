"""What is trained first, and the page that stands before the end."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from orchestrator.agenda.expand import SweepState
from orchestrator.agenda.trial_source import first_compared, in_order
from orchestrator.api import load_sweep
from orchestrator.execute.pages import Interim
from orchestrator.report.files.folder import Report
from orchestrator.trials.plan import plan
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from orchestrator.watch.progress import Listeners
from tests.support.factories import CACHE, make_trial, settle


def table(*seeds: int) -> list[Trial]:
    """A cache, another budget and a fair variant, planned seed by seed as `plan` does."""
    return [
        trial
        for seed in seeds
        for trial in (
            make_trial("full", seed),
            make_trial("neural cache", seed, cache=CACHE),
            make_trial("no fine-tuning", seed, finetune=None),
            make_trial("smaller batch", seed, batch_size=10),
            make_trial("more epochs", seed, epochs=20),
            make_trial("larger batch", seed, batch_size=40),
        )
    ]


def names(trials: list[Trial]) -> list[str]:
    return [f"{trial.variant} {trial.seed}" for trial in trials]


def test_the_baseline_and_the_first_fair_variant_come_first_seed_by_seed() -> None:
    trials = table(1, 2)
    assert first_compared(trials) == "smaller batch"
    ordered = names(in_order(trials, trials))
    assert ordered[:4] == ["full 1", "smaller batch 1", "full 2", "smaller batch 2"]
    assert ordered[4:6] == ["more epochs 1", "more epochs 2"], "the longest of the others come next"
    assert ordered[-2:] == ["no fine-tuning 1", "no fine-tuning 2"]
    assert sorted(ordered) == sorted(names(trials))


def test_what_is_done_already_changes_the_order_of_nothing_else() -> None:
    trials = table(1, 2)
    assert names(in_order(trials[1:], trials)) == names(in_order(trials, trials))[1:]


def test_without_a_fair_variant_it_is_the_first_that_has_an_interval() -> None:
    trials = [trial for trial in table(1) if trial.variant in ("full", "neural cache", "more epochs")]
    assert first_compared(trials) == "more epochs"
    assert first_compared(trials[:2]) is None
    assert names(in_order(trials[:2], trials[:2])) == ["full 1", "neural cache 1"]
    assert in_order([], []) == []


def test_the_readmes_first_command_begins_with_a_component_that_is_compared() -> None:
    trials = plan(load_sweep("sweeps/awd_ablation.yaml", "laptop"))
    assert first_compared(trials) == "no variable sequence lengths"


class Page:
    """Written pages as sets of whole variants, and what was said."""

    def __init__(self, runs: Path, trials: list[Trial], changes: dict[str, str]) -> None:
        self.runs, self.trials, self.changes = runs, trials, changes
        self.written, self.said = 0, list[str]()
        self.interim = Interim(
            lambda: SweepState((), trials), self.write, Records(runs), self.said.append, rest=0.0, quiet_seconds=0.0
        )

    def write(self, now: SweepState) -> Report:
        assert now.trials == self.trials
        self.written += 1
        return Report(Path("reports/toy/paper/report.md"), "", {}, changes=self.changes)

    def settled(self, trial: Trial, status: str = "complete") -> bool:
        """Whether a page was written for it."""
        before = self.written
        settle(self.runs, trial, 80.0, status=status)
        self.interim.settled(trial, Records(self.runs).find(trial))
        return self.written > before


@pytest.fixture
def page(tmp_path: Path) -> Page:
    trials = [trial for trial in table(1, 2) if trial.variant in ("full", "smaller batch", "larger batch")]
    return Page(tmp_path, trials, {"smaller batch": "+2.0% [+1.0%, +3.0%]"})


def test_the_page_is_written_when_the_first_comparison_stands_and_with_every_other(page: Page) -> None:
    full, smaller, larger = page.trials[:3]
    full_2, smaller_2, larger_2 = page.trials[3:]
    assert [page.settled(trial) for trial in (larger, full, smaller, smaller_2)] == [False] * 4
    assert page.settled(full_2)
    line = "first comparison: smaller batch: test perplexity +2.0% [+1.0%, +3.0%]; reports/toy/paper/report.md"
    assert page.said == [line]
    assert not page.settled(larger_2), "the page at the end comes now"


def test_a_failed_trial_makes_no_variant_whole_and_the_last_trial_no_page(page: Page) -> None:
    first, *others = [page.trials[n] for n in (1, 0, 3, 4)]
    assert not page.settled(first, "failed")
    assert [page.settled(trial) for trial in others] == [False] * 3
    assert page.settled(first, "diverged"), "nothing more will come of it"
    assert [page.settled(trial) for trial in (page.trials[2], page.trials[5])] == [False] * 2


def test_a_page_that_cannot_be_written_is_reported_once_and_stops_nothing(
    page: Page, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(state: SweepState) -> Report:
        raise OSError("the disk is full")

    interim = Interim(
        lambda: SweepState((), page.trials), fails, Records(page.runs), page.said.append, rest=0.0, quiet_seconds=0.0
    )
    listeners = Listeners(interim)
    for trial in page.trials[:5]:
        settle(page.runs, trial, 80.0)
        listeners.settled(trial, Records(page.runs).find(trial))
    assert [entry.getMessage() for entry in caplog.records] == ["Interim: OSError: the disk is full"]


def test_a_sweep_of_seconds_has_its_page_at_the_end_alone(page: Page) -> None:
    state = SweepState((), page.trials)
    page.interim = Interim(lambda: state, page.write, Records(page.runs), page.said.append, rest=0.0, quiet_seconds=1e6)
    assert [page.settled(page.trials[n]) for n in (0, 3, 1, 4)] == [False] * 4


@pytest.mark.parametrize("rest", [0.0, 1e6])
def test_after_a_page_comes_a_rest_and_none_after_a_look_that_wrote_none(page: Page, rest: float) -> None:
    trials = [*page.trials, make_trial("more epochs", 1, epochs=20)]
    page.trials = trials
    page.interim = Interim(
        lambda: SweepState((), trials), page.write, Records(page.runs), page.said.append, rest=rest, quiet_seconds=0.0
    )
    assert [page.settled(trials[n]) for n in (0, 3, 1)] == [False] * 3
    assert page.settled(trials[4])
    settle(page.runs, trials[2], 80.0)
    assert page.settled(trials[5]) is (rest == 0.0)


def test_trials_of_a_search_write_no_page(page: Page) -> None:
    for trial in page.trials[:5]:
        settle(page.runs, trial, 80.0)
    record = Records(page.runs).find(page.trials[0])
    page.interim.settled(dataclasses.replace(page.trials[0], number=3), record)
    page.interim.settled(page.trials[0], None)
    assert page.written == 0
    page.interim.settled(page.trials[0], record)
    assert page.written == 1
