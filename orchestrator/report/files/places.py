"""Where a written report lies: in a folder, or in that folder as git has it at a commit."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import nearest
from orchestrator.report.files.summary import FILE


@dataclass(frozen=True)
class ReportPlace:
    """A folder that holds a report, now or at a commit (its whole hash)."""

    folder: Path
    commit: str | None

    def __str__(self) -> str:
        return str(self.folder) if self.commit is None else f"{self.folder} at commit {self.commit[:12]}"

    def read(self, name: str) -> bytes | None:
        """A file of the report, None where it has none of this name."""
        if self.commit is not None:
            base, inside = _above(self.folder)
            # Not `git show`, which hands a file to the converters that a repository may name.
            return _git(base, "cat-file", "blob", f"{self.commit}:./{inside / name}")
        path = self.folder / name
        return path.read_bytes() if path.is_file() else None


def report_place(text: str) -> ReportPlace:
    """`FOLDER`, or `FOLDER@COMMIT` with whatever names a commit to git; ValueError where there is no report.

    A folder that exists is one, whatever its name holds.
    """
    named = re.fullmatch(r"(.+)@((?!\{).+)", text, flags=re.DOTALL)  # not within `HEAD@{1}`
    if Path(text).is_dir() or named is None:
        place = ReportPlace(Path(text), None)
        found = {str(page.parent) for top in (Path("reports"), place.folder.parent.parent) for page in _pages(top)}
    else:
        place = ReportPlace(Path(named[1]), _commit(Path(named[1]), named[2], text))
        found = _reports_at(place)
    if place.read("report.md") is None and place.read(FILE) is None:
        raise ValueError(f"--compare: {text}: no report is there{nearest(str(place.folder), sorted(found))}")
    return place


def _pages(top: Path) -> list[Path]:
    return list(top.glob("*/*/report.md"))


def _commit(folder: Path, name: str, text: str) -> str:
    base, _ = _above(folder)
    if name.startswith("-"):  # to git an option, and never a commit
        raise ValueError(f"--compare: {text}: no commit begins with a dash, got {name!r}")
    ran = _run_git(base, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    if ran.returncode != 0:
        why = " ".join(ran.stderr.decode(errors="replace").split()) or f"no commit is called {name!r}"
        raise ValueError(f"--compare: {text}: git in {base}: {why}")
    return ran.stdout.decode().strip()


def _reports_at(place: ReportPlace) -> set[str]:
    """The folders of all reports at the place's commit, written from the working directory as the place is."""
    base, _ = _above(place.folder)
    listed = _git(base, "ls-tree", "-r", "-z", "--name-only", str(place.commit)) or b""
    names = listed.decode(errors="replace").split("\0")
    folders = [base / Path(name).parent for name in names if Path(name).name == "report.md"]
    return {str(folder if place.folder.is_absolute() else os.path.relpath(folder)) for folder in folders}


def _above(folder: Path) -> tuple[Path, Path]:
    """The nearest folder that exists now, and the way from there: git may know folders that are gone."""
    whole = Path(os.path.abspath(folder))  # noqa: PTH100 - `resolve` would follow links, which git keeps apart
    base = next(above for above in (whole, *whole.parents) if above.is_dir())
    return base, whole.relative_to(base)


def _git(folder: Path, *arguments: str) -> bytes | None:
    """What git answers in a folder, None where it refuses."""
    ran = _run_git(folder, *arguments)
    return ran.stdout if ran.returncode == 0 else None


def _run_git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """OSError without git."""
    line = ["git", "-C", str(folder), *arguments]
    return subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, check=False)
