"""Text that a settled trial's model wrote, kept beside its record; free of torch.

runs/<key>/samples/<stage>.<digest of the settings>.json
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import ValidationError

from lm.files import DamagedError, read_regular, write_text
from lm.spec import Generate, Part

SAMPLES = "samples"
"""The folder's name."""
_DRAWING_VERSION = 1
"""Raised whenever the same weights, settings and seed would give other words; part of every digest."""


class Samples(Part):
    """The words of each sample, in order; `weights` is the SHA-256 of the weights that wrote them."""

    stage: str
    weights: str | None
    settings: Generate
    texts: tuple[tuple[str, ...], ...]


def samples_path(folder: Path, stage: str, how: Generate) -> Path:
    """Where a trial keeps what the weights of a stage wrote with these settings."""
    settings = how.model_dump(mode="json", exclude_defaults=True)
    text = json.dumps({"version": _DRAWING_VERSION, "settings": settings}, sort_keys=True)
    return folder / SAMPLES / f"{stage}.{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


def write_samples(path: Path, samples: Samples) -> None:
    """Write atomically."""
    write_text(path, samples.model_dump_json() + "\n")


def read_samples(path: Path) -> Samples | None:
    """What is kept there, None if there is no file; DamagedError for one that holds something else."""
    try:
        return Samples.model_validate_json(read_regular(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DamagedError(path, error.strerror or str(error)) from error
    except ValidationError as error:
        raise DamagedError(path, "holds no samples of this version") from error


def distinct(texts: Iterable[Sequence[str]], n: int) -> float:
    """Distinct n-grams of all texts as a share of all their n-grams (Li et al. 2016, section 5); 0 of none."""
    grams = [tuple(text[i : i + n]) for text in texts for i in range(len(text) - n + 1)]
    return len(set(grams)) / max(len(grams), 1)


def as_text(words: Iterable[str], line_end: str, prompt: str = "") -> str:
    """The prompt and the words with blanks between them, and a new line in place of each `line_end`."""
    shown = ["\n" if word == line_end else word for word in words]
    return " ".join([prompt, *shown] if prompt else shown).replace(" \n", "\n").replace("\n ", "\n")
