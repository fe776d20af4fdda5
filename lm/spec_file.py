"""A spec from its file, or a line for everything that is wrong with the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from lm.data import CorpusError
from lm.validation import messages, problems_of
from lm.yaml_text import read_document

T = TypeVar("T")


def read_spec_file(file: Path, form: Callable[[Any], T], *models: type[BaseModel]) -> T:
    """What `form`, which validates `models`, makes of the file's data.

    ValueError has a line for every problem: file, line, key, rule; OSError as the system says.
    """
    document = read_document(file)
    if isinstance(document.data, dict) and {"base", "seeds"} <= document.data.keys():
        rule = "expected the specification of one trial, got a sweep file, of which"
        raise ValueError(f"{file}: {rule} 'python -m orchestrator plan {file} --write-specs DIR' makes some")
    try:
        return form(document.data)
    except ValidationError as error:
        model = next(model for model in models if model.__name__ == error.title)
        lines = messages(problems_of(error, model), document)
    except ValueError as error:
        lines = [document.message((), str(error))]
    raise ValueError("\n".join(lines))


def corpus_message(file: Path, error: CorpusError) -> str:
    """What is wrong with the corpus of a spec's file, at its line; OSError if the file is gone."""
    return read_document(file).message(("corpus", error.field), str(error))
