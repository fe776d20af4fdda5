"""Reports of made-up records, one for each design, and what of them is compared.

Text files are compared as they are. Pictures, curves and the HTML page are compared by a hash of what they show: their
bytes depend on fonts and on the versions of matplotlib, Arrow and bokeh.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from lm.spec import Sgd
from orchestrator.agenda.expand import expand, search_tasks
from orchestrator.search.ledger import SearchState
from orchestrator.sweep.designs import Ablation
from orchestrator.trials.records import Records
from tests.frozen.still import standing_still
from tests.orchestrator.report.test_head_section import heads
from tests.orchestrator.report.test_interactions import settled
from tests.orchestrator.search.test_population import Trainer, population
from tests.support import golden
from tests.support.factories import make_trial, settle, write_tokens
from tests.support.found import TUNE, at_paper, find, within
from tests.support.pages import NoArtist, write

FOLDER = Path(__file__).parent / "expected/pages"
HASHES = "hashes.json"
_TEXTS = (".md", ".csv", ".tex", ".json")
_DIGITS = 9


def leave_one_out(place: Path, artist: NoArtist) -> None:
    """With a cache, a pair, interactions, a seed that diverged, and losses by token."""
    golden.make(place, artist=artist)


def factorial(place: Path, artist: NoArtist) -> None:
    """All combinations of two parts, and a variant that trains fewer epochs."""
    ablation = Ablation("factorial", ("A", "B"))
    trials = settled(place / "runs", ablation, seeds=3)
    for seed in (1, 2, 3):
        trials.append(make_trial("shorter", seed, epochs=9))
        settle(place / "runs", trials[-1], 63.0 + seed / 10)
    write(place, trials, ablation=ablation, artist=artist)


def tuned(place: Path, artist: NoArtist) -> None:
    """Every variant tuned, one of them with a single complete trial; Adam with a range of its own."""
    sweep, records = at_paper(place, TUNE), Records(place / "runs")
    for number, task in enumerate(search_tasks(sweep)):
        second = None if task.variant == "Adam" else 4.1 + number / 10
        find(records, task, (within(task), 4.0 + number / 10), (within(task, 0.7), second))
    now = expand(sweep, records)
    for trial in now.trials:
        settle(place / "runs", trial, 60.0 + len(trial.variant) + trial.seed / 10)
    write(place, now.trials, searches=now.searches, artist=artist)


def population_based(place: Path, artist: NoArtist) -> None:
    """A schedule found by a population."""
    task = population()
    (found,) = Trainer(place / "shelf").search(task)
    trials = [make_trial("full", seed) for seed in (1, 2)]
    trials += [make_trial("best found", s, optimizer=Sgd(kind="sgd", learning_rate=9.0)) for s in (1, 2)]
    for trial in trials:
        settle(place / "runs", trial, 60.0 - 5.0 * (trial.variant != "full") + trial.seed / 10)
    write(place, trials, searches=(SearchState(task, place / "none", tuple(found)),), artist=artist)


def of_heads(place: Path, artist: NoArtist) -> None:
    """Three heads with measures of their own, and where in the text they differ."""
    trials = heads(place / "runs", seeds=3)
    for trial in trials:
        write_tokens(place / "runs", trial, harder=0.3 * (trial.variant == "ecoc"))
    write(place, trials, baseline="softmax", artist=artist)


DESIGNS: dict[str, Callable[[Path, NoArtist], None]] = {
    "leave_one_out": leave_one_out,
    "factorial": factorial,
    "tuned": tuned,
    "population": population_based,
    "heads": of_heads,
}


def texts(design: str, place: Path) -> dict[str, str]:
    """What is compared of a design's report, written below `place`, by file name."""
    artist = NoArtist()
    place.mkdir(parents=True, exist_ok=True)
    with standing_still():
        DESIGNS[design](place, artist)
    found = {path.name: path for path in (place / "report").iterdir()}
    compared = {name: path.read_text(encoding="utf-8") for name, path in found.items() if path.suffix in _TEXTS}
    hashes = {file: _hash(_plain(shown)) for file, shown in artist.asked.items()}
    hashes["curves.parquet"] = _hash(_plain(pq.read_table(found["curves.parquet"]).to_pydict()))
    html = found["report.html"].read_text(encoding="utf-8")
    hashes["report.html"] = _hash(re.sub(r"(?s)<(script|style)\b.*?</\1>", "", html))
    return compared | {HASHES: json.dumps(hashes, indent=1, sort_keys=True) + "\n"}


def _hash(plain: Any) -> str:
    return hashlib.sha256(json.dumps(plain, ensure_ascii=False).encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """Values without the names of fields, floats to as many digits as every machine computes alike."""
    if dataclasses.is_dataclass(value):
        return [_plain(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(_plain(one) for one in value)
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return f"{value:.{_DIGITS}g}" if isinstance(value, float) else value
