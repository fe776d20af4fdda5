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

_OF_THE_CLOCK = {"seconds", "tokens_per_second"}
_OF_THE_RULE = {"best", "averaging", "gradient_norm"}  # decided by the last bits; on a GPU they prove nothing


@dataclass(frozen=True)
class Reproduction:
    """How many epochs and stages were compared, and the first difference, None where there is none."""

    epochs: int
    stages: int
    tolerance: float
    difference: str | None


def on_gpu(record: Record) -> bool:
    """Whether the record's trial ran on a GPU."""
    return not record.device.startswith("cpu")


def obstacles(record: Record, curve: Sequence[Evaluation]) -> Iterator[str]:
    """Why this trial cannot be trained again here; CorpusError where its text is not there."""
    if record.status == "failed":
        yield f"{record.key} failed: {record.reason}; there is nothing to compare with"
    elif not curve:
        yield f"{record.key} has no curve to compare with"
    if record.numerics_version != NUMERICS_VERSION:
        yield f"{record.key} is of numerics version {record.numerics_version}, this code is of {NUMERICS_VERSION}"
    if (found := fingerprint_of(record.spec.corpus)) != record.corpus.fingerprint:
        yield f"corpus {record.corpus.name} is {found[:16]}..., the record's is {record.corpus.fingerprint[:16]}..."


def reproduce(
    record: Record,
    curve: Sequence[Evaluation],
    folder: Path,
    *,
    epochs: int | None = None,
    said: Callable[[Evaluation], None],
) -> Reproduction:
    """Train the record's spec in an empty folder, the first `epochs` or all, up to the first difference.

    On a CPU every number but times must have the same bits; on a GPU losses agree within `GPU_TOLERANCE`, epoch by
    epoch for as long as the rules that read them decide alike. Raises ValueError if the device is not there.
    """
    from lm.train import train

    gpu = on_gpu(record)
    tolerance = GPU_TOLERANCE if gpu else 0.0
    found = train(record.spec, out=folder, device="cuda" if gpu else "cpu", threads=record.threads, test=record.tested)
    whole = epochs is None or epochs >= len(curve)
    compared = 0
    with closing(found):
        for old, new in itertools.zip_longest(curve, found) if whole else zip(curve[:epochs], found, strict=False):
            if old is None or new is None:
                return Reproduction(compared, 0, tolerance, _another_length(compared, of_record=new is None))
            said(new)
            compared += 1
            if (difference := epoch_difference(old, new, tolerance)) is not None:
                return Reproduction(compared, 0, tolerance, difference)
    again = read_record(folder) if whole else None
    if again is None:
        return Reproduction(compared, 0, tolerance, None)
    return Reproduction(compared, len(again.stages), tolerance, _end_difference(record, again, tolerance))


def circumstances(record: Record) -> Iterator[str]:
    """What decides bits and is otherwise here than in the record, a line each; needs torch."""
    import torch

    from lm import provenance

    here = provenance.versions()
    for name in sorted(record.versions.keys() | here.keys()):
        old, new = record.versions.get(name, "none"), here.get(name, "none")
        if old != new:
            yield f"{name} is {new}, was {old}"
    if not on_gpu(record) or torch.cuda.is_available():
        device = provenance.device_name(torch.device("cuda" if on_gpu(record) else "cpu"))
        if device != record.device:
            yield f"device is {device}, was {record.device}"
    if (now := commit()) != record.commit:
        yield f"commit is {now or 'unknown'}, was {record.commit or 'unknown'}"


def _another_length(compared: int, *, of_record: bool) -> str:
    longer, shorter = ("record", "repetition") if of_record else ("repetition", "record")
    return f"the {shorter} ends after epoch {compared}, the {longer} goes on"


def epoch_difference(old: Evaluation, new: Evaluation, tolerance: float) -> str | None:
    """The first field that is not the same in both, times apart, in words; None where all are."""
    passed_over = _OF_THE_CLOCK | (_OF_THE_RULE if tolerance else set())
    for field in dataclasses.fields(Evaluation):
        before, after = getattr(old, field.name), getattr(new, field.name)
        if field.name not in passed_over and not _same(before, after, tolerance):
            return f"epoch {old.epoch}, {old.stage}: {field.name} is {after!r}, was {before!r}"
    return None


def _end_difference(old: Record, new: Record, tolerance: float) -> str | None:
    if old.status != new.status:
        return f"status is {new.status}, was {old.status}"
    if old.divergence != new.divergence and not tolerance:
        return f"divergence is {new.divergence}, was {old.divergence}"
    for before, after in zip(old.stages, new.stages, strict=True):
        for split, was, now in (("valid", before.valid, after.valid), ("test", before.test, after.test)):
            if was is not None and now is not None and not _same(was.nats_per_token, now.nats_per_token, tolerance):
                return f"stage {before.name}: {split} loss is {now.nats_per_token!r} nats, was {was.nats_per_token!r}"
    return None


def _same(before: object, after: object, tolerance: float) -> bool:
    match before, after:
        case float(), float():
            return math.isclose(before, after, rel_tol=tolerance) or (math.isnan(before) and math.isnan(after))
        case dict(), dict():
            return before.keys() == after.keys() and all(_same(before[n], after[n], tolerance) for n in before)
        case _:
            return before == after
