"""From a sweep at one scale to its trials: which train, which continue others or are only read; specs in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic_core import to_jsonable_python

from lm.data import fingerprint_of, vocabulary_size_of
from lm.files import write_text
from lm.record import Record
from lm.spec import Part, TrainSpec, parameter_count, stage_keys
from lm.yaml_text import write_yaml
from orchestrator.sweep import ScaledSweep
from orchestrator.trials.records import Records, is_settled
from orchestrator.trials.trial import Trial
from orchestrator.words import counted, value_in_words

NAMED_PARAMETER_CHANGE = 0.01
"""A share of the baseline's parameters; a variant that changes more is compared at another size, and says so."""

PlanStatus = Literal["done", "diverged", "failed", "damaged", "to resume", "new", "read"]


class Facts:
    """The hash of a corpus's text, and its words with `<eos>` and `<unk>`, each read once; CorpusError if not there."""

    def __init__(self) -> None:
        self.fingerprint, self.vocabulary_size = cache(fingerprint_of), cache(vocabulary_size_of)

    def parameters(self, spec: TrainSpec) -> int:
        """The number of trainable parameters."""
        return parameter_count(spec.model, spec.head, self.vocabulary_size(spec.corpus))


def plan(sweep: ScaledSweep, counts: Mapping[str, int] | None = None) -> list[Trial]:
    """Every variant with its first `counts` seeds, by default all: seed by seed, each seed's baseline first.

    Within a seed a trial whose stages all lie in another's is read from it and never trained; else it continues the
    trial with which it shares the most stages, the first of several. CorpusError if a text cannot be read.
    """
    facts, trials = Facts(), list[Trial]()
    changes = changes_in_words(sweep, facts)
    for seed in sweep.seeds:
        trained: dict[str, set[str]] = {}  # key -> keys of all stages, each of which depends on those before it
        for variant in sweep.variants:
            of_variant = sweep.seeds_of(variant)
            if seed not in (of_variant if counts is None else of_variant[: counts[variant.name]]):
                continue
            spec = sweep.spec(variant, seed)
            stages = list(stage_keys(spec, facts.fingerprint(spec.corpus)).values())
            shared = {key: len(keys.intersection(stages)) for key, keys in trained.items()}
            source = max(shared, key=shared.__getitem__, default="")
            count = shared.get(source, 0)
            trial = Trial(variant.name, changes[variant.name], seed, spec, stages[-1], facts.parameters(spec))
            if count == len(stages):
                trials.append(replace(trial, reads_from=source))
            else:
                trials.append(replace(trial, starts_from=source if count else None))
                trained[trial.key] = {*stages}
    return trials


def write_specs(trials: Iterable[Trial], folder: Path) -> list[Path]:
    """One `<key>.yaml` for every trial that trains, whole, as `python -m lm train` reads it."""
    written = {folder / f"{trial.key}.yaml": trial for trial in trials if trial.reads_from is None}
    for path, trial in written.items():
        write_text(path, f"# {trial.title}: {trial.change}\n{write_yaml(trial.spec.model_dump(mode='json'))}")
    return list(written)


def state_of(trial: Trial, records: Records) -> PlanStatus:
    """Where a trial stands; one to be scored on test is under way. ValueError if another version wrote its record."""
    record = records.find(trial)
    if record is not None and (record.status == "failed" or is_settled(trial, record)):
        return "done" if record.status == "complete" else record.status
    if trial.reads_from is not None:
        return "read"
    if record is None and records.is_damaged(trial.key):
        return "damaged"
    return "to resume" if record or (records.folder(trial.key) / "checkpoints").exists() else "new"


def state_in_words(trial: Trial, state: PlanStatus, names: Mapping[str, str]) -> str:
    """A state as the plan's table shows it; `names` has the variant of each trial that trains, by key."""
    if state == "read":
        return f"read from {names[trial.reads_from or '']}"
    if state == "new" and trial.starts_from is not None:
        return f"goes on from {names[trial.starts_from]}"
    return state


def differences(before: Part, after: Part, prefix: str = "") -> Iterator[str]:
    """How one part differs from another in the same place, in words: `dropout.weight 0.5 -> 0.0`.

    Of a part of another kind: the kind, how the fields of both kinds differ, and its own fields off their defaults.
    """
    old_kind, new_kind = getattr(before, "kind", None), getattr(after, "kind", None)
    if old_kind != new_kind:
        yield f"{prefix.removesuffix('.')} {old_kind} -> {new_kind}"
    for name, field in type(after).model_fields.items():
        new = getattr(after, name)
        old = getattr(before, name, field.default)
        if name == "kind" or old == new:
            continue
        if name not in type(before).model_fields:
            yield f"{prefix}{name} {value_in_words(new)}"
        elif isinstance(old, Part) and isinstance(new, Part):
            yield from differences(old, new, f"{prefix}{name}.")
        elif isinstance(old, Part) and new is None:
            yield f"no {prefix}{name}"
        elif isinstance(new, Part):
            yield f"with {prefix}{name} {value_in_words(new)}"
        else:
            yield f"{prefix}{name} {value_in_words(old)} -> {value_in_words(new)}"


def flattened(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a dumped spec by their paths: `dropout.weight`."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def millions(parameters: int) -> str:
    """A parameter count as it is read: 24.2M, 841K."""
    return f"{parameters / 1e6:.1f}M" if parameters >= 1e6 else f"{parameters / 1e3:.0f}K"


def changes_in_words(sweep: ScaledSweep, facts: Facts) -> dict[str, str]:
    """What each variant changes of the base, in words. CorpusError if a text cannot be read."""
    base, *others = sweep.variants
    return {base.name: "the base itself"} | {v.name: _change(base.spec, v.spec, facts) for v in others}


def _change(base: TrainSpec, spec: TrainSpec, facts: Facts) -> str:
    words, before, after = list(differences(base, spec)), facts.parameters(base), facts.parameters(spec)
    if abs(after - before) > NAMED_PARAMETER_CHANGE * before:
        short, whole = ([form(count) for count in (before, after)] for form in (millions, "{:,}".format))
        words.append(f"parameters {' -> '.join(short if short[0] != short[1] else whole)}")
    return "; ".join(words)


def in_short(spec: TrainSpec) -> str:
    """What distinguishes trials: `ptb, lstm 1150-1150-400, softmax, nt_asgd, 500 epochs, fine-tuned, seed 1`."""
    corpus, sizes = spec.corpus, spec.model.hidden_sizes
    layers = "-".join(map(str, sizes)) if len(set(sizes)) > 1 else f"{len(sizes)}x{sizes[0]}"
    parts = [
        corpus.name if corpus.train_tokens is None else f"{corpus.name} ({corpus.train_tokens:,} tokens)",
        f"{value_in_words(spec.model.cell)} {layers}",
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
    before, after = (
        {
            "text": record.corpus.fingerprint,
            "numerics version": record.numerics_version,
            "device": record.device,
            "threads": record.threads,
            "commit": record.commit,
            **dict(sorted(record.versions.items())),
        }
        for record in (old, new)
    )
    for name in before | after:
        if (was := before.get(name, "none")) != (now := after.get(name, "none")):
            yield f"{name} {was} -> {now}"


def overrides(before: Part, after: Part, prefix: str = "") -> dict[str, Any]:
    """The exact changes from one spec to another, as in a sweep file: by dotted path a value or a whole part."""
    changes: dict[str, Any] = {}
    for name, new in after:
        old = getattr(before, name)
        if isinstance(old, Part) and type(old) is type(new):
            changes |= overrides(old, new, f"{prefix}{name}.")
        elif old != new:
            changes[f"{prefix}{name}"] = to_jsonable_python(new)
    return changes
