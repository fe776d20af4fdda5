"""What a model costs on this machine: measured in a process of its own, once, and kept."""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lm.cpus import cpu_count
from lm.data import cache_folder, fingerprint_of
from lm.files import read_regular, write_text
from lm.kept import say_not_kept
from lm.measured import Measured
from lm.spec import (
    Adam,
    Dropout,
    Feedback,
    Head,
    NtAsgd,
    Penalties,
    RecurrentHighway,
    Sgd,
    TrainSpec,
    VariableBptt,
    trial_key,
)
from lm.spec.feedback import ConstantSchedule
from lm.yaml_text import write_yaml
from orchestrator.errors import CannotStartError
from orchestrator.execute.machine import gpus_of, list_gpus
from orchestrator.sweep import Resources


def measured_spec(spec: TrainSpec) -> TrainSpec:
    """The spec with everything replaced that changes neither the time nor the memory of a step.

    A probability or coefficient counts by whether there is one, because a mask costs the same time whatever share it
    drops. Adam keeps two moments, NT-ASGD an average; all other optimizers are SGD at some rate.
    """
    optimizer = spec.optimizer
    rates: dict[str, Any] = {"learning_rate": 1e-3, "weight_decay": 1e-6 if optimizer.weight_decay else 0.0}
    rates["clip"] = None if optimizer.clip is None else 0.25
    dropped = {name: 0.5 if value else 0.0 for name, value in spec.dropout if name != "shared_mask"}
    same_step: dict[str, object] = {
        "corpus": spec.corpus.model_copy(update={"train_start": 0}),
        "head": _same_head(spec.head),
        "feedback": _same_feedback(spec.feedback),
        "dropout": Dropout(**dropped, shared_mask=spec.dropout.shared_mask),
        "penalties": spec.penalties and Penalties(**dict.fromkeys(Penalties.model_fields, 1.0)),
        "epochs": 1,
        "legs": (),
        "early_stop": None,
        "finetune": None,
        "cache": None,
        "loss_reduction": "mean",
        "scoring": spec.scoring.model_copy(update={"raw_iterate": False}),
        "seed": 1,
    }
    # An average costs its memory even if only fine-tuning keeps one.
    if optimizer.kind == "nt_asgd" or (spec.finetune is not None and optimizer.kind != "adam"):
        same_step["optimizer"] = NtAsgd(kind="nt_asgd", **rates)
    elif optimizer.kind == "adam":
        same_step["optimizer"] = Adam(kind="adam", **rates)
    else:
        same_step["optimizer"] = Sgd(kind="sgd", **rates)
    if isinstance(cell := spec.model.cell, RecurrentHighway):  # its transform gates begin where they do by default
        same_step["model"] = spec.model.model_copy(update={"cell": RecurrentHighway(kind="rhn", depth=cell.depth)})
    if isinstance(spec.bptt, VariableBptt):
        same_step["bptt"] = spec.bptt.model_copy(update={"rescale": True})
    return spec.model_copy(update=same_step)


def _same_feedback(feedback: Feedback | None) -> Feedback | None:
    """The mixing of inputs as it is on average; in its first epoch it may cost nothing yet."""
    if feedback is None:
        return None
    same: dict[str, object] = {"schedule": ConstantSchedule(kind="constant", probability=0.5), "most": 1.0}
    same |= {name: 1.0 for name in ("first_temperature", "last_temperature", "sharpness") if hasattr(feedback, name)}
    return feedback.model_copy(update=same)


def _same_head(head: Head) -> Head:
    """The head with its dropout and its losses' coefficients replaced, each by whether there is one."""
    update: dict[str, object] = {name: 0.5 for name in ("dropout", "prior_penalty") if getattr(head, name, 0.0)}
    augmented = getattr(head, "augmented", None)
    if augmented is not None:
        parts: dict[str, object] = {"temperature": 2.0}
        if augmented.kind == "blended" and 0 < augmented.share < 1:
            parts["share"] = 0.5
        update["augmented"] = augmented.model_copy(update=parts)
    return head.model_copy(update=update)


@dataclass
class Measuring:
    """Measures each distinct model once; with `again` also if an earlier command has measured it."""

    device: str
    threads: int
    steps: int = 8
    again: bool = False
    folder: Path = field(default_factory=lambda: cache_folder() / "measured")
    gpus: list[str] = field(default_factory=list)
    """The names of this machine's GPUs, if it measures on one."""
    _measured: dict[str, Measured] = field(default_factory=dict, init=False)

    @classmethod
    def granted(cls, resources: Resources, steps: int = 8, *, again: bool = False) -> Measuring:
        """As a trial with these resources would run: on a GPU if it asks for one, with a thread for each whole CPU."""
        device = "cuda" if gpus_of(resources) else "cpu"
        names = [gpu.name for gpu in list_gpus()] if device == "cuda" else []  # once: it starts a program
        return cls(device, resources.threads, steps, again, gpus=names)

    def of(self, spec: TrainSpec) -> Measured:
        """What a trial of this spec costs; CannotStartError, with the last line of the error, if it does not run."""
        projected = measured_spec(spec)
        key = self._key(projected)
        if key not in self._measured:
            measured = None if self.again else self._kept(key)
            if measured is None:
                measured, path = self._measure(projected), self.folder / f"{key}.json"
                try:
                    write_text(path, measured.model_dump_json() + "\n")
                except OSError as error:
                    say_not_kept(path, "measurements", error)
            self._measured[key] = measured
        return self._measured[key]

    def has(self, spec: TrainSpec) -> bool:
        """Whether an earlier command has measured a trial of this spec."""
        return not self.again and self._kept(self._key(measured_spec(spec))) is not None

    def _kept(self, key: str) -> Measured | None:
        """What an earlier command measured; None also if the file is damaged, or another version wrote it."""
        try:
            return Measured.model_validate_json(read_regular(self.folder / f"{key}.json"))
        except (OSError, ValidationError):
            return None

    def _key(self, spec: TrainSpec) -> str:
        """Of all that decides the figures: the model, the text, the machine, the library, the resources."""
        machine = (platform.node(), platform.machine(), cpu_count(), self.gpus)
        model = trial_key(spec, fingerprint_of(spec.corpus))
        decides = [model, *machine, version("torch"), self.device, self.threads, self.steps]
        return hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:16]

    def _measure(self, spec: TrainSpec) -> Measured:
        if self.device == "cuda" and not self.gpus:
            without = "a trial asks for a GPU, and this machine has none to measure it on; --gpus 0 measures it on CPUs"
            raise CannotStartError(f"resources.gpus: {without}")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "spec.yaml"
            file.write_text(write_yaml(spec.model_dump(mode="json")), encoding="utf-8")
            line = [sys.executable, "-m", "lm", "measure", str(file), "--json", "--device", self.device]
            line += ["--threads", str(self.threads), "--steps", str(self.steps)]
            ended = subprocess.run(line, capture_output=True, text=True, check=False)
        if ended.returncode:
            lines = ended.stderr.strip().splitlines()
            reason = lines[-1] if lines else f"ended with {ended.returncode} (killed, or out of memory?)"
            raise CannotStartError(f"a model could not be measured: {reason}")
        return Measured.model_validate_json(ended.stdout.splitlines()[-1])
