"""A report of made-up trials; `tests.frozen` holds what it says."""

from __future__ import annotations

import math
from pathlib import Path

from orchestrator.sweep.designs import Ablation
from tests.support.factories import CACHE, CORPUS, make_trial, settle, write_tokens
from tests.support.pages import NoArtist, write

FOLDER = Path(__file__).parents[1] / "frozen/expected/pages/leave_one_out"
MEASURED = CORPUS.model_copy(update={"unigram_nats": {"valid": math.log(720.0), "test": math.log(700.0)}})
FILES = ("report.md", "table.csv", "trials.csv", "table.tex", "summary.json")


def make(place: Path, *, order: int = 1, pictures: bool = False, artist: NoArtist | None = None) -> Path:
    """Write the report of the golden sweep into a folder; `order` -1 settles and plans its seeds backwards."""
    tests = {
        "full": (60.0, 60.2, 60.1),
        "no A": (66.0, 66.3, 66.1),
        "no B": (60.1, 60.15, 60.2),
        "no A + no B": (69.0, 69.4, 69.3),
        "wide": (58.0, 57.5, 61.0),
        "shaky": (61.0, 60.5, None),
    }
    trials = []
    for k, (variant, perplexities) in enumerate(tests.items()):
        for seed, test in list(enumerate(perplexities, 1))[::order]:
            trial = make_trial(variant, seed, batch_size=20 + k, change=f"change {k} | of `all`")
            status = {"status": "complete"} if test else {"status": "diverged", "reason": "the loss is not finite"}
            settle(place / "runs", trial, test or 61.0, corpus=MEASURED, **status)
            if test:
                write_tokens(place / "runs", trial, harder=0.2 * (variant == "no A"))
            trials.append(trial)
    cached = make_trial("neural cache", 1, cache=CACHE)
    settle(place / "runs", cached, 55.0)
    write(
        place,
        [*trials, cached],
        ablation=Ablation("pairs", ("A", "B")),
        published_scale=True,
        pictures=pictures,
        artist=artist,
        folder=place / "report",
    )
    return place / "report"
