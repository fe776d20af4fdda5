"""What the command line changes of a sweep file, for a quick look: single values, and the seeds.

The changed scale is called by the change, `laptop+epochs=5`, so that its pages, locks and runs of MLflow lie beside
those of the scale as written. Trials are shared, because their keys say what they are.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from lm.names import nearest
from lm.spec import TrainSpec
from lm.yaml_text import Document, read_yaml
from orchestrator.sweep.designs import MOST_SEEDS

_SECTIONS = ("base", "search", "tune")
_LONGEST = 40


@dataclass(frozen=True)
class Changes:
    """Values by their path from the top of the file, such as `base.epochs`, and the seeds; None: the file's."""

    values: Mapping[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] | None = None
    words: tuple[str, ...] = ()
    """The command line's options, to be written again."""

    @staticmethod
    def read(set_: Sequence[str] = (), seeds: str | None = None) -> Changes:
        """Changes as they are written in options: `base.epochs=5`, `1-5` or `1,4`; ValueError names the option."""
        values: dict[str, Any] = {}
        for text in set_:
            path, equals, value = text.partition("=")
            section, dot, inside = path.partition(".")
            if not (equals and value):
                raise ValueError(f"--set: expected PATH=VALUE, such as base.epochs=5, got {text!r}")
            if section not in _SECTIONS or not (dot and inside):
                meant = " (did you mean --seeds?)" if section == "seeds" else ""
                meant = f" (did you mean base.{path}?)" if section in TrainSpec.model_fields else meant
                begins = ", ".join(f"{name}." for name in _SECTIONS)
                raise ValueError(f"--set {path}: a path begins with {begins}{meant}")
            if path in values:
                raise ValueError(f"--set {path}: given twice")
            if inside_it := next((other for other in values if other.startswith(f"{path}.")), None):
                raise ValueError(f"--set {path}: would undo --set {inside_it}, which stands before it: give it first")
            values[path] = read_yaml(value, f"--set {path}").data
        words = [word for text in set_ for word in ("--set", text)] + (["--seeds", seeds] if seeds else [])
        return Changes(values, None if seeds is None else _numbers(seeds), tuple(words))

    def label(self, scale: str) -> str:
        """The name of the changed scale, which is safe as a folder's; the same changes in another order have it too."""
        texts = {p: v if isinstance(v, str) else json.dumps(v, sort_keys=True) for p, v in sorted(self.values.items())}
        if (seeds := self.seeds) is not None:
            follow = len(seeds) > 1 and all(after == before + 1 for before, after in pairwise(seeds))
            texts["seeds"] = f"{seeds[0]}-{seeds[-1]}" if follow else ",".join(map(str, seeds))
        text = "+".join(f"{path.removeprefix('base.')}={value}" for path, value in texts.items())
        safe = re.sub(r"[^A-Za-z0-9._=,+-]+", "-", text)
        if safe != text or len(text) > _LONGEST:
            safe = f"{safe[:_LONGEST]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        return f"{scale}+{safe}"

    def applied(self, document: Document, scale: str) -> Document:
        """A file that was found right, with the changes at this scale; what is wrong with one names its option.

        ValueError for a value of a search or a tuning that the file does not have.
        """
        scales = dict(document.data.get("scales") or {})
        changed = scales[scale] = dict(scales.get(scale) or {})
        for path, value in self.values.items():
            section, _, inside = path.partition(".")
            present = [name for name in _SECTIONS if name in document.data or name in changed]
            if section not in present:
                raise ValueError(f"--set {path}: the file has no {section!r}{nearest(section, present)}")
            changed[section] = _written(dict(changed.get(section) or {}), inside, value)
        if self.seeds is not None:
            changed["seeds"] = list(self.seeds)
        options = {f"scales.{scale}.{path}": f"--set {path}" for path in self.values}
        options[f"scales.{scale}.seeds"] = "--seeds"
        lines = {**document.lines, **dict.fromkeys(options, 0)}
        return Document(document.name, document.data | {"scales": scales}, lines, options)


UNCHANGED = Changes()


def _written(values: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Values by dotted path with one more; inside a part that these replace as a whole, it is written into that."""
    whole = next((other for other in values if path.startswith(f"{other}.")), None)
    if whole is not None and isinstance(values[whole], dict):
        return values | {whole: _written(dict(values[whole]), path[len(whole) + 1 :], value)}
    return {other: kept for other, kept in values.items() if not other.startswith(f"{path}.")} | {path: value}


def _numbers(text: str) -> tuple[int, ...]:
    """`1-5` or `1,4,7-9` as numbers."""
    if not re.fullmatch(r"\d{1,18}(-\d{1,18})?(,\d{1,18}(-\d{1,18})?)*", text):
        raise ValueError(f"--seeds: expected numbers such as 1-5 or 1,4,7, got {text!r}")
    ranges = [part.partition("-") for part in text.split(",")]
    ends = [(int(first), int(last or first)) for first, _, last in ranges]
    if any(last < first for first, last in ends) or sum(last - first + 1 for first, last in ends) > MOST_SEEDS:
        raise ValueError(f"--seeds: a range goes up, and at most {MOST_SEEDS:,} seeds are trained, got {text!r}")
    return tuple(seed for first, last in ends for seed in range(first, last + 1))
