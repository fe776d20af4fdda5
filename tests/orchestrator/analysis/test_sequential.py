"""Who gets more seeds, and that asking so often does not raise the error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from orchestrator.agenda.expand import trials_by_look
from orchestrator.analysis.comparison import compare_variants
from orchestrator.analysis.looks import Looks
from orchestrator.analysis.outcomes import read_outcomes
from orchestrator.sweep import ScaledSweep
from orchestrator.sweep.designs import UntilDecided
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from tests.support.factories import CORPUS, settle
from tests.support.sweep_texts import read_text

TEXT = """\
name: toy
question: Does it matter?
base:
  corpus: {name: pydoc}
  model: {layers: 1, embedding_size: 8, hidden_size: 8}
  dropout: {weight: 0.5, input: 0.4}
  optimizer: {kind: sgd, learning_rate: 3.0}
  epochs: 4
components:
  weight-dropping: {off: {dropout.weight: 0.0}}
  input dropout: {off: {dropout.input: 0.0}}
seeds: {min: 2, max: 6, until: decided}
margin: 1.0e-5
"""
Means = Mapping[str, float]


@pytest.fixture
def toy(tmp_path: Path) -> ScaledSweep:
    return read_text(tmp_path, TEXT).at("paper")


def finish(runs: Path, trials: list[Trial], means: Means, already: set[str], status: Mapping[str, str]) -> None:
    """Settle what has no record: the variant's mean, and a noise of a tenth of a percent that only the seed decides."""
    for trial in trials:
        if trial.key not in already:
            noise = np.random.default_rng([trial.seed, len(trial.variant)]).normal(0, 0.1)
            settle(runs, trial, means[trial.variant] + noise, status=status.get(trial.variant, "complete"))
            already.add(trial.key)


def run(runs: Path, sweep: ScaledSweep, means: Means, **status: str) -> Counter[str]:
    """Round after round until nothing is missing: how many seeds each variant got."""
    settled: set[str] = set()
    trials: list[Trial] = []
    while (now := trials_by_look(sweep, Records(runs), Looks(sweep.looks))) != trials:
        trials = now
        finish(runs, trials, means, settled, status)
    return Counter(trial.variant for trial in trials)


FAR = {"full": 100.0, "no weight-dropping": 150.0, "no input dropout": 140.0}
ONE_CLOSE = FAR | {"no input dropout": 100.0}


def test_rounds_grow_by_half() -> None:
    assert UntilDecided(min=2, max=13, until="decided").looks == (2, 3, 4, 6, 9, 13)
    assert UntilDecided(min=3, max=3, until="decided").looks == (3,)


def test_what_is_decided_early_gets_no_more_seeds_and_the_baseline_has_all_at_once(
    toy: ScaledSweep, tmp_path: Path
) -> None:
    assert run(tmp_path / "runs", toy, FAR) == {"full": 6, "no weight-dropping": 2, "no input dropout": 3}


def test_seeds_go_to_the_undecided_and_the_baseline(toy: ScaledSweep, tmp_path: Path) -> None:
    got = run(tmp_path / "runs", toy, ONE_CLOSE)
    assert got == {"full": 6, "no weight-dropping": 2, "no input dropout": 6}


def test_what_surely_has_no_larger_effect_than_the_margin_is_decided(tmp_path: Path) -> None:
    toy = read_text(tmp_path, TEXT.replace("1.0e-5", "0.05")).at("paper")
    assert run(tmp_path / "runs", toy, ONE_CLOSE) == {"full": 6, "no weight-dropping": 2, "no input dropout": 3}


def test_no_round_begins_beyond_the_total(tmp_path: Path) -> None:
    few = read_text(tmp_path, TEXT.replace("until: decided", "until: decided, total: 11")).at("paper")
    assert sum(run(tmp_path / "runs", few, ONE_CLOSE).values()) == 11  # the next look would make 12


@pytest.mark.parametrize("status", ["diverged", "failed"])
def test_a_variant_that_does_not_complete_gets_no_more_seeds(toy: ScaledSweep, tmp_path: Path, status: str) -> None:
    got = run(tmp_path / "runs", toy, ONE_CLOSE, **{"no input dropout": status})
    assert got["no input dropout"] == 2


def test_another_budget_gets_no_verdict_and_so_no_more_seeds(tmp_path: Path) -> None:
    shorter = read_text(tmp_path, TEXT.replace("seeds:", "variants: {shorter: {epochs: 3}}\nseeds:")).at("paper")
    got = run(tmp_path / "runs", shorter, ONE_CLOSE | {"shorter": 100.0})
    assert got == {"full": 6, "no weight-dropping": 2, "no input dropout": 6, "shorter": 2}


def test_a_round_begins_that_makes_no_more_than_the_total(tmp_path: Path) -> None:
    enough = read_text(tmp_path, TEXT.replace("until: decided", "until: decided, total: 14")).at("paper")
    assert sum(run(tmp_path / "runs", enough, ONE_CLOSE).values()) == 14


def test_every_look_has_its_share_of_the_error(toy: ScaledSweep, tmp_path: Path) -> None:
    """Two seeds of a difference that one look of four does not decide, and that one look alone would."""
    runs = tmp_path / "runs"
    trials = trials_by_look(toy, Records(runs), Looks(toy.looks))
    means = {"full": 100.0, "no weight-dropping": 101.05, "no input dropout": 150.0}
    for trial in trials:
        settle(runs, trial, means[trial.variant] + 0.1 * trial.seed)
    outcomes = read_outcomes(trials, Records(runs), "full")
    once = compare_variants(outcomes, Looks((2,)).error(2), toy.margin)
    share = compare_variants(outcomes, Looks(toy.looks).error(2), toy.margin)
    assert once is not None and share is not None
    assert once.level == 0.95 and share.level == pytest.approx(1 - 0.05 * 2**6 / (2**6 + 3**6 + 4**6 + 6**6))
    verdicts = [found.effects["no weight-dropping"].verdict for found in (once, share)]
    assert verdicts == ["raises", "not decided"]
    assert (
        Counter(trial.variant for trial in trials_by_look(toy, Records(runs), Looks(toy.looks)))["no weight-dropping"]
        == 3
    )


def test_a_variant_that_did_not_train_gets_no_more_seeds(toy: ScaledSweep, tmp_path: Path) -> None:
    got = run(tmp_path / "runs", toy, ONE_CLOSE | {"no weight-dropping": 6_100.0})
    assert got == {"full": 6, "no weight-dropping": 2, "no input dropout": 6}
    failed = run(tmp_path / "failed", toy, dict.fromkeys(FAR, 100.0) | {"full": 6_100.0})
    assert failed == {"full": 6, "no weight-dropping": 2, "no input dropout": 2}


def test_a_variant_scored_on_another_text_gets_no_more_seeds(toy: ScaledSweep, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    trials = trials_by_look(toy, Records(runs), Looks(toy.looks))
    finish(runs, trials, ONE_CLOSE, set(), {})
    for trial in trials:
        if trial.variant == "no input dropout":
            settle(runs, trial, 100.0 + trial.seed / 10, corpus=CORPUS.model_copy(update={"fingerprint": "f" * 64}))
    assert trials_by_look(toy, Records(runs), Looks(toy.looks)) == trials


def test_a_round_under_way_is_not_judged(toy: ScaledSweep, tmp_path: Path) -> None:
    first = trials_by_look(toy, Records(tmp_path / "runs"), Looks(toy.looks))
    finish(tmp_path / "runs", first[:-1], ONE_CLOSE, set(), {})
    assert trials_by_look(toy, Records(tmp_path / "runs"), Looks(toy.looks)) == first
