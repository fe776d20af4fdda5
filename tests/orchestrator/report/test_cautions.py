"""What to know before a verdict is quoted, the looks that a page costs, and what lies beside it for who checks it."""

from __future__ import annotations

import csv
import logging
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from lm.record import Record, curve_table, read_record, write_record
from lm.spec import MixtureHead
from orchestrator.agenda.expand import expand, looks_path
from orchestrator.analysis.comparison import compare_variants, losses_on_test
from orchestrator.analysis.noise import text_variance
from orchestrator.analysis.outcomes import Outcome, Outcomes, read_outcomes
from orchestrator.report import report_sweep
from orchestrator.report.files.folder import Report
from orchestrator.report.sections.method_notes import method_notes
from orchestrator.sweep.published import Published
from orchestrator.trials.records import Records
from tests.frozen.pages import DESIGNS, FOLDER
from tests.orchestrator.report.test_answer import near, outcomes_of
from tests.orchestrator.report.test_head_tables import ECOC
from tests.support.factories import CACHE, make_curve, make_trial, number, settle, write_tokens
from tests.support.found import BASE, at_paper
from tests.support.pages import render, write

pytestmark = pytest.mark.usefixtures("without_pictures")

TWO = {"full": near(60.0), "b": [60.1, 61.0, 60.5]}


def without_last_stage(record: Record | None) -> Record:
    assert record is not None
    return record.model_copy(update={"stages": record.stages[:1]})


def cautions(outcomes: Outcomes, text_correlation: float | None = None, **how: Any) -> str:
    comparison = compare_variants(outcomes)
    assert comparison is not None and comparison.noise is not None
    comparison = replace(comparison, noise=replace(comparison.noise, text_correlation=text_correlation))
    return " ".join(method_notes(outcomes, comparison, **how).cautions)


def test_the_smallest_effect_that_is_found_is_said_and_published_ones_that_are_smaller_named(tmp_path: Path) -> None:
    trials = [make_trial(name, seed, batch_size=20 + k) for k, name in enumerate(TWO) for seed in (1, 2, 3)]
    for trial, test in zip(trials, [*TWO["full"], *TWO["b"]], strict=True):
        settle(tmp_path / "runs", trial, test)
    comparison = compare_variants(read_outcomes(trials, Records(tmp_path / "runs"), "full"))
    assert comparison is not None
    (effect,) = comparison.effects.values()
    assert effect.interval is not None and effect.seed_error is not None
    nats = effect.interval.high - effect.nats + float(stats.norm.ppf(0.8)) * effect.seed_error
    said = re.escape(f"{100 * math.expm1(nats):.2g}%")
    base = Published(None, number(50.0))
    for share, smaller in ((0.9, True), (1.1, False), (-0.9, True)):
        papers = {"full": base, "b": Published(None, number(round(50.0 * math.exp(share * nats), 4)))}
        text = write(tmp_path, trials, published=papers)
        assert re.search(rf"- A true change of {said} would get a verdict with a probability of 80%\.", text)
        assert ("The published change of “b” is smaller, so it could hardly be found." in text) == smaller
    one_seed = write(tmp_path, [trial for trial in trials if trial.seed == 1])
    assert "with a probability of 80%" not in one_seed


def test_variants_of_one_spec_are_not_said_to_differ_in_a_setting_without_effect(tmp_path: Path) -> None:
    def said(*batch_sizes: int) -> str:
        runs = tmp_path / str(batch_sizes)
        trials = [make_trial(n, s, batch_size=b) for n, b in zip("abc", batch_sizes, strict=True) for s in (1, 2)]
        for trial in trials:
            settle(runs, trial, 60.0 + trial.seed + 5 * (trial.variant == "a"))
        return cautions(read_outcomes(trials, Records(runs), "a"))

    assert "b and c have the same loss in every seed" in said(20, 21, 22)
    assert "have the same loss" not in said(20, 21, 21)


def test_what_its_own_comparison_would_find_is_not_called_hard_to_find(tmp_path: Path) -> None:
    """Of a softmax whose seeds hardly differ, beside two mixtures whose seeds do."""
    quiet, noisy = [60.0, 60.3, 60.6], [55.0, 60.0, 65.0]
    mixture = MixtureHead(kind="mixture", experts=(0, 0, 2))
    trials = []
    for name, tests, batch, head in (
        ("full", quiet, 20, {}),
        ("quiet", [60.3, 60.2, 60.8], 21, {}),
        ("noisy", noisy, 20, {"head": mixture}),
        ("noisier", noisy[::-1], 21, {"head": mixture}),
    ):
        for seed, test in enumerate(tests, 1):
            trials.append(make_trial(name, seed, batch_size=batch, **head))
            settle(tmp_path / "runs", trials[-1], test)
    papers = {
        name: Published(None, number(value)) for name, value in (("full", 60.0), ("quiet", 63.0), ("noisy", 63.0))
    }
    text = write(tmp_path, trials, published=papers)
    assert "The published change of “noisy” is smaller, so it could hardly be found." in text


def test_long_topics_are_warned_of() -> None:
    outcomes = outcomes_of(TWO)
    assert "**The differences in neighbouring sixteenths of the test text correlate by 0.36**" in cautions(
        outcomes, 0.36
    )
    assert "correlate" not in cautions(outcomes, 0.34) + cautions(outcomes)


def test_what_all_seeds_share_is_named_unless_it_varies_with_the_seed() -> None:
    outcomes = outcomes_of(TWO)
    corpus = outcomes.of_baseline[0].trial.spec.corpus.model_copy(update={"train_tokens": 5_000})
    groups = {
        name: tuple(
            replace(each, trial=replace(each.trial, spec=each.trial.spec.model_copy(update=update))) for each in group
        )
        for (name, group), update in zip(
            outcomes.items(), ({"corpus": corpus}, {"head": ECOC, "corpus": corpus}), strict=True
        )
    }
    shared = Outcomes(groups, "full")
    code, stretch, search = "one code for each codebook", "one stretch of the training text", "what one search found"
    told = "All seeds share {}, so no interval covers what another choice would change."
    assert told.format(f"{code}, {stretch} and {search}") in cautions(shared, searched=True)
    assert told.format(stretch) in cautions(shared, varies=("head.codebook.seed",))
    assert told.format(code) in cautions(shared, varies=("corpus.train_start",))
    assert "All seeds share" not in cautions(shared, varies=("head.codebook.seed", "corpus.train_start"))
    assert "All seeds share" not in cautions(outcomes)


COMPONENT = f"{BASE}components:\n  weight-dropping: {{off: {{dropout.weight: 0.0}}}}\n"


def report(place: Path, *seeds: int) -> Report:
    """The report of a sweep with these seeds, all of them complete."""
    sweep = at_paper(place, f"{COMPONENT}seeds: {list(seeds)}\n")
    records = Records(place / "runs")
    now = expand(sweep, records)
    for trial in now.trials:
        settle(place / "runs", trial, 60.0 + trial.seed / 10 + 5 * (trial.variant != "full"))
    return report_sweep(sweep, place / "toy.yaml", now, records, place / "reports", if_fuller="replace")


def test_a_page_with_intervals_is_a_look_that_counts_when_seeds_are_added(tmp_path: Path) -> None:
    ledger = looks_path(at_paper(tmp_path, f"{COMPONENT}seeds: [1]\n"), Records(tmp_path / "runs"))
    report(tmp_path, 1)
    assert not ledger.exists(), "one seed has no interval to read"
    first = report(tmp_path, 1, 2).page.read_text(encoding="utf-8")
    assert report(tmp_path, 1, 2).page.read_text(encoding="utf-8") == first, "the same page again is no further look"
    assert ledger.read_text() == '{"seeds": [1, 2]}\n' and "earlier page" not in first
    more = report(tmp_path, 1, 2, 3).page.read_text(encoding="utf-8")
    assert "1 earlier page judged some of these seeds (of 2 seeds), and each counts as a look." in more
    assert "the table has a wrong verdict with a probability of at most 2.5%." in more and "97.5% interval" in more


def test_a_page_with_fewer_seeds_of_the_variants_is_a_look_too(tmp_path: Path) -> None:
    for seeds in ("{baseline: 4, variants: 2}", "{baseline: 4, variants: 3}"):
        sweep, records = at_paper(tmp_path, f"{COMPONENT}seeds: {seeds}\n"), Records(tmp_path / "runs")
        now = expand(sweep, records)
        for trial in now.trials:
            settle(tmp_path / "runs", trial, 60.0 + trial.seed / 10 + 5 * (trial.variant != "full"))
        page = report_sweep(sweep, tmp_path / "toy.yaml", now, records, tmp_path / "reports", if_fuller="replace").page
    assert "1 earlier page judged some of these seeds (of 2 seeds)" in page.read_text(encoding="utf-8")


def test_a_folder_of_trials_that_may_only_be_read_costs_a_warning_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: object) -> None:
        raise OSError(30, "Read-only file system", "runs")

    monkeypatch.setattr("orchestrator.report.note_look", read_only)
    with caplog.at_level(logging.WARNING):
        page = report(tmp_path, 1, 2).page
    assert "**raises**" in page.read_text(encoding="utf-8") and (tmp_path / "reports/README.md").exists()
    assert "this look at the seeds is not noted: runs: Read-only file system" in caplog.text


def test_the_page_leads_to_how_it_is_read(tmp_path: Path) -> None:
    page = report(tmp_path, 1, 2).page
    (link,) = [link for link in render(page.read_text(encoding="utf-8")).links if link.endswith("how-to-read.md")]
    how = (page.parent / link).resolve()
    assert how == (tmp_path / "reports/how-to-read.md").resolve()
    text = how.read_text(encoding="utf-8")
    results = re.search(r"^\| Variant \| (.*) \|$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert results is not None
    for column in results.group(1).split(" | "):
        assert column == "Parameters" or f"**{column.partition(':')[0]}**" in text, f"{column} is not explained"


def test_the_means_of_the_blocks_give_the_noise_of_the_text(tmp_path: Path) -> None:
    trials = [make_trial(name, seed, batch_size=20 + k) for k, name in enumerate("ab") for seed in (1, 2)]
    for trial in trials:
        settle(tmp_path / "runs", trial, 60.0 + trial.seed / 10)
        write_tokens(tmp_path / "runs", trial, harder=0.3 * (trial.variant == "b"))
    assert "[blocks.csv](blocks.csv), mean losses on 64 blocks" in write(tmp_path, trials, baseline="a")
    with (tmp_path / "report/blocks.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [(line.pop("variant"), line.pop("seed")) for line in lines] == [
        ("a", "1"),
        ("a", "2"),
        ("b", "1"),
        ("b", "2"),
    ]
    a1, a2, b1, b2 = (np.array([float(nats) for nats in line.values()]) for line in lines)
    blocks = (b1 + b2 - a1 - a2) / 2
    assert blocks.size == 64
    # The equal-weighted cosine test, written out: six waves of the type II cosine transform along the text.
    waves = [
        sum(math.sqrt(2) * math.cos(math.pi * k * (i + 0.5) / 64) * nats for i, nats in enumerate(blocks)) / 64
        for k in range(1, 7)
    ]
    outcomes = read_outcomes(trials, Records(tmp_path / "runs"), "a")
    exact = {name: losses_on_test(group).blocks for name, group in outcomes.items()}
    variance = text_variance(exact["b"].mean(axis=0) - exact["a"].mean(axis=0))  # type: ignore[union-attr]
    assert variance > 0
    assert sum(wave**2 for wave in waves) / 6 == pytest.approx(variance, rel=1e-4)


@pytest.mark.parametrize("design", DESIGNS)
def test_no_table_and_no_picture_is_more_than_60_words_below_its_heading(design: str) -> None:
    text = (FOLDER / design / "report.md").read_text(encoding="utf-8")
    sections = re.split(r"^##+ (.*)\n", text, flags=re.MULTILINE)[1:]
    for title, section in zip(sections[::2], sections[1::2], strict=True):
        shown = re.search(r"^(\||!\[)", section, re.MULTILINE)
        if shown is not None:
            assert len(section[: shown.start()].split()) <= 60, title


@pytest.mark.parametrize(("learning", "is_said"), [(0, False), (1, False), (2, True), (11, True)])
def test_trials_whose_validation_still_fell_are_counted(tmp_path: Path, learning: int, is_said: bool) -> None:
    """Of eleven trials; one of them may be chance. The epochs of fine-tuning count, the cache trains none."""
    trials = [make_trial("full", seed) for seed in range(1, 12)]
    for number_, trial in enumerate(trials):
        settle(tmp_path / "runs", trial, 60.0 + number_)
        record = read_record(tmp_path / "runs" / trial.key)
        assert record is not None and len(record.stages) == 2
        total = sum(stage.epochs for stage in record.stages)
        best = total - (number_ >= learning)
        stages = (record.stages[0], record.stages[1].model_copy(update={"best_epoch": best}))
        write_record(tmp_path / "runs" / trial.key, record.model_copy(update={"stages": stages}))
    outcomes = read_outcomes(trials, Records(tmp_path / "runs"), "full")
    said = f"**In {learning} of 11 trained trials, validation was lowest at the last epoch**"
    assert (said in " ".join(method_notes(outcomes, None).cautions)) == is_said
    shorter = tuple(  # without fine-tuning each is the first stage of another trial, and a cache trains nothing
        replace(each, trial=replace(each.trial, reads_from=each.trial.key), record=without_last_stage(each.record))
        for each in outcomes.of_baseline
    )
    spec = {"spec": outcomes.of_baseline[0].trial.spec.model_copy(update={"cache": CACHE})}
    caches = tuple(replace(each, trial=replace(each.trial, key="c", **spec)) for each in outcomes.of_baseline)
    more = Outcomes({**outcomes, "no fine-tuning": shorter, "neural cache": caches}, "full")
    assert (said in " ".join(method_notes(more, None).cautions)) == is_said


def test_it_is_said_how_much_the_last_tenth_of_the_epochs_brought(tmp_path: Path) -> None:
    """Against the lowest of all epochs before, of trials that were lowest at the end; one epoch has none before."""
    trials = [make_trial("full", seed) for seed in range(1, 5)]
    for trial in trials:
        settle(tmp_path / "runs", trial, 60.0)
    outcomes = read_outcomes(trials, Records(tmp_path / "runs"), "full")
    losses = [
        [5.0, *[4.5] * 17, 4.5 + math.log(0.99), 4.5 + math.log(0.98)],
        [4.4, *[4.6] * 17, 4.5, 4.4 + math.log(0.96)],
        [*[4.5] * 18, 4.4, 4.45],  # its best epoch is not the last: not asked
        [4.0],
    ]

    def trained(each: Outcome, curve: list[float]) -> Outcome:
        assert each.record is not None
        first = make_curve(each.trial.spec, 60.0)[0]
        points = [replace(first, epoch=n, step=n, valid_nats_per_token=nats) for n, nats in enumerate(curve, start=1)]
        last = each.record.stages[-1].model_copy(update={"epochs": len(curve), "best_epoch": int(np.argmin(curve)) + 1})
        return replace(each, curve=curve_table(points), record=each.record.model_copy(update={"stages": (last,)}))

    changed = [trained(each, curve) for each, curve in zip(outcomes.of_baseline, losses, strict=True)]
    lowest, more = "validation was lowest at the last epoch**", ": with more epochs the results may change."
    fell = ", and the last tenth of the epochs lowered perplexity by 3.0% in the median, 4.0% at most"
    said = " ".join(method_notes(Outcomes({"full": tuple(changed)}, "full"), None).cautions)
    assert f"**In 3 of 4 trained trials, {lowest}{fell}{more}" in said
    short = trained(changed[0], losses[0][-3:])
    said = " ".join(method_notes(Outcomes({"full": (short,)}, "full"), None).cautions)
    assert f"{lowest}, and that epoch lowered perplexity by 1.0%{more}" in said
    said = " ".join(method_notes(Outcomes({"full": (changed[3],)}, "full"), None).cautions)
    assert f"**In 1 of 1 trained trial, {lowest}{more}" in said
