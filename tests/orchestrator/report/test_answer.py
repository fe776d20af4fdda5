"""What the answer and its rows say: of removed components, of this test text alone, of the best, of equal rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean, stdev

import numpy as np
import pytest

from lm.record import curve_table
from orchestrator.analysis.comparison import compare_variants, equal_variants, lower_pairs, possibly_best
from orchestrator.analysis.effects import Comparison, Interval
from orchestrator.analysis.outcomes import Outcome, Outcomes
from orchestrator.report.pictures.differences import MARKERS, verdict_kind
from orchestrator.report.sections.ablation import AblationRow, Spread, ablation_table, distinct_rows
from orchestrator.report.sections.answer import answer
from orchestrator.report.sections.verdicts import verdict_in_words
from orchestrator.sweep.designs import Ablation
from tests.support.factories import FULL, make_curve, make_record, make_score, make_trial, number

NO_DESIGN = Ablation("none", ())
SIZE = r"[\d.]+% \([+−][\d.]+% to [+−][\d.]+%\)"
CURVE = curve_table(make_curve(FULL, 60.0))


def outcomes_of(tests: Mapping[str, Sequence[float]], first_seed: Mapping[str, int] | None = None) -> Outcomes:
    """Complete trials in memory, a test perplexity a seed; seeds count from 1, or from `first_seed`."""
    groups = {}
    for k, (variant, values) in enumerate(tests.items()):
        seeds = enumerate(values, (first_seed or {}).get(variant, 1))
        trials = [(make_trial(variant, seed, batch_size=20 + k), test) for seed, test in seeds]
        groups[variant] = tuple(Outcome(trial, "complete", None, make_record(trial, t), CURVE) for trial, t in trials)
    return Outcomes(groups, next(iter(tests)))


def table(tests: Mapping[str, Sequence[float]], ablation: Ablation = NO_DESIGN) -> tuple[list[AblationRow], Comparison]:
    outcomes = outcomes_of(tests)
    comparison = compare_variants(outcomes)
    assert comparison is not None
    return ablation_table(outcomes, comparison, {}, ablation), comparison


def near(test: float) -> list[float]:
    return [test, test * 1.001, test * 1.002]


def test_variants_whose_search_found_nothing_are_named() -> None:
    rows, comparison = table({"full": near(60.0), "b": near(66.0)})
    said = "No verdict on “c” and “d”: no trial of their searches was complete."
    assert said in answer(rows, comparison, "mini", untuned=["c", "d"])
    rows, comparison = table({"full": near(60.0)})
    assert "Nothing is compared, because no trial of the search for “full” was complete." in answer(
        rows, comparison, "mini", untuned=["b", "full"]
    )


def test_components_are_named_by_what_was_removed_one_two_and_more_by_the_variants_name() -> None:
    tests = {"full": near(60.0), "no A": near(66.0), "no A + no B": near(75.0), "stripped": near(90.0)}
    rows, comparison = table(tests, Ablation("pairs", ("A", "B")))
    assert [row.removed for row in rows] == [(), ("A",), ("A", "B"), ()]
    rows[3] = replace(rows[3], removed=("A", "B", "C"))
    assert re.fullmatch(
        rf"At mini scale, “stripped” raises test perplexity by {SIZE}, removing A and B by {SIZE} and removing A by "
        rf"{SIZE}\. \(Ranges: 95% simultaneous intervals of the change in test perplexity against “full”, 3 seeds\.\)",
        answer(rows, comparison, "mini"),
    )


def test_of_many_changes_those_that_remove_little_are_listed_before_the_others() -> None:
    components = ("A", "B", "C", "D")
    tests = {"full": near(60.0)}
    tests |= {f"no {name}": near(66.0 + k) for k, name in enumerate(components)}
    tests |= {f"only {name}": near(80.0 + k) for k, name in enumerate(components)} | {"stripped": near(90.0)}
    rows, comparison = table(tests, Ablation("both", components))
    said = answer(rows, comparison, "mini")
    listed = (
        rf"emoving D raises test perplexity by {SIZE}, removing C by {SIZE}, removing B by {SIZE} and removing A by "
    )
    others = rf"{SIZE}\. 5 other changes raise test perplexity, from {SIZE} by leaving only A to {SIZE} by “stripped”\."
    assert re.search(listed + others, said), said


def test_a_search_that_found_the_baselines_values_found_nothing_better() -> None:
    rows, comparison = table({"by hand": near(60.0), "best found": near(60.0), "b": near(66.0)})
    said = answer(rows, comparison, "mini")
    assert "The search found nothing better than “by hand”: the two are equal in every seed." in said
    rows, comparison = table({"by hand": near(60.0), "best found": near(60.0), "b": near(60.0)})
    assert "hat the search found and “b” equal “by hand” in every seed." in answer(rows, comparison, "mini")


def test_what_lowers_it_when_it_is_removed_is_said_to_lower_it() -> None:
    rows, comparison = table({"full": near(60.0), "no A": near(50.0)}, Ablation("leave_one_out", ("A",)))
    assert "removing A lowers test perplexity by 16." in answer(rows, comparison, "mini")


def test_what_is_not_decided_is_shown_with_the_ends_of_its_interval() -> None:
    rows, comparison = table({"full": near(60.0), "b": near(60.05)})
    effect = rows[1].effect
    assert effect is not None
    rows[1] = replace(rows[1], effect=replace(effect, verdict="not decided", interval=Interval(-0.05, 0.02)))
    assert rows[1].verdict(0.005) == "not decided: at most 4.9% either way", "of exp(-0.05) - 1"
    assert "not decided: “b” (−4.9% to +2.0%). (Ranges: 95% interval" in answer(rows, comparison, "mini")


def test_a_bound_above_a_factor_of_two_is_none() -> None:
    rows, comparison = table({"full": near(60.0), "b": near(60.05)})
    effect = rows[1].effect
    assert effect is not None
    rows[1] = replace(rows[1], effect=replace(effect, verdict="not decided", interval=Interval(-0.7, 0.7)))
    assert rows[1].verdict(0.005) == "not decided: a twofold change cannot be excluded", "exp(0.7) is 2.01"
    assert "not decided: “b” (a twofold change cannot be excluded)" in answer(rows, comparison, "mini")


@pytest.mark.parametrize(("sign", "verb"), [(1, "raises"), (-1, "lowers")])
def test_what_is_certain_on_this_test_text_alone_is_said_to_be(sign: int, verb: str) -> None:
    rows, comparison = table({"full": near(60.0), "b": near(60.05), "c": near(60.05)})
    effect = rows[1].effect
    assert effect is not None
    here = {"decided_on_this_text": True, "interval": Interval(-0.1, 0.1)}
    rows[1] = replace(rows[1], effect=replace(effect, nats=sign * 0.03, verdict="not decided", **here))
    assert rows[1].verdict(0.005) == f"{verb} it on this test text; not decided for others"
    said = answer(rows, comparison, "mini")
    assert "ecided for this test text by the noise of the seeds alone, not for other texts: “b” (−10% to +11%)" in said
    assert "ot decided: “b”" not in said


def test_more_of_them_than_a_sentence_lists_are_counted() -> None:
    names = [f"v{k}" for k in range(9)]
    rows, comparison = table({"full": near(60.0)} | {name: near(60.05) for name in names})
    here = {"decided_on_this_text": True, "interval": Interval(-0.1, 0.1), "verdict": "not decided"}
    rows[1:] = [replace(row, effect=replace(row.effect, **here)) for row in rows[1:] if row.effect]
    assert "not for other texts: 9 changes (all within −10% to +11%). (Ranges" in answer(rows, comparison, "mini")


def test_the_best_is_one_some_or_not_told_if_it_may_be_any() -> None:
    def best(**tests: Sequence[float]) -> tuple[str, ...]:
        return possibly_best(outcomes_of(tests))

    assert best(full=near(60.0), b=near(50.0), c=near(70.0)) == ("b",)
    assert best(full=near(60.0), b=near(60.01), c=near(70.0)) == ("full", "b")
    assert best(full=near(60.0), b=near(60.01), c=near(60.02)) == ("full", "b", "c")
    rows, comparison = table({"full": near(60.0), "b": near(60.01), "c": near(70.0)})

    def said(*names: str) -> str:
        return answer(rows, comparison, "mini", best=names)

    assert "“b” has the lowest test perplexity of the 3 that are compared. " in said("b")
    assert "lowest" not in said("full", "b"), "the verdicts say as much"
    lowest = (
        "“full” has the lowest mean test perplexity of the 3 that are compared; that of “c” is not shown to be higher"
    )
    assert f"{lowest}. " in said("full", "c") and f"{lowest}. " in said("c", "full"), "the lowest first"
    assert "lowest" not in said("full", "b", "c") and "lowest" not in said()


def test_the_best_is_of_those_that_are_compared() -> None:
    rows, comparison = table({"full": near(60.0), "b": near(50.0)})
    assert "lowest" not in answer(rows, comparison, "mini", best=("b",)), "the verdict says it already"
    rows, comparison = table({"full": near(60.0), "b": near(50.0), "c": near(70.0), "d": near(80.0)})
    rows[3] = replace(rows[3], effect=None, reason="no seed is complete")
    assert "of the 3 that are compared" in answer(rows, comparison, "mini", best=("b",))


def test_of_variants_that_are_equal_in_every_seed_the_first_may_be_the_best() -> None:
    rows, comparison = table({"full": near(60.0), "b": near(50.0), "same as b": near(50.0), "c": near(70.0)})
    lowest = "“b” has the lowest test perplexity of the 3 that are compared. "
    assert lowest in answer(rows, comparison, "mini", best=("b", "same as b"))


def test_what_equals_the_baseline_but_has_fewer_seeds_is_no_further_candidate() -> None:
    tests = {"full": [60.0, 60.1, 60.2, 60.3], "same": [60.0, 60.1], "low": [59.6, 59.7], "high": [66.0, 66.1]}
    best = possibly_best(outcomes_of(tests))
    assert "same" not in best and possibly_best(outcomes_of(tests), 1e-9) == ("full", "low", "high")
    rows, comparison = table(tests)
    assert "“low” has the lowest test perplexity of the 3 that" in answer(rows, comparison, "mini", best=("low",))


def test_the_truly_best_is_among_those_that_may_be_in_19_of_20_sweeps() -> None:
    rng = np.random.default_rng(5)
    held = narrowed = 0
    for _ in range(200):
        nats = {name: 4.0 + 0.004 * k + rng.normal(0.0, 0.003, 3) for k, name in enumerate("abcd")}
        best = possibly_best(outcomes_of({name: np.exp(values).tolist() for name, values in nats.items()}))
        held += "a" in best
        narrowed += len(best) < len(nats)
    assert held >= 190
    assert narrowed >= 50, "a set of all is right, too, and says nothing"


def test_one_seed_is_not_among_the_best_and_a_smaller_error_leaves_more() -> None:
    tests = {"full": [60.0, 60.1, 60.2], "b": [59.7, 59.8, 59.9], "one": [50.0]}
    assert possibly_best(outcomes_of(tests), 0.1) == ("b",)
    assert possibly_best(outcomes_of(tests), 1e-6) == ("full", "b")


def test_variants_that_wait_for_trials_leave_more_that_may_be_the_best() -> None:
    """Else half a sweep would name one where the whole sweep names two."""
    tests = {"full": [60.0, 60.1, 60.2], "b": [59.7, 59.8, 59.6]}
    half = outcomes_of(tests | {f"v{k}": [70.0, 71.0] for k in range(8)})
    for name in [name for name in half if name not in tests]:
        half[name] = tuple(replace(outcome, status="missing", record=None) for outcome in half[name])
    assert possibly_best(outcomes_of(tests)) == ("b",) and possibly_best(half) == ("full", "b")
    assert possibly_best(outcomes_of(tests), searching=8) == ("full", "b")


def test_the_baseline_is_held_against_the_paper_by_where_one_more_seed_would_lie() -> None:
    rows, comparison = table({"full": [60.0, 61.0, 62.0], "other": [70.0, 71.0, 72.0]})
    for paper, how in (
        (number(60.0), "1.7% above the published 60, which lies in the 95% interval of this mean (58.5 to 63.5)"),
        (
            number(57.0),
            "7.0% above the published 57, which lies outside the 95% interval of this mean (58.5 to 63.5); a single "
            "seed may be there (56.0 to 66.0)",
        ),
        (
            number(50.0, "recalled"),
            "22.0% above the published 50 (from memory), which lies outside the 95% interval of this mean (58.5 to "
            "63.5); a single seed would hardly be there (56.0 to 66.0)",
        ),
    ):
        text = answer(rows, comparison, "paper", published=paper)
        assert "“full” reaches test perplexity 61.0 ± 1.0 (mean ± standard deviation of 3 seeds), " in text
        assert how in text and "“other” raises test perplexity" in text
    assert "Validation" not in text
    assert "reaches" not in answer(rows, comparison, "mini")
    assert Spread(61.0, None, 1).one_more_seed is None and Spread(61.0, 0.0, 3).one_more_seed is None


def test_equal_seeds_have_no_deviation_whatever_their_mean_is_rounded_to() -> None:
    scores = [make_score(57.3)] * 3
    assert np.std([score.perplexity for score in scores]) > 0, "rounding alone"
    spread = Spread.of(scores)
    assert (spread.mean, spread.deviation, spread.of_mean) == (scores[0].perplexity, 0.0, None)


def test_one_more_seed_lies_where_it_is_said_to_in_19_of_20_sweeps() -> None:
    rng = np.random.default_rng(1)
    inside, sweeps = 0, 2000
    for _ in range(sweeps):
        *seeds, one_more = rng.normal(100.0, 1.0, 4)
        low, high = Spread(fmean(seeds), stdev(seeds), 3).one_more_seed or (0.0, 0.0)
        inside += low <= one_more <= high
    assert abs(inside / sweeps - 0.95) < 0.02


def test_pairs_are_of_equal_seeds() -> None:
    outcomes = outcomes_of({"full": [60.0, 61.0, 62.0], "b": [60.5, 63.0, 50.0]}, {"b": 2})
    assert lower_pairs(outcomes.of_baseline, outcomes["b"]) == (1, 2), "seeds 2 and 3"
    rows = ablation_table(outcomes, compare_variants(outcomes), {})
    assert [row.pairs for row in rows] == [None, "1 of 2"]
    tied = outcomes_of({"full": [60.0, 61.0], "b": [60.0, 60.5]})
    assert lower_pairs(tied.of_baseline, tied["b"]) == (1, 2), "as high is not lower"
    apart = outcomes_of({"full": [60.0], "b": [50.0]}, {"b": 2})
    assert ablation_table(apart, compare_variants(apart), {})[1].pairs is None
    twins = outcomes_of({"full": near(60.0), "twin": near(60.0), "b": near(63.0)})
    rows = ablation_table(twins, compare_variants(twins), {})
    assert [row.pairs for row in rows] == [None, None, "0 of 3"], "of equal ones none is lower"


def test_equal_rows_are_shown_once_under_all_their_names_unless_they_would_read_otherwise() -> None:
    tests = {"full": near(60.0), "no tuning": near(66.0), "b": near(63.0), "no SGD": near(66.0), "no x": near(66.0)}
    outcomes = outcomes_of(tests)
    rows = ablation_table(outcomes, compare_variants(outcomes), {})
    shown = distinct_rows(rows, equal_variants(outcomes))
    assert [row.variant for row in shown] == ["full", "no tuning = no SGD = no x", "b"]
    assert replace(shown[1], variant="no tuning") == rows[1]
    rows[3] = replace(rows[3], parameters=7)
    shown = distinct_rows(rows, equal_variants(outcomes))
    assert [row.variant for row in shown] == ["full", "no tuning = no x", "b", "no SGD"]


def test_every_verdict_that_a_row_can_have_has_its_shape_in_the_picture() -> None:
    rows, _ = table({"full": near(60.0), "b": near(66.0)})
    effect = rows[1].effect
    assert effect is not None
    verdicts = ("raises", "lowers", "equivalent", "not decided", "no verdict")
    kinds = [verdict_kind(verdict_in_words(replace(effect, verdict=verdict), 0.005)) for verdict in verdicts]
    assert kinds == list(MARKERS)
