"""Train a trial once more from its record alone, and compare what comes out."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from lm.checkout import commit
from lm.data import fingerprint_of
from lm.record import Evaluation, Record, read_record
from lm.spec import NUMERICS_VERSION

GPU_TOLERANCE = 0.01
"""Relative. A GPU sums in an order of its own, and training amplifies the last bits; a wrong term differs by more."""

_TIMES = {"seconds", "tokens_per_second"}
_DECISIONS = {"best", "averaging", "gradient_norm"}  # the last bits decide them; on a GPU they prove nothing


@dataclass(frozen=True)
class Reproduction:
    """How many epochs and stages were compared, and the first difference, None if there is none."""

    epochs: int
    stages: int
    tolerance: float
    difference: str | None


def on_gpu(record: Record) -> bool:
    """Whether the record's trial ran on a GPU."""
    return not record.device.startswith("cpu")


def obstacle(record: Record, curve: Sequence[Evaluation]) -> str | None:
    """Why, if at all, this trial cannot be trained again on this machine; CorpusError if its text is missing."""
    if record.status == "failed":
        return f"{record.key} failed: {record.reason}; there is nothing to compare with"
    if not curve:
        return f"{record.key} has no curve to compare with"
    if record.numerics_version != NUMERICS_VERSION:
        return f"{record.key} is of numerics version {record.numerics_version}, this code is of {NUMERICS_VERSION}"
    expected, actual = record.corpus.fingerprint, fingerprint_of(record.spec.corpus)
    if actual != expected:
        return f"corpus {record.corpus.name} is {actual[:16]}..., the record's is {expected[:16]}..."
    return None


def reproduce(
    record: Record,
    curve: Sequence[Evaluation],
    folder: Path,
    *,
    epochs: int | None = None,
    said: Callable[[Evaluation], None],
) -> Reproduction:
    """Train the record's spec in an empty folder, the first `epochs` or all, up to the first difference.

    On a CPU every number but times must have the same bits; on a GPU losses agree within `GPU_TOLERANCE`. Raises
    ValueError if the device is missing.
    """
    from lm.train import train

    device, tolerance = ("cuda", GPU_TOLERANCE) if on_gpu(record) else ("cpu", 0.0)
    repetition = train(record.spec, out=folder, device=device, threads=record.threads, test=record.tested)
    complete, compared = epochs is None or epochs >= len(curve), 0
    pairs = itertools.zip_longest(curve[:epochs], itertools.islice(repetition, None if complete else epochs))
    with closing(repetition):
        for old, new in pairs:
            if old is None or new is None:
                longer, shorter = ("record", "repetition") if new is None else ("repetition", "record")
                difference: str | None = f"the {shorter} ends after epoch {compared}, the {longer} goes on"
            else:
                said(new)
                compared += 1
                difference = epoch_difference(old, new, tolerance)
            if difference is not None:
                return Reproduction(compared, 0, tolerance, difference)
    if not complete or (again := read_record(folder)) is None:
        return Reproduction(compared, 0, tolerance, None)
    return Reproduction(compared, len(again.stages), tolerance, _end_difference(record, again, tolerance))


def circumstances(record: Record) -> Iterator[str]:
    """What decides bits and differs between this machine and the record, a line each; needs torch."""
    import torch

    from lm import provenance

    old, new = record.versions, provenance.versions()
    pairs = [(name, old.get(name, "none"), new.get(name, "none")) for name in sorted({*old, *new})]
    if not on_gpu(record) or torch.cuda.is_available():
        device = torch.device("cuda" if on_gpu(record) else "cpu")
        pairs.append(("device", record.device, provenance.device_name(device)))
    pairs.append(("commit", record.commit or "unknown", commit() or "unknown"))
    yield from (f"{name} is {is_}, was {was}" for name, was, is_ in pairs if was != is_)


def epoch_difference(old: Evaluation, new: Evaluation, tolerance: float) -> str | None:
    """The first field that is not the same in both, times apart, in words; None if all are the same."""
    ignored = _TIMES | (_DECISIONS if tolerance else set())
    for field in dataclasses.fields(Evaluation):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if field.name not in ignored and not _same(before, after, tolerance):
            return f"epoch {old.epoch}, {old.stage}: {field.name} is {after!r}, was {before!r}"
    return None


def _end_difference(old: Record, new: Record, tolerance: float) -> str | None:
    if old.status != new.status:
        return f"status is {new.status}, was {old.status}"
    if old.divergence != new.divergence and not tolerance:
        return f"divergence is {new.divergence}, was {old.divergence}"
    for stage, repeated in zip(old.stages, new.stages, strict=True):
        for split, was, is_ in (("valid", stage.valid, repeated.valid), ("test", stage.test, repeated.test)):
            if was is not None and is_ is not None and not _same(was.nats_per_token, is_.nats_per_token, tolerance):
                return f"stage {stage.name}: {split} loss is {is_.nats_per_token!r} nats, was {was.nats_per_token!r}"
    return None


def _same(before: object, after: object, tolerance: float) -> bool:
    match before, after:
        case float(), float():
            return math.isclose(before, after, rel_tol=tolerance) or (math.isnan(before) and math.isnan(after))
        case dict(), dict():
            return before.keys() == after.keys() and all(_same(before[n], after[n], tolerance) for n in before)
        case _:
            return before == after
