"""The SHA-256 of a settled trial's files, which its record holds: what was changed since is not believed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from lm.files import DamagedError, sha256

RECORD, CURVE, TOKENS, WEIGHTS, CODEBOOK = "record.json", "curve.parquet", "tokens", "weights", "codebook.npz"
UNSCORED = "record.unscored.json"
"""The record of a trial that has only to be scored on test, while `record.json` says why that failed."""
READ_BY_REPORTS = (CURVE, TOKENS)
NEEDED_BY_A_MODEL = (WEIGHTS, CODEBOOK)


def content_hash(record: str | bytes) -> str:
    """The SHA-256 of a record's JSON, whatever its layout, without the hashes that it holds itself.

    Of the text and not of what a class makes of it: a field that a later version adds leaves it as it is.
    """
    content = json.loads(record)
    content.pop("hashes", None)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def is_whole(text: bytes) -> bool:
    """Whether this is the JSON of some version's record, as it was written."""
    try:
        return bool(json.loads(text)["hashes"][RECORD] == content_hash(text))
    except (ValueError, KeyError, TypeError, RecursionError):  # no JSON, no record, a million brackets
        return False


def file_hashes(folder: Path, files: Iterable[Path], before: Mapping[str, str]) -> dict[str, str]:
    """The SHA-256 of each file, by its path in the folder; one that was removed keeps the hash it had before."""
    found = {}
    for path in files:
        name = str(path.relative_to(folder))
        if path.exists():
            found[name] = sha256(path)
        elif name in before:
            found[name] = before[name]
    return found


def check_hashes(folder: Path, hashes: Mapping[str, str], parts: Collection[str]) -> None:
    """DamagedError names the first file whose SHA-256 differs. `parts` are the files and folders to look at.

    Without hashes nothing is checked. Weights may be gone, because they are removed to free the disk, and so may a
    codebook, which is looked for elsewhere when it is needed, and the losses on validation, which no report reads.
    """
    for name, expected in hashes.items():
        part = name.split("/")[0]
        if part not in parts:
            continue
        path = folder / name
        try:
            if sha256(path) != expected:
                raise DamagedError(path, "is not the file that the trial wrote")
        except FileNotFoundError as error:
            if part in READ_BY_REPORTS and not name.endswith(".valid.parquet"):
                raise DamagedError(path, "is gone") from error
        except OSError as error:
            raise DamagedError(path, error.strerror or str(error)) from error
