"""Checkpoints: folders written whole or not at all, the last two kept.

checkpoints/00000012/weights.safetensors    the weights in training
                     best.safetensors       the stage's best weights so far
                     average.safetensors    their running mean, once averaging has begun
                     state.pt               those names, optimizer, generators, position, trigger log; data and tensors
                     manifest.json          the SHA-256 of each of them, written last

A checkpoint is whole if its manifest says so: one without, half copied or of an older version, is never loaded.
"""

from __future__ import annotations

import io
import json
import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from lm.files import errors_of, make_folder, read_regular, sha256, sync

_KEEP = 2
_MANIFEST = "manifest.json"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """What a trial under way needs to go on: named sets of weights, and plain state."""

    weights: dict[str, dict[str, Tensor]]
    state: dict[str, Any]


def save_checkpoint(trial_folder: Path, checkpoint: Checkpoint) -> None:
    """Write the next checkpoint of a trial and drop all but the last two; an OSError names its file."""
    folder = trial_folder / "checkpoints"
    make_folder(folder)
    earlier = _numbered(folder)
    number = int(earlier[-1].name) + 1 if earlier else 1
    temporary = folder / f".{number:08d}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        with errors_of(folder / f"{number:08d}"):
            _write(temporary, checkpoint)
            temporary.rename(folder / f"{number:08d}")
            sync(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # of an error: a full disk gets its space back
    for old in earlier[: len(earlier) + 1 - _KEEP]:
        shutil.rmtree(old) if old.is_dir() else old.unlink()


def load_checkpoint(
    trial_folder: Path, device: torch.device, missing: Callable[[dict[str, Any]], str | None] = lambda state: None
) -> Checkpoint | None:
    """The last good checkpoint, None where there is none; one that is damaged is passed over and said so.

    So is one for whose state `missing` names what beside it the trial would need to go on from there.
    """
    for folder in reversed(_numbered(trial_folder / "checkpoints")):
        if (damage := damage_of(folder)) is None:
            state: dict[str, Any] = torch.load(folder / "state.pt", map_location="cpu", weights_only=True)
            if (damage := missing(state)) is None:
                weights = {name: load_weights(folder / f"{name}.safetensors", device) for name in state.pop("weights")}
                return Checkpoint(weights, state)
        _log.warning("checkpoint %s cannot be used (%s); trying the one before it", folder, damage)
    return None


def damage_of(folder: Path) -> str | None:
    """What is wrong with a checkpoint's files, read whole and compared with its manifest; None where nothing is."""
    try:
        manifest = {"state.pt": ""} | json.loads(read_regular(folder / _MANIFEST))
        for name, expected in manifest.items():
            if (found := sha256(folder / name)) != expected:
                return f"{name}: SHA-256 {found[:12]}, {expected[:12]} in {_MANIFEST}"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except OSError as error:
        return str(error)
    except (ValueError, AttributeError, TypeError, RecursionError):  # no JSON, no object, values that are no text
        return f"{_MANIFEST} is no manifest"
    return None


def has_checkpoint(trial_folder: Path) -> bool:
    """Whether a trial has one to go on from."""
    return bool(_numbered(trial_folder / "checkpoints"))


def remove_checkpoints(trial_folder: Path) -> None:
    """Drop the checkpoints of a trial that has settled."""
    shutil.rmtree(trial_folder / "checkpoints", ignore_errors=True)


def save_weights(path: Path, weights: dict[str, Tensor]) -> None:
    """Write weights as safetensors."""
    # The library's own save_file makes files that only their owner can read, useless in a folder that a group shares.
    data = save({name: weight.detach().contiguous().cpu() for name, weight in weights.items()})
    with errors_of(path):
        path.write_bytes(data)


def load_weights(path: Path, device: torch.device) -> dict[str, Tensor]:
    """Read weights to a device."""
    loaded: dict[str, Tensor] = load_file(path, device=str(device))
    return loaded


def _write(folder: Path, checkpoint: Checkpoint) -> None:
    """A checkpoint's files, each on the disk before the manifest is."""
    folder.mkdir()
    for name, weights in checkpoint.weights.items():
        save_weights(folder / f"{name}.safetensors", weights)
    state = io.BytesIO()  # torch's own writer ends a full disk in an error that names neither the file nor the reason
    torch.save(checkpoint.state | {"weights": list(checkpoint.weights)}, state)
    with errors_of(folder / "state.pt"):
        (folder / "state.pt").write_bytes(state.getbuffer())
    written = sorted(folder.iterdir())
    for path in written:
        sync(path)
    manifest = folder / _MANIFEST
    with errors_of(manifest):
        manifest.write_text(json.dumps({path.name: sha256(path) for path in written}), encoding="utf-8")
    sync(manifest)
    sync(folder)


def _numbered(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("[0-9]*") if path.name.isdigit())
