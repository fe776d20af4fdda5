"""The picture of a number's effect: which variants are on one line, what is measured of them, and what is refused."""

from __future__ import annotations

import dataclasses
import math
import re
import statistics
from pathlib import Path

import pytest

from lm.record import write_curve, write_record
from lm.spec import BlendedAugmentedLoss, Cache, Corpus, Dropout, MixtureHead, SoftmaxHead
from orchestrator.analysis.looks import Looks
from orchestrator.analysis.outcomes import read_outcomes
from orchestrator.api import load_sweep
from orchestrator.report.page import ReportInput, write_report
from orchestrator.report.pictures.lines import Line, LinePanel, lines_figure
from orchestrator.sweep import SweepError
from orchestrator.sweep.published import Measure, Published
from orchestrator.sweep.scaled import Dose
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from tests.support.factories import CACHE, make_curve, make_record, make_trial, number, settle
from tests.support.pages import NoArtist, a_sweep, write
from tests.support.pages import answer as answer_of
from tests.support.places import SWEEP

SHARE = Dose(of="head.augmented.share", measure="subspace_distance")
TEMPERATURE = Dose(of="head.augmented.temperature", measure="subspace_distance")


PUBLISHED = Measure(
    paper="tying",
    table="figure 1a",
    variant="beta 1 tau 10",
    metric="subspace_distance",
    value=0.06,
    certainty="code",
)


def blended(share: float, temperature: float) -> SoftmaxHead:
    augmented = BlendedAugmentedLoss(kind="blended", share=share, temperature=temperature)
    return SoftmaxHead(kind="softmax", bias=False, augmented=augmented)


def trials(runs: Path, seeds: int = 3, wobble: float = 0.0) -> list[Trial]:
    """Three shares at one temperature, and the highest at three; a distance falls over the epochs, and with both.

    What the share does differs by `wobble` between seeds, up or down.
    """
    planned = []
    for share, temperature in ((1.0, 10.0), (0.0, 10.0), (0.5, 10.0), (1.0, 2.0), (1.0, 20.0)):
        for seed in range(1, seeds + 1):
            head = blended(share, temperature)
            planned.append(make_trial(f"beta {share:g} tau {temperature:g}", seed, head=head, finetune=None))
            points = make_curve(planned[-1].spec, 100.0, noise=seed)
            last = 0.9 - 0.6 * share - temperature / 100 + seed / 1000 + wobble * share * (-1) ** seed
            terms = [{"augmented": 2.0, "subspace_distance": last + 1 / point.epoch - 1 / 12} for point in points]
            curve = [dataclasses.replace(p, terms=t) for p, t in zip(points, terms, strict=True)]
            write_curve(runs / planned[-1].key, curve)
            write_record(runs / planned[-1].key, make_record(planned[-1], 100.0 + 50 * share + seed))
    return planned


def page(tmp: Path, *doses: Dose, artist: NoArtist | None = None, **how: object) -> str:
    return write(tmp, trials(tmp / "runs"), baseline="beta 1 tau 10", doses=doses, artist=artist, **how)


def section(text: str, title: str) -> list[str]:
    return text.split(f"\n## {title}\n")[1].split("\n## ", maxsplit=1)[0].splitlines()


def test_each_number_has_a_picture_of_the_variants_that_differ_in_it_alone(tmp_path: Path) -> None:
    artist = NoArtist()
    text = page(tmp_path, SHARE, TEMPERATURE, artist=artist)
    ((by_share,), _), ((by_temperature,), _) = artist.asked["dose-1.svg"], artist.asked["dose-2.svg"]
    (line,) = by_share.lines
    assert (line.name, list(line.x)) == ("beta 0 tau 10 to beta 1 tau 10", [0.0, 0.5, 1.0])
    assert line.mean == pytest.approx([0.802, 0.502, 0.202]), "of the last epoch"
    assert (line.low[0], line.high[0]) == pytest.approx((0.801, 0.803))
    (line,) = by_temperature.lines
    assert list(line.x) == [2.0, 10.0, 20.0] and line.mean == pytest.approx([0.282, 0.202, 0.102])
    ((level, label),) = by_share.levels
    assert label == "random subspaces" and level == pytest.approx(math.sqrt(1 - 100 / 6000))
    assert by_share.low == 0.0 and not by_share.log_x
    assert "(dose-1.svg)" in text and "(dose-2.svg)" in text


def test_its_table_has_the_published_value(tmp_path: Path) -> None:
    lines = section(
        page(tmp_path, SHARE, published_measures=[PUBLISHED]),
        "Subspace distance by head.augmented.share",
    )
    rows = [line for line in lines if line.startswith("| ")]
    assert rows[0].endswith("| Lowest | Highest | Published | Seeds |")
    assert [row.split(" | ")[1] for row in rows[2:]] == ["beta 0 tau 10", "beta 0.5 tau 10", "beta 1 tau 10"]
    assert "| 0.202 ± 0.001 | 0.2010 | 0.2030 | 0.06 | 3 |" in rows[-1] and " | – | " in rows[2]


def test_the_effect_on_perplexity_needs_no_measure(tmp_path: Path) -> None:
    text = page(tmp_path, Dose(of="head.augmented.share"))
    rows = [line for line in section(text, "Test perplexity by head.augmented.share") if line.startswith("| 0.5")]
    assert len(rows) == 1 and "| 127.0 ± 1.0 | 126.0 | 128.0 | 3 |" in rows[0]
    papers = {"beta 0.5 tau 10": Published(None, number(120.5, "recalled"))}
    text = page(tmp_path / "papers", Dose(of="head.augmented.share"), published=papers)
    assert "| 127.0 ± 1.0 | 126.0 | 128.0 | 120.5† | 3 |" in text and "† from memory" in text


def test_a_number_that_no_complete_variants_differ_in_has_no_section(tmp_path: Path) -> None:
    assert " by " not in "".join(line for line in page(tmp_path, Dose(of="epochs")).splitlines() if line[:3] == "## ")


def test_the_lines_are_drawn_with_bars_and_levels(tmp_path: Path) -> None:
    artist = NoArtist()
    page(tmp_path, TEMPERATURE, artist=artist)
    figure = lines_figure(*artist.asked["dose-1.svg"])
    (axes,) = figure.axes
    assert axes.get_ylim()[0] == 0.0
    assert axes.get_xlabel() == "head.augmented.temperature" and axes.get_ylabel() == "subspace distance"
    assert list(axes.lines[0].get_xdata()) == [2.0, 10.0, 20.0] and len(axes.collections) == 1


@pytest.mark.parametrize(("places", "scale"), [([0.0, 0.01, 1.0], "symlog"), ([0.01, 0.1, 1.0], "log")])
def test_numbers_far_apart_are_drawn_on_a_log_scale_also_with_zero(places: list[float], scale: str) -> None:
    line = Line("a", places, [1.0] * 3, [1.0] * 3, [1.0] * 3)
    (axes,) = lines_figure([LinePanel("", "share", "distance", [line], log_x=True)], "").axes
    assert axes.get_xscale() == scale and axes.get_xlim()[0] > -places[1]
    ends = [axes.transData.transform((place, 1.0))[0] for place in places]
    assert 0.2 < (ends[1] - ends[0]) / (ends[2] - ends[0]) < 0.8


@pytest.mark.parametrize(
    ("written", "line"),
    [
        (
            "{of: optimizer.learning_rat}",
            "doses.0.of: 'optimizer.learning_rat': neither the base nor a variant has it; unknown key 'learning_rat' "
            "(did you mean 'learning_rate'?)",
        ),
        ("{of: base.batch_size}", "neither the base nor a variant has it; paths begin inside the base"),
        ("{of: model.tied}", "doses.0.of: 'model.tied': is no number"),
        ("{of: batch_size}", "doses.0.of: all variants have the same, got 'batch_size'"),
        ("{of: dropout.weight, measure: subspace_distance}", "doses.0.measure: subspace_distance needs base.epoch_m"),
        ("{of: dropout.weight, measure: gate_variation}", "doses.0.measure: gate_variation needs head.kind: mixture"),
        ("{of: dropout.weight, measure: distance}", "doses.0.measure: should be 'test_perplexity'"),
    ],
)
def test_a_dose_that_cannot_be_shown_is_refused_with_its_line(tmp_path: Path, written: str, line: str) -> None:
    file = tmp_path / "toy.yaml"
    file.write_text(SWEEP.replace("seeds: [1]", f"seeds: [1]\ndoses: [{written}]"), encoding="utf-8")
    with pytest.raises(SweepError) as refused:
        load_sweep(file, "paper")
    assert any(line in message for message in refused.value.lines), refused.value.lines


def answer(tmp: Path, *doses: Dose, wobble: float = 0.0) -> str:
    shown = write(tmp, trials(tmp / "runs", wobble=wobble), baseline="beta 1 tau 10", doses=doses)
    return next(line for line in shown.splitlines() if line.startswith("**At laptop scale, "))


def test_the_answer_begins_with_the_difference_from_end_to_end(tmp_path: Path) -> None:
    """Differences -0.62, -0.58 and -0.62 of the three seeds: Student's t of two degrees of freedom is 4.3027."""
    half = 4.3027 * statistics.stdev([-0.62, -0.58, -0.62]) / math.sqrt(3)
    assert answer(tmp_path, SHARE, wobble=0.02).startswith(
        "**At laptop scale, subspace distance falls from 0.80 (“beta 0 tau 10”) to 0.20 (“beta 1 tau 10”): "
        f"−0.61 [−{0.6067 + half:.2f}, −{0.6067 - half:.2f}], 95% interval, 3 seeds. "
    )


def test_a_difference_whose_interval_has_zero_is_not_shown(tmp_path: Path) -> None:
    assert "subspace distance is not shown to change from 0.80 (“beta 0" in answer(tmp_path, SHARE, wobble=0.9)


def test_the_intervals_of_all_numbers_hold_at_once(tmp_path: Path) -> None:
    alone, both = (answer(tmp_path / str(len(doses)), *doses, wobble=0.02) for doses in ([SHARE], [SHARE, TEMPERATURE]))
    widths = [re.search(r"\[−([\d.]+), −([\d.]+)\]", text).groups() for text in (alone, both)]  # type: ignore[union-attr]
    narrow, wide = (float(low) - float(high) for low, high in widths)
    assert narrow < wide
    assert "Subspace distance falls from 0.28 (“beta 1 tau 2”) to 0.095 (“beta 1 tau 20”): " in both


@pytest.mark.parametrize("cache", [None, CACHE])
def test_what_a_gate_does_is_measured_on_test_in_each_line(cache: Cache | None, tmp_path: Path) -> None:
    """Two forms of a penalty, each with two strengths: of one it moves the gate, of the other it does not.

    A neural cache changes no gate, and its stage measures none.
    """
    planned = []
    for form, after in (("code", 0.2), ("paper", 0.601)):
        for strength, variation in ((0.001, 0.6), (0.01, after)):
            for seed in (1, 2, 3):
                head = MixtureHead(
                    kind="mixture",
                    experts=(0, 0, 2),
                    prior_penalty=strength,
                    prior_penalty_form=form,  # type: ignore[arg-type]
                )
                planned.append(make_trial(f"{form} {strength:g}", seed, head=head, finetune=None, cache=cache))
                wobble = 0.004 * (seed - 2) * (1 if strength == 0.01 else -1)
                measures = {"gate_variation_paper": variation + wobble, "gate_variation_code": 9.0}
                write_curve(tmp_path / "runs" / planned[-1].key, make_curve(planned[-1].spec, 100.0, noise=seed))
                record = make_record(planned[-1], 90.0, measures=measures)
                if cache is not None:
                    of_cache = record.stages[-1].model_copy(update={"measures": {}})
                    record = record.model_copy(update={"stages": (*record.stages[:-1], of_cache)})
                write_record(tmp_path / "runs" / planned[-1].key, record)
    dose = Dose(of="head.prior_penalty", measure="gate_variation")
    text = write(tmp_path, planned, baseline="code 0.001", doses=[dose])
    assert "gate variation falls from 0.60 (“code 0.001”) to 0.20 (“code 0.01”): −0.4" in text
    assert "Gate variation is not shown to change from 0.60 (“paper 0.001”) to 0.60 (“paper 0.01”): " in text
    assert "Measured at the end of the last epoch" not in text and "0 if all are used alike" in text
    of_paper = PUBLISHED.model_copy(update={"variant": "code 0.01", "metric": "coefficient_of_variation"})
    beside = write(tmp_path, planned, baseline="code 0.001", doses=[dose], published_measures=[of_paper])
    (row,) = [line for line in section(beside, "Gate variation by head.prior_penalty") if "| code 0.01 |" in line]
    assert row.endswith("| 0.06 | 3 |"), "published under the name that papers give it"
    folder, earlier = tmp_path / "looked", Looks((3,), ((1, 2),))
    looked = write(tmp_path, planned, baseline="code 0.001", doses=[dose], looks=earlier, folder=folder)
    assert ", 95% interval, 3 seeds" in answer_of(text) and ", 97.5% interval, 3 seeds" in answer_of(looked)


def test_a_head_without_gates_as_a_search_may_find_has_no_line(tmp_path: Path) -> None:
    planned = [
        make_trial(f"output {output:g}", seed, dropout=Dropout(output=output), finetune=None)
        for output in (0.2, 0.4)
        for seed in (1, 2, 3)
    ]
    for trial in planned:
        settle(tmp_path / "runs", trial, 100.0 + trial.seed)
    doses = [Dose(of="dropout.output", measure="gate_variation"), Dose(of="dropout.output")]
    text = write(tmp_path, planned, baseline="output 0.2", doses=doses)
    assert "gate variation" not in text.lower() and "## Test perplexity by dropout.output" in text


def test_a_number_that_a_search_has_set_to_what_a_removal_sets_is_no_line(tmp_path: Path) -> None:
    planned = [
        make_trial(name, seed, dropout=Dropout(output=0.0), finetune=None)
        for name in ("full", "no output dropout")
        for seed in (1, 2)
    ]
    for trial in planned:
        settle(tmp_path / "runs", trial, 100.0 + trial.seed)
    assert "## Test perplexity by" not in write(tmp_path, planned, doses=[Dose(of="dropout.output")])


def test_variants_are_compared_at_a_seed_that_they_share(tmp_path: Path) -> None:
    """The baseline has one seed more, and each seed another stretch of the text."""
    planned = [
        make_trial(f"output {output:g}", seed, dropout=Dropout(output=output), corpus=stretch(seed), finetune=None)
        for output, seeds in ((0.4, (1, 2, 3)), (0.2, (2, 3)))
        for seed in seeds
    ]
    for trial in planned:
        settle(tmp_path / "runs", trial, 100.0 + trial.seed)
    text = write(tmp_path, planned, baseline="output 0.4", doses=[Dose(of="dropout.output")])
    rows = [line.split(" | ")[1] for line in section(text, "Test perplexity by dropout.output") if line[:3] == "| 0"]
    assert rows == ["output 0.2", "output 0.4"]


def stretch(seed: int) -> Corpus:
    return Corpus(name="pydoc", train_tokens=1000, train_start=1000 * (seed - 1))


def test_perplexity_has_verdicts_in_place_of_a_clause(tmp_path: Path) -> None:
    assert "head.augmented.share" not in answer(tmp_path, Dose(of="head.augmented.share"))


def test_one_seed_gives_no_clause_and_neither_do_those_that_are_left(tmp_path: Path) -> None:
    """If the third seed of an end diverged, the other two are a choice of those that did not."""
    shown = write(tmp_path / "one", trials(tmp_path / "one" / "runs", 1), baseline="beta 1 tau 10", doses=[SHARE])
    assert "subspace distance falls" not in shown
    three = trials(tmp_path / "runs")
    last = next(trial for trial in three if trial.variant == "beta 0 tau 10" and trial.seed == 3)
    write_record(tmp_path / "runs" / last.key, make_record(last, 100.0, status="diverged"))
    shown = write(tmp_path, three, baseline="beta 1 tau 10", doses=[SHARE, TEMPERATURE])
    assert "subspace distance falls from 0.28" in shown and shown.count("subspace distance falls") == 1
    for trial in (trial for trial in three if trial.variant == "beta 0 tau 10"):
        write_record(tmp_path / "runs" / trial.key, make_record(trial, 100.0, status="diverged"))
    without = write(tmp_path, three, baseline="beta 1 tau 10", doses=[SHARE, TEMPERATURE])
    clause, same = (answer_of(text).split(", 3 seeds")[0] for text in (shown, without))
    assert same == clause, "an end without any complete seed ends no line elsewhere"


def test_a_page_whose_intervals_are_not_of_perplexity_says_so_and_is_a_look(tmp_path: Path) -> None:
    planned = trials(tmp_path / "runs")
    for trial in planned:
        write_record(tmp_path / "runs" / trial.key, make_record(trial, 2e4))
    text = write(tmp_path, planned, baseline="beta 1 tau 10", doses=[SHARE])
    assert "subspace distance falls from" in answer_of(text)
    assert "No interval of a change in perplexity is given; the column of verdicts says why." in text
    outcomes = read_outcomes(planned, Records(tmp_path / "runs"), "beta 1 tau 10")
    for doses in ([SHARE], []):
        report = ReportInput(a_sweep(doses=doses), outcomes, Records(tmp_path / "runs"), {}, "", "")
        written = write_report(report, tmp_path / f"page {len(doses)}", draw=NoArtist().draw)
        assert not written.changes and written.judges == bool(doses)
