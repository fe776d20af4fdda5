"""This machine: what it has, asked without torch, and which scale and trials fit it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import ValidationError

import lm
import orchestrator
from lm.cpus import cpu_count
from lm.spec import TrainSpec
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
        scaled = replace(changed, published_scale=published, changes=changes)
    check_vocabularies(scaled, path)
    return replace(scaled, file=path, alternatives=sweep.scale_names if scale is None else None), why


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
    """The GPUs that `nvidia-smi` lists and `CUDA_VISIBLE_DEVICES` does not hide, numbered alike.

    CUDA numbers them as `nvidia-smi` does if they are all alike, or if `CUDA_DEVICE_ORDER` is `PCI_BUS_ID`.
    """
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
    if visible is None:
        return gpus
    names = [name.strip() for name in visible.split(",")]
    if names[0].startswith(("GPU-", "MIG-")):  # UUIDs, which this list lacks
        return gpus[: len(names)]
    valid = takewhile(lambda name: name.isdigit() and int(name) < len(gpus), names)  # CUDA ends at the first other
    return [gpus[int(name)] for name in valid]


def has_gpu() -> bool:
    """Whether there is a GPU to use."""
    return bool(list_gpus())


def gpus_of(resources: Resources) -> float:
    """What a trial gets of a GPU on this machine: as written, or for `auto` a quarter if there is a GPU."""
    return GPU_SHARE * has_gpu() if resources.gpus == "auto" else resources.gpus


def gpu_slots(gpus: float, each: float) -> int:
    """How many trials the GPUs hold if each has this share of a GPU, or this many; no share lies on two of them."""
    return int(gpus) * int(1 / each + 1e-9) if each < 1 else int(gpus / each + 1e-9)


def bfloat16_products() -> Literal["fast", "slow", "none"] | None:
    """How this CPU multiplies in bfloat16: with instructions, by rounding alone, not at all; None if unreadable."""
    if not CPU_FLAGS.exists():
        return None
    flags = set(CPU_FLAGS.read_text(encoding="utf-8").split())
    has_instructions = bool({"avx512_bf16", "amx_bf16", "bf16"} & flags)
    if not (has_instructions or {"avx512bw", "avx_ne_convert"} & flags):
        return "none"
    from lm.precision import can_round  # loads torch; not every such CPU rounds, so it is tried

    if not can_round():
        return "none"
    return "fast" if has_instructions else "slow"


def memory_bytes() -> int | None:
    """The memory of this machine, or what its control group may use; None if neither can be read."""
    sizes = []
    groups = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of versions 2 and 1
    for path, scale in ((groups[0], 1), (groups[1], 1), ("/proc/meminfo", 1024)):
        words = Path(path).read_text(encoding="utf-8").split() if Path(path).exists() else []
        sizes += [int(word) * scale for word in words[:2] if word.isdigit()]
    return min(sizes, default=None)


def check_machine(sweep: ScaledSweep, specs: Iterable[TrainSpec]) -> None:
    """CannotStartError if this machine cannot train one of these: too few CPUs or GPUs, or not in bfloat16."""
    cpus, gpus_each = sweep.resources.cpus, gpus_of(sweep.resources)
    in_bfloat16 = any(spec.precision == "bfloat16" for spec in specs)
    if in_bfloat16 and gpus_each:
        raise CannotStartError("precision: bfloat16 trains on CPUs alone, and a trial gets a GPU; take --gpus 0")
    if in_bfloat16 and bfloat16_products() == "none":
        raise CannotStartError(
            "precision: bfloat16 takes a CPU with AVX-512 or ARM's bf16 on which PyTorch rounds products, and on this "
            "one it does not; float32 runs everywhere"
        )
    if cpus > cpu_count():
        asks = f"a trial asks for {cpus:g}, this machine grants {cpu_count()}"
        raise CannotStartError(f"resources.cpus: {asks}; --cpus takes fewer")
    if gpus_each and gpus_each > (gpus := len(list_gpus())):
        # A scale that needs none by the file got them from the command line, which says so for every scale.
        is_asked = sweep.scale.partition("+")[0] in sweep.scales_without_gpu
        others = "" if is_asked else " or ".join(f"--scale {name}" for name in sweep.scales_without_gpu)
        without = f"take a scale without ({others}) or --gpus 0" if others else "take --gpus 0 for CPUs alone"
        raise CannotStartError(
            f"{'--gpus' if is_asked else 'resources.gpus'}: a trial asks for {gpus_each:g} GPU, this machine has "
            f"{gpus or 'none'}; {without}, or --address of a cluster that has some"
        )


def code_digest() -> str:
    """The SHA-256 of the sources of `lm` and `orchestrator` that this process runs."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted(path for path in package.rglob("[!.]*") if path.suffix in _SOURCES):
            digest.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes())
    return digest.hexdigest()
