"""The page's sections on trained weights, of made-up answers: means over seeds, pictures, contexts side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from lm.analyzed import (
    CodeErrorsFound,
    ContextFound,
    Found,
    NextWordsFound,
    RankFound,
    SingularValues,
    SubspaceFound,
    analysis,
    trained_stage,
)
from lm.record import read_record
from lm.spec import Analysis, CodeErrorsAnalysis, NextWordsAnalysis, RankAnalysis, SubspaceAnalysis
from orchestrator.report.pictures.lines import LinePanel, lines_figure
from orchestrator.sweep.published import Measure
from orchestrator.trials.trial import Trial
from tests.orchestrator.report.test_head_tables import ECOC, UNTIED
from tests.support.factories import make_trial, settle
from tests.support.pages import HOSTILE, NoArtist, write

RANK, SUBSPACE = RankAnalysis(kind="rank"), SubspaceAnalysis(kind="subspace")
WORDS, CODES = NextWordsAnalysis(kind="next_words"), CodeErrorsAnalysis(kind="code_errors")


def rank_of(rank: int, bound: int | None) -> RankFound:
    values = SingularValues(
        largest=9.0, rank=rank, above={"1e-2": rank // 2}, effective=3.5, spectrum=((1, 1.0), (10, 0.1), (100, 1e-15))
    )
    return RankFound(kind="rank", positions=200, words=100, bound=bound, plain=values, centred=values)


def words_of(share: float) -> NextWordsFound:
    contexts = tuple(
        ContextFound(context=text, position=place, next="court", words=(("the", share), (HOSTILE, share / 2)))
        for text, place in (("filed in federal", 7), ("july and", 90))
    )
    given = {"predictions": 100, "left_out": ("no * such",), "neighbours": 0.1}
    by_text = {"counted_by_text": 99, "neighbours_by_text": 0.2}
    probability = {"<unk>": share, "a": 0.02}
    return NextWordsFound(kind="next_words", contexts=contexts, probability=probability, **given, **by_text)  # type: ignore[arg-type]


def errors_of(counts: tuple[int, ...], by_bit: tuple[float, ...] = (0.5, 0.25, 0.125)) -> CodeErrorsFound:
    rates = {"uncorrected": 0.9, "owner": None, "corrected": 0.7, "most_probable": 0.6}
    sizes = {"predictions": 10, "bits": len(by_bit), "class_bits": None}
    return CodeErrorsFound(kind="code_errors", wrong_by_bit=by_bit, wrong_bits=counts, **sizes, **rates)


def keep(runs: Path, trial: Trial, asked: Analysis, found: Found) -> None:
    folder = runs / trial.key
    record = read_record(folder)
    assert record is not None
    analysis(folder, asked, trained_stage(record), record.hashes, lambda: found)


def planned(runs: Path, **other: object) -> list[Trial]:
    """Two variants of two seeds."""
    trials = [make_trial(name, seed, **of) for name, of in (("full", {}), ("wide", other)) for seed in (1, 2)]
    for trial in trials:
        settle(runs, trial, 60.0 + trial.seed)
    return trials


def page(tmp: Path, trials: list[Trial], *analyses: Analysis, **how: object) -> tuple[str, list[LinePanel]]:
    """The page, and the panels of the picture of the only analysis, none without one."""
    artist = NoArtist()
    text = write(tmp, trials, analyses=analyses, artist=artist, **how)
    return text, next((shown[0] for file, shown in artist.asked.items() if file == f"{analyses[0].kind}.svg"), [])


def rows(text: str, title: str) -> list[str]:
    part = text.split(f"\n## {title}\n")[1].split("\n## ", maxsplit=1)[0]
    return [line for line in part.splitlines() if line.startswith("| ")]


def test_the_rank_of_each_variant_beside_its_bound_and_its_spectrum(tmp_path: Path) -> None:
    trials = planned(tmp_path / "runs", batch_size=7)
    for trial, (rank, bound) in zip(trials, ((41, 41), (41, 41), (90, None), (94, None)), strict=True):
        keep(tmp_path / "runs", trial, RANK, rank_of(rank, bound))
    printed = Measure(paper="doc", table="5", variant="full", metric="rank", value=401, certainty="recalled")
    text, panels = page(tmp_path, trials, RANK, published_measures=[printed])
    table = rows(text, "Rank of the log-probabilities")
    assert table[2] == "| full | 41 | 200 | 100 | 41 | 20 | 3.500 | 41 | 401† | 2 |"
    assert table[3].startswith("| wide | – | 200 | 100 | 92.0 ± 2.8 | 46.0 ± 1.4 | 3.500 |")
    assert "**Another scale**: at most the order of the published numbers can be compared. † from memory" in text
    assert [line.name for line in panels[0].lines] == ["full", "wide"]
    figure = lines_figure(panels, "full")
    assert (figure.axes[0].get_xscale(), figure.axes[0].get_yscale()) == ("log", "log")
    assert figure.axes[0].yaxis.get_major_formatter()(1e-4) == "0.0001", "no formula, which text is not read as"


def test_a_seed_without_an_answer_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    trials = planned(tmp_path / "runs", batch_size=7)
    keep(tmp_path / "runs", trials[0], RANK, rank_of(41, 41))
    text, _ = page(tmp_path, trials, RANK)
    assert rows(text, "Rank of the log-probabilities")[2:] == [
        "| full | 41 | 200 | 100 | 41 | 20 | 3.500 | 41 | 1 of 2 |"
    ]
    assert "order of the published numbers" not in text
    assert "3 trials are left out (full, seed 2; wide, seed 1; wide, seed 2): weights are gone" in text


def test_a_tied_model_is_not_asked_for_the_distance_and_another_is(tmp_path: Path) -> None:
    trials = planned(tmp_path / "runs", model=UNTIED.model_copy(update={"hidden_size": UNTIED.embedding_size}))
    for trial in trials[2:]:
        keep(
            tmp_path / "runs",
            trial,
            SUBSPACE,
            SubspaceFound(kind="subspace", distance=0.5, random=0.9, mean_cosine=0.0),
        )
    text, panels = page(tmp_path, trials, SUBSPACE)
    title = "Distance of the output matrix from the embedding"
    assert "left out" not in text
    assert panels == [] and rows(text, title)[2:] == ["| wide | 0.5000 | 0.9000 | 0 | 2 |"]


def test_contexts_stand_side_by_side_and_hostile_words_stay_words(tmp_path: Path) -> None:
    trials = planned(tmp_path / "runs", batch_size=7)
    for trial in trials:
        keep(tmp_path / "runs", trial, WORDS, words_of(0.1 * trial.seed))
    text, panels = page(tmp_path, trials, WORDS)
    table = rows(text, "Next words")
    assert "do not follow, and of the ten words most like" in text
    assert "The text does not have “no \\* such”.\n" in text
    assert table[2].startswith("| full | 0.15 ± 0.07 | 0.02000 | 0.1000 | 0.2000 | 2 |")
    contexts = [line.split(" | ")[:2] for line in table if "→ court" in line]
    assert contexts == [
        [f"| … {text} → court", name] for text in ("filed in federal", "july and") for name in ("full", "wide")
    ]
    (panel,) = panels
    assert list(panel.ticks) == ["<unk>", "a"] and panel.lines[0].mean == pytest.approx([0.15, 0.02])
    figure = lines_figure(panels, "full")
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["<unk>", "a"]


def test_each_variant_is_drawn_above_the_words_that_its_text_has(tmp_path: Path) -> None:
    trials = planned(tmp_path / "runs", batch_size=7)
    for trial in trials:
        without = {"a": 0.02, "the": 0.03}
        probability = without if trial.variant == "wide" else {"<unk>": 0.5, **without}
        keep(tmp_path / "runs", trial, WORDS, words_of(0.1).model_copy(update={"probability": probability}))
    ((panel,),) = (page(tmp_path, trials, WORDS)[1],)
    assert list(panel.ticks) == ["<unk>", "a", "the"]
    assert [list(line.x) for line in panel.lines] == [[0, 1, 2], [1, 2]]


def test_bits_and_their_histogram_are_asked_of_codes_alone(tmp_path: Path) -> None:
    trials = planned(tmp_path / "runs", head=ECOC, model=UNTIED)
    for trial, counts in zip(trials[2:], ((4, 4, 2), (2, 4, 2, 2)), strict=True):
        keep(tmp_path / "runs", trial, CODES, errors_of(counts))
    text, panels = page(tmp_path, trials, CODES)
    assert rows(text, "Errors of the codes")[2:] == ["| wide | 1.10 ± 0.42 | 3 | 0.9000 | 0.7000 | 0.6000 | 2 |"]
    assert "left out" not in text.split("## Errors of the codes")[1].split("\n## ")[0], "a softmax has no bits"
    by_bit, histogram = panels
    assert list(by_bit.lines[0].x) == [1, 2, 3] and list(by_bit.lines[0].mean) == [0.5, 0.25, 0.125]
    assert histogram.lines[0].mean == pytest.approx([0.3, 0.4, 0.2, 0.1])
    assert histogram.lines[0].low == pytest.approx([0.2, 0.4, 0.2, 0.0])
    assert len(lines_figure(panels, "full").axes) == 2


def test_codes_of_the_seeds_may_differ_in_length(tmp_path: Path) -> None:
    """Where each seed has a search of its own, which found another number of bits."""
    trials = planned(tmp_path / "runs", head=ECOC, model=UNTIED)
    for trial, by_bit in zip(trials[2:], ((0.5, 0.25), (0.3, 0.15, 0.125)), strict=True):
        keep(tmp_path / "runs", trial, CODES, errors_of((4, 4, 2), by_bit))
    text, panels = page(tmp_path, trials, CODES)
    assert rows(text, "Errors of the codes")[2].startswith("| wide | 0.8000 | 2.50 ± 0.71 |")
    (line,) = panels[0].lines
    assert list(line.x) == [1, 2, 3] and list(line.mean) == pytest.approx([0.4, 0.2, 0.125])


def test_before_a_trial_that_can_be_asked_is_complete_there_is_no_section(tmp_path: Path) -> None:
    text, _ = page(tmp_path, planned(tmp_path / "runs", batch_size=7), CODES)
    assert "Errors of the codes" not in text
