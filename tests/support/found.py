"""Sweep files that search, and ledgers of what their searches found."""

from __future__ import annotations

from pathlib import Path

from orchestrator.search.events import Asked, Ended, SearchEnd
from orchestrator.search.ledger import Ledger, ledger_path
from orchestrator.search.task import SearchTask
from orchestrator.sweep import ScaledSweep
from orchestrator.trials.plan import Facts
from orchestrator.trials.records import Records
from tests.support.sweep_texts import read_text

BASE = """\
name: toy
question: What is best?
base:
  corpus: {name: pydoc}
  model: {layers: 1, embedding_size: 8, hidden_size: 8}
  dropout: {weight: 0.5}
  penalties: {activation: 2.0}
  optimizer: {kind: sgd, learning_rate: 3.0}
  epochs: 4
"""
SEARCH = f"""{BASE}
search:
  trials: 2
  sampler: {{kind: random}}
  space:
    optimizer.learning_rate: {{kind: log_uniform, low: 0.1, high: 10.0}}
seeds: [1, 2]
"""
TUNE = f"""{BASE}
components:
  weight-dropping: {{off: {{dropout.weight: 0.0}}}}
  AR: {{off: {{penalties: null}}}}
variants:
  Adam: {{optimizer: {{kind: adam, learning_rate: 0.001}}}}
tune:
  trials: 2
  space:
    optimizer.learning_rate: {{kind: log_uniform, low: 0.1, high: 10.0}}
    dropout.weight: {{kind: uniform, low: 0.0, high: 0.6}}
    penalties.activation: {{kind: uniform, low: 0.0, high: 3.0}}
  variants:
    Adam: {{optimizer.learning_rate: {{kind: log_uniform, low: 0.0001, high: 0.01}}}}
seeds: [1, 2]
"""


def at_paper(folder: Path, text: str) -> ScaledSweep:
    return read_text(folder, text).at("paper")


def within(task: SearchTask, share: float = 0.5) -> dict[str, float]:
    """A value in the range of everything that is searched, at this share of it."""
    return {key: one.low + share * (one.high - one.low) for key, one in task.space.items()}  # type: ignore[union-attr]


def find(records: Records, task: SearchTask, *found: tuple[dict[str, float], float | None]) -> None:
    """Trials with these values ended at these validation losses; None is a trial that was stopped early."""
    fingerprint = Facts().fingerprint(task.base.corpus)
    ledger = Ledger(ledger_path(records.root, task.key(fingerprint)), task, fingerprint)
    for number, (values, nats) in enumerate(found):
        state: SearchEnd = "stopped" if nats is None else "complete"
        ledger.append(Asked(asked=number, values=dict(values), key=f"{number:016x}"))
        objectives = None if nats is None else (nats,)
        ledger.append(
            Ended(ended=number, state=state, nats=nats, objectives=objectives, epochs=4, seconds=1.0, reason=None)
        )
