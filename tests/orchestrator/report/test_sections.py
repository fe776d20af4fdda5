"""Sections of the page: time and memory, where the loss changes, every spec, other numerics."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from lm.record import write_record
from lm.spec import Dropout, EcocHead
from orchestrator.analysis.outcomes import read_outcomes
from orchestrator.report.sections.differences import where_table
from orchestrator.trials.plan import overrides
from orchestrator.trials.records import Records
from tests.support.factories import FULL, make_record, make_trial, settle, write_tokens
from tests.support.pages import NoArtist, write


def test_another_budget_gets_an_interval_and_no_verdict(tmp_path: Path) -> None:
    trials = []
    for variant, changes, test in (("full", {}, 60.0), ("no fine-tuning", {"finetune": None}, 80.0)):
        for seed in (1, 2, 3):
            trials.append(make_trial(variant, seed, **changes))
            settle(tmp_path / "runs", trials[-1], test + seed / 10)
    text = write(tmp_path, trials)
    assert re.search(r"\| \+33\.\d*% \[.*\] \| no verdict \(another budget\) \|", text)
    assert "o verdict on “no fine-tuning”: trained with another budget." in text
    assert "raises**" not in text
    assert ",no verdict,another budget," in (tmp_path / "report/table.csv").read_text()


def test_another_budget_is_marked_and_told(tmp_path: Path) -> None:
    trials = [make_trial("full"), make_trial("no fine-tuning", finetune=None), make_trial("b", batch_size=7)]
    for trial in trials:
        settle(tmp_path / "runs", trial, 60.0)
    assert "Another budget" not in write(tmp_path, [trials[0], trials[2]])
    text = write(tmp_path, trials)
    assert "| no fine-tuning | 12 of 12 (another budget) | 1.7 min | 5.0 s | 10,000 | 300 MiB | 1 |" in text
    assert "| 3.3 min | 10.0 s | 10,000" in text, "of both stages"
    assert "**Another budget than “full”** is part of what no fine-tuning changes" in text
    assert "| b | 24 of 16 |" in text
    shifted = trials[2].spec.corpus.model_copy(update={"train_start": 9})
    other_text = trials[2].spec.model_copy(update={"corpus": shifted})
    trials[2] = replace(trials[2], spec=other_text)
    settle(tmp_path / "runs", trials[2], 60.0)
    assert "is part of what no fine-tuning and b change: differences" in write(tmp_path, trials)


def test_a_record_of_other_numerics_is_named_and_does_not_count(tmp_path: Path) -> None:
    trials = [make_trial("full"), make_trial("b", batch_size=7)]
    settle(tmp_path / "runs", trials[0], 60.0)
    record = make_record(trials[1], 70.0)
    stages = tuple(stage.model_copy(update={"key": f"old {stage.key}"}) for stage in record.stages)
    update = {"key": "0123456789abcdef", "numerics_version": 0, "stages": stages}
    old = record.model_copy(update=update)
    write_record(tmp_path / "runs" / old.key, old)
    text = write(tmp_path, trials)
    assert "| b | 1 | missing | only of numerics version 0 (0123456789abcdef) |" in text
    assert "70.00" not in text


def test_every_spec_can_be_made_from_the_base_and_what_the_page_says(tmp_path: Path) -> None:
    head = EcocHead.model_validate({"kind": "ecoc", "codebook": {"kind": "random", "bits": 40}})
    changed = FULL.model_copy(update={"head": head, "finetune": None, "dropout": Dropout(weight=0.1)})
    found = overrides(FULL, changed)
    assert found["finetune"] is None and found["dropout.weight"] == 0.1 and found["head"]["kind"] == "ecoc"
    assert overrides(FULL, FULL) == {}
    trial = make_trial("b", dropout=FULL.dropout.model_copy(update={"weight": 0.25}))
    text = write(tmp_path, [make_trial("full"), trial])
    block = text.split("as a sweep file would have it:")[1].split("```yaml\n")[1].split("```")[0]
    assert yaml.safe_load(block) == {"b": {"dropout.weight": 0.25}}


def test_what_varies_with_the_seed_is_no_part_of_what_a_variant_changes(tmp_path: Path) -> None:
    corpora = [FULL.corpus.model_copy(update={"train_tokens": 500, "train_start": 500 * seed}) for seed in range(3)]
    trials = [make_trial("full", seed, corpus=corpora[seed]) for seed in range(3)]
    trials += [make_trial("b", seed, corpus=corpora[seed], batch_size=7) for seed in (1, 2)]
    block = write(tmp_path, trials).split("as a sweep file would have it:")[1].split("```yaml\n")[1].split("```")[0]
    assert yaml.safe_load(block) == {"b": {"batch_size": 7}}


def test_differences_by_word_and_by_block_are_to_the_baselines_mean(tmp_path: Path) -> None:
    trials = [make_trial(v, seed, batch_size=n) for v, n in (("full", 20), ("rare", 7), ("bare", 8)) for seed in (1, 2)]
    for trial in trials:
        settle(tmp_path / "runs", trial, 60.0 + trial.seed)
        if (trial.variant, trial.seed) != ("bare", 2):
            write_tokens(tmp_path / "runs", trial, harder=0.3 * (trial.variant == "rare"))
    table = where_table(read_outcomes(trials, Records(tmp_path / "runs"), "full"))
    assert table is not None and [row.name for row in table.by_class] == ["rare"]
    (words,), (along,) = table.by_class, table.by_piece
    assert words.nats == pytest.approx([0.3, 0.3, 0, 0, 0, 0], abs=1e-6)
    assert all(low <= mean <= high for low, mean, high in zip(words.low, words.nats, words.high, strict=True))
    assert np.mean(along.nats) == pytest.approx(float(np.dot(table.shares, words.nats)), rel=1e-3)
    text = write(tmp_path, trials)
    assert "| rare | +0.300 | +0.300 | 0.000 | 0.000 | 0.000 | 0.000 |" in text
    assert where_table(read_outcomes(trials[4:], Records(tmp_path / "runs"), "bare")) is None


def test_a_class_of_words_that_the_test_text_lacks_is_neither_in_the_table_nor_drawn(tmp_path: Path) -> None:
    trials = [make_trial(variant, batch_size=n) for variant, n in (("full", 20), ("b", 7))]
    for trial in trials:
        settle(tmp_path / "runs", trial, 60.0)
        write_tokens(tmp_path / "runs", trial, often=7)  # no word 1 to 9 times
    artist = NoArtist()
    text = write(tmp_path, trials, artist=artist)
    assert "| Words that training has | never | 10–99 | 100–999 | 1,000–9,999 | 10,000+ |" in text
    assert "| b | 0.000 | 0.000 | 0.000 | 0.000 | 0.000 |" in text
    (row,), labels, shares, _ = artist.asked["frequency.svg"]
    assert len(labels) == len(shares) == len(row.nats) == 5
    assert all(share > 0.1 for share in shares)


def test_a_variant_with_another_training_text_has_other_classes_of_words_and_is_named(tmp_path: Path) -> None:
    trials = [make_trial(variant, batch_size=n) for variant, n in (("full", 20), ("b", 7), ("moved", 8))]
    corpus = trials[2].spec.corpus.model_copy(update={"train_start": 9})
    trials[2] = replace(trials[2], spec=trials[2].spec.model_copy(update={"corpus": corpus}))
    for trial in trials:
        settle(tmp_path / "runs", trial, 60.0)
        write_tokens(tmp_path / "runs", trial, often=7 if trial.variant == "moved" else 1)
    table = where_table(read_outcomes(trials, Records(tmp_path / "runs"), "full"))
    assert table is not None and [row.name for row in table.by_class] == ["b"] and table.left_out == ["moved"]
    assert "Left out, since their training text makes other words frequent: moved." in write(tmp_path, trials)
