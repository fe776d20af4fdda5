"""Checkpoints: what comes back, what is kept, what a damaged one does."""

from __future__ import annotations

import logging
import os
import shutil
import stat
from pathlib import Path

import pytest
import torch

from lm.checkpoint import (
    Checkpoint,
    load_checkpoint,
    load_weights,
    remove_checkpoints,
    save_checkpoint,
    save_weights,
)

CPU = torch.device("cpu")


def checkpoint(number: int) -> Checkpoint:
    weights = {"weights": {"w": torch.full((3, 2), float(number))}, "best": {"w": torch.zeros(3, 2)}}
    state = {"position": {"step": number, "log": [1.5, 2.5], "from": None}, "noise": torch.Generator().get_state()}
    return Checkpoint(weights, state)


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    saved = checkpoint(7)
    save_checkpoint(tmp_path, saved)
    loaded = load_checkpoint(tmp_path, CPU)
    assert loaded is not None and loaded.weights.keys() == saved.weights.keys()
    assert loaded.state["position"] == saved.state["position"] and loaded.state.keys() == saved.state.keys()
    assert torch.equal(loaded.state["noise"], saved.state["noise"])
    for name, weights in saved.weights.items():
        assert torch.equal(loaded.weights[name]["w"], weights["w"])


def test_none_where_there_is_none(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path, CPU) is None
    remove_checkpoints(tmp_path)


def test_the_last_two_are_kept_and_their_state_is_plain_data(tmp_path: Path) -> None:
    for number in range(1, 13):
        save_checkpoint(tmp_path, checkpoint(number))
    folders = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert folders == ["00000011", "00000012"]
    loaded = load_checkpoint(tmp_path, CPU)
    assert loaded is not None and loaded.state["position"]["step"] == 12
    state = torch.load(tmp_path / "checkpoints" / "00000012" / "state.pt", weights_only=True)
    assert state["position"]["step"] == 12
    remove_checkpoints(tmp_path)
    assert list(tmp_path.iterdir()) == []


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def lacks_its_end(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def text(path: Path) -> None:
    path.write_bytes(b"not a checkpoint at all\n" * 20)


def zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)


def gone(path: Path) -> None:
    path.unlink()


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def lists_nothing(path: Path) -> None:
    path.write_text("{}")


def brackets(path: Path) -> None:
    path.write_text("[" * 10**5)


@pytest.mark.parametrize(
    "damage", [empty, cut, lacks_its_end, text, zeros, flipped, gone, pipe, lists_nothing, brackets]
)
@pytest.mark.parametrize("name", ["state.pt", "weights.safetensors", "best.safetensors", "manifest.json"])
def test_a_damaged_one_is_passed_over_with_a_warning(
    damage: object, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (1, 2):
        save_checkpoint(tmp_path, checkpoint(number))
    assert callable(damage)
    damage(tmp_path / "checkpoints" / "00000002" / name)
    with caplog.at_level(logging.WARNING):
        loaded = load_checkpoint(tmp_path, CPU)
    assert loaded is not None and loaded.state["position"]["step"] == 1
    assert loaded.weights.keys() == {"weights", "best"}
    (warning,) = caplog.records
    assert "00000002 cannot be used (" in warning.getMessage() and name in warning.getMessage()
    damage(tmp_path / "checkpoints" / "00000001" / name)
    assert load_checkpoint(tmp_path, CPU) is None


def test_half_a_copy_is_never_loaded(tmp_path: Path) -> None:
    """Files reach another disk in any order, the manifest last."""
    save_checkpoint(tmp_path / "whole", checkpoint(1))
    whole, half = (tmp_path / name / "checkpoints" / "00000001" for name in ("whole", "half"))
    half.mkdir(parents=True)
    names = sorted(path.name for path in whole.iterdir())
    assert names == ["best.safetensors", "manifest.json", "state.pt", "weights.safetensors"]
    for name in sorted(names, key="manifest.json".__eq__):
        assert load_checkpoint(tmp_path / "half", CPU) is None
        shutil.copy(whole / name, half / name)
    assert load_checkpoint(tmp_path / "half", CPU) is not None


def test_what_a_killed_writer_left_is_no_checkpoint(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, checkpoint(1))
    folder = tmp_path / "checkpoints"
    shutil.copytree(folder / "00000001", folder / ".00000002.tmp")
    (folder / ".00000002.tmp" / "state.pt").write_bytes(b"half")
    loaded = load_checkpoint(tmp_path, CPU)
    assert loaded is not None and loaded.state["position"]["step"] == 1
    save_checkpoint(tmp_path, checkpoint(2))
    assert sorted(path.name for path in folder.iterdir()) == ["00000001", "00000002"]


def test_weights_are_readable_by_a_group_and_keep_every_bit(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    shared = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    save_weights(path, {"a": shared, "b": shared.t(), "c": shared[1:3, ::2]})
    loaded = load_weights(path, CPU)
    assert torch.equal(loaded["a"], shared) and torch.equal(loaded["b"], shared.t())
    assert torch.equal(loaded["c"], shared[1:3, ::2])
    plain = tmp_path / "plain"
    plain.write_text("")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
