"""The page of a sweep whose design tells interactions, and of one that does not."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from orchestrator.analysis.looks import Looks
from orchestrator.analysis.outcomes import read_outcomes
from orchestrator.report.page import ReportInput, write_report
from orchestrator.sweep.designs import Ablation, Design, Factors
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from tests.orchestrator.report.test_head_section import section
from tests.orchestrator.report.test_report import replace_curve
from tests.support.factories import CACHE, make_curve, make_trial, settle
from tests.support.pages import HOSTILE, NoArtist, a_sweep, answer, render, write

COSTS = {"A": 1.1, "B": 1.2, "C": 1.0}


def settled(runs: Path, ablation: Ablation, seeds: int = 2, *, without: str | None = None) -> list[Trial]:
    """Perplexities that multiply by each factor's cost, by 1.5 once more where A and B are both away."""
    trials = []
    for k, away in enumerate((Factors(), *ablation.removals)):
        test = 60.0 * (1.5 if {"A", "B"} <= away else 1.0)
        for factor in away:
            test *= COSTS.get(factor, 1.0)
        for seed in range(1, seeds + 1):
            trials.append(make_trial(ablation.variant(away) or "full", seed, batch_size=20 + k))
            if trials[-1].variant != without or seed > 1:
                settle(runs, trials[-1], test * (1 + np.random.default_rng([k, seed]).normal(0, 3e-4)))
    return trials


def page(tmp: Path, design: Design, *factors: str, **how: object) -> tuple[str, dict[str, dict[str, str]]]:
    """The page, and its contrasts by kind and name as `interactions.csv` has them."""
    ablation = Ablation(design, factors)
    text = write(tmp, settled(tmp / "runs", ablation, **how), ablation=ablation)  # type: ignore[arg-type]
    assert all(len(set(rows)) == 1 for rows in render(text).tables)
    path = tmp / "report" / "interactions.csv"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return text, {f"{row['kind']} {row['contrast']}": row for row in csv.DictReader(lines)}


def test_both_of_two_components_names_only_variants_that_are_in_the_table(tmp_path: Path) -> None:
    text, _ = page(tmp_path, "both", "A", "B")
    assert "(`stripped` less the variant without the other)" in text and "only X" not in text


def test_both_tells_what_each_brings_alone_and_its_interaction_with_the_rest(tmp_path: Path) -> None:
    text, rows = page(tmp_path, "both", "A", "B", "C")
    verdicts = {name: row["verdict"] for name, row in rows.items()}
    assert verdicts == {
        "alone no A": "raises",
        "alone no B": "raises",
        "alone no C": "not decided",
        "interaction A × the rest": "costs more together",
        "interaction B × the rest": "costs more together",
        "interaction C × the rest": "not decided",
    }
    assert float(rows["alone no A"]["perplexity_ratio"]) == pytest.approx(1.1 * 1.5, rel=1e-3)
    row = rows["interaction A × the rest"]
    assert float(row["perplexity_ratio"]) == pytest.approx(1.5, rel=2e-3)
    low, high = float(row["perplexity_ratio_low"]), float(row["perplexity_ratio_high"])
    assert low < float(row["perplexity_ratio"]) < high
    found = section(text, "Interactions")
    assert re.search(r"\| A × the rest \| interaction \| \+(49|50)\.\d+% \[", found)
    assert "| **costs more together** |" in found
    assert "simultaneous over the 6 contrasts of this table, which are a family apart from the results above" in found
    assert "They cover the noise of **the seeds alone**" in text
    assert "(interactions.csv)" in found
    assert "defining relation" not in found and "Aliases" not in found


def test_a_design_of_one_component_has_no_contrasts_and_one_of_two_a_single_interaction(tmp_path: Path) -> None:
    for design in ("factorial", "both"):
        text, rows = page(tmp_path / design, design, "A", seeds=3)  # type: ignore[arg-type]
        assert not rows and "## Interactions" not in text
        assert answer(text).count("emoving A") == 1
    text, rows = page(tmp_path / "two", "pairs", "A", "C", seeds=3)
    assert list(rows) == ["interaction A × C"] and "ot decided: the interaction A × C" in answer(text)


def test_what_is_decided_stands_before_what_a_design_leaves_open(tmp_path: Path) -> None:
    ablation, trials = Ablation("both", ("A", "B", "C")), []
    for k, away in enumerate((Factors(), *ablation.removals)):  # whatever is away costs a tenth, and more no more
        for seed in (1, 2, 3):
            trials.append(make_trial(ablation.variant(away) or "full", seed, batch_size=20 + k))
            test = (66.0 if away else 60.0) * (1 + np.random.default_rng([k, seed]).normal(0, 4e-3))
            settle(tmp_path / "runs", trials[-1], test)
    said = answer(write(tmp_path, trials, ablation=ablation))
    left_open = said.index("ot decided: removing A, B or C, each with the other components absent")
    assert said.index("raise") < left_open and said.index("interactions are decided") < left_open


def test_pairs_and_factorial_find_the_two_that_stand_in_for_each_other(tmp_path: Path) -> None:
    for design in ("pairs", "factorial"):
        text, rows = page(tmp_path / design, design, "A", "B", "C")  # type: ignore[arg-type]
        decided = {name for name, row in rows.items() if row["verdict"] == "costs more together"}
        assert decided == {"interaction A × B"}
        assert float(rows["interaction A × B"]["perplexity_ratio"]) == pytest.approx(1.5, rel=2e-3)
        assert "## Interactions" in text and "simultaneous over" in text
    one, _ = page(tmp_path / "one", "pairs", "A", "B")
    assert "\n95% intervals. In full digits:" in one
    assert float(rows["main effect no B"]["perplexity_ratio"]) == pytest.approx(1.2 * 1.5**0.5, rel=2e-3)
    assert rows["main effect no C"]["verdict"] == "not decided"
    assert re.search(
        r"^At laptop scale, averaged over the other components, removing B raises test perplexity by 4\d[\d.]*% "
        r"\(.*?\) and removing A raises test perplexity by 3\d[\d.]*% \(.*?\)",
        answer(text),
    ), "main effects first, the largest first, and no list of the single variants"
    assert "1 of 3 interactions is decided: A × B (each partly replaces the other)" in answer(text)
    assert "with “" not in answer(text) and "removing A and B" not in answer(text)
    would = r"at most [\d.]+% either way \((about|more than) .* more seeds\)"
    assert re.search(rf"\| no C \| main effect \| .* \| not decided: {would} \|", text)


def test_a_fraction_names_its_defining_relation_and_aliases(tmp_path: Path) -> None:
    text, rows = page(tmp_path, "half", "A", "B", "C", "D")
    assert rows["interaction A × B"]["aliases"] == "C × D"
    assert re.search(r"\| A × B \| interaction \| \+[45]\d\.\d+% \[", text)
    assert "| C × D | **costs more together** (or an alias does) |" in text
    assert "| none of one or two |" in text
    assert "A × B (each partly replaces the other; or it is C × D)" in answer(text)
    of_three = answer(page(tmp_path / "three", "half", "A", "B", "C")[0])
    assert re.search(r"removing A raises test perplexity by [^)]*\) \(or B × C does\)", of_three)
    assert "defining relation of the fraction is I = A × B × C × D: an effect cannot be separated" in text


def test_what_removals_do_to_the_whole_stands_beside_what_each_brings_alone(tmp_path: Path) -> None:
    ablation, trials = Ablation("both", ("A", "B", "C")), []
    for k, away in enumerate((Factors(), *ablation.removals)):  # A harms the whole, and helps alone
        test = 54.0 if away == {"A"} else 60.0 * (1.0, 1.2, 1.1, 1.3)[len(away)]
        for seed in (1, 2, 3):
            trials.append(make_trial(ablation.variant(away) or "full", seed, batch_size=20 + k))
            noise = 1 + np.random.default_rng([k, seed]).normal(0, 3e-4)
            settle(tmp_path / "runs", trials[-1], test * noise)
    said = answer(write(tmp_path, trials, ablation=ablation))
    assert re.search("with the other components absent, .*removing A raises", said)
    assert re.search(r"Removing A lowers test perplexity by 10\.\d", said)


def test_add_one_in_tells_what_each_brings_alone(tmp_path: Path) -> None:
    text, rows = page(tmp_path, "add_one_in", "A", "B", "C")
    assert list(rows) == ["alone no A", "alone no B", "alone no C"]
    assert "## Each component alone" in text and "An interaction is" not in text


@pytest.mark.parametrize("design", ["leave_one_out", "none"])
def test_other_designs_have_no_such_section(tmp_path: Path, design: Design) -> None:
    text, rows = page(tmp_path, design, "A", "B", "C")
    assert not rows
    assert "## Interactions" not in text and "## Each component alone" not in text


def test_an_incomplete_variant_keeps_its_contrasts_out(tmp_path: Path) -> None:
    text, rows = page(tmp_path, "both", "A", "B", "C", without="only B")
    assert [name for name, row in rows.items() if row["reason"]] == ["alone no B", "interaction B × the rest"]
    assert "| B × the rest | interaction | – | no verdict (only B not complete) |" in text
    assert "of 3 interactions" in answer(text) and "o verdict on 2 contrasts" in answer(text)
    assert "o verdict on removing A and C (1 of 2 seeds missing)" in answer(text)
    assert "simultaneous over the 6 contrasts of this table (trials of 2 are still to come)" in text


def test_a_variant_that_adapts_keeps_its_contrasts_out_and_is_named(tmp_path: Path) -> None:
    trials = settled(tmp_path / "runs", ablation := Ablation("pairs", ("A", "B")))
    trials = [
        replace(trial, spec=trial.spec.model_copy(update={"cache": CACHE})) if trial.variant == "no B" else trial
        for trial in trials
    ]
    for trial in trials:
        settle(tmp_path / "runs", trial, 60.0)
    assert "no verdict (no B adapts to the text of the test)" in write(tmp_path, trials, ablation=ablation)


def test_several_looks_widen_the_intervals(tmp_path: Path) -> None:
    trials = settled(tmp_path / "runs", ablation := Ablation("pairs", ("A", "B")))
    once = write(tmp_path, trials, ablation=ablation)
    twice = write(tmp_path, trials, ablation=ablation, looks=Looks((2, 4)))
    assert "\n95% intervals. In full digits" in once
    assert "\n99.92% intervals. In full digits" in twice
    alone = settled(tmp_path / "alone/runs", design := Ablation("add_one_in", ("A", "B")), without="full")
    text = write(tmp_path / "alone", alone, ablation=design, looks=Looks((2, 4)))
    assert "99.92% intervals" in section(text, "Each component alone"), "the baseline is in none of them"
    assert answer(text).lower().count("removing") == 0, "nothing is compared, so the answer quotes nothing"


def test_a_page_whose_contrasts_alone_have_intervals_is_a_look(tmp_path: Path) -> None:
    runs, design = tmp_path / "runs", Ablation("add_one_in", ("A", "B"))
    for seeds, judges in ((2, True), (1, False)):
        outcomes = read_outcomes(settled(runs, design, seeds, without="full"), Records(runs), "full")
        report = ReportInput(a_sweep(ablation=design), outcomes, Records(runs), {}, "", "")
        written = write_report(report, tmp_path / f"of {seeds}", draw=NoArtist().draw)
        assert not written.changes and written.judges == judges


def test_one_seed_decides_nothing(tmp_path: Path) -> None:
    text, rows = page(tmp_path, "pairs", "A", "B", seeds=1)
    assert rows["interaction A × B"]["reason"] == "one seed: the seed noise is unknown"
    assert "No interval is given; the last column says why." in text


def test_any_name_stays_text(tmp_path: Path) -> None:
    name = " ".join(HOSTILE.split())
    text, rows = page(tmp_path, "half", "A", name, "C")
    assert list(rows) == ["main effect no A", f"main effect no {name}", "main effect no C"]
    assert "## Main effects" in text and "An interaction is" not in text
    assert f"I = A × {name} × C" in render(text).text.replace("\\", "")


def test_a_contrast_says_that_averaging_began_in_some_of_its_variants_alone(tmp_path: Path) -> None:
    trials = settled(tmp_path / "runs", ablation := Ablation("pairs", ("A", "B")))
    told = "averaging began in some of its variants more often than in others"
    assert told not in write(tmp_path, trials, ablation=ablation)
    for trial in trials:
        if trial.variant == "no A":
            points = [replace(point, averaging=False) for point in make_curve(trial.spec, 60.0)]
            replace_curve(tmp_path / "runs" / trial.key, points)
    text = write(tmp_path, trials, ablation=ablation)
    assert f"| **costs more together** ({told}) |" in text
    assert f"A × B (each partly replaces the other; {told})" in answer(text)
