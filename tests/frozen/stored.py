"""A folder of trials as the code of its commit left it: trials, stages that they share, a search. Weights are left out.

Keys have the numerics version of that day, and the text is written again from its seeds, the same on every machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from unittest.mock import patch

from lm.record import StageResult
from orchestrator import load_records, load_sweep, run_sweep
from orchestrator.agenda.expand import expand
from orchestrator.agenda.standing import last_commands, sweep_standing
from orchestrator.report import report_sweep
from orchestrator.trials.records import Records
from tests.frozen.still import NUMERICS_VERSION
from tests.support.tiny import write_corpus

FOLDER = Path(__file__).parent / "expected/runs"
READ = FOLDER.with_name("read")
_VERSIONS = ("lm.spec.trial", "orchestrator.trials.records")
"""The modules that ask for the numerics version while they read."""

_BASE = """\
base:
  corpus: {name: corpus}
  model: {layers: 1, embedding_size: 6, hidden_size: 10}
  optimizer: {kind: sgd, learning_rate: 2.0, clip: 0.5}
  bptt: {kind: fixed, length: 12}
  batch_size: 4
  epochs: 2
"""
SWEEPS = {
    "toy": f"""\
name: toy
question: Does it matter?
{_BASE}  finetune: {{epochs: 1}}
components:
  fine-tuning: {{off: {{finetune: null}}}}
variants:
  neural cache: {{cache: {{window: 5, weight: 0.1, flatness: 1.0}}}}
seeds: [1]
""",
    "find": f"""\
name: find
question: Which rate?
{_BASE}search:
  trials: 2
  sampler: {{kind: random}}
  space:
    optimizer.learning_rate: {{kind: log_uniform, low: 0.5, high: 4.0}}
seeds: [1]
""",
}


@contextmanager
def furnished(place: Path) -> Iterator[None]:
    """Work in a folder that has the text and both sweep files."""
    place.mkdir(parents=True, exist_ok=True)
    write_corpus(place / "corpus")
    for name, text in SWEEPS.items():
        (place / f"{name}.yaml").write_text(text, encoding="utf-8")
    with ExitStack() as stack:
        stack.enter_context(patch.dict(os.environ, {"LM_CACHE": str(place / "cache")}))
        for module in _VERSIONS:
            stack.enter_context(patch(f"{module}.NUMERICS_VERSION", NUMERICS_VERSION))
        stack.enter_context(contextlib.chdir(place))
        yield


def make(place: Path) -> None:
    """Train both sweeps and keep what they leave, without locks, weights, and who ran it where."""
    with furnished(place):
        for name in SWEEPS:
            run_sweep(f"{name}.yaml", scale="paper", executor="inline")
    for path in [p for name in ("*.lock", "*.made") for p in place.glob(f"runs/**/{name}")]:
        path.unlink()
    for weights in place.glob("runs/*/weights"):
        shutil.rmtree(weights)
    for path in place.glob("runs/.sweeps/*.json"):
        holder = json.loads(path.read_text()) | {"pid": 1, "host": "host", "user": "user"}
        path.write_text(json.dumps(holder, indent=1) + "\n")
    shutil.rmtree(FOLDER, ignore_errors=True)
    shutil.copytree(place / "runs", FOLDER)
    shutil.rmtree(READ, ignore_errors=True)
    READ.mkdir()
    for name, text in read(place / "again").items():
        (READ / name).write_text(text, encoding="utf-8")


def read(place: Path) -> dict[str, str]:
    """What the public functions say of the stored folder, a text for each; it is copied below `place` first."""
    shutil.copytree(FOLDER, place / "runs")
    with furnished(place):
        records, texts = Records(Path("runs").resolve()), {}
        losses = {key: [_losses(stage) for stage in record.stages] for key, record in load_records("runs").items()}
        texts["records.json"] = _json(losses)
        commands = [(holder.sweep, holder.scale, state) for holder, state in last_commands(Path("runs"))]
        texts["commands.json"] = _json(sorted(commands))
        for name in SWEEPS:
            sweep = load_sweep(f"{name}.yaml", "paper")
            now = expand(sweep, records)
            texts[f"{name}_status.json"] = _json(asdict(sweep_standing(sweep, now, records)))
            report_sweep(sweep, f"{name}.yaml", now, records, "reports", if_fuller="replace")
            for path in Path("reports", name, "paper").glob("*.csv"):
                texts[f"{name}_{path.name}"] = path.read_text(encoding="utf-8")
    return texts


def _losses(stage: StageResult) -> list[object]:
    test = None if stage.test is None else stage.test.nats_per_token
    return [stage.name, stage.key, stage.valid.nats_per_token, test]


def _json(data: object) -> str:
    return json.dumps(data, indent=1) + "\n"
