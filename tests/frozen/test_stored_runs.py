"""A folder that earlier code left is read as it was: its records, where its sweeps stand, their reports."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lm.spec import trial_key
from orchestrator import load_records
from orchestrator.search.ledger import read_search_trials
from orchestrator.trials.plan import Facts
from orchestrator.trials.records import Records
from tests.frozen.still import steady
from tests.frozen.stored import FOLDER, READ, furnished, read


def test_the_public_functions_say_what_they_said(tmp_path: Path) -> None:
    expected = {path.name: path.read_text(encoding="utf-8") for path in READ.iterdir()}
    found = read(tmp_path)
    assert found.keys() == expected.keys()
    for name, text in found.items():
        assert steady(text) == steady(expected[name]), name


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A copy, since who reads may leave a note of what was checked."""
    return Path(shutil.copytree(FOLDER, tmp_path / "runs"))


def test_every_record_is_read_whole_and_lies_where_its_key_says(runs: Path) -> None:
    with furnished(runs.parent):
        records, facts = load_records(runs), Facts()
        for key, record in records.items():
            assert record.status == "complete" and record.key == key
            assert trial_key(record.spec, facts.fingerprint(record.spec.corpus)) == key
    assert len(records) == len(list(runs.glob("*/record.json"))) == 5
    assert not any(Records(runs).is_damaged(key) for key in records)


def test_the_stages_that_trials_share_are_named_by_their_keys(runs: Path) -> None:
    stages = {stage.key for record in load_records(runs).values() for stage in record.stages}
    assert {path.stem for path in runs.glob(".stages/*.json")} == stages


def test_the_search_has_its_trials(runs: Path) -> None:
    (ledger,) = runs.glob(".searches/*.jsonl")
    assert [(found.number, found.state) for found in read_search_trials(ledger)] == [(0, "complete"), (1, "complete")]
