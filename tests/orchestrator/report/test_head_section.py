"""The page of a sweep that compares heads, and of one that does not."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from lm.record import read_record, write_record
from lm.spec import AdaptiveHead
from orchestrator.report.pictures.heads import heads as drawn
from orchestrator.trials.trial import Trial
from tests.orchestrator.report.test_head_tables import ECOC, UNTIED
from tests.support.factories import CACHE, make_trial, settle
from tests.support.pages import HOSTILE, NoArtist, answer, render, write

ADAPTIVE = AdaptiveHead(kind="adaptive")
COST = "6.00 M / 2.00 M | 50.0 MiB"
OWN = {"marginal_nats_per_token": 5.0, "bits_nats_per_token": 40.0, "hamming": 0.123456}


def heads(runs: Path, seeds: int = 2, name: str = "ecoc") -> list[Trial]:
    """A softmax with its own matrix, an adaptive softmax and an ECOC head; each seed half a perplexity more."""
    trials = []
    for seed in range(1, seeds + 1):
        for variant, test, head in (
            ("softmax", 80.0, {}),
            ("adaptive", 82.0, {"head": ADAPTIVE}),
            (name, 120.0, {"head": ECOC}),
        ):
            trials.append(make_trial(variant, seed, model=UNTIED, finetune=None, **head))
            measures = OWN if variant == name else None
            settle(runs, trials[-1], test + seed / 2, train_seconds=test + 100 * seed, measures=measures)
    return trials


def section(text: str, title: str) -> str:
    return text.split(f"\n## {title}\n")[1].split("\n## ", maxsplit=1)[0]


def test_heads_are_drawn_and_their_costs_listed(tmp_path: Path) -> None:
    trials = heads(tmp_path / "runs")
    text = write(tmp_path, trials, baseline="softmax", pictures=True)
    found = section(text, "Heads")
    assert (
        "![Test perplexity against decoder parameters and training time of softmax, adaptive and ecoc](heads.svg)"
        in found
    )
    assert "bars reach from the lowest seed to the highest, the ring and the dashed line mark softmax.\n" in found
    assert f"| softmax | softmax | 1,206,000 | {COST} | 230 | 10,000 | 300 MiB | 2 |" in found
    assert f"| ecoc | ecoc (codebook random (bits 200)) | 40,200 | {COST} | 270 | 10,000 | 300 MiB | 2 |" in found
    assert "were measured on cpu, which other trials may have shared." in found
    assert all(len(set(rows)) == 1 for rows in render(text).tables)
    first = (tmp_path / "report" / "heads.svg").read_bytes()
    write(tmp_path, trials, baseline="softmax", pictures=True, folder=tmp_path / "again")
    assert (tmp_path / "again" / "heads.svg").read_bytes() == first


def test_times_of_variants_that_ran_on_other_devices_are_not_set_side_by_side(tmp_path: Path) -> None:
    trials = heads(tmp_path / "runs")
    for trial in trials:
        if trial.variant == "ecoc":
            record = read_record(tmp_path / "runs" / trial.key)
            assert record is not None
            write_record(tmp_path / "runs" / trial.key, record.model_copy(update={"device": "cuda (A)"}))
    artist = NoArtist()
    text = write(tmp_path, trials, baseline="softmax", artist=artist)
    points, _ = artist.asked["heads.svg"]
    assert all(point.train_seconds is None for point in points) and len(drawn(points, "softmax").axes) == 1
    assert "Training seconds" not in text and "and training time" not in text and "by seconds" not in text
    assert "**Not all variants were trained on the same devices, so their times do not compare.**" in text


def test_the_answer_names_heads(tmp_path: Path) -> None:
    found = answer(write(tmp_path, heads(tmp_path / "runs"), baseline="softmax"))
    assert re.fullmatch(
        r"At laptop scale, “ecoc” raises test perplexity by 49\.\d% \([^()]*\)\. Not decided: “adaptive” "
        r"\(−[\d.]+% to \+[\d.]+%\)\. \(Ranges: 95% simultaneous intervals of the change in test "
        r"perplexity against “softmax”, 2 seeds\.\)",
        found,
    )


def test_one_seed_has_a_row(tmp_path: Path) -> None:
    found = section(write(tmp_path, heads(tmp_path / "runs", seeds=1), baseline="softmax"), "Heads")
    assert f"| ecoc | ecoc (codebook random (bits 200)) | 40,200 | {COST} | 220 | 10,000 | 300 MiB | 1 |" in found


def test_what_is_not_complete_is_left_out_of_the_picture_and_named(tmp_path: Path) -> None:
    trials = heads(tmp_path / "runs")
    lost = [make_trial("short code", seed, head=ECOC, model=UNTIED, epochs=9) for seed in (1, 2)]
    settle(tmp_path / "runs", lost[0], 99.0)
    settle(tmp_path / "runs", lost[1], 99.0, status="diverged", reason="not finite")
    cached = make_trial("neural cache", model=UNTIED, cache=CACHE)
    settle(tmp_path / "runs", cached, 60.0)
    found = section(write(tmp_path, [*trials, *lost, cached], baseline="softmax"), "Heads")
    assert (
        "Left out: short code (1 of 2 seeds diverged) and neural cache (a cache changes nothing in training)." in found
    )
    assert "of softmax, adaptive and ecoc](heads.svg)" in found
    assert (
        f"| short code | ecoc (codebook random (bits 200)) | 40,200 | {COST} | 200 | 10,000 | 300 MiB | 1 of 2 |"
        in found
    )
    assert "neural cache |" not in found


def test_without_one_whole_variant_there_is_a_table_and_no_picture(tmp_path: Path) -> None:
    trials = [
        make_trial(v, seed, model=UNTIED, **h)
        for v, h in (("softmax", {}), ("ecoc", {"head": ECOC}))
        for seed in (1, 2)
    ]
    settle(tmp_path / "runs", trials[0], 80.0)
    found = section(write(tmp_path, trials, baseline="softmax"), "Heads")
    assert "heads.svg" not in found and "| softmax | softmax |" in found
    assert not (tmp_path / "report" / "heads.svg").exists()


def test_the_heads_own_measures_stand_apart_from_perplexity(tmp_path: Path) -> None:
    text = write(tmp_path, heads(tmp_path / "runs"), baseline="softmax")
    found = section(text, "What heads measure of themselves")
    page = render(text)
    assert all(len(set(rows)) == 1 for rows in page.tables)
    assert "| Variant | marginal_nats_per_token | bits_nats_per_token | hamming |" in found
    assert "| ecoc | 5.000 | 40.00 | 0.1235 |" in found
    assert "softmax |" not in found
    assert "No number here is ever to be set beside a perplexity." in found
    assert "measures.csv" in page.links
    with (tmp_path / "report" / "measures.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 2 * 2 * 3
    assert [line["value"] for line in lines if line["measure"] == "hamming" and line["split"] == "test"] == [
        "0.123456"
    ] * 2


def test_what_was_fitted_and_which_losses_are_of_a_distribution_is_said(tmp_path: Path) -> None:
    trials = [make_trial("softmax", model=UNTIED), make_trial("span", model=UNTIED, head=ECOC)]
    settle(tmp_path / "runs", trials[0], 80.0)
    own = {"marginal_nats_per_token": 5.0, "temperature_1_nats_per_token": 6.0, "span_sum_nats_per_token": 4.0}
    settle(tmp_path / "runs", trials[1], 90.0, measures=own, fitted={"temperature": 7.5})
    found = section(write(tmp_path, trials, baseline="softmax"), "What heads measure of themselves")
    assert "| Variant | temperature | marginal_nats_per_token |" in found and "| span | 7.500 | 5.000 |" in found
    assert "The temperature was fitted on validation" in found
    assert "but for exp of temperature_1_nats_per_token and span_sum_nats_per_token, whose" in found
    with (tmp_path / "report" / "measures.csv").open(encoding="utf-8") as file:
        lines = [line for line in csv.DictReader(file) if line["measure"] == "temperature"]
    assert {(line["split"], line["value"]) for line in lines} == {("valid", "7.5")}


def test_names_cannot_break_the_section(tmp_path: Path) -> None:
    text = write(tmp_path, heads(tmp_path / "runs", name=HOSTILE), baseline="softmax", pictures=True)
    page = render(text)
    assert all(len(set(rows)) == 1 for rows in page.tables)
    assert set(page.links) - {"../../how-to-read.md", "curves.parquet", "table.tex", "report.html"} == {
        "table.csv",
        "trials.csv",
        "measures.csv",
    }
    inline = [child for token in MarkdownIt("commonmark").parse(text) for child in token.children or []]
    alts = ["".join(part.content for part in image.children or []) for image in inline if image.type == "image"]
    name = " ".join(HOSTILE.split())
    assert f"Test perplexity against decoder parameters and training time of softmax, adaptive and {name}" in alts


@pytest.mark.parametrize("pictures", [False, True])
def test_a_sweep_with_one_head_has_nothing_of_it(tmp_path: Path, pictures: bool) -> None:
    trials = [
        make_trial(variant, seed, epochs=epochs) for variant, epochs in (("full", 12), ("b", 9)) for seed in (1, 2)
    ]
    for trial in trials:
        settle(tmp_path / "runs", trial, 80.0 + trial.seed)
    text = write(tmp_path, trials, pictures=pictures)
    assert "## Heads" not in text and "heads.svg" not in text and "measures.csv" not in text
    assert not {path.name for path in (tmp_path / "report").iterdir()} & {"heads.svg", "measures.csv"}
