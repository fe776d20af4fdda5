"""The JSON Schema of sweep files, by which editors complete and check them."""

from __future__ import annotations

import json
from typing import Any

from orchestrator.sweep.types import Sweep


def sweep_schema() -> dict[str, Any]:
    """The schema of `Sweep`; its base is a training spec less the seed."""
    schema = Sweep.model_json_schema()
    del schema["$defs"]["TrainSpec"]["properties"]["seed"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def schema_text() -> str:
    """What `sweeps/schema.json` holds."""
    return json.dumps(sweep_schema(), indent=2, ensure_ascii=False) + "\n"
