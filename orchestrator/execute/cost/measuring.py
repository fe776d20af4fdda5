"""Measurements of models on this machine, each in a process of its own, kept in the user's cache."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import platformdirs

from lm.data import fingerprint_of
from lm.files import write_text
from lm.measured import Measured
from lm.spec import TrainSpec, trial_key
from lm.yaml_text import write_yaml
from orchestrator.errors import CannotStartError
from orchestrator.execute.cost.projection import measured_spec
from orchestrator.execute.machine import cpu_count, gpu_names, gpus_of, has_gpu
from orchestrator.sweep import Resources


class Measuring:
    """Measures each distinct model once; `anew` passes over what an earlier command has measured."""

    def __init__(
        self, device: str, threads: int, steps: int = 8, *, anew: bool = False, folder: Path | None = None
    ) -> None:
        self.device, self.threads, self.steps, self.anew = device, threads, steps, anew
        self._folder = folder or platformdirs.user_cache_path("lm") / "measured"
        self._found: dict[str, Measured] = {}

    @classmethod
    def granted(cls, resources: Resources, steps: int = 8, *, anew: bool = False) -> Measuring:
        """As a trial of such resources would run: on a GPU where it asks for one, a thread a whole CPU."""
        return cls("cuda" if gpus_of(resources) else "cpu", resources.threads, steps, anew=anew)

    def of(self, spec: TrainSpec) -> Measured:
        """What a trial of this spec costs; CannotStartError with the last line of what went wrong."""
        projected = measured_spec(spec)
        key = self._key(projected)
        if key not in self._found:
            path = self._folder / f"{key}.json"
            if self.anew or not path.exists():
                write_text(path, self._measure(projected).model_dump_json() + "\n")
            self._found[key] = Measured.model_validate_json(path.read_text(encoding="utf-8"))
        return self._found[key]

    def knows(self, spec: TrainSpec) -> bool:
        """Whether a trial of this spec was measured before, so that `of` reads it alone."""
        key = self._key(measured_spec(spec))
        return key in self._found or (not self.anew and (self._folder / f"{key}.json").exists())

    def _key(self, spec: TrainSpec) -> str:
        """Of all that decides the figures: the model, the text, the machine, the library, what is granted."""
        machine = (platform.node(), platform.machine(), cpu_count(), gpu_names() if self.device == "cuda" else ())
        model = trial_key(spec, fingerprint_of(spec.corpus))
        decides = [model, *machine, version("torch"), self.device, self.threads, self.steps]
        return hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:16]

    def _measure(self, spec: TrainSpec) -> Measured:
        if self.device == "cuda" and not has_gpu():
            raise CannotStartError(
                "resources.gpus: a trial asks for a GPU, and this machine has none to measure it on; "
                "--gpus 0 measures it on CPUs"
            )
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "spec.yaml"
            file.write_text(write_yaml(spec.model_dump(mode="json")), encoding="utf-8")
            line = [sys.executable, "-m", "lm", "measure", str(file), "--json", "--device", self.device]
            line += ["--threads", str(self.threads), "--steps", str(self.steps)]
            ran = subprocess.run(line, capture_output=True, text=True, check=False, env=dict(os.environ))
        if ran.returncode:
            said = (ran.stderr.strip().splitlines() or [f"ended with {ran.returncode} (killed, or out of memory?)"])[-1]
            raise CannotStartError(f"a model could not be measured: {said}")
        return Measured.model_validate_json(ran.stdout.splitlines()[-1])
