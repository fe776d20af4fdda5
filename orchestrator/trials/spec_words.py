"""Specs and records in words, for people who know a trial only by its key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lm.record import Record
from lm.spec import TrainSpec
from orchestrator.trials.plan import differences
from orchestrator.words import counted


def in_short(spec: TrainSpec) -> str:
    """What distinguishes trials: `ptb, lstm 3x1150, softmax, nt_asgd, 500 epochs, fine-tuned, seed 1`."""
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
    """How two trials differ, a line each: their specs, then what they read, and where they ran."""
    yield from differences(old.spec, new.spec)
    before, after = _circumstances(old), _circumstances(new)
    for name in dict.fromkeys([*before, *after]):
        if before.get(name, "none") != after.get(name, "none"):
            yield f"{name} {before.get(name, 'none')} -> {after.get(name, 'none')}"


def _circumstances(record: Record) -> dict[str, object]:
    return {
        "text": record.corpus.fingerprint,
        "numerics version": record.numerics_version,
        "device": record.device,
        "threads": record.threads,
        "commit": record.commit,
        **dict(sorted(record.versions.items())),
    }


def overrides(base: TrainSpec, spec: TrainSpec) -> dict[str, Any]:
    """The exact changes from one spec to another, as in a sweep file: by dotted path a value or a whole part."""
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
