"""Three changes whose effect is known beforehand, trained for real: what the report says of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.places import command
from tests.support.sweeps import furnish
from tests.support.tiny import write_corpus

SWEEP = """
name: tiny
question: Does the report see what is there, and nothing else?
base:
  corpus: {name: corpus}
  model: {layers: 1, embedding_size: 16, hidden_size: 16}
  penalties: {activation: 1.0e-3}
  bptt: {kind: fixed, length: 10}
  optimizer: {kind: sgd, learning_rate: 10.0, clip: 0.25}
  batch_size: 4
  epochs: 3
variants:
  wired to nothing: {penalties.activation: 1.001e-3}
  narrow: {model.hidden_size: 1, model.tied: false}
  ruinous: {optimizer.learning_rate: 300.0}
seeds: [1, 2, 3]
"""


@pytest.mark.usefixtures("without_pictures")
def test_a_component_wired_to_nothing_a_narrow_one_and_a_ruinous_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    furnish(tmp_path, SWEEP)
    write_corpus(tmp_path / "corpus", tokens=(6000, 1500, 1500))  # from which more can be learnt than frequencies
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    code, _, err = command("sweep", "tiny.yaml", "--executor", "inline")
    assert code == 0, err
    summary = json.loads((tmp_path / "reports/tiny/paper/summary.json").read_text())
    assert summary["verdicts"]["narrow"] == "raises"
    assert summary["verdicts"]["ruinous"] == "no verdict"
    assert "o verdict on “ruinous”: worse than guessing" in summary["answer"]
    assert summary["verdicts"]["wired to nothing"] in ("no effect larger than 0.5%", "not decided")
    page = (tmp_path / "reports/tiny/paper/report.md").read_text()
    assert "the noise of seeds and of the test text" in page, "the noise of the text is in the intervals"
