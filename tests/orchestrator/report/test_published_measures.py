"""Published numbers of other metrics than perplexity, beside the measures of records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from lm.spec import MixtureHead
from orchestrator.analysis.outcomes import read_outcomes
from orchestrator.report.sections.published import measure_table
from orchestrator.sweep import read_sweep
from orchestrator.sweep.published import Measure, published_measures
from orchestrator.trials.records import Records
from tests.lm.heads.test_mixture_gate import mixture
from tests.support.factories import make_trial, settle
from tests.support.pages import write
from tests.support.sweep_texts import SWEEPS

FOLDER = SWEEPS / "published"
MIXTURE = MixtureHead(kind="mixture", experts=(0, 0, 2))


def measure(variant: str, metric: str, value: float, **further: object) -> Measure:
    known = {"paper": "a paper", "table": "1", "certainty": "seed", "split": "valid"}
    return Measure(**(known | further), variant=variant, metric=metric, value=value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "metric", "values"),
    [
        (
            "doc_lambda",
            "coefficient_of_variation",
            {"lambda 0": 0.276, "lambda 0.0001": 0.279, "lambda 0.001": 0.217, "lambda 0.01": 0.213},
        ),
        ("doc_reruns", "rank", {"AWD-LSTM": 401, "AWD-LSTM-MoS": 10_000, "AWD-LSTM-DOC": 10_000}),
        ("ecoc_heads", "decoder_parameters_M", {"softmax": 8.02, "hierarchical unigram": 4.4}),
    ],
)
def test_other_metrics_belong_to_variants_of_our_sweeps(name: str, metric: str, values: dict[str, float]) -> None:
    sweep = read_sweep(SWEEPS / f"{name}.yaml").at("paper")
    measures = published_measures(sweep.published, sweep.baseline.spec.corpus.name, FOLDER)
    found = {m.variant: m.value for m in measures if m.metric == metric and m.variant is not None}
    assert found == values and found.keys() <= {variant.name for variant in sweep.variants}


def test_the_forty_words_of_table_3_are_read_with_their_counts_and_differences() -> None:
    words = published_measures(["awd_lstm.table3"], "wikitext-2", FOLDER)
    assert len(words) == 40 and all(word.word and word.count for word in words)
    best = sum(word.value for word in words if word.value > 0)
    worst = sum(word.value for word in words if word.value < 0)
    assert (round(best, 2), round(worst, 2)) == (12_953.24, -4_349.72)
    assert published_measures(["awd_lstm.table3"], "ptb", FOLDER) == []


def test_every_published_measure_stands_beside_the_measures_that_may_be_it(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    trials = [make_trial("full", seed) for seed in (1, 2)]
    for trial in trials:
        settle(runs, trial, 60.0, measures={"own": 4.0})
    for seed, variation in ((1, 0.30), (2, 0.34)):
        trials.append(make_trial("gated", seed, head=MIXTURE))
        gates = {"gate_variation_code": variation, "gate_variation_paper": 0.1}
        settle(runs, trials[-1], 58.0, measures=gates)
    measures = [
        measure("gated", "coefficient_of_variation", 0.276, certainty="recalled", note="low | confidence"),
        measure("full", "own", 3.0, split=None),
        measure("full", "own", 2.0, cell="gru"),
        measure("full", "decoder_parameters_M", 8.02, split=None),
        measure("full", "rank", 401.0),
        measure("nobody", "own", 1.0),
    ]
    rows = measure_table(read_outcomes(trials, Records(runs), "full"), measures)
    found = {(row["Variant"], row["Measure"]): (row["Published"], row["Value"], row["Seeds"]) for row in rows}
    variations = 1.1 * np.array([0.30, 0.34])
    assert found == {
        ("gated", "gate_variation_code"): ("0.276†", f"{variations.mean():.4f} ± {variations.std(ddof=1):.3f}", 2),
        ("gated", "gate_variation_paper"): ("0.276†", "0.1100", 2),
        ("full", "own"): ("3.0", "4.000", 2),
        ("full", "decoder_parameters_M"): ("8.02", "0.006000", 2),
    }
    text = write(tmp_path, trials, published_measures=measures)
    section = text.partition("### Published beside perplexity\n")[2].partition("\n#")[0]
    gate = "| gated | coefficient_of_variation | 0.276† | gate_variation_paper | 0.1100 | validation | 2 |"
    assert f"{gate} low \\| confidence |" in section
    assert "**Another scale**" in section and "† from memory" in section
    assert "which of the two forms" in section


def test_a_mixture_leaves_the_measures_that_a_coefficient_of_variation_may_be() -> None:
    gate_BJ = torch.tensor([[3.0, 1.0], [2.0, 2.0]], dtype=torch.float64)
    measured = mixture([0, 0, 2]).measures({"gate_BJ": gate_BJ}, 8)
    assert measured["gate_variation_paper"] == pytest.approx(0.25)  # the experts' sums are 5 and 3: 1 / 4
    assert measured["gate_variation_code"] == pytest.approx(np.std([3, 1, 2, 2], ddof=1) / 2)


def test_without_measures_of_its_own_a_page_has_no_such_section(tmp_path: Path) -> None:
    trials = [make_trial("full", seed) for seed in (1, 2)]
    for trial in trials:
        settle(tmp_path / "runs", trial, 60.0)
    assert "beside perplexity" not in write(tmp_path, trials, published_measures=[measure("full", "rank", 401.0)])
