"""Whether every node of a cluster can train what was planned here: the same code, libraries and texts, one folder."""

from __future__ import annotations

import hashlib
import platform
import shutil
import tempfile
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import lm
import orchestrator
from lm.checkout import COMMIT_VARIABLE, commit
from lm.data import CorpusError, fingerprint_of
from lm.spec import Corpus
from orchestrator.errors import CannotStartError
from orchestrator.execute.ray.session import last_line
from orchestrator.execute.run_trial import Allotment
from orchestrator.trials.storage import Storage

_SECONDS = 120.0
_MOST_SHIPPED_BYTES = 200 * 2**20
_PACKAGES = (lm, orchestrator)


@contextmanager
def shipped(corpora: Collection[Corpus], session: Path) -> Iterator[dict[str, Any]]:
    """A runtime environment that brings our code to every node, and texts whose folders are named from here.

    A text beyond 200 MiB, or with an absolute path, has to be on the nodes: `check_nodes` tells.
    """
    with tempfile.TemporaryDirectory(prefix="texts-", dir=session) as copies:
        code, texts = Path(copies, "code"), Path(copies, "texts")
        texts.mkdir()
        folders = [Path(packaged.__file__ or "").parent for packaged in _PACKAGES]
        for folder in folders:
            shutil.copytree(folder, code / folder.name, ignore=_not_shipped)
        for named in {corpus.name for corpus in corpora}:
            for folder in (Path(named), Path("data", named)):
                if not folder.is_absolute() and ".." not in folder.parts and folder.is_dir():
                    files = [path for path in folder.glob("*.txt") if path.is_file() and _is_utf8(path.name)]
                    if sum(path.stat().st_size for path in files) <= _MOST_SHIPPED_BYTES:
                        for path in files:
                            (texts / folder).mkdir(parents=True, exist_ok=True)
                            shutil.copyfile(path, texts / path)
        yield {
            "py_modules": [str(code / folder.name) for folder in folders],
            "working_dir": str(texts),
            "env_vars": {COMMIT_VARIABLE: commit() or ""},
        }


def _not_shipped(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if name == "__pycache__" or not _is_utf8(name)}


def _is_utf8(name: str) -> bool:
    """Whether a file's name is UTF-8, as Ray asks of every file that it sends."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_nodes(allotment: Allotment, corpora: Collection[Corpus], nodes: Sequence[Mapping[str, Any]]) -> None:
    """CannotStartError naming the first node that differs, what differs, and both sides of it.

    Tolerated are other patch versions, and other builds of torch (for another CUDA).
    """
    asked = sorted(set(corpora), key=repr)
    here = facts(asked, None, allotment.storage)
    with _marker(allotment) as marker:
        answers = {
            node["NodeManagerHostname"]: _facts.options(
                num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            ).remote(asked, marker, allotment.storage)
            for node in nodes
        }
        for name, answer in answers.items():
            try:
                there = ray.get(answer, timeout=_SECONDS)
            except Exception as error:
                raise CannotStartError(f"node {name} cannot be checked: {last_line(error)}") from error
            if problem := compared(here, there):
                raise CannotStartError(f"node {name}: {problem}")


def facts(corpora: Sequence[Corpus], marker: Path | None, storage: str | None) -> dict[str, str]:
    """What decides a trial's numbers on this machine, and whether it sees the trials' folder."""
    found = {
        "code": _digest(),
        "python": ".".join(platform.python_version_tuple()[:2]),
        **{name: ".".join(version(name).split(".")[:2]) for name in ("torch", "numpy", "ray")},
    }
    for corpus in corpora:
        try:
            found[f"corpus {corpus.name}"] = fingerprint_of(corpus)[:12]
        except (CorpusError, OSError) as error:
            found[f"corpus {corpus.name}"] = str(error)
    if marker is not None and not marker.exists():
        found["folder"] = (
            f"{marker.parent} is not the folder that it is here: give --storage (s3://, gs://), or --runs on a disk "
            "that all nodes share"
        )
    if storage is not None and marker is None:
        try:
            Storage(storage).keys()
        except (OSError, ValueError) as error:
            found["folder"] = str(error)
    return found


def compared(here: Mapping[str, str], there: Mapping[str, str]) -> str | None:
    """What is wrong with a node, None if nothing."""
    for name, mine in here.items():
        if name != "folder" and there.get(name) != mine:
            return f"{name} is {there.get(name)}, here {mine}"
    return there.get("folder")


@ray.remote
def _facts(corpora: Sequence[Corpus], marker: Path | None, storage: str | None) -> dict[str, str]:
    return facts(corpora, marker, storage)


@contextmanager
def _marker(allotment: Allotment) -> Iterator[Path | None]:
    """A file in `runs/` that a node sees if it shares that folder; none where trials go to a storage."""
    if allotment.storage is not None:
        yield None
        return
    path = allotment.runs / f".reach-{uuid.uuid4().hex}"
    path.touch()
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _digest() -> str:
    """The source of our packages as this process runs it."""
    digest = hashlib.sha256()
    for packaged in _PACKAGES:
        root = Path(packaged.__file__ or "").parent
        for path in sorted(path for path in root.rglob("*.py") if _is_utf8(str(path.relative_to(root)))):
            digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]
