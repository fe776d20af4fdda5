"""A spec and a record in words, for people who know a trial by its key alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lm.record import Record
from lm.spec import TrainSpec
from orchestrator.trials.plan import differences
from orchestrator.words import counted


def in_short(spec: TrainSpec) -> str:
    """The parts that tell trials apart: `ptb, lstm 3x1150, softmax, nt_asgd, 500 epochs, fine-tuned, seed 1`."""
    model, corpus = spec.model, spec.corpus
    parts = [
        corpus.name if corpus.train_tokens is None else f"{corpus.name} ({corpus.train_tokens:,} tokens)",
        f"{model.cell} {model.layers}x{model.hidden_size}",
        spec.head.kind,
        spec.optimizer.kind,
        counted(sum((spec.epochs, *(leg.epochs for leg in spec.legs))), "epoch"),
        *([f"{len(spec.legs) + 1} legs"] if spec.legs else []),
        *(["fine-tuned"] if spec.finetune is not None else []),
        *(["cache"] if spec.cache is not None else []),
        f"seed {spec.seed}",
    ]
    return ", ".join(parts)


def record_differences(old: Record, new: Record) -> Iterator[str]:
    """What two trials have otherwise, a line each: their specs, then what they read, and where they ran."""
    yield from differences(old.spec, new.spec)
    places = (
        ("text", "corpus.fingerprint"),
        *((name, name) for name in ("numerics_version", "device", "threads", "commit")),
    )
    for label, path in places:
        before, after = (_value(record, path) for record in (old, new))
        if before != after:
            yield f"{label.replace('_', ' ')} {before} -> {after}"
    for name in sorted(old.versions.keys() | new.versions.keys()):
        before, after = old.versions.get(name, "none"), new.versions.get(name, "none")
        if before != after:
            yield f"{name} {before} -> {after}"


def _value(record: Record, path: str) -> object:
    value: object = record
    for name in path.split("."):
        value = getattr(value, name)
    return value


def overrides(base: TrainSpec, spec: TrainSpec) -> dict[str, Any]:
    """What makes one spec of another, exactly, as a sweep file would have it: dotted paths, a value or a whole part."""
    return dict(_overrides(base.model_dump(mode="json"), spec.model_dump(mode="json"), ""))


def _overrides(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, new in after.items():
        old = before.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping) and _kind(old) == _kind(new):
            yield from _overrides(old, new, f"{prefix}{name}.")
        elif old != new:
            yield f"{prefix}{name}", new


def _kind(part: Mapping[str, Any]) -> tuple[object, list[str]]:
    return part.get("kind"), sorted(part)
