"""Ensembles of the seeds on the page."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from lm.by_token.losses import read_losses
from lm.record import token_nats_path
from orchestrator.analysis.outcomes import read_outcomes
from orchestrator.report.sections.tables import ensemble_table
from orchestrator.trials.records import Records
from tests.support.factories import CACHE, make_trial, settle, write_tokens
from tests.support.pages import write


def test_every_variant_with_two_seeds_and_their_losses_has_an_ensemble(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    trials = [make_trial("full", seed) for seed in (1, 2, 3)]
    trials += [make_trial("cached", seed, cache=CACHE) for seed in (1, 2)]
    trials += [make_trial("one seed", 1, epochs=9), *(make_trial("no losses", seed, epochs=8) for seed in (1, 2))]
    diverged = [make_trial("diverged", seed, epochs=7) for seed in (1, 2, 3)]
    for trial in [*trials, *diverged[:2]]:
        settle(runs, trial, 60.0)
        if trial.variant != "no losses":
            write_tokens(runs, trial)
    settle(runs, diverged[2], 60.0, status="diverged", reason="not finite")
    table = list(ensemble_table(read_outcomes(trials + diverged, Records(runs), "full"), Records(runs)))
    assert [(row["Variant"], row["Seeds"]) for row in table] == [
        ("full", 2),
        ("cached (adaptive)", 2),
        ("diverged", 2),
    ]
    nats = [
        read_losses(token_nats_path(runs / t.key, [*t.spec.stages()][-1], "test")).nats for t in trials[:2]
    ]  # as many as of the others
    expected = math.exp(-np.log(np.mean([np.exp(-each) for each in nats], axis=0)).mean())
    mean = np.mean([math.exp(each.mean()) for each in nats])
    assert table[0]["Ensemble"] == f"{expected:.2f}"

    text = write(tmp_path, trials + diverged)
    section = text.partition("### Ensembles of the seeds\n")[2].partition("\n#")[0]
    assert f"| full | 2 | {mean:.2f} | {expected:.2f} | −{100 * (1 - expected / mean):.2f}% |" in section
    assert "| cached (adaptive) | 2 |" in section and "one seed" not in section and "no losses" not in section


def test_without_losses_by_token_there_is_no_section(tmp_path: Path) -> None:
    trials = [make_trial("full", seed) for seed in (1, 2)]
    for trial in trials:
        settle(tmp_path / "runs", trial, 60.0)
    assert "Ensembles" not in write(tmp_path, trials)
