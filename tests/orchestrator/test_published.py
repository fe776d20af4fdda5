from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.published import Number, published_numbers
from orchestrator.sweep import read_sweep
from tests.orchestrator.sweep_texts import SWEEPS

FOLDER = SWEEPS / "published"

# Table 4 of Merity et al. (2017), and for the cache Tables 1 and 2: valid and test.
TABLE = {
    "full": ((60.0, 57.3), (68.6, 65.8)),
    "no fine-tuning": ((60.7, 58.8), (69.1, 66.0)),
    "no NT-ASGD": ((66.3, 63.7), (73.3, 69.7)),
    "no variable sequence lengths": ((61.3, 58.9), (69.3, 66.2)),
    "no embedding dropout": ((65.1, 62.7), (71.1, 68.1)),
    "no weight decay": ((63.7, 61.0), (71.9, 68.7)),
    "no AR/TAR": ((62.7, 60.3), (73.2, 70.1)),
    "no small embedding": ((68.0, 65.6), (73.7, 70.7)),
    "no weight-dropping": ((71.1, 68.9), (78.4, 74.9)),
    "neural cache": ((53.9, 52.8), (53.8, 52.0)),
}


@pytest.mark.parametrize(("scale", "column"), [("paper", 0), ("wikitext-2", 1), ("mini", 0)])
def test_every_variant_of_the_ablation_has_its_published_numbers(scale: str, column: int) -> None:
    sweep = read_sweep(SWEEPS / "awd_ablation.yaml").at(scale)
    numbers = published_numbers(sweep.published, sweep.baseline.spec.corpus.name, FOLDER)
    assert {variant.name for variant in sweep.variants} == set(TABLE)
    for variant in TABLE:
        published = numbers[variant]
        assert published.valid is not None
        assert published.test is not None
        assert (published.valid.perplexity, published.test.perplexity) == TABLE[variant][column]
    assert numbers["full"].test == Number(numbers["full"].test.perplexity, None, "seed", "awd_lstm table 4", None)  # type: ignore[union-attr]


def test_the_poster_stands_beside_the_adam_baseline() -> None:
    sweep = read_sweep(SWEEPS / "adam.yaml").at("paper")
    numbers = published_numbers(sweep.published, "ptb", FOLDER)
    full = numbers[sweep.baseline.name]
    assert full.valid is not None
    assert full.test is not None
    assert (full.valid.perplexity, full.test.perplexity, full.test.source) == (88.6, 85.5, "awd_lstm_poster results")
    assert not {"NT-ASGD", "SGD"} & set(numbers)


def test_another_text_has_no_published_numbers() -> None:
    assert published_numbers(["awd_lstm.table4"], "pydoc", FOLDER) == {}


def write(folder: Path, rows: str) -> Path:
    (folder / "p.yaml").write_text(rows)
    return folder


ROW = "- {paper: p, metric: perplexity, certainty: seed, dataset: ptb, "


def test_the_first_reference_wins_and_ambiguous_names_are_left_out(tmp_path: Path) -> None:
    rows = (
        ROW + "table: '1', variant: full, split: test, perplexity: 1.0}\n"
        + ROW + "table: '2', variant: full, split: test, perplexity: 2.0, std: 0.5, note: n}\n"
        + ROW + "table: '2', variant: full, split: valid, perplexity: 3.0}\n"
        + ROW + "table: '2', variant: literature, split: test, perplexity: 4.0}\n"
        + ROW + "table: '2', variant: literature, split: test, perplexity: 5.0}\n"
        + ROW + "table: '2', variant: lost, split: test, perplexity: null}\n"
        + ROW + "table: extra, variant: other, split: test, perplexity: 6.0}\n"
    )  # fmt: skip
    folder = write(tmp_path, rows)
    numbers = published_numbers(["p.table2", "p.table1"], "ptb", folder)
    assert set(numbers) == {"full"}
    assert numbers["full"].test == Number(2.0, 0.5, "seed", "p table 2", "n")
    assert numbers["full"].valid == Number(3.0, None, "seed", "p table 2", None)
    mixed = published_numbers(["p.table1", "p.table2"], "ptb", folder)["full"]
    assert (mixed.valid, mixed.test) == (numbers["full"].valid, Number(1.0, None, "seed", "p table 1", None))
    assert set(published_numbers(["p.extra"], "ptb", folder)) == {"other"}


@pytest.mark.parametrize("text", ["a: 1", "- {paper: p}", "- [", "- 1"])
def test_a_file_that_is_no_list_of_numbers_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"p\.yaml: not a list of published numbers"):
        published_numbers(["p.table1"], "ptb", write(tmp_path, text))


def test_every_published_file_reads() -> None:
    for path in FOLDER.glob("*.yaml"):
        with pytest.raises(ValueError, match=f"published/{path.name} has no 'nothing'"):
            published_numbers([f"{path.stem}.nothing"], "ptb", FOLDER)
