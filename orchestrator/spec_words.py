"""A spec and a record in words, for people who know a trial by its key alone."""

from __future__ import annotations

from collections.abc import Iterator

from lm.record import Record
from lm.spec import TrainSpec
from orchestrator.plan import differences


def in_short(spec: TrainSpec) -> str:
    """The parts that tell trials apart: `ptb, lstm 3x1150, softmax, nt_asgd, 500 epochs, fine-tuned, seed 1`."""
    model, corpus = spec.model, spec.corpus
    parts = [
        corpus.name if corpus.train_tokens is None else f"{corpus.name} ({corpus.train_tokens:,} tokens)",
        f"{model.cell} {model.layers}x{model.hidden_size}",
        spec.head.kind,
        spec.optimizer.kind,
        f"{spec.epochs} epochs",
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
