"""The keys of searches, pinned: a ledger is found by its key, so a renamed field would orphan every search on disk.

A key may change when a sweep file's search or base does, and with `NUMERICS_VERSION`, which stands still here. It must
not change when only the code does: a new field of a search has to be left out of the key while it has its default.
"""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.agenda.expand import search_tasks
from orchestrator.sweep import read_sweep
from tests.support.searching import CONDITIONAL, task
from tests.support.sweep_texts import SWEEPS

FINGERPRINT = "f" * 64
COMMITTED = {
    ("front_heads", "paper", "best found"): "b01ecfb92a2646b3",
    ("front_heads", "laptop", "best found"): "a0b5261388769c43",
    ("front_heads", "mini", "best found"): "0473e8e8b949a8be",
    ("heads", "paper", "MoS"): "8047b33ea2e44188",
    ("heads", "laptop", "ECOC unigram normalized"): "d424aa293c62eb74",
    ("heads", "mini", "softmax"): "fc0ca4d647ade841",
    ("search_awd", "paper", "best found"): "375de386a428d4ef",
    ("search_awd", "laptop", "best found"): "f30b34489c684503",
    ("search_awd", "mini", "best found"): "e93c990411524d2d",
    ("schedule_awd", "paper", "best found"): "bb3db8aea38750a7",
    ("schedule_awd", "laptop", "best found"): "ac934f334710e1e5",
    ("schedule_awd", "mini", "best found"): "b45203e9e1340c87",
    ("tuned_ablation", "paper", "full"): "c853c0039acb329b",
    ("tuned_ablation", "paper", "no weight-dropping"): "e276f7a9497cb59c",
    ("tuned_ablation", "paper", "no embedding dropout"): "34b1081e6663cb2b",
    ("tuned_ablation", "paper", "no AR/TAR"): "e4275c7a55722b85",
    ("tuned_ablation", "paper", "Adam"): "b84fa9dbd3a89155",
    ("tuned_ablation", "laptop", "full"): "ec4858a9d24a37d8",
    ("tuned_ablation", "laptop", "no weight-dropping"): "1092778f916fbc11",
    ("tuned_ablation", "laptop", "no embedding dropout"): "bea0232d5abfb465",
    ("tuned_ablation", "laptop", "no AR/TAR"): "3bd207946deb6e12",
    ("tuned_ablation", "laptop", "Adam"): "ea6d8df92c65c6b0",
    ("tuned_ablation", "mini", "full"): "eb7cb0f74991aa6d",
    ("tuned_ablation", "mini", "no weight-dropping"): "171004445fdcaa2a",
    ("tuned_ablation", "mini", "no embedding dropout"): "21d441822be2b4ac",
    ("tuned_ablation", "mini", "no AR/TAR"): "56957f322d29e288",
    ("tuned_ablation", "mini", "Adam"): "9717869c914b4670",
}
ASHA = {"kind": "asha"}
SAMPLERS: list[tuple[dict[str, Any], str, str]] = [
    ({"kind": "random"}, "fdb06f1b043615b2", "ecb5c019d50bb8c5"),
    ({"kind": "tpe", "startup_trials": 3}, "15689d0db0bcce62", "9e91ba6f639e290b"),
    ({"kind": "gaussian_process", "startup_trials": 3}, "2ad614cde08dc55d", "5ef0a4b3c3acc00c"),
    ({"kind": "cma_es"}, "f92660cf7d7a0f49", "8f99b3ef6eef54b2"),
    ({"kind": "grid", "points": 2}, "8fc12a532a439622", "be2ef2f5737f5f2d"),
    ({"kind": "quasi_random"}, "62814bdde06068ad", "5ccbc76dc90abb3d"),
]
SCHEDULERS: list[tuple[dict[str, Any], str]] = [
    ({"kind": "hyperband"}, "a1bbd18a4bcb2347"),
    ({"kind": "median", "grace_epochs": 2}, "e5991937f42706b0"),
    ({"kind": "population", "population": 4, "interval_epochs": 3}, "819da0d63351259c"),
]


@pytest.fixture(autouse=True)
def _same_numerics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lm.spec.trial.NUMERICS_VERSION", 1)


def test_the_committed_sweeps_keep_the_keys_of_their_searches() -> None:
    keys = {}
    for path in sorted(SWEEPS.glob("*.yaml")):
        sweep = read_sweep(path)
        for scale in sweep.scale_names:
            for one in search_tasks(sweep.at(scale)):
                keys[sweep.name, scale, one.variant] = one.key(FINGERPRINT)
    listed = {place: key for place, key in keys.items() if place in COMMITTED}
    assert listed == COMMITTED
    assert {name for name, *_ in keys} == {name for name, *_ in COMMITTED}, "a key or two of each sweep that searches"


@pytest.mark.parametrize(("sampler", "stopped", "whole"), SAMPLERS, ids=str)
def test_the_key_of_each_sampler(sampler: dict[str, Any], stopped: str, whole: str) -> None:
    assert task(sampler=sampler, scheduler=ASHA).key(FINGERPRINT) == stopped
    assert task(sampler=sampler, scheduler=None).key(FINGERPRINT) == whole


@pytest.mark.parametrize(("scheduler", "key"), SCHEDULERS, ids=str)
def test_the_key_of_each_scheduler(scheduler: dict[str, Any], key: str) -> None:
    trials = None if scheduler["kind"] == "population" else 12
    assert task(scheduler=scheduler, trials=trials).key(FINGERPRINT) == key


def test_the_key_of_conditions_and_starts() -> None:
    start = [{"layers": "mixture", "head.dropout": 0.5}]
    assert task(space=CONDITIONAL, scheduler=None, start=start).key(FINGERPRINT) == "fc85d5ffb332c5ff"
