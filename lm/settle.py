"""How a trial ends: in its record, to which scores on test may be added later."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from lm import provenance
from lm.checkout import commit
from lm.checkpoint import remove_checkpoints
from lm.files import LostWeightsError
from lm.hashes import CURVE
from lm.record import Record, read_curve, write_curve, write_record
from lm.resume import TrialState
from lm.scoring import open_test
from lm.spec import NUMERICS_VERSION, parameter_count
from lm.stage import DivergedError


def settle(trial: TrialState, diverged: DivergedError | None) -> None:
    """Write the record of a trial whose stages have ended, and drop its checkpoints."""
    if diverged is not None:  # the file may be of an attempt that came further, whose checkpoint is gone
        if trial.curve:
            write_curve(trial.out, trial.curve)
        else:
            (trial.out / CURVE).unlink(missing_ok=True)
    last = trial.curve[-1] if trial.curve else None
    record = Record(
        key=trial.key,
        spec=trial.spec,
        parameters=parameter_count(trial.spec.model, trial.spec.head, len(trial.corpus.vocabulary)),
        head_cost=trial.model.head.cost(trial.spec.bptt.length * (trial.spec.small_batch or trial.spec.batch_size)),
        codebook=trial.codebook,
        corpus=trial.corpus.facts,
        tokens_per_second=last.tokens / last.seconds if last else 0.0,
        peak_memory_bytes=provenance.peak_memory_bytes(trial.device),
        device=provenance.device_name(trial.device),
        threads=trial.threads,
        versions=provenance.versions(),
        commit=commit(),
        numerics_version=NUMERICS_VERSION,
        **_ending(trial, diverged),
    )
    write_record(trial.out, record)
    remove_checkpoints(trial.out)


def open_settled(trial: TrialState, record: Record) -> None:
    """Score the stages of a settled trial on test where they are not yet, and write its record again; nothing trains.

    Raises LostWeightsError if the codebook at hand is not the record's, or a stage's weights are gone.
    """
    if record.codebook != trial.codebook:
        raise LostWeightsError(f"{trial.out}: its weights need codebook {record.codebook}, not {trial.codebook}")
    trial.done, trial.curve = list(record.stages), read_curve(trial.out)
    diverged = None
    if record.divergence is not None:
        diverged = DivergedError(record.divergence, record.reason, record.unfinished_seconds)
    write_record(trial.out, record.model_copy(update=_ending(trial, diverged)))


def _ending(trial: TrialState, diverged: DivergedError | None) -> dict[str, Any]:
    """Score the remaining stages on test; then the fields of the record that depend on how training ended."""
    unfinished = 0.0 if diverged is None else diverged.seconds
    try:
        open_test(trial)
    except DivergedError as error:
        diverged = error
        unfinished += error.seconds
    return {
        "status": "complete" if diverged is None else "diverged",
        "reason": None if diverged is None else str(diverged),
        "divergence": None if diverged is None else diverged.divergence,
        "stages": tuple(trial.done),
        "seconds": unfinished + sum(result.train_seconds + result.evaluation_seconds for result in trial.done),
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
