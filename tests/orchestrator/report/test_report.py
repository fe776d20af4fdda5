"""The page as a reader gets it: the answer for every case, escaping, repeatability."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lm.record import Evaluation, read_record, write_curve, write_record
from orchestrator import load_report
from orchestrator.analysis.looks import Looks
from orchestrator.analysis.statistics import compare
from orchestrator.report import files
from orchestrator.sweep.published import Published
from orchestrator.trials.trial import Trial
from tests.support.factories import CACHE, FULL, begin, make_curve, make_trial, number, seeded, settle, write_tokens
from tests.support.pages import HOSTILE, NoArtist, answer, render, write

Sweep = Callable[..., list[Trial]]
ENDS = r"\([+−][\d.]+% to [+−][\d.]+%\)"
"""An interval of a size in the answer."""


HOW_TO_READ = (Path(files.__file__).parents[1] / "how_to_read.md").read_text(encoding="utf-8").replace("\n  ", " ")


def bare(sentence: str) -> str:
    """The answer without the intervals of its sizes."""
    return re.sub(f" {ENDS}", "", sentence)


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    """Settles variants given as test perplexities, one a seed; None leaves a trial missing."""

    def build(**variants: list[float | None]) -> list[Trial]:
        trials = []
        for k, (variant, tests) in enumerate(variants.items()):
            for seed, test in enumerate(tests, 1):
                trial = make_trial(variant, seed, batch_size=20 + k)
                trials.append(trial)
                if test is not None:
                    settle(tmp_path / "runs", trial, test)
        return trials

    return build


def test_a_decided_change_says_how_much_larger_its_model_is(tmp_path: Path, sweep: Sweep) -> None:
    trials = sweep(full=[60.0, 60.3, 60.1], b=[70.0, 70.3, 70.1], c=[50.0, 50.3, 50.1])
    sizes = {"full": 1_000_000, "b": 1_050_000, "c": 1_946_000}
    trials = [replace(trial, parameters=sizes[trial.variant]) for trial in trials]
    found = answer(write(tmp_path, trials))
    assert re.search(
        rf"“c” lowers test perplexity by 16\.63% {ENDS}, with 1\.9 times the parameters\. \(Ranges: 95%", found
    )
    assert re.search(rf"“b” raises test perplexity by 16\.\d+% {ENDS}\.", found)
    sizes = {"full": 1_000_000, "b": 1_110_000, "c": 905_000}
    trials = [replace(trial, parameters=sizes[trial.variant]) for trial in trials]
    found = answer(write(tmp_path, trials))
    assert re.search(rf"“b” raises test perplexity by 16\.\d+% {ENDS}, with 1\.1 times the parameters\.", found)
    assert re.search(rf"“c” lowers test perplexity by 16\.63% {ENDS}\. \(Ranges: 95%", found)
    sizes = {"full": 1_000_000, "b": 1_050_000, "c": 1_946_000, "d": 1_946_000}
    trials = sweep(full=[60.0, 60.3, 60.1], b=[60.0, 60.2, 60.3], c=[50.0, 50.3, 50.1], d=[40.0, 40.3, 40.1])
    trials = [replace(trial, parameters=sizes[trial.variant]) for trial in trials]
    found = answer(write(tmp_path, trials))
    assert re.search(rf"“d” lowers .* {ENDS} and “c” by .* {ENDS}, each with 1\.9 times the parameters\.", found)


def replace_curve(folder: Path, points: list[Evaluation]) -> None:
    """Another curve of a settled trial, which its record speaks for."""
    settled = read_record(folder)
    assert settled is not None
    write_curve(folder, points)
    write_record(folder, settled)


def test_where_averaging_began_in_some_trials_alone_the_page_names_them(tmp_path: Path, sweep: Sweep) -> None:
    def without(*places: tuple[str, int]) -> str:
        trials = sweep(full=[60.0, 60.3], b=[70.0, 70.3], c=[80.0, 80.3])
        for trial in trials:
            if (trial.variant, trial.seed) in places:
                points = make_curve(trial.spec, 60.0)
                replace_curve(tmp_path / "runs" / trial.key, [replace(point, averaging=False) for point in points])
        return write(tmp_path, trials)

    every = [(variant, seed) for variant in ("full", "b", "c") for seed in (1, 2)]
    assert "began to average" not in without()
    assert "NT-ASGD never began to average before fine-tuning" in without(*every)
    text = without(*every[3:])
    assert "began to average" not in text
    rows = {name: next(line for line in text.splitlines() if line.startswith(f"| {name} |")) for name in "bc"}
    assert "| **raises** (averaging began before fine-tuning in 1 of 2 seeds, of the baseline in 2 of 2) |" in rows["b"]
    assert "| **raises** (averaging began before fine-tuning in 0 of 2 seeds, of the baseline in 2 of 2) |" in rows["c"]
    assert "averaging began" not in without() and "averaging began" not in without(*every)


def test_averaging_that_began_in_fine_tuning_or_under_a_cache_is_not_told(tmp_path: Path, sweep: Sweep) -> None:
    trials = sweep(full=[60.0, 60.3])
    points = [replace(point, averaging=point.stage != "train") for point in make_curve(FULL, 60.0)]
    for trial in trials:
        replace_curve(tmp_path / "runs" / trial.key, points)
    cached = make_trial("neural cache", 1, cache=CACHE)
    settle(tmp_path / "runs", cached, 40.0)
    text = write(tmp_path, [*trials, cached])
    assert "NT-ASGD never began to average before fine-tuning" in text


def test_decided_and_undecided_changes(tmp_path: Path, sweep: Sweep) -> None:
    trials = sweep(full=[60.0, 60.3], b=[70.0, 70.3], c=[80.0, 80.3], d=[50.0, 50.2], e=[60.1, 60.2])
    assert bare(answer(write(tmp_path, trials))) == (
        "At laptop scale, “d” has the lowest test perplexity of the 5 that are compared. “c” raises test "
        "perplexity by 33.3% and “b” by 16.6%. “d” lowers test perplexity by 16.7%. Not decided: “e”. "
        "(Ranges: 95% simultaneous intervals of the change in test perplexity against “full”, 2 seeds.)"
    )


def test_nothing_decided(tmp_path: Path, sweep: Sweep) -> None:
    close = {name: [60.0 + k / 10, 62.0 - k / 10] for k, name in enumerate("bcdefg")}
    assert answer(write(tmp_path, sweep(full=[60.45, 61.45], **close))) == (
        "At laptop scale, not decided: 6 changes (all within −21% to +26%). (Ranges: 95% simultaneous intervals of the "
        "change in test perplexity against “full”, 2 seeds.)"
    )


def test_three_undecided_are_named_and_four_counted(tmp_path: Path, sweep: Sweep) -> None:
    close = {name: [59.0 + k / 10, 61.2 - k / 10] for k, name in enumerate("cdef")}
    three = dict(list(close.items())[:3])
    most = r"\(−[\d.]+% to \+[\d.]+%\)"
    named, of_four = f"“c” {most}, “d” {most} and “e” {most}", rf"4 other changes \(all within {most[2:]}"
    for variants, said in ((three, named), (close, of_four)):
        found = answer(write(tmp_path, sweep(full=[60.05, 60.15], b=[90.0, 90.2], **variants)))
        assert re.search(rf"\. Not decided: {said}\. \(Ranges: ", found)


def test_three_incomplete_changes_are_named_and_four_counted(tmp_path: Path, sweep: Sweep) -> None:
    tests: dict[str, list[float | None]] = {"full": [60.0, 60.3], **{name: [70.0, None] for name in "bcde"}}
    assert answer(write(tmp_path, sweep(**tests))) == (
        "At laptop scale, no verdict on 4 changes: not all of their seeds are complete."
    )
    del tests["e"]
    assert "“d” (1 of 2 seeds missing)" in answer(write(tmp_path, sweep(**tests)))


def test_one_trial_that_was_stopped_makes_an_interim_page(tmp_path: Path, sweep: Sweep) -> None:
    trials = sweep(full=[60.0, 60.3])
    assert "An interim page" not in write(tmp_path, trials)
    stopped = make_trial("full", 3)
    begin(tmp_path / "runs", stopped, 60.0, epochs=4)
    assert "1 unfinished. An interim page: it changes as trials end." in write(tmp_path, [*trials, stopped])


def test_many_undecided_are_counted_beside_those_decided(tmp_path: Path, sweep: Sweep) -> None:
    close = {name: [59.0 + k / 10, 61.2 - k / 10] for k, name in enumerate("cdefg")}
    found = answer(write(tmp_path, sweep(full=[60.05, 60.15], b=[90.0, 90.2], **close)))
    assert re.search(r"\. Not decided: 5 other changes \(all within −[\d.]+% to \+[\d.]+%\)\. \(Ranges: ", found)


def test_many_decided_are_counted_with_the_range_of_their_differences(tmp_path: Path, sweep: Sweep) -> None:
    worse = {f"head {k}": [70.0 + 10 * k, 70.3 + 10 * k] for k in range(9)}
    assert bare(answer(write(tmp_path, sweep(full=[60.0, 60.3], better=[50.0, 50.3], **worse)))) == (
        "At laptop scale, “better” has the lowest test perplexity of the 11 that are compared. 9 changes raise "
        "test perplexity, from 16.6% by “head 0” to 149.6% by “head 8”. “better” lowers test perplexity by 16.6%. "
        "(Ranges: 95% simultaneous intervals of the change in test perplexity against “full”, 2 seeds.)"
    )


def test_one_noisy_variant_does_not_hide_the_others(tmp_path: Path, sweep: Sweep) -> None:
    quiet = {"full": [60.0, 60.01, 60.02], "b": [70.0, 70.01, 70.02], "d": [90.0, 90.01, 90.02]}
    text = write(tmp_path, sweep(**quiet, c=[150.0, 400.0, 250.0]))
    assert re.search(r"^\| d \|.* \*\*raises\*\* ", text, re.MULTILINE)
    assert "The standard deviation between seeds is 0.011% to 63% of perplexity." in text
    how = (tmp_path / "report/table.csv").read_text(encoding="utf-8")
    assert "from mean losses" in HOW_TO_READ and how.count("\nc,") == 1


def test_what_has_no_larger_effect_than_the_margin(tmp_path: Path, sweep: Sweep) -> None:
    same = {"full": [60.0, 60.01, 60.02], "b": [60.01, 60.0, 60.03], "c": [70.0, 70.01, 70.02]}
    text = write(tmp_path, sweep(**same))
    assert ". “b” has no effect larger than 0.5% of perplexity." in answer(text)
    assert "| **no effect larger than 0.5%** |" in text and "more seed" not in answer(text)
    text = write(tmp_path, sweep(**same), margin=1e-5)
    assert re.search(r"\| not decided: at most [\d.]+% either way \| more than 100 more seeds \|", text)
    assert "within the grey band, ±0.001%, a change counts as none." in text


def test_the_noises_that_intervals_cover_are_told(tmp_path: Path, sweep: Sweep) -> None:
    trials = sweep(full=[60.0, 60.1], b=[70.0, 70.3])
    text = write(tmp_path, trials)
    assert "They cover the noise of **the seeds alone**, not of another test text" in text
    assert (
        "Pairing by seed narrows no interval, because trials that share a seed number are not shown to correlate."
    ) in text
    for trial in trials:
        write_tokens(tmp_path / "runs", trial)
    assert "They cover the noise of seeds and of the test text." in write(tmp_path, trials)
    assert "cover the noise of another training run (the seeds) and of another test text" in HOW_TO_READ


def test_seeds_that_surely_go_together_narrow_the_intervals(tmp_path: Path, sweep: Sweep) -> None:
    own = [0.0, 0.2, 0.4, -0.5, 0.3, 0.0]
    shared = [60.0, 62.0, 58.5, 61.0, 59.5, 63.0]
    text = write(tmp_path, sweep(full=shared, b=[1.1 * a + b for a, b in zip(shared, own, strict=True)]))
    assert re.search(
        r"correlate by \+0\.\d\d; pairing by seed narrows intervals as a correlation of 0\.\d\d does, which is "
        "established",
        text,
    )


def test_a_name_that_reads_like_a_sentences_own_words_is_quoted(tmp_path: Path, sweep: Sweep) -> None:
    tests: dict[str, list[float | None]] = {"full": [60.0, 60.3], "b": [70.0, 70.3], "no [A]": [60.1, 60.2]}
    text = write(tmp_path, sweep(**tests))
    assert "Not decided: “no \\[A\\]” (" in answer(text)
    assert "Not decided: “no [A]” (" in (tmp_path / "report/summary.json").read_text(encoding="utf-8")


def test_several_looks_err_together(tmp_path: Path, sweep: Sweep) -> None:
    trials = sweep(full=[60.0, 60.3], b=[70.0, 70.3])
    first = write(tmp_path, trials, looks=Looks((2, 3)))
    assert "At this look the table has a wrong verdict with a probability of at most 0.4%." in first
    assert "More seeds went" not in first
    last = write(tmp_path, sweep(full=[60.0, 60.3, 60.1], b=[70.0, 70.3, 70.2]), looks=Looks((1, 2, 3)))
    assert "More seeds went to what was not decided after 1 and 2 seeds. At this look" in last
    assert (
        "2 earlier pages judged some of these seeds (of 1 and 3 seeds), and each counts as a look. At this look "
        "the table has a wrong verdict with a probability of at most 1.7%."
    ) in write(tmp_path, trials, looks=Looks((2,), ((1,), (1, 2, 3))))
    assert "At this look" not in write(tmp_path, trials)


def test_the_convention_differs_by_a_share_of_perplexity(tmp_path: Path, sweep: Sweep) -> None:
    def said(*tests: float) -> str:
        found = re.search(
            r"by another convention, which here differs from exact perplexity by at most (.*?)%\.",
            write(tmp_path, sweep(full=list(tests))),
        )
        return found.group(1) if found else ""

    assert (said(60.0, 60.3), said(60.0, 600.0), said(60.0, 3e7)) == ("0.046", "0.072", "0.046")


def test_one_seed(tmp_path: Path, sweep: Sweep) -> None:
    text = write(tmp_path, sweep(full=[60.0], b=[70.0]))
    assert answer(text) == ("At laptop scale, not decided: “b”, because with one seed the noise is unknown.")
    assert "| b | 70.00 | +16.7% | no verdict (one seed: the seed noise is unknown) | – | 0 of 1 | 1,234,567 |" in text
    assert "| b | +16.7% | +20.2% | 71.1 | 68.9 | +11.6 |" in text
    assert "No interval is given; the column of verdicts says why." in text
    assert "Change of test perplexity against “full”; within the grey band" in text and "with its interval" not in text
    assert "changes of test perplexity, corpus" in (tmp_path / "report" / "table.tex").read_text().splitlines()[0]
    assert "in brackets the slowest" not in text


def test_seeds_without_noise_and_a_change_that_does_nothing(tmp_path: Path, sweep: Sweep) -> None:
    text = write(tmp_path, sweep(full=[60.0, 60.0], b=[70.0, 70.0], c=[60.0, 60.0]))
    assert answer(text) == (
        "At laptop scale, not decided: “b”, because the seeds do not differ, so the seed noise cannot be estimated. "
        "“c” equals “full” in every seed."
    )


def test_an_incomplete_variant_and_an_incomplete_baseline(tmp_path: Path, sweep: Sweep) -> None:
    trials = sweep(full=[60.0, 60.3], b=[70.0, None], c=[None, None])
    text = write(tmp_path, trials)
    assert answer(text) == ("At laptop scale, no verdict on “b” (1 of 2 seeds missing) and “c” (2 of 2 seeds missing).")
    assert "3 of 6 planned trials complete, 3 missing. An interim page" in text
    assert "no verdict (1 of 2 seeds missing)" in text
    assert "no verdict (2 of 2 seeds missing)" in text
    trials.append(make_trial("full", 3))
    assert answer(write(tmp_path, trials)) == (
        "At laptop scale, nothing can be compared yet: 2 of 3 seeds of “full” complete."
    )


def test_a_baseline_that_diverged_will_not_be_complete(tmp_path: Path, sweep: Sweep) -> None:
    trials = sweep(full=[60.0, 60.3, None], b=[70.0, 70.1, 70.2])
    settle(tmp_path / "runs", trials[2], 60.0, status="diverged", reason="why")
    said = answer(write(tmp_path, trials))
    assert said == "At laptop scale, nothing can be compared: of “full”, 1 of 3 seeds diverged."


def test_the_forest_gives_no_verdict_on_a_variant_that_lost_a_seed(tmp_path: Path, sweep: Sweep) -> None:
    trials = sweep(full=[60.0, 60.3, 60.1], b=[70.0, 70.2, 70.1], c=[90.0, 90.2])
    lost = make_trial("c", 3, batch_size=22)
    settle(tmp_path / "runs", lost, 1.0, status="diverged", reason="not finite")
    artist = NoArtist()
    write(tmp_path, [*trials, lost], artist=artist)
    rows, *_ = artist.asked["forest.svg"]
    verdicts = {row.name: row.verdict for row in rows}
    assert verdicts == {"b": "raises", "c": "1 of 3 seeds diverged"}


def test_only_what_the_table_has_is_explained(tmp_path: Path, sweep: Sweep) -> None:
    def explained(**variants: list[float | None]) -> list[bool]:
        text = write(tmp_path, sweep(**variants))
        assert "  " not in text.split("## Trials that are not complete")[0]
        assert not re.search(r"\n{4}", text.split("## Learning curves")[0])
        return [words in text for words in ("another convention", "95% intervals by", "±0.5%, a change counts")]

    assert explained(full=[None], b=[None]) == [False, False, False]
    assert explained(full=[60.0, None], b=[70.0, 70.3]) == [True, False, False]
    assert explained(full=[60.0], b=[70.0]) == [True, False, True]
    assert explained(full=[60.0, 60.3], b=[70.0, 70.3]) == [True, True, True]


def test_a_capped_vocabulary_is_said_beside_the_training_text(tmp_path: Path) -> None:
    for cap, said in ((None, ""), (6_000, ", with a vocabulary of its 6,000 most frequent words")):
        corpus = FULL.corpus.model_copy(update={"vocabulary_cap": cap})
        trials = [make_trial("full", 1, corpus=corpus), make_trial("b", 1, corpus=corpus, batch_size=21)]
        for trial in trials:
            settle(tmp_path / "runs", trial, 60.0)
        assert f"on 100,000 tokens of pydoc{said}; the test text has 12,000." in write(tmp_path, trials)


def test_one_compared_variant_is_not_told_of_others(tmp_path: Path, sweep: Sweep) -> None:
    one = write(tmp_path, sweep(full=[60.0, 60.3], b=[70.0, 70.3]))
    assert "with 95% intervals; within the grey band, ±0.5%, a change counts as none." in one
    assert "95% intervals by Student's t. They cover" in one
    assert "![Change of test perplexity against full, in per cent, with its interval, of b]" in one
    two = write(tmp_path, sweep(full=[60.0, 60.3], b=[70.0, 70.3], c=[80.0, 80.3]))
    assert "with simultaneous 95% intervals, among which rows without a verdict do not count; within" in two
    assert "Student's t, simultaneous over 2 comparisons. They cover" in two
    assert "the cache in one" not in two


def test_intervals_of_another_budget_stand_each_by_itself(tmp_path: Path) -> None:
    """Nothing shares the level with them: neither a comparison that gets a verdict nor another without one."""
    for others in (("longer", "longest"), ("longer", "wider")):
        trials = [make_trial("full", seed) for seed in (1, 2, 3)]
        for k, name in enumerate(others, 1):
            change = {"batch_size": 30} if name == "wider" else {"epochs": FULL.epochs + k}
            trials += [make_trial(name, seed, **change) for seed in (1, 2, 3)]
        for trial in trials:
            settle(tmp_path / others[1] / "runs", trial, 60.0 + trial.seed / 10 + len(trial.variant))
        artist = NoArtist()
        page = write(tmp_path / others[1], trials, artist=artist)
        assert "(Ranges: 95% intervals, each by itself, of the change in test perplexity" in answer(page)
        assert artist.asked["forest.svg"][3] == "95%" and "with 95% intervals" in page


def test_a_caption_without_intervals_says_nothing_of_them(tmp_path: Path, sweep: Sweep) -> None:
    page = write(tmp_path, sweep(full=[60.0, 60.1, 60.2], b=[70.0, None, 70.2], c=[None, None, 61.0]))
    assert "Change of test perplexity against “full”; within the grey band, ±0.5%, a change counts as none." in page


def test_a_reason_with_a_carriage_return_is_one_cell(tmp_path: Path, sweep: Sweep) -> None:
    trials = [*sweep(full=[60.0, 60.3]), make_trial("b", 1, batch_size=99)]
    settle(tmp_path / "runs", trials[-1], 61.0, status="failed", reason="RuntimeError: step 1\rstep 2")
    write(tmp_path, trials)
    table = load_report(tmp_path / "report").trials
    assert table.num_rows == 3 and "RuntimeError: step 1 step 2" in table["reason"].to_pylist()


def test_a_thousand_epochs_are_written_out(tmp_path: Path) -> None:
    trials = [
        make_trial(name, 1, batch_size=20 + k, epochs=1500, finetune=None) for k, name in enumerate(("full", "b"))
    ]
    for trial in trials:
        settle(tmp_path / "runs", trial, 60.0)
    assert "| full | 1500 of 1500 |" in write(tmp_path, trials)


def test_an_interval_that_a_later_step_decides_ends_at_zero_and_the_page_says_why(tmp_path: Path, sweep: Sweep) -> None:
    noise = 0.01 * np.linspace(-1.75, 1.75, 8)

    def perplexities(nats: float, order: int = -1) -> list[float | None]:
        return [float(value) for value in np.exp(4.0 + nats + noise[::order])]

    def page(last: float) -> tuple[str, str]:
        large = {"a": perplexities(0.5), "b": perplexities(1.5), "c": perplexities(2.5)}
        text = write(tmp_path, sweep(full=perplexities(0.0, 1), **large, d=perplexities(last)))
        return text, next(line for line in text.splitlines() if line.startswith("| d |"))

    groups = {str(k): seeded(4.5 + k + noise[::-1]) for k in range(3)}
    none = compare(seeded(4.0 + noise), {**groups, "d": seeded(4.0 + noise[::-1])}).effects["d"].interval
    assert none is not None
    stepped, row = page(0.95 * none.high)
    assert "[above 0%, " in row and "**raises**" in row
    assert "one that ends above or below 0% was decided at a later step of Holm's test" in stepped
    assert "one that ends above or below 0%" not in page(0.2)[0]


def test_the_table_of_published_numbers_has_the_variants_that_have_one(tmp_path: Path, sweep: Sweep) -> None:
    def lines(**papers: Published) -> int:
        text = write(tmp_path, trials, published=papers)
        assert all(len(set(rows)) == 1 for rows in render(text).tables)
        assert ("| Published validation | Published test |" in text) == bool(papers)
        table = text.partition("### Published")[2].partition("\n## ")[0]
        return sum(line.startswith("| ") for line in table.splitlines())

    trials = sweep(full=[60.0, 60.3], b=[70.0, 70.3])
    base = Published(None, number(57.3))
    assert [lines(), lines(full=base), lines(full=base, b=Published(None, number(68.9)))] == [0, 3, 4]


def test_nothing_complete_and_nothing_to_compare(tmp_path: Path, sweep: Sweep) -> None:
    text = write(tmp_path, sweep(full=[None], b=[None]))
    assert answer(text) == "At laptop scale, nothing is complete yet, so there is no answer."
    assert "overview.svg" not in text
    lost = [make_trial(name, 1) for name in ("full", "b")]
    for trial in lost:
        settle(tmp_path / "lost" / "runs", trial, 60.0, status="diverged", reason="not finite")
    assert answer(write(tmp_path / "lost", lost)) == "At laptop scale, all 2 trials diverged, so there is no answer."
    assert answer(write(tmp_path, sweep(full=[60.0, 61.0]))) == (
        "At laptop scale, “full” reaches test perplexity 60.50 ± 0.71 (mean ± standard deviation of 2 seeds)."
    )


def test_the_baseline_has_the_name_that_it_is_given(tmp_path: Path, sweep: Sweep) -> None:
    text = write(tmp_path, sweep(full=[70.0, 70.2], softmax=[60.0, 60.2]), baseline="softmax")
    assert re.search(r"^\| softmax .*\| baseline \|", text, re.MULTILINE)
    assert re.search(r"^\| full .*\| \*\*raises\*\* \|", text, re.MULTILINE)
    assert re.search(rf"“full” raises test perplexity by 16.6% {ENDS}\.", answer(text))
    assert "Change of test perplexity against “softmax” with" in text


def test_the_baseline_must_be_there(tmp_path: Path, sweep: Sweep) -> None:
    with pytest.raises(ValueError, match="compares with the variant 'full'"):
        write(tmp_path, sweep(b=[60.0]))


def test_trials_that_did_not_end_well_are_all_there_with_their_reason(tmp_path: Path, sweep: Sweep) -> None:
    trials = sweep(full=[60.0, 60.3])
    lost = [make_trial("b", seed, epochs=12 + seed) for seed in (1, 2, 3, 4)]
    settle(tmp_path / "runs", lost[0], 1.0, status="diverged", reason="not finite in train, epoch 3, step 321")
    settle(tmp_path / "runs", lost[1], 1.0, status="failed", reason="OSError: disk | full\nat line 3 " + "x" * 400)
    begin(tmp_path / "runs", lost[2], 60.0, epochs=4)
    text = write(tmp_path, [*trials, *lost])
    assert (
        "| b | 1 | diverged | not finite in train, epoch 3, step 321; learning rate 30, gradient norm 1.23e+03 |"
        in text
    )
    assert "| b | 2 | failed | OSError: disk \\| full at line 3 … (whole in trials.csv) |" in text
    assert "| b | 3 | unfinished | stands after epoch 4, stage train |" in text
    assert "| b | 4 | missing | no epoch finished yet |" in text
    assert "2 of 6 planned trials complete, 1 diverged, 1 failed, 1 unfinished, 1 missing." in text


def test_an_adaptive_variant_is_kept_out_of_the_answer(tmp_path: Path, sweep: Sweep) -> None:
    trials = sweep(full=[60.0, 60.3], b=[70.0, 70.3])
    cached = [make_trial("neural cache", seed, cache=CACHE) for seed in (1, 2)]
    for trial in cached:
        settle(tmp_path / "runs", trial, 40.0)
    text = write(tmp_path, [*trials, *cached])
    assert "of validation and 1 column of test (the cache in one). The AWD" in text
    assert "neural cache" not in answer(text)
    assert "adaptive, not compared" in text
    assert "| neural cache | 500, 0.1, 1 | 44.00 ± 0.00 | 42.00 ± 0.00 | 44.00 ± 0.00 | 40.00 ± 0.00 |" in text
    assert "Not drawn, since a cache changes nothing in training: neural cache." in text


def test_published_numbers_are_placed(tmp_path: Path, sweep: Sweep) -> None:
    trials = sweep(full=[60.0, 60.3], b=[70.0, 70.3])
    elsewhere = write(tmp_path, trials)
    assert "Merity et al. 2017, table 4: **another scale**, whose settings are not the published ones" in elsewhere
    assert "| full | – | – | 60.0† | 57.3 | – |" in elsewhere
    assert "† from memory" in elsewhere
    assert "another scale" not in write(tmp_path, trials, published_scale=True)
    assert "ublished" not in write(tmp_path, trials, published={})


def test_a_published_deviation_is_printed_and_a_recalled_number_marks_its_difference(
    tmp_path: Path, sweep: Sweep
) -> None:
    trials = sweep(full=[60.0, 60.3], b=[70.0, 70.3], c=[80.0, 80.3])
    base = Published(None, number(57.3, std=0.2))
    papers = {"full": base, "b": Published(None, number(68.9, "recalled")), "c": Published(None, number(77.04))}
    text = write(tmp_path, trials, published=papers)
    assert "| full | – | – | – | 57.3 ± 0.2 | – |" in text
    assert "| +20.2%† | – | 68.9† | +11.6† |" in text
    assert "| +34.5% | – | 77.04 | +19.74 |" in text
    recalled = {"full": Published(None, number(57.3, "recalled")), "c": papers["c"]}
    assert "| +34.5%† | – | 77.04 | +19.74† |" in write(tmp_path, trials, published=recalled)


def test_ours_stands_beside_the_published_and_judges_its_difference(tmp_path: Path, sweep: Sweep) -> None:
    """By our interval, as ratios of perplexities, and only where the numbers belong to this scale."""
    trials = sweep(full=[60.0, 60.3, 60.1], b=[70.0, 70.3, 70.2], c=[80.0, 80.3, 80.1], d=[60.1, 60.3, 60.0])
    ratios = {"full": 1.0, "b": 70 / 60, "c": 75 / 60, "d": 1.0005}
    papers = {name: Published(None, number(round(50 * ratio, 3))) for name, ratio in ratios.items()}
    text = write(tmp_path, trials, published=papers, published_scale=True)
    table = text.partition("### Published\n")[2].partition("\n## ")[0]
    rows = {row.split(" | ")[0].strip("| "): row for row in table.splitlines() if row.startswith("| ")}
    assert rows["full"].startswith(
        "| full | test | 60.13 ± 0.15 | 3 | 50.0 | +10.13 (+20.3%) | 59.75 to 60.51 | 59.37 to 60.89 | – | – | base"
    )
    verdicts = {name: rows[name].rsplit("|", 2)[1].strip() for name in ("b", "c", "d")}
    assert verdicts == {"b": "reproduced", "c": "not reproduced", "d": "not decided"}
    assert "Less published" not in write(tmp_path, trials, published=papers)
    single = write(tmp_path, sweep(full=[60.0], b=[70.0]), published=papers, published_scale=True)
    assert "| b | test | 70.00 | 1 | 58.333 | +11.67 (+20.0%) | – | – | +8.333 | +10.00 | not decided |" in single


def test_both_splits_of_a_variant_stand_beside_what_is_published_of_them(tmp_path: Path, sweep: Sweep) -> None:
    trials = sweep(full=[60.0, 60.3, 60.1])
    papers = {"full": Published(valid=number(70.0, "recalled"), test=number(60.0))}
    text = write(tmp_path, trials, published=papers, published_scale=True)
    valid, test = re.findall(
        r"^\| full \| (validation|test) .* (70\.0†|60\.0) \| .* \| – \| – \| (–|baseline) \|$", text, re.M
    )
    assert (valid, test) == (("validation", "70.0†", "–"), ("test", "60.0", "baseline"))
    assert re.search(
        r"Validation perplexity is \S+ ± \S+, \S+% \w+ the published 70 \(from memory\), which lies outs", text
    )


def test_only_a_number_that_was_looked_up_is_drawn_as_a_line(tmp_path: Path, sweep: Sweep) -> None:
    trials = sweep(full=[60.0, 60.3])
    for certainty, line in (("seed", 57.0), ("code", 57.0), ("recalled", None)):
        artist = NoArtist()
        papers = {"full": Published(number(57.0, certainty), None)}
        write(tmp_path, trials, published=papers, published_scale=True, artist=artist)
        assert artist.asked["overview.svg"][1] == line


def test_notes_on_published_numbers_are_listed_once_where_they_can_be_compared(tmp_path: Path, sweep: Sweep) -> None:
    trials = sweep(full=[60.0, 60.3], b=[70.0, 70.3], c=[80.0, 80.3])
    again, unlike = number(76.5, note="run again"), number(80.0, "recalled")
    unlike = unlike.model_copy(update={"split": "valid", "table": "a report"})
    papers = {
        "full": Published(number(60.0, note="a | misprint"), number(57.3, note="a | misprint")),
        "b": Published(None, number(68.9, note="long " * 60)),
        "c": Published(None, number(77.0), (again.model_copy(update={"split": "test", "table": "4"}), unlike)),
    }
    text = write(tmp_path, trials, published=papers, published_scale=True)
    assert "\n- c (test): elsewhere 76.5 (a paper, table 4; run again)\n" in text
    assert "\n- c (validation): elsewhere 80.0† (a paper, a report)\n" in text
    assert "† from memory, not checked against the paper." in text
    assert "- full (validation) and full (test): a \\| misprint\n- b (test): long long" in text
    assert "long …\n" in text
    render(text)
    assert "Notes on the published numbers" not in write(tmp_path, trials, published=papers)
    same = {variant: Published(number(60.0, note="unclear"), number(57.3, note="unclear")) for variant in ("full", "b")}
    assert "\n- all: unclear\n" in write(tmp_path, trials, published=same, published_scale=True)
    assert "Notes on the published numbers" not in write(tmp_path, trials, published_scale=True)


def test_names_and_reasons_cannot_break_the_page(tmp_path: Path, sweep: Sweep) -> None:
    trials = sweep(full=[60.0, 60.3])
    hostile = [make_trial(HOSTILE, seed, change=HOSTILE, batch_size=3) for seed in (1, 2)]
    settle(tmp_path / "runs", hostile[0], 70.0)
    settle(tmp_path / "runs", hostile[1], 70.0, status="failed", reason=HOSTILE)
    text = write(tmp_path, [*trials, *hostile], question=HOSTILE, name=HOSTILE, published_note=HOSTILE, command=HOSTILE)
    page = render(text)
    assert all(len(set(rows)) == 1 for rows in page.tables)
    assert len(page.tables) == 9
    assert page.links == ["../../how-to-read.md", "table.csv", "trials.csv", "curves.parquet", "table.tex"]
    assert page.text.count(" ".join(HOSTILE.split())) >= 4
    assert "<script>" not in html.unescape(re.sub(r"&lt;|^`{4}.*?^`{4}", "", text, flags=re.M | re.S))
