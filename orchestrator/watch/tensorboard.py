"""Learning curves as TensorBoard reads them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lm.record import Evaluation
from orchestrator.watch.mlflow.contents import curve_measures

_FILES = "events.out.tfevents.*"


def write_curve(folder: Path, curve: Iterable[Evaluation], times: tuple[int, int] | None) -> None:
    """Write a trial's finite numbers under MLflow's names, the epoch as step, in place of what was written before.

    `times` are when it began and ended, in milliseconds.
    """
    from tensorboardX import SummaryWriter  # takes up to a second to import; Ray Tune needs it too

    for earlier in folder.glob(_FILES):
        earlier.unlink()
    with SummaryWriter(str(folder)) as writer:
        for point in curve:
            for measure in curve_measures(point, times):
                writer.add_scalar(measure.name, measure.value, measure.step, measure.milliseconds / 1000)
