"""What a user gets who installs the package: built here, installed nowhere."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

import lm

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
BUILD = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Built from a copy, since setuptools writes beside its sources."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("lm", "orchestrator", "sweeps"):
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, copy)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(copy)], cwd=copy, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (path,) = copy.glob("*.whl")
    return zipfile.ZipFile(path)


def test_it_holds_every_file_of_both_packages(wheel: zipfile.ZipFile) -> None:
    """Modules, templates, the markers of types, and no tests."""
    sources = [
        path.relative_to(ROOT).as_posix()
        for package in ("lm", "orchestrator")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and "shipped" not in path.parts
    ]
    held = {name for name in wheel.namelist() if ".dist-info/" not in name and "/shipped/" not in name}
    assert held == set(sources) and {"lm/py.typed", "orchestrator/py.typed"} < held


def test_it_holds_the_sweeps_and_their_published_numbers(wheel: zipfile.ZipFile) -> None:
    sweeps = {path.relative_to(ROOT / "sweeps").as_posix(): path for path in (ROOT / "sweeps").rglob("*.*")}
    held = {name.removeprefix("orchestrator/shipped/"): name for name in wheel.namelist() if "/shipped/" in name}
    assert held.keys() == sweeps.keys() and "published/awd_lstm.yaml" in held
    assert all(wheel.read(held[name]) == path.read_bytes() for name, path in sweeps.items())


def test_it_says_who_made_it_and_what_it_needs(wheel: zipfile.ZipFile) -> None:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    metadata: Message = Parser().parsestr(wheel.read(name).decode())
    assert (metadata["Name"], metadata["Version"]) == ("lm-ablation", lm.__version__)
    assert metadata["Author"] and metadata["Summary"] and metadata["Keywords"]
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    needed = [needs for needs in metadata.get_all("Requires-Dist", []) if "extra ==" not in needs]
    assert len(needed) == len(PYPROJECT["project"]["dependencies"])
    assert (metadata["License-Expression"] is not None) == bool(list(ROOT.glob("LICENSE*")))
    (scripts,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    assert "orchestrator = orchestrator.__main__:app" in wheel.read(scripts).decode()
