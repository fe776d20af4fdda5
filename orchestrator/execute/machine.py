"""This machine: what it has, asked without torch; what fits it; what a model costs on it, in a process of its own."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple

import platformdirs
from pydantic import ValidationError

import lm
import orchestrator
from lm.data import fingerprint_of
from lm.files import write_text
from lm.measured import Measured
from lm.spec import Adam, Dropout, Feedback, Head, NtAsgd, Penalties, Sgd, TrainSpec, VariableBptt, trial_key
from lm.spec.feedback import ConstantSchedule
from lm.yaml_text import write_yaml
from orchestrator.errors import CannotStartError
from orchestrator.sweep import (
    PUBLISHED_SCALE,
    UNCHANGED,
    Changes,
    Resources,
    ScaledSweep,
    Sweep,
    check_vocabularies,
    read_sweep,
)

PACKAGES = tuple(Path(str(package.__file__)).parent for package in (lm, orchestrator))
"""The folders of the code that runs."""
SMALL_SCALE = "laptop"
CPU_FLAGS = Path("/proc/cpuinfo")
GPU_SHARE = 0.25
"""What a trial gets of a GPU if the sweep says `gpus: auto`."""
_SOURCES = (".py", ".jinja", ".css", ".js")


class Gpu(NamedTuple):
    """A GPU; `memory_bytes` is None if the driver does not say."""

    name: str
    memory_bytes: int | None


def load_sweep(path: Path | str, scale: str | None = None, changes: Changes = UNCHANGED) -> ScaledSweep:
    """Read and check a sweep file, at a scale, or else at the one that fits this machine, with `changes`.

    Raises SweepError, with a line for everything that is wrong, and CorpusError if a text is missing.
    """
    return open_sweep(Path(path), scale, changes)[0]


def open_sweep(path: Path, scale: str | None, changes: Changes = UNCHANGED) -> tuple[ScaledSweep, str]:
    """The sweep as `load_sweep` returns it, and why it is at this scale."""
    sweep = read_sweep(path)
    name, why = (scale, "as asked") if scale is not None else default_scale(sweep)
    scaled = sweep.at(name)
    if changes.words:
        changed, published = read_sweep(path, changes, name).at(name), scaled.published_scale and not changes.values
        changed = replace(changed, scale=changes.label(name), has_scales=scaled.has_scales)
        scaled = replace(changed, published_scale=published, changed_by=changes.words)
    check_vocabularies(scaled, path, changes)
    return (scaled if scale is not None else replace(scaled, alternatives=sweep.scale_names)), why


def default_scale(sweep: Sweep) -> tuple[str, str]:
    """The scale to take if none is asked for, and why."""
    if has_gpu():
        return PUBLISHED_SCALE, "this machine has an NVIDIA GPU"
    if SMALL_SCALE not in sweep.scale_names:
        return PUBLISHED_SCALE, f"no GPU was found, but the sweep has no scale {SMALL_SCALE!r}"
    return SMALL_SCALE, "no NVIDIA GPU was found"


def granted(resources: Resources, cpus: float | None = None, gpus: float | str | None = None) -> Resources:
    """The file's resources with these in place of its own, `gpus` maybe as text; CannotStartError if not valid."""
    given = {name: value for name, value in (("cpus", cpus), ("gpus", gpus)) if value is not None}
    try:
        return Resources.model_validate(dict(resources) | given)
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        name, rule = str(wrong["loc"][0]), wrong["msg"].replace("Input should", "should")
        if wrong["type"] == "value_error":  # its message has the value already
            raise CannotStartError(f"--{name}: {rule.removeprefix('Value error, ')}") from None
        rule = "expected a number or auto" if wrong["type"] == "float_parsing" else rule
        raise CannotStartError(f"--{name}: {rule}, got {given[name]}") from None


def list_gpus() -> list[Gpu]:
    """The GPUs that `nvidia-smi` lists, none if `CUDA_VISIBLE_DEVICES` hides them all."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    smi = shutil.which("nvidia-smi")
    if smi is None or (visible is not None and visible.strip() in ("", "-1")):
        return []
    line = [smi, "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        listed = subprocess.run(line, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [row.rpartition(",") for row in listed.splitlines() if "," in row]
    gpus = [Gpu(name.strip(), int(MiB) * 2**20 if MiB.strip().isdigit() else None) for name, _, MiB in rows]
    return gpus if visible is None else gpus[: len(visible.split(","))]


def has_gpu() -> bool:
    """Whether there is a GPU to use."""
    return bool(list_gpus())


def gpus_of(resources: Resources) -> float:
    """What a trial gets of a GPU on this machine: as written, or for `auto` a quarter if there is a GPU."""
    return GPU_SHARE * has_gpu() if resources.gpus == "auto" else resources.gpus


def cpu_count() -> int:
    """How many CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def bfloat16_products() -> Literal["fast", "slow", "none"] | None:
    """How this CPU multiplies in bfloat16: with instructions, by rounding alone, not at all; None if unreadable."""
    if not CPU_FLAGS.exists():
        return None
    flags = set(CPU_FLAGS.read_text(encoding="utf-8").split())
    if {"avx512_bf16", "amx_bf16", "bf16"} & flags:
        return "fast"
    if not {"avx512bw", "avx_ne_convert"} & flags:
        return "none"
    from lm.precision import can_round  # loads torch; not every such CPU rounds, so it is tried

    return "slow" if can_round() else "none"


def memory_bytes() -> int | None:
    """The memory of this machine, or what its control group may use; None if neither can be read."""
    sizes = []
    for path, scale in (("/sys/fs/cgroup/memory.max", 1), ("/proc/meminfo", 1024)):
        words = Path(path).read_text(encoding="utf-8").split() if Path(path).exists() else []
        sizes += [int(word) * scale for word in words[:2] if word.isdigit()]
    return min(sizes, default=None)


def check_machine(cpus: float, gpus_each: float, needs_bfloat16: bool, scales_without_gpu: Sequence[str]) -> None:
    """CannotStartError if this machine cannot train one trial: too few CPUs or GPUs, or no products in bfloat16."""
    if needs_bfloat16 and bfloat16_products() == "none":
        raise CannotStartError(
            "precision: bfloat16 takes a CPU with AVX-512 or ARM's bf16, which this machine lacks; "
            "float32 runs everywhere"
        )
    if cpus > cpu_count():
        asks = f"a trial asks for {cpus:g}, this machine grants {cpu_count()}"
        raise CannotStartError(f"resources.cpus: {asks}; --cpus takes fewer")
    if gpus_each and gpus_each > len(list_gpus()):
        others = " or ".join(f"--scale {name}" for name in scales_without_gpu)
        without = f"take a scale without ({others}) or --gpus 0" if others else "take --gpus 0 for CPUs alone"
        raise CannotStartError(
            f"resources.gpus: a trial asks for {gpus_each:g} GPU, this machine has {len(list_gpus()) or 'none'}; "
            f"{without}, or --address of a cluster that has some"
        )


def code_digest() -> str:
    """The SHA-256 of the sources of `lm` and `orchestrator` that this process runs."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted(path for path in package.rglob("*") if path.suffix in _SOURCES):
            digest.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


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
        "penalties": spec.penalties and Penalties(activation=1.0, temporal_activation=1.0),
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
    folder: Path = field(default_factory=lambda: platformdirs.user_cache_path("lm") / "measured")
    _measured: dict[str, Measured] = field(default_factory=dict, init=False)

    @classmethod
    def granted(cls, resources: Resources, steps: int = 8, *, again: bool = False) -> Measuring:
        """As a trial with these resources would run: on a GPU if it asks for one, with a thread for each whole CPU."""
        return cls("cuda" if gpus_of(resources) else "cpu", resources.threads, steps, again)

    def of(self, spec: TrainSpec) -> Measured:
        """What a trial of this spec costs; CannotStartError, with the last line of the error, if it does not run."""
        projected = measured_spec(spec)
        key = self._key(projected)
        if key not in self._measured:
            path = self.folder / f"{key}.json"
            if self.again or not path.exists():
                write_text(path, self._measure(projected).model_dump_json() + "\n")
            self._measured[key] = Measured.model_validate_json(path.read_text(encoding="utf-8"))
        return self._measured[key]

    def has(self, spec: TrainSpec) -> bool:
        """Whether an earlier command has measured a trial of this spec."""
        return not self.again and (self.folder / f"{self._key(measured_spec(spec))}.json").exists()

    def _key(self, spec: TrainSpec) -> str:
        """Of all that decides the figures: the model, the text, the machine, the library, the resources."""
        names = [gpu.name for gpu in list_gpus()] if self.device == "cuda" else []
        machine = (platform.node(), platform.machine(), cpu_count(), names)
        model = trial_key(spec, fingerprint_of(spec.corpus))
        decides = [model, *machine, version("torch"), self.device, self.threads, self.steps]
        return hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:16]

    def _measure(self, spec: TrainSpec) -> Measured:
        if self.device == "cuda" and not has_gpu():
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
