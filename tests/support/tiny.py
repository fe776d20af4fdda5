"""A corpus and a spec so small that a trial takes a fraction of a second."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lm.heads import Words
from lm.spec import TrainSpec


def write_corpus(folder: Path, tokens: tuple[int, int, int] = (1200, 300, 250)) -> Path:
    """Lines in which a word says much, not all, about the next one."""
    for split, count in zip(("train", "valid", "test"), tokens, strict=True):
        chance = random.Random(split)
        word, lines, line = 0, [], []
        for _ in range(count):
            word = (word * 5 + 1 + int(3 * chance.random())) % 23
            line.append(f"w{word}")
            if chance.random() < 0.1:
                lines.append(" ".join(line))
                line = []
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{split}.txt").write_text("\n".join([*lines, " ".join(line)]) + "\n", encoding="utf-8")
    return folder


def seeded(seed: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A source of random numbers."""
    return torch.Generator(device).manual_seed(seed)


def even(count: int) -> Words:
    """Words that are all equally frequent."""
    return Words(np.ones(count, dtype=np.int64))


def tiny_spec(folder: Path | str, /, **changes: Any) -> TrainSpec:
    """Two layers, every regulariser on, NT-ASGD; `changes` replace whole parts."""
    parts: dict[str, Any] = {
        "corpus": {"name": str(folder)},
        "model": {"layers": 2, "embedding_size": 6, "hidden_size": 10},
        "dropout": {"embedding": 0.1, "input": 0.2, "between": 0.1, "output": 0.2, "weight": 0.3},
        "penalties": {"activation": 2.0, "temporal_activation": 1.0},
        "bptt": {"kind": "variable", "length": 12, "deviation": 2.0},
        "optimizer": {"kind": "nt_asgd", "learning_rate": 4.0, "clip": 0.5, "weight_decay": 1.2e-6},
        "batch_size": 4,
        "epochs": 3,
        "scoring": {"valid_columns": 3, "window": 20},
    }
    return TrainSpec.model_validate(parts | changes)


AVERAGING = {"kind": "nt_asgd", "learning_rate": 4.0, "clip": 0.5, "trigger": "monotonic"}
"""Begins to average at the first epoch that is worse than the one before."""
