"""Every shipped sweep plans the trials that it planned, with the keys that their records have on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frozen.plans import FOLDER, SWEEPS, plans


@pytest.mark.parametrize("file", SWEEPS, ids=lambda file: file.stem)
def test_a_shipped_sweep_plans_as_it_did(file: Path, tmp_path: Path) -> None:
    """If the sweep file was changed on purpose: `python -m tests.frozen.make plans`, and read the difference."""
    assert plans(file, tmp_path / "runs") == (FOLDER / f"{file.stem}.txt").read_text(encoding="utf-8")


def test_no_frozen_plan_is_of_a_sweep_that_is_gone() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == {file.stem for file in SWEEPS}
