"""A spec from its file, or a line for everything that is wrong with the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from lm.spec import explain
from lm.yaml_text import read_yaml_file

T = TypeVar("T")


def read_spec_file(file: Path, form: Callable[[Any], T]) -> T:
    """What `form` makes of the file's data. ValueError has a line for every fault, each with the file's name."""
    data = read_yaml_file(file)
    try:
        return form(data)
    except ValidationError as error:
        lines = explain(error, data)
    except ValueError as error:
        lines = [str(error)]
    raise ValueError("\n".join(f"{file}: {line}" for line in lines))
