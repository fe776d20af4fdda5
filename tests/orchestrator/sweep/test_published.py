from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from orchestrator.sweep import ScaledSweep, read_sweep
from orchestrator.sweep.published import Number, Published, published_numbers
from tests.support.sweep_texts import SWEEPS

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


def described(number: Number | None) -> tuple[float, float | None, str, str, str, str | None]:
    assert number is not None
    return number.perplexity, number.std, number.certainty, number.paper, number.table, number.note


def beside(name: str, scale: str) -> tuple[ScaledSweep, dict[str, Published]]:
    """A sweep of ours at one scale, and what is printed beside its variants on that scale's corpus."""
    sweep = read_sweep(SWEEPS / f"{name}.yaml").at(scale)
    cells = {variant.name: variant.spec.model.cell_name for variant in sweep.variants}
    return sweep, published_numbers(sweep.published, sweep.baseline.spec.corpus.name, cells, FOLDER)


@pytest.mark.parametrize(("scale", "column"), [("paper", 0), ("wikitext-2", 1), ("mini", 0)])
def test_every_variant_of_the_ablation_has_its_published_numbers(scale: str, column: int) -> None:
    sweep, numbers = beside("awd_ablation", scale)
    trained_longer = {variant.name for variant in sweep.variants if variant.name.endswith("(as many epochs)")}
    assert {variant.name for variant in sweep.variants} - trained_longer == set(TABLE)
    for variant in TABLE:
        published = numbers[variant]
        assert published.valid is not None
        assert published.test is not None
        assert (published.valid.perplexity, published.test.perplexity) == TABLE[variant][column]
    assert described(numbers["full"].test)[1:] == (None, "seed", "awd_lstm", "4", None)


def test_the_poster_stands_beside_the_adam_baseline() -> None:
    sweep, numbers = beside("adam", "paper")
    full = numbers[sweep.baseline.name]
    assert full.valid is not None
    assert full.test is not None
    assert (full.valid.perplexity, full.test.perplexity) == (88.6, 85.5)
    assert (full.test.paper, full.test.table) == ("awd_lstm_poster", "results")
    assert not {"NT-ASGD", "SGD"} & set(numbers)


# Inan et al. (2016), Tables 1 to 3: valid and test of VD-LSTM, +AL, +RE, +REAL; of VD-RHN, +RE, a deeper +RE.
TYING = {
    ("tying", "paper"): "92.6/87.3 86.3/82.9 89.9/85.1 86.3/82.7",
    ("tying", "small-wikitext-2"): "112.2/105.9 110.3/103.8 106.1/100.5 105.6/98.9",
    ("tying", "medium"): "82.0/77.7 77.4/74.7 77.1/73.9 75.7/73.2",
    ("tying", "medium-wikitext-2"): "100.2/95.3 98.8/93.1 92.3/87.7 91.5/87.0",
    ("tying", "large"): "76.8/72.6 74.5/71.2 72.5/69.0 71.1/68.5",
    ("rhn", "paper"): "71.2/68.5 68.1/66.0 67.9/65.4",
    ("tying_half", "paper"): "159.1/148.0 153.0/142.5 152.4/141.9 149.3/140.6",
    ("tying_half", "second-half"): "163.19/148.6 156.4/143.7 152.5/140.9 150.5/138.4",
}
# O'Neill & Bollegala (2019), Table 1: softmax; sampled by uniform, unigram; hierarchical random, unigram; adaptive;
# NCE; ECOC random, unigram, embedding.
ECOC = {
    ("ecoc_heads", "paper"): "86.19/79.24 92.14/81.82 90.37/81.36 94.31/88.5 92.38/86.7 91.38/85.29 96.79/89.3 "
    "91.0/87.19 86.44/82.29 84.4/77.53",
    ("ecoc_heads", "gru"): "85.49/78.81 94.42/83.79 91.23/82.45 96.83/89.93 94.35/87.67 92.11/85.74 98.62/92.03 "
    "92.47/87.28 87.43/80.39 86.03/80.45",
    ("ecoc_heads", "wikitext-2"): "124.01/119.3 136.47/129.29 133.08/127.19 133.69/127.12 130.26/124.83 118.89/120.92 "
    "131.2/126.82 131.01/123.29 129.76/120.51 125.06/120.34",
    ("ecoc_heads", "wikitext-2-gru"): "126.28/122.66 138.91/131.48 134.49/128.29 134.11/127.88 131.34/124.91 "
    "129.9/122.26 131.34/126.17 132.61/124.22 127.79/120.97 127.4/122.01",
}


# The code's release of October 2017, by its read-me.
RELEASE = {
    "release": {"full": (58.8, 56.5), "no fine-tuning": (61.2, 58.8), "neural cache": (53.2, 52.5)},
    "wikitext-2-release": {"full": (67.4, 64.7), "no fine-tuning": (68.7, 65.6), "neural cache": (52.2, 50.6)},
}


@pytest.mark.parametrize("scale", RELEASE)
def test_the_release_stands_beside_its_own_values(scale: str) -> None:
    sweep, numbers = beside("awd_ablation", scale)
    assert sweep.published_scale
    shown = {name: (each.valid, each.test) for name, each in numbers.items()}
    assert {name: tuple(n and n.perplexity for n in each) for name, each in shown.items()} == RELEASE[scale]


def test_paper_and_release_differ_as_the_authors_say() -> None:
    """Batch, dropout between layers, epochs, cache; of WikiText-2 the dropout alone."""
    at = {name: beside("awd_ablation", name)[0] for name in ("paper", "release", "wikitext-2", "wikitext-2-release")}
    caches = {name: sweep.variants[-3].spec.cache for name, sweep in at.items()}
    found = {
        name: (
            (spec := sweep.baseline.spec).batch_size,
            spec.dropout.between,
            spec.epochs,
            spec.finetune and spec.finetune.epochs,
            (cache := caches[name]) and cache.window,
        )
        for name, sweep in at.items()
    }
    assert found == {
        "paper": (40, 0.3, 750, 750, 2000),
        "release": (20, 0.25, 500, 500, 500),
        "wikitext-2": (80, 0.3, 750, 750, 3785),
        "wikitext-2-release": (80, 0.2, 750, 750, 3785),
    }


@pytest.mark.parametrize(("name", "scale"), [*TYING, *ECOC])
def test_every_variant_has_the_numbers_of_its_size_text_and_cell(name: str, scale: str) -> None:
    sweep, numbers = beside(name, scale)
    assert sweep.published_scale
    shown = []
    for variant in sweep.variants:
        if variant.name in ("RE alone", "depth 1"):  # not printed
            continue
        valid, test = numbers[variant.name].valid, numbers[variant.name].test
        assert valid is not None
        assert test is not None
        shown.append(f"{valid.perplexity}/{test.perplexity}")
    assert " ".join(shown) == (TYING | ECOC)[name, scale]


@pytest.mark.parametrize("scale", ["wikitext-103", "wikitext-103-gru"])
def test_wikitext_103_has_its_numbers_and_the_cap_that_they_may_have(scale: str) -> None:
    sweep, numbers = beside("ecoc_heads", scale)
    assert numbers.keys() == {variant.name for variant in sweep.variants}
    assert all(each.valid and each.test for each in numbers.values())
    corpora = {variant.spec.corpus for variant in sweep.variants}
    assert [(corpus.name, corpus.vocabulary_cap) for corpus in corpora] == [("wikitext-103", 50_000)]


def test_that_perplexity_is_not_defined_is_noted_of_every_number_of_the_codes_paper() -> None:
    for scale in ("paper", "wikitext-2", "gru"):
        for numbers in beside("ecoc_heads", scale)[1].values():
            for number in (numbers.valid, numbers.test):
                assert number is not None and number.note is not None
                assert number.note.startswith("the paper does not say which definition of perplexity is meant")


def test_docs_final_tables_stand_beside_its_variants() -> None:
    final, reruns = (beside(name, "wikitext-2")[1] for name in ("doc_final", "doc_reruns"))
    for numbers, expected in (
        (beside("doc_final", "paper")[1], {"AWD-LSTM-DOC": 52.87, "AWD-LSTM-DOC (fin)": 52.38}),
        (final, {"AWD-LSTM-DOC": 58.55, "AWD-LSTM-DOC (fin)": 58.03}),
        (
            reruns,
            {"AWD-LSTM-DOC": 58.55, "AWD-LSTM-DOC (fin)": 58.03, "AWD-LSTM-MoS": 61.45, "AWD-LSTM": 65.8},
        ),
    ):
        assert {name: each.test and each.test.perplexity for name, each in numbers.items()} == expected


def test_a_small_scale_has_the_numbers_of_its_cell() -> None:
    assert not beside("ecoc_heads", "mini-gru")[0].published_scale
    for mini, paper in (("mini", "paper"), ("mini-gru", "gru")):
        assert beside("ecoc_heads", mini)[1] == beside("ecoc_heads", paper)[1]


def test_of_doc_what_is_not_lost_stands_beside_its_variant() -> None:
    found = {
        (name, variant): (numbers.valid and numbers.valid.perplexity, numbers.test and numbers.test.perplexity)
        for name in ("doc_layers", "doc_lambda", "doc_reruns")
        for variant, numbers in beside(name, "paper")[1].items()
    }
    assert found == {
        ("doc_layers", "i3=15"): (58.08, 55.97),
        ("doc_lambda", "lambda 0.001"): (55.45, 53.44),
        ("doc_reruns", "AWD-LSTM"): (60.0, 57.3),
        ("doc_reruns", "AWD-LSTM-MoS"): (56.54, 54.44),
        ("doc_reruns", "AWD-LSTM-DOC"): (54.62, 52.87),
        ("doc_reruns", "AWD-LSTM-DOC (fin)"): (54.12, 52.38),
    }


def test_another_text_has_no_published_numbers() -> None:
    assert published_numbers(["awd_lstm.table4"], "pydoc", {"full": "lstm"}, FOLDER) == {}


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
    cells = dict.fromkeys(("full", "literature", "lost", "other", "ours"), "lstm")
    numbers = published_numbers(["p.table2", "p.table1"], "ptb", cells, folder)
    assert set(numbers) == {"full"}
    assert described(numbers["full"].test) == (2.0, 0.5, "seed", "p", "2", "n")
    assert described(numbers["full"].valid) == (3.0, None, "seed", "p", "2", None)
    mixed = published_numbers(["p.table1", "p.table2"], "ptb", cells, folder)["full"]
    assert mixed.valid == numbers["full"].valid
    assert described(mixed.test) == (1.0, None, "seed", "p", "1", None)
    assert [described(other) for other in mixed.others] == [(2.0, 0.5, "seed", "p", "2", "n")]
    assert [other.perplexity for other in numbers["full"].others] == [1.0]
    assert set(published_numbers(["p.extra"], "ptb", cells, folder)) == {"other"}
    assert published_numbers(["p.table1", "p.table1"], "ptb", cells, folder)["full"].others == (), "the same number"


def test_a_number_of_another_cell_is_no_number_of_ours(tmp_path: Path) -> None:
    rows = (
        ROW + "table: '1', variant: a, cell: gru, split: test, perplexity: 1.0}\n"
        + ROW + "table: '1', variant: a, cell: lstm, split: test, perplexity: 2.0}\n"
        + ROW + "table: '1', variant: b, cell: gru, split: test, perplexity: 3.0}\n"
        + ROW + "table: '1', variant: c, split: test, perplexity: 4.0}\n"
    )  # fmt: skip
    for cell, expected in (("gru", {"a": 1.0, "b": 3.0, "c": 4.0}), ("lstm", {"a": 2.0, "c": 4.0})):
        found = published_numbers(["p.table1"], "ptb", dict.fromkeys("abc", cell), write(tmp_path, rows))
        assert {name: numbers.test and numbers.test.perplexity for name, numbers in found.items()} == expected


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("70.0", ".nan", "perplexity: should be a finite number, got nan"),
        ("70.0", "-3", "perplexity: should be greater than or equal to 1, got -3"),
        ("70.0", "true", "perplexity: should be a number, got true"),
        ("split: test", "split: tset", "split: should be 'valid', 'test' or 'train', got 'tset'"),
        ("std: 0.1", "std: -1", "std: should be greater than or equal to 0, got -1"),
    ],
)
def test_a_number_that_none_can_be_is_refused(tmp_path: Path, old: str, new: str, problem: str) -> None:
    row = "table: '1', variant: a, split: test, std: 0.1, perplexity: 70.0}"
    assert published_numbers(["p.table1"], "ptb", {"a": "lstm"}, write(tmp_path, ROW + row))["a"].test is not None
    second = row.replace(old, new)
    with pytest.raises(ValueError, match=rf"p\.yaml:2: 1\.{problem}"):
        published_numbers(["p.table1"], "ptb", {}, write(tmp_path, f"{ROW}{row}\n{ROW}{second}"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1", r"p\.yaml:1: should be a list of published numbers, got \{'a': 1\}"),
        ("- {paper: p}", r"p\.yaml:1: 0: missing key 'table'"),
        ("- 1", r"p\.yaml:1: 0: should be a mapping with paper, table, metric, certainty, got 1"),
    ],
)
def test_a_file_that_is_no_list_of_numbers_is_named_with_the_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        published_numbers(["p.table1"], "ptb", {}, write(tmp_path, text))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path, "")
    (folder / "p.yaml").unlink()
    (folder / "p.yaml").symlink_to(tmp_path / "gone.yaml")
    with pytest.raises(ValueError, match=r"p\.yaml: cannot be read: No such file"):
        published_numbers(["p.table1"], "ptb", {}, folder)


def test_a_file_that_is_no_yaml_is_named_with_the_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"p\.yaml:2: not YAML: "):
        published_numbers(["p.table1"], "ptb", {}, write(tmp_path, "- 1\n- ["))


def test_every_published_file_reads() -> None:
    for path in FOLDER.glob("*.yaml"):
        with pytest.raises(ValueError, match=f"published/{path.name} has no 'nothing'"):
            published_numbers([f"{path.stem}.nothing"], "ptb", {}, FOLDER)


@pytest.mark.parametrize(
    ("file", "records", "perplexities", "total"),
    [
        ("awd_lstm", 156, 116, 8890.35),
        ("doc", 209, 71, 4330.91),
        ("ecoc", 276, 240, 21118.81),
        ("tying", 164, 82, 7929.89),
    ],
)
def test_no_published_number_is_lost(file: str, records: int, perplexities: int, total: float) -> None:
    rows = yaml.safe_load((FOLDER / f"{file}.yaml").read_text(encoding="utf-8"))
    values = [row["perplexity"] for row in rows if row.get("perplexity") is not None]
    assert (len(rows), len(values), round(sum(values), 2)) == (records, perplexities, total)
