"""Losses by token, as a report reads them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lm.record import token_nats_path
from orchestrator.analysis.noise import BLOCKS
from orchestrator.analysis.outcomes import CLASSES, TokenLossReader, read_outcomes
from orchestrator.trials.records import Records
from tests.support.factories import make_trial, settle, write_tokens


@pytest.fixture
def path(tmp_path: Path) -> Path:
    trial = make_trial()
    write_tokens(tmp_path, trial)
    return token_nats_path(tmp_path / trial.key, list(trial.spec.stages())[-1], "test")


def test_means_by_block_and_by_class_of_words(path: Path) -> None:
    found = TokenLossReader().read(path, "text")
    table = pq.read_table(path)
    nats, counts = table["nats"].to_numpy().astype(np.float64), table["training_count"].to_numpy()
    assert found is not None and found.blocks.shape == (BLOCKS,)
    ends = [nats.size * k // BLOCKS for k in range(1, BLOCKS)]
    assert found.blocks.tolist() == pytest.approx([part.mean() for part in np.split(nats, ends)])
    expected = [nats[counts == count].mean() for count in (0, 3, 40, 500, 7_000, 20_000)]
    assert found.classes.tolist() == pytest.approx(expected) and len(expected) == len(CLASSES)
    assert found.shares.sum() == pytest.approx(1.0)
    assert found.shares[1] == pytest.approx((counts == 3).mean())


def test_a_class_without_words_has_no_loss(path: Path) -> None:
    table = pq.read_table(path)
    pq.write_table(table.filter(table["training_count"].to_numpy() != 40), path)
    found = TokenLossReader().read(path, "text")
    assert found is not None
    assert np.isnan(found.classes).tolist() == [False, False, True, False, False, False] and found.shares[2] == 0


def test_which_words_a_text_has_is_read_once(path: Path) -> None:
    reader = TokenLossReader()
    before = reader.read(path, "text")
    pq.write_table(pq.read_table(path, columns=["nats"]), path)
    after = reader.read(path, "text")
    assert before is not None and after is not None and (before.classes == after.classes).all()


def test_losses_that_are_not_there_are_none_and_damaged_ones_are_named(path: Path) -> None:
    assert TokenLossReader().read(path.with_name("gone"), "text") is None
    whole = pq.read_table(path)
    pq.write_table(whole.drop_columns(["training_count"]), path)
    assert TokenLossReader().read(path, "text") is None, "written before words were counted"
    pq.write_table(pa.table({"nats": [1.0, None] * BLOCKS}), path)
    with pytest.raises(ValueError, match="not losses by token"):
        TokenLossReader().read(path, "text")
    pq.write_table(whole.slice(0, BLOCKS - 1), path)
    assert TokenLossReader().read(path, "text") is None, "a block has no token"
    path.write_bytes(b"PAR1 no more")
    with pytest.raises(ValueError, match="not losses by token") as caught:
        TokenLossReader().read(path, "text")
    assert str(path) in str(caught.value)


def test_outcomes_have_the_losses_of_their_last_stage(path: Path) -> None:
    runs, trial = path.parents[2], make_trial()
    settle(runs, trial, 60.0)
    ((outcome,),) = read_outcomes([trial], Records(runs), trial.variant).values()
    assert outcome.losses is not None


def test_a_report_goes_without_damaged_losses_and_says_so_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    runs, trial = path.parents[2], make_trial()
    settle(runs, trial, 60.0)
    record = runs / trial.key / "record.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"hashes": {}}))  # as before there were any
    path.write_bytes(b"PAR1 no more")
    for _ in range(2):
        ((outcome,),) = read_outcomes([trial], Records(runs), trial.variant).values()
        assert outcome.final is not None and outcome.losses is None
    (line,) = caplog.messages
    assert str(path) in line and line.endswith("; the report goes without these")
