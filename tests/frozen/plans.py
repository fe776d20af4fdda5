"""The plan of every sweep in `sweeps/` at every scale, as `plan --json` gives it, without its sentences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lm.data import PUBLISHED
from orchestrator.agenda.expand import expand
from orchestrator.commands.plan import plan_data
from orchestrator.sweep import read_sweep
from orchestrator.trials.records import Records
from tests.frozen.still import standing_still

FOLDER = Path(__file__).parent / "expected/plans"
SWEEPS = sorted((Path(__file__).parents[2] / "sweeps").glob("*.yaml"))
UNHASHED = {name for name, published in PUBLISHED.items() if published.sha256 is None}
"""Corpora without which no key is known, and which are not here."""
COLUMNS = ("variant", "seed", "key", "reads_from", "starts_from", "parameters")


def plans(sweep_file: Path, runs: Path) -> str:
    """The plans of a sweep file at its scales, with no trial in `runs`: a line for each trial."""
    sweep, records = read_sweep(sweep_file), Records(runs)
    with standing_still():
        scales = {}
        for name in sweep.scale_names:
            scaled = sweep.at(name)
            if scaled.baseline.spec.corpus.name in UNHASHED:
                continue
            scales[name] = plan_data(scaled, expand(scaled, records), records)
    return "\n".join(line for name, data in scales.items() for line in _lines(name, data)) + "\n"


def _lines(scale: str, data: dict[str, Any]) -> list[str]:
    """The keys of the JSON, what is not a trial, then the trials."""
    trials, rest = data["trials"], {key: value for key, value in data.items() if key not in ("trials", "question")}
    keys = {"keys": list(data), "keys_of_a_trial": list(trials[0]) if trials else []}
    rows = [[trial[column] for column in COLUMNS] for trial in trials]
    return [f"# {scale}", *(json.dumps(line, ensure_ascii=False) for line in (keys, rest, *rows))]
