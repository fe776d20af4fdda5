"""Write the expected files of the frozen tests: `python -m tests.frozen.make`, or of some: `plans`, `pages`, `runs`.

`runs` are the folder that today's code leaves, which tomorrow's must read: they are written only when they are named.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from tests.frozen import pages, plans, stored

PARTS = ("plans", "pages", "runs")


def make_plans(place: Path) -> None:
    shutil.rmtree(plans.FOLDER, ignore_errors=True)
    plans.FOLDER.mkdir(parents=True)
    for file in plans.SWEEPS:
        (plans.FOLDER / f"{file.stem}.txt").write_text(plans.plans(file, place / "runs"), encoding="utf-8")


def make_pages(place: Path) -> None:
    for design in pages.DESIGNS:
        folder = pages.FOLDER / design
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, text in pages.texts(design, place / design).items():
            (folder / name).write_text(text, encoding="utf-8")


def main(parts: list[str]) -> None:
    if wrong := set(parts) - set(PARTS):
        sys.exit(f"expected some of {', '.join(PARTS)}, got {', '.join(sorted(wrong))}")
    with tempfile.TemporaryDirectory() as place:
        for part in parts or ("plans", "pages"):
            {"plans": make_plans, "pages": make_pages, "runs": stored.make}[part](Path(place, part))


if __name__ == "__main__":
    main(sys.argv[1:])
