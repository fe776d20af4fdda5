"""Small sweep files for tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.sweep import Sweep, SweepError, read_sweep

SWEEPS = Path(__file__).parents[2] / "sweeps"

GOOD = """\
name: toy
question: Does it matter?
base:
  corpus: {name: ptb}
  model: {layers: 2, embedding_size: 8, hidden_size: 16}
  dropout: {weight: 0.5, input: 0.4}
  optimizer: {kind: nt_asgd, learning_rate: 30.0, clip: 0.25}
  epochs: 4
  finetune: {epochs: 2}
components:
  fine-tuning: {off: {finetune: null}}
  weight-dropping: {off: {dropout.weight: 0.0}}
variants:
  neural cache: {cache: {window: 10, weight: 0.1, flatness: 1.0}}
seeds: [1, 2]
scales:
  tiny:
    base: {epochs: 1, dropout.input: 0.1}
    components:
      weight-dropping: {off: {dropout.weight: 0.1}}
    variants:
      neural cache: {cache: {window: 5, weight: 0.1, flatness: 1.0}}
    seeds: [7]
    resources: {cpus: 2}
resources: {cpus: 1, gpus: 0.25}
"""
CHANGE = "{cache: {window: 10, weight: 0.1, flatness: 1.0}}"
"""What its variant changes."""


def read_text(folder: Path, text: str) -> Sweep:
    """Read a sweep file with this text."""
    path = folder / "toy.yaml"
    path.write_text(text, encoding="utf-8")
    return read_sweep(path)


def errors_of(folder: Path, text: str) -> list[str]:
    """The lines of the error that a text gives, from the line number on."""
    with pytest.raises(SweepError) as caught:
        read_text(folder, text)
    prefix = f"{folder / 'toy.yaml'}:"
    assert all(line.startswith(prefix) for line in caught.value.lines)
    assert str(caught.value) == "\n".join(caught.value.lines)
    return [line.removeprefix(prefix) for line in caught.value.lines]


def edited(old: str, new: str) -> str:
    """`GOOD` with one thing written otherwise."""
    assert GOOD.count(old) == 1, old
    return GOOD.replace(old, new)
