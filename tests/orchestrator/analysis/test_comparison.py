"""Who may be compared: every reason, and that whatever compares variants follows it."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lm.record import CorpusFacts, write_record
from orchestrator.analysis.comparison import compare_variants, detectable, losses_on_test, obstacles
from orchestrator.analysis.effects import Obstacle
from orchestrator.analysis.outcomes import Outcomes, read_outcomes
from orchestrator.report.files.folder import read_summary
from orchestrator.report.sections.differences import where_table
from orchestrator.report.sections.interactions import interaction_section
from orchestrator.report.sections.tables import other_budgets
from orchestrator.report.sections.verdicts import why_no_verdict
from orchestrator.sweep.designs import Ablation
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from orchestrator.watch.mlflow.store import findings
from tests.support.factories import CACHE, CORPUS, make_record, make_trial, settle, write_tokens
from tests.support.pages import NoArtist, answer, render, write

ABLATION = Ablation("pairs", ("A", "B"))
MEANS = {"full": 60.0, "no A": 66.0, "no B": 63.0, "no A + no B": 75.0}
MEASURED = CORPUS.model_copy(update={"unigram_nats": {"valid": math.log(720.0), "test": math.log(700.0)}})
ELSEWHERE = MEASURED.model_copy(update={"fingerprint": "f" * 64})


def trials_of(**changes: dict[str, object]) -> list[Trial]:
    """Three seeds of each variant of the design; `changes` are to the specs of single variants."""
    found = []
    for k, variant in enumerate(MEANS):
        own = changes.get(variant, {})
        found += [make_trial(variant, seed, **{"batch_size": 20 + k, **own}) for seed in (1, 2, 3)]
    return found


def settled(runs: Path, variant: str, trials: list[Trial] | None = None, **how: object) -> list[Trial]:
    """All trials with records and losses by token; seed 2 of `variant` is settled as `how` says."""
    trials = trials or trials_of()
    for trial in trials:
        test = MEANS[trial.variant] + trial.seed / 10
        odd = {"corpus": MEASURED, "test": test, **(how if (trial.variant, trial.seed) == (variant, 2) else {})}
        settle(runs, trial, odd.pop("test"), **odd)  # type: ignore[arg-type]
        write_tokens(runs, trial, harder=test / 100)
    return trials


def diverged(runs: Path) -> list[Trial]:
    return settled(runs, "no A", status="diverged", reason="not finite")


def untrained(runs: Path) -> list[Trial]:
    return settled(runs, "no A", test=800.0)


def elsewhere(runs: Path) -> list[Trial]:
    trials = settled(runs, "")
    for trial in trials:
        if trial.variant == "no A":
            settle(runs, trial, 66.0 + trial.seed / 10, corpus=ELSEWHERE)
    return trials


def adaptive(runs: Path) -> list[Trial]:
    return settled(runs, "", trials_of(**{"no A": {"cache": CACHE}}))


def shorter(runs: Path) -> list[Trial]:
    return settled(runs, "", trials_of(**{"no A": {"epochs": 6}}))


Settle = Callable[[Path], list[Trial]]
BARRED: dict[Settle, tuple[str, str]] = {
    diverged: ("not complete", "1 of 3 seeds diverged"),
    untrained: ("worse than guessing", "worse than guessing"),
    elsewhere: ("another test text", "scored on another text, or in another number of columns"),
}
"""What makes a variant one without an interval: the kind of obstacle, and how its row says so."""


@pytest.mark.parametrize("make", [*BARRED, adaptive, shorter])
def test_every_reason_is_found_between_the_two_alone_whom_it_concerns(tmp_path: Path, make: Settle) -> None:
    kinds = {adaptive: "adaptive", shorter: "another budget"} | {one: kind for one, (kind, _) in BARRED.items()}
    outcomes = read_outcomes(make(tmp_path), Records(tmp_path), "full")
    kind = kinds[make]
    between = ("no A", "full") if kind in ("another test text", "another budget") else ("no A",)
    # A cache's pass is in one column, as that of the others here.
    assert obstacles(outcomes, ["no A", "full"]) == [Obstacle(kind, between)]  # type: ignore[arg-type]
    assert obstacles(outcomes, ["no B", "full"]) == []
    assert obstacles(outcomes, ["no A"]) == ([] if len(between) == 2 else [Obstacle(kind, ("no A",))])  # type: ignore[arg-type]


def test_a_variant_without_trials_is_not_complete(tmp_path: Path) -> None:
    outcomes = read_outcomes(settled(tmp_path, ""), Records(tmp_path), "full")
    (found,) = obstacles(outcomes, ["full", "searched for"])
    assert found == Obstacle("not complete", ("searched for",))
    assert why_no_verdict(found) == "searched for not complete"


def test_what_only_waits_for_trials_counts_among_the_comparisons_already(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    trials = settled(runs, "")
    (runs / trials[4].key / "record.json").unlink()

    def counted(searching: int = 0) -> tuple[int, int]:
        found = compare_variants(read_outcomes(trials, Records(runs), "full"), searching=searching)
        assert found is not None
        return found.intervals, found.waiting

    assert counted() == (2, 1) and counted(searching=2) == (2, 3)
    page = write(tmp_path, trials, ablation=ABLATION)
    assert "among which rows that wait for trials count" in page
    assert "simultaneous over 3 comparisons (trials of 1 are still to come)" in page
    settle(runs, trials[4], 66.0, status="diverged", reason="not finite")
    assert counted() == (2, 0), "it will never be compared"


def test_the_same_text_in_other_columns_is_another_test_text(tmp_path: Path) -> None:
    trials = settled(tmp_path, "")
    for trial in (trial for trial in trials if trial.variant == "no A"):
        record = make_record(trial, 66.0, corpus=MEASURED)
        last = record.stages[-1]
        assert last.test is not None
        cut = last.model_copy(update={"test": last.test.model_copy(update={"columns": 10})})
        write_record(tmp_path / trial.key, record.model_copy(update={"stages": (*record.stages[:-1], cut)}))
    (found,) = obstacles(read_outcomes(trials, Records(tmp_path), "full"), ["no A", "full"])
    assert found.reason == "another test text"


@pytest.mark.parametrize("changes", [{"train_tokens": 50_000}, {"train_start": 9}])
def test_another_stretch_of_the_training_text_is_another_budget(tmp_path: Path, changes: dict[str, int]) -> None:
    stretch = trials_of()[0].spec.corpus.model_copy(update=changes)
    trials = settled(tmp_path, "", trials_of(**{"no A": {"corpus": stretch}}))
    outcomes = read_outcomes(trials, Records(tmp_path), "full")
    assert [obstacle.reason for obstacle in obstacles(outcomes, ["no A", "full"])] == ["another budget"]


def test_stretches_that_vary_with_the_seed_are_no_other_budget(tmp_path: Path) -> None:
    def varied(variant: str, seed: int) -> Trial:
        corpus = make_trial().spec.corpus.model_copy(update={"train_tokens": 50_000, "train_start": 50_000 * seed})
        return make_trial(variant, seed, corpus=corpus, epochs=5 + (variant == "longer"))

    groups = {"full": (0, 1, 2, 3), "no A": (2, 3), "no B": (0,), "longer": (2, 3)}
    trials = [varied(variant, seed) for variant, seeds in groups.items() for seed in seeds]
    for trial in trials:
        settle(tmp_path, trial, 60.0, corpus=MEASURED)
    outcomes = read_outcomes(trials, Records(tmp_path), "full")
    assert obstacles(outcomes, ["no A", "full"]) == obstacles(outcomes, ["no B", "full"]) == []
    assert other_budgets(outcomes) == ["longer"]
    assert [obstacle.reason for obstacle in obstacles(outcomes, ["longer", "full"])] == ["another budget"]


def test_the_gravest_reason_comes_first(tmp_path: Path) -> None:
    trials = settled(tmp_path, "no A", trials_of(**{"no A": {"epochs": 6, "cache": CACHE}}), test=800.0)
    lost = make_trial("no A", 4, epochs=6, cache=CACHE, batch_size=21)
    settle(tmp_path, lost, 60.0, status="failed", reason="?")
    moved = next(trial for trial in trials if (trial.variant, trial.seed) == ("no A", 1))
    settle(tmp_path, moved, 66.0, corpus=ELSEWHERE)
    outcomes = read_outcomes([*trials, lost], Records(tmp_path), "full")
    assert [obstacle.reason for obstacle in obstacles(outcomes, ["no A", "full"])] == [
        "adaptive",
        "not complete",
        "another test text",
        "worse than guessing",
        "another budget",
    ]


@pytest.mark.parametrize("make", BARRED)
def test_who_may_not_be_compared_has_no_interval_in_any_table(tmp_path: Path, make: Settle) -> None:
    outcomes = read_outcomes(make(tmp_path), Records(tmp_path), "full")
    comparison = compare_variants(outcomes)
    assert comparison is not None and list(comparison.effects) == ["no B", "no A + no B"]
    (row,) = interaction_section(outcomes, ABLATION).rows
    assert (row.verdict, row.nats, row.effect.interval) == ("no verdict", None, None)
    where = where_table(outcomes)
    assert where is not None and [row.name for row in where.by_class] == ["no B", "no A + no B"]


def test_another_budget_has_intervals_and_no_verdict_in_any_table(tmp_path: Path) -> None:
    outcomes = read_outcomes(shorter(tmp_path), Records(tmp_path), "full")
    comparison = compare_variants(outcomes)
    assert comparison is not None
    effect = comparison.effects["no A"]
    assert (effect.verdict, effect.further) == ("no verdict", None)
    assert effect.obstacle == Obstacle("another budget", ("no A", "full"))
    (row,) = interaction_section(outcomes, ABLATION).rows
    assert (row.verdict, row.reason) == ("no verdict", "another budget")
    assert effect.interval is not None and row.effect.interval is not None
    where = where_table(outcomes)
    assert where is not None and "no A" in [row.name for row in where.by_class]


def test_another_budget_is_the_reason_with_one_seed_too_because_more_seeds_would_not_change_it(tmp_path: Path) -> None:
    trials = [trial for trial in shorter(tmp_path) if trial.seed == 1]
    outcomes = read_outcomes(trials, Records(tmp_path), "full")
    comparison = compare_variants(outcomes)
    barred = Obstacle("another budget", ("no A", "full"))
    assert comparison is not None and comparison.effects["no A"].obstacle == barred
    (row,) = interaction_section(outcomes, ABLATION).rows
    assert (row.verdict, row.reason) == ("no verdict", "another budget")


def test_further_seeds_would_not_decide_what_has_another_budget(tmp_path: Path) -> None:
    trials = shorter(tmp_path)
    for trial in trials:
        if trial.variant in ("full", "no A"):
            settle(tmp_path, trial, 60.0 + (trial.seed * (2 if trial.variant == "no A" else 1) % 3) / 10)
    outcomes = read_outcomes(trials, Records(tmp_path), "full")
    comparison = compare_variants(outcomes)
    assert comparison is not None
    interval = comparison.effects["no A"].interval
    assert interval is not None and interval.low < 0 < interval.high
    assert comparison.effects["no A"].further is None


def test_one_seed_without_losses_by_token_leaves_the_text_out(tmp_path: Path) -> None:
    trials = settled(tmp_path, "")
    group = read_outcomes(trials, Records(tmp_path), "full")["no A"]
    assert losses_on_test(group).blocks is not None
    bare = (replace(group[0], losses=None), *group[1:])
    assert losses_on_test(bare).blocks is None and losses_on_test(bare).nats.size == 3


@pytest.mark.parametrize(
    ("make", "counts"), [(diverged, True), (shorter, True), (untrained, False), (elsewhere, False), (adaptive, False)]
)
def test_the_smallest_detectable_effect_rests_on_those_that_may_be_compared_once_complete(
    tmp_path: Path, make: Settle, counts: bool
) -> None:
    outcomes = read_outcomes(make(tmp_path), Records(tmp_path), "full")
    without = Outcomes({name: group for name, group in outcomes.items() if name != "no A"}, "full")
    found, less = map(detectable, (outcomes, without))
    assert found is not None and less is not None
    assert (found != less) == counts


@pytest.mark.parametrize("make", BARRED)
def test_the_page_its_files_and_the_tracker_say_why_there_is_no_verdict(tmp_path: Path, make: Settle) -> None:
    artist = NoArtist()
    text = write(tmp_path, make(tmp_path / "runs"), ablation=ABLATION, artist=artist)
    _, why = BARRED[make]
    assert f"| no verdict ({why}) |" in text
    assert f"o verdict on removing A{f' ({why})' if 'seeds' in why else ''}" in answer(text)
    interaction = {diverged: "no A not complete", untrained: "no A is worse than guessing", elsewhere: why}[make]
    assert f"| A × B | interaction | – | no verdict ({interaction}) |" in text
    assert all(len(set(rows)) == 1 for rows in render(text).tables)
    rows, *_ = artist.asked["forest.svg"]
    assert {row.name: (row.verdict, row.low) for row in rows}["no A"] == (why, None)
    with (tmp_path / "report/table.csv").open() as file:
        row = {line["variant"]: line for line in csv.DictReader(file)}["no A"]
    assert (row["verdict"], row["reason"], row["difference_nats_per_token_low"]) == ("no verdict", why, "")
    told = read_summary(tmp_path / "report")
    assert told is not None and told.verdicts == {"no A": "no verdict", "no B": "raises", "no A + no B": "raises"}
    assert findings(told.answer, told.verdicts)["verdict.no A"] == "no verdict"


def test_the_answer_counts_no_contrast_without_a_verdict(tmp_path: Path) -> None:
    assert "1 of 1 interaction is decided" in answer(write(tmp_path, settled(tmp_path / "runs", ""), ablation=ABLATION))
    text = write(tmp_path / "short", shorter(tmp_path / "short/runs"), ablation=ABLATION)
    assert "interaction" not in answer(text) and "o verdict on removing A: trained with another budget" in answer(text)


def test_trials_that_did_not_train_are_named_with_what_guessing_reaches(tmp_path: Path) -> None:
    text = write(tmp_path, untrained(tmp_path / "runs"))
    assert "12 of 12 planned trials complete. Of those complete, 1 is worse than guessing." in text
    assert "| no A | 2 | 11 | test | 800.00 | unigram model | 700.00 |" in text
    assert "o verdict on “no A”: worse than guessing" in answer(text)
    assert "nothing has a verdict" not in text and "by chance" not in text
    old = write(tmp_path / "old", settled(tmp_path / "old/runs", "no A", corpus=CORPUS, test=6_400.0))
    assert "| no A | 2 | 11 | test | 6400.00 | uniform model | 6000.00 |" in old
    assert "or, of records that lack its loss, by chance (the uniform model)." in old
    assert (
        "worse than guessing" not in write(tmp_path / "well", settled(tmp_path / "well/runs", "")).split("marked as")[0]
    )


def test_nothing_has_a_verdict_if_the_baseline_did_not_train(tmp_path: Path) -> None:
    artist = NoArtist()
    trials = settled(tmp_path / "runs", "full", trials_of(**{"no B": {"epochs": 6}}), test=800.0)
    ablation = replace(ABLATION, design="both")  # it weighs variants against each other without the baseline, too
    more = {"stripped": "no A + no B", "only A": "no B", "only B": "no A"}
    trials += [replace(t, variant=name) for name, like in more.items() for t in trials if t.variant == like]
    text = write(tmp_path, trials, ablation=ablation, artist=artist)
    assert answer(text) == (
        "At laptop scale, nothing is compared, because “full” is worse than guessing by the words' frequencies."
    )
    assert "| baseline (worse than guessing) |" in text
    assert text.count("no verdict (full is worse than guessing) |") == len(MEANS) - 1 + 3, (
        "rows that are equal once, and contrasts"
    )
    assert "No interval is given; the column of verdicts says why." in text
    assert "The baseline “full” is among them, so nothing has a verdict." in text
    assert "forest.svg" not in artist.asked
    with (tmp_path / "report/table.csv").open() as file:
        reasons = [line["reason"] for line in csv.DictReader(file) if line["reference"] == "False"]
    assert reasons == ["worse than guessing", *["full is worse than guessing"] * (len(MEANS) - 1 + len(more))]
    told = read_summary(tmp_path / "report")
    assert told is not None and set(told.verdicts.values()) == {"no verdict"}


def test_why_the_baseline_cannot_be_compared_is_said_in_every_row(tmp_path: Path) -> None:
    trials = settled(tmp_path / "runs", "", trials_of(full={"cache": CACHE}))
    text = write(tmp_path, trials)
    assert "nothing is compared, because “full” adapts to the text it is scored on" in answer(text)
    assert text.count("| no verdict (full adapts to the text of the test) |") == len(MEANS) - 1
    assert "No interval is given; the column of verdicts says why." in text


def references(tmp_path: Path, corpus: CorpusFacts) -> list[tuple[str, ...]]:
    """The rows of `table.csv` that are references, after a look at the page."""
    trials = settled(tmp_path / "runs", "")
    for trial in trials:
        settle(tmp_path / "runs", trial, MEANS[trial.variant] + trial.seed / 10, corpus=corpus)
    artist = NoArtist()
    text = write(tmp_path, trials, artist=artist)
    _, _, unigram = artist.asked["overview.svg"]
    assert unigram == (pytest.approx(720.0) if corpus is MEASURED else None)
    with (tmp_path / "report/table.csv").open() as file:
        lines = [line for line in csv.DictReader(file) if line["reference"] == "True"]
    assert text.count("| reference, not compared |") == len(lines)
    assert all(len(set(rows)) == 1 for rows in render(text).tables)
    columns = ("variant", "parameters", "valid_perplexity_mean", "test_perplexity_mean", "verdict", "reason")
    return [tuple(line[column] for column in columns) for line in lines]


def test_models_without_context_stand_in_the_table_as_references(tmp_path: Path) -> None:
    why = "reference, not compared"
    (unigram, uniform) = references(tmp_path / "new", MEASURED)
    assert (*unigram[:2], *map(float, unigram[2:4])) == (
        *("unigram model", "6000"),
        *(pytest.approx(720.0), pytest.approx(700.0)),
    )
    assert uniform == ("uniform model", "0", "6000.0", "6000.0", "", why) and unigram[4:] == ("", why)
    assert references(tmp_path / "old", CORPUS) == [uniform]
    text = (tmp_path / "new/report/report.md").read_text()
    assert "| unigram model | 700.00 | – | reference, not compared | – | – | 6,000 | 720.00 |" in text
    assert "| uniform model | 6000.00 | – | reference, not compared | – | – | 0 | 6000.00 |" in text


def test_before_a_stage_has_ended_there_is_no_reference(tmp_path: Path) -> None:
    assert "reference" not in write(tmp_path, trials_of())
