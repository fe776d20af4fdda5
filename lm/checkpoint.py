"""Checkpoints: folders written whole or not at all, the last two kept.

checkpoints/00000012/weights.safetensors    the weights in training
                     best.safetensors       the stage's best weights so far
                     average.safetensors    their running mean, once averaging has begun
                     state.pt               those names, optimizer, generators, position, trigger log; data and tensors
"""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from lm.files import sync

_KEEP = 2
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """What a trial under way needs to go on: named sets of weights, and plain state."""

    weights: dict[str, dict[str, Tensor]]
    state: dict[str, Any]


def save_checkpoint(trial_folder: Path, checkpoint: Checkpoint) -> None:
    """Write the next checkpoint of a trial and drop all but the last two."""
    folder = trial_folder / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    earlier = _numbered(folder)
    number = int(earlier[-1].name) + 1 if earlier else 1
    temporary = folder / f".{number:08d}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    for name, weights in checkpoint.weights.items():
        save_weights(temporary / f"{name}.safetensors", weights)
    torch.save(checkpoint.state | {"weights": list(checkpoint.weights)}, temporary / "state.pt")
    for path in (*temporary.iterdir(), temporary):
        sync(path)
    temporary.rename(folder / f"{number:08d}")
    sync(folder)
    for old in earlier[: len(earlier) + 1 - _KEEP]:
        shutil.rmtree(old)


def load_checkpoint(trial_folder: Path, device: torch.device) -> Checkpoint | None:
    """The last good checkpoint, None where there is none; one that cannot be read is passed over and said so."""
    for folder in reversed(_numbered(trial_folder / "checkpoints")):
        try:
            state: dict[str, Any] = torch.load(folder / "state.pt", map_location="cpu", weights_only=True)
            weights = {name: load_weights(folder / f"{name}.safetensors", device) for name in state.pop("weights")}
        except (OSError, RuntimeError, EOFError, ValueError, KeyError, UnpicklingError, SafetensorError) as error:
            _log.warning("checkpoint %s cannot be read (%s); trying the one before it", folder, error)
            continue
        return Checkpoint(weights, state)
    return None


def remove_checkpoints(trial_folder: Path) -> None:
    """Drop the checkpoints of a trial that has settled."""
    shutil.rmtree(trial_folder / "checkpoints", ignore_errors=True)


def save_weights(path: Path, weights: dict[str, Tensor]) -> None:
    """Write weights as safetensors."""
    # The library's own save_file makes files that only their owner can read, useless in a folder that a group shares.
    path.write_bytes(save({name: weight.detach().contiguous().cpu() for name, weight in weights.items()}))


def load_weights(path: Path, device: torch.device) -> dict[str, Tensor]:
    """Read weights to a device."""
    loaded: dict[str, Tensor] = load_file(path, device=str(device))
    return loaded


def _numbered(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("[0-9]*") if path.name.isdigit())
