"""Rows of heads: what each decoder costs, and what heads measure of themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from lm.record import write_record
from lm.spec import AdaptiveHead, EcocHead, HierarchicalHead, MixtureHead, Model, SampledHead, SoftmaxHead
from orchestrator.analysis.outcomes import read_outcomes
from orchestrator.report.pictures.heads import HeadPoint, SeedRange
from orchestrator.report.sections.heads import head_measure_table, head_table
from orchestrator.report.sections.tables import cost_table
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from orchestrator.words import value_in_words
from tests.orchestrator.report.test_tables import csv_lines
from tests.support.factories import CACHE, make_record, make_trial, settle

UNTIED = Model(layers=2, embedding_size=100, hidden_size=200, tied=False)
ECOC = EcocHead.model_validate({"kind": "ecoc", "codebook": {"kind": "random", "bits": 200}})


def rows_of(runs: Path, trials: list[Trial]) -> tuple[dict[str, dict[str, str]], dict[str, HeadPoint]]:
    """Rows and drawn points by variant."""
    rows, points = head_table(read_outcomes(trials, Records(runs), trials[0].variant))
    return {row["Variant"]: row for row in rows}, {point.name: point for point in points}


def test_the_costs_of_two_heads(tmp_path: Path) -> None:
    trials = [
        make_trial(name, seed, **how)
        for name, how in (("softmax", {}), ("ecoc", {"head": ECOC, "model": UNTIED}))
        for seed in (1, 2)
    ]
    for trial, test, seconds in zip(trials, (80.0, 82.0, 120.0, 130.0), (100.0, 110.0, 40.0, 60.0), strict=True):
        settle(tmp_path, trial, test, train_seconds=seconds)
    (softmax, ecoc), points = rows_of(tmp_path, trials)[0].values(), rows_of(tmp_path, trials)[1]
    # 6,000 words see 100 hidden numbers through the embedding that both share: a bias each is the decoder's own.
    assert (softmax["Decoder parameters"], softmax["Head"]) == ("6,000", "softmax, tied")
    assert (ecoc["Decoder parameters"], ecoc["Head"]) == ("40,200", "ecoc (codebook random (bits 200))")
    assert (points["ecoc"].decoder_parameters, points["ecoc"].kind) == (200 * 201, "ecoc")
    assert points["ecoc"].test_perplexity == SeedRange(125.0, 120.0, 130.0)
    assert points["ecoc"].train_seconds == SeedRange(100.0, 80.0, 120.0)  # two stages
    assert (ecoc["Training tokens/s"], ecoc["Peak memory"], ecoc["Seeds"]) == ("10,000", "300 MiB", 2)


def test_one_head_is_no_comparison_but_one_untied_is(tmp_path: Path) -> None:
    tied, wider = make_trial("softmax"), make_trial("more epochs", epochs=13)
    untied = make_trial("untied", model=UNTIED)
    for trial in (tied, wider, untied):
        settle(tmp_path, trial, 80.0)
    assert rows_of(tmp_path, [tied, wider]) == ({}, {})
    found, points = rows_of(tmp_path, [tied, untied])
    assert [row["Head"] for row in found.values()] == ["softmax, tied", "softmax"]
    assert points["untied"].decoder_parameters == 6_000 * 201, "untied, the last layer is as wide as the others"


def test_what_is_not_complete_is_left_out_of_the_means_and_a_cache_altogether(tmp_path: Path) -> None:
    base, half = (
        [make_trial("softmax", seed) for seed in (1, 2)],
        [make_trial("ecoc", seed, head=ECOC, model=UNTIED) for seed in (1, 2)],
    )
    lost, cached = (
        make_trial("adaptive", head=AdaptiveHead(kind="adaptive"), model=UNTIED),
        make_trial("cache", cache=CACHE),
    )
    for trial in (*base, half[0], cached):
        settle(tmp_path, trial, 80.0)
    for trial in (half[1], lost):
        settle(tmp_path, trial, 80.0, status="diverged", reason="not finite")
    rows, points = rows_of(tmp_path, [*base, *half, lost, cached])
    assert list(rows) == ["softmax", "ecoc"] and list(points) == ["softmax"]
    assert (rows["ecoc"]["Seeds"], rows["ecoc"]["Training seconds"]) == ("1 of 2", "200")


def test_nothing_is_said_before_a_record_tells_how_many_words_there_are(tmp_path: Path) -> None:
    assert rows_of(tmp_path, [make_trial("softmax"), make_trial("ecoc", head=ECOC, model=UNTIED)]) == ({}, {})


def test_a_speed_is_all_tokens_over_all_seconds_and_fits_the_time_beside_it(tmp_path: Path) -> None:
    trials = [make_trial("softmax")] + [
        make_trial("ecoc", seed, head=ECOC, model=UNTIED, finetune=None) for seed in (1, 2)
    ]
    for trial, seconds, rate in zip(trials, (100.0, 100.0, 300.0), (10_000.0, 9_000.0, 3_000.0), strict=True):
        record = make_record(trial, 80.0, train_seconds=seconds)
        stages = tuple(stage.model_copy(update={"tokens_per_second": rate}) for stage in record.stages)
        write_record(tmp_path / trial.key, record.model_copy(update={"stages": stages}))
    ecoc = rows_of(tmp_path, trials)[0]["ecoc"]
    assert (ecoc["Training tokens/s"], ecoc["Training seconds"]) == ("4,500", "200")  # 900,000 tokens a seed
    outcomes = read_outcomes(trials, Records(tmp_path), trials[0].variant)
    _, cost = cost_table(outcomes)
    assert cost["Training tokens/s"] == "4,500 (3,000 to 9,000)"


def test_stages_that_another_trial_trained_on_from_count_as_ones_own(tmp_path: Path) -> None:
    whole = make_trial("fine-tuned", head=ECOC, model=UNTIED)
    first, base = make_trial("ecoc", head=ECOC, model=UNTIED, finetune=None), make_trial("softmax")
    record = make_record(whole, 80.0)
    fast, slow = (
        stage.model_copy(update={"tokens_per_second": v}) for stage, v in zip(record.stages, (9e3, 3e3), strict=True)
    )
    slow = slow.model_copy(update={"train_seconds": 50.0})
    write_record(tmp_path / whole.key, record.model_copy(update={"stages": (fast, slow)}))
    settle(tmp_path, base, 80.0)
    rows, _ = rows_of(tmp_path, [base, whole, first])
    assert (rows["ecoc"]["Training seconds"], rows["ecoc"]["Training tokens/s"]) == ("100", "9,000")
    assert rows["fine-tuned"]["Training seconds"] == "150"
    assert rows["fine-tuned"]["Training tokens/s"] == "7,000"  # (9e3 * 100 + 3e3 * 50) / 150


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (SoftmaxHead(kind="softmax"), "softmax"),
        (MixtureHead(kind="mixture", experts=(0, 5, 15)), "mixture (experts [0, 5, 15])"),
        (AdaptiveHead(kind="adaptive", divisor=2.0), "adaptive (divisor 2.0)"),
        (
            HierarchicalHead.model_validate(
                {"kind": "hierarchical", "tree": {"kind": "two_level", "assign": "random"}}
            ),
            "hierarchical (tree two_level (assign random))",
        ),
        (SampledHead.model_validate({"kind": "sampled", "loss": {"kind": "nce"}}), "sampled (loss nce)"),
        (
            ECOC.model_copy(update={"loss": ECOC.loss.model_copy(update={"scale": "sum"})}),
            "ecoc (codebook random (bits 200), loss bce (scale sum))",
        ),
    ],
)
def test_a_head_is_named_by_its_kind_and_what_it_sets(head: SoftmaxHead, words: str) -> None:
    assert value_in_words(head) == words


def test_measures_are_means_over_seeds(tmp_path: Path) -> None:
    trials = [make_trial("softmax"), *(make_trial("ecoc", seed, head=ECOC, model=UNTIED) for seed in (1, 2))]
    settle(tmp_path, trials[0], 80.0)
    for trial, nats in zip(trials[1:], (4.0, 5.0), strict=True):
        settle(tmp_path, trial, 80.0, measures={"marginal_nats_per_token": nats, "hamming": nats / 100})
    outcomes = read_outcomes(trials, Records(tmp_path), trials[0].variant)
    (row,) = head_measure_table(outcomes)
    assert row == {"Variant": "ecoc", "marginal_nats_per_token": "4.500", "hamming": "0.04500"}
    lines = csv_lines(tmp_path / "both", "measures.csv", outcomes)
    assert lines is not None and len(lines) == 2 * 2 * 2 * 2  # seeds, stages, splits, measures
    assert lines[0] == {
        "variant": "ecoc",
        "seed": "1",
        "stage": "train",
        "split": "valid",
        "measure": "marginal_nats_per_token",
        "value": "4.4",
    }
    outcomes = read_outcomes(trials[:1], Records(tmp_path), trials[0].variant)
    assert csv_lines(tmp_path / "one", "measures.csv", outcomes) is None
