"""YAML with the line of every key and item: what an error needs to name its place.

The scalars are those of YAML 1.2: `1e-3` is a number, `no`, `012` and `12:30` are not what YAML 1.1 makes of them.
Aliases are refused: a sweep file has one level of override and no other way to say a thing once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

import yaml
from yaml.reader import ReaderError

from orchestrator.sweep.problems import Path, Problem

MOST_BYTES = 2**20
MOST_NODES = 20_000
DEEPEST = 30
# Control characters can hide or forge what a terminal shows, and so can marks that turn the direction of writing.
_NEVER_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


class _Loader(yaml.SafeLoader):
    """Safe YAML with the scalars of version 1.2, of a bounded number and depth of nodes."""

    nodes = depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.nodes, self.depth = self.nodes + 1, self.depth + 1
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        if self.nodes > MOST_NODES:
            raise yaml.MarkedYAMLError(problem=f"more than {MOST_NODES:,} values", problem_mark=mark)
        if self.depth > DEEPEST:
            raise yaml.MarkedYAMLError(problem=f"nested more than {DEEPEST} levels deep", problem_mark=mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


_BOOL, _INT, _FLOAT = (f"tag:yaml.org,2002:{kind}" for kind in ("bool", "int", "float"))
_LOOSE = (_BOOL, _INT, _FLOAT, "tag:yaml.org,2002:timestamp")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _LOOSE]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_NUMBER = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
_Loader.add_implicit_resolver(_BOOL, re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_Loader.add_implicit_resolver(_INT, re.compile(r"^[-+]?[0-9]+$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    _FLOAT,
    re.compile(rf"^(?:{_NUMBER}|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"),
    list("-+0123456789."),
)
_Loader.add_constructor(_INT, lambda _, node: int(node.value))
_Loader.add_constructor(_FLOAT, lambda _, node: float(node.value.lower().replace(".inf", "inf").replace(".nan", "nan")))


@dataclass(frozen=True)
class Document:
    """A YAML text as plain data, the line (from 1) of every path in it, and what is wrong with the YAML itself."""

    data: Any
    lines: Mapping[Path, int]
    problems: tuple[Problem, ...]

    def line(self, path: Path) -> int:
        """The line of a path, or of the closest thing above it that the file has."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def read_text(path: FilePath) -> str:
    """A file's text; ValueError beyond 1 MiB or if it is not UTF-8, OSError as the system says."""
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"larger than {MOST_BYTES // 2**20} MiB")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("not UTF-8 text") from None


def read_lines(text: str) -> Document:
    """Parse one YAML document; its problems carry their own line where the path alone would not tell it."""
    try:
        loader = _Loader(text)
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        return Document(None, {}, (Problem((), f"not YAML: character U+{error.character:04X} is not allowed", line),))
    walk = _Walk(loader)
    try:
        node = loader.get_single_node()
        data = None if node is None else walk.value(node, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = " ".join(part for part in (error.context, error.problem) if part)
        return Document(None, {}, (Problem((), f"not YAML: {reason}", 1 if mark is None else mark.line + 1),))
    finally:
        loader.dispose()
    return Document(data, walk.lines, tuple(walk.problems))


class _Walk:
    """Turns nodes into data, noting lines and problems on the way."""

    def __init__(self, loader: _Loader) -> None:
        self.loader = loader
        self.lines: dict[Path, int] = {}
        self.problems: list[Problem] = []
        self.seen: set[int] = set()

    def value(self, node: yaml.Node, path: Path) -> Any:
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        if not isinstance(node, yaml.ScalarNode):
            if id(node) in self.seen:
                self.problems.append(Problem(path, "no aliases here: write the value out", self.lines[path]))
                return None
            self.seen.add(id(node))
        match node:
            case yaml.MappingNode():
                return self.mapping(node, path)
            case yaml.SequenceNode():
                return [self.value(item, (*path, i)) for i, item in enumerate(node.value)]
        self.check_text(node, path)
        try:
            return self.loader.construct_object(node, deep=True)
        except (yaml.YAMLError, ValueError) as error:
            reason = getattr(error, "problem", None) or error
            self.problems.append(Problem(path, f"no value that YAML knows: {reason}", line))
            return None

    def check_text(self, node: yaml.Node, path: Path) -> None:
        if (found := _NEVER_TEXT.search(node.value)) is not None:
            text = f"character U+{ord(found.group()):04X} is not allowed in text"
            self.problems.append(Problem(path, text, node.start_mark.line + 1))

    def mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.problems.append(Problem(path, "a key must be one word or text", line))
                continue
            self.check_text(key_node, path)
            key = key_node.value  # as written, so that a variant may be called 2017 or null
            if key in found:
                first = self.lines[(*path, key)]
                self.problems.append(Problem((*path, key), f"duplicate key {key!r} (first at line {first})", line))
                continue
            self.lines[(*path, key)] = line
            found[key] = self.value(value_node, (*path, key))
        return found
