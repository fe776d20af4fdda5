"""The one reader of YAML: sweep files, specs and published numbers are all read by the same rules, with line numbers.

Scalars follow YAML 1.2's core schema: `1e-3` is a number, `012` is 12, `0x1F` is 31; `no`, `1_000` and `12:30` are
text, unlike in YAML 1.1. Keys stay text. Aliases of lists and mappings are refused, because a small
file could grow without bound by them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from yaml.reader import ReaderError

MOST_BYTES = 2**20
MOST_NODES = 20_000
MOST_DIGITS = 100
DEEPEST = 30
# Control characters can hide or forge what a terminal shows, and so can marks that turn the direction of writing.
_NEVER_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_NUMBER = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
_TAG = "tag:yaml.org,2002:"
_SCALARS = {
    "null": (re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    "bool": (re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    "int": (re.compile(r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$"), list("-+0123456789")),
    "float": (
        re.compile(rf"^(?:{_NUMBER}|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"),
        list("-+0123456789."),
    ),
}
"""Of each kind that is not text: how it is written, and its possible first characters."""

Place = tuple[str | int, ...]
"""Keys and list positions from the top of the file."""


class Fault(NamedTuple):
    """A rule of YAML, or of this reader, that a text breaks."""

    place: Place
    text: str
    line: int


@dataclass(frozen=True)
class Document:
    """A YAML text as plain data, the line (from 1) of every place in it, and the faults of the YAML itself."""

    data: Any
    lines: Mapping[Place, int]
    faults: tuple[Fault, ...]

    def line(self, place: Place) -> int:
        """The line of a place, or of the closest one above it that the file has."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)


def read_text(path: Path) -> str:
    """A file's text; ValueError beyond 1 MiB or if it is not UTF-8, OSError as the system says."""
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"larger than {MOST_BYTES // 2**20} MiB")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("not UTF-8 text") from None


def read_yaml(text: str) -> Document:
    """Parse one YAML document. A text that cannot be parsed has no data and one fault."""
    try:
        loader = _Loader(text)
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        return Document(None, {}, (Fault((), f"not YAML: character U+{error.character:04X} is not allowed", line),))
    walk = _Walk()
    try:
        node = loader.get_single_node()
        data = None if node is None else walk.value(node, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = " ".join(part for part in (error.context, error.problem) if part)
        return Document(None, {}, (Fault((), f"not YAML: {reason}", 1 if mark is None else mark.line + 1),))
    finally:
        loader.dispose()
    return Document(data, walk.lines, tuple(walk.faults))


def read_yaml_file(path: Path) -> Any:
    """A file's data. ValueError has a line for every fault: file, line, key, rule; OSError as the system says."""
    try:
        document = read_yaml(read_text(path))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if document.faults:
        faults = sorted(document.faults, key=lambda fault: fault.line)
        raise ValueError("\n".join(": ".join(filter(None, (f"{path}:{n}", dotted(p), t))) for p, t, n in faults))
    return document.data


def write_yaml(data: Any, *, as_ascii: bool = True) -> str:
    """YAML that `read_yaml` reads as the same data, and a reader of YAML 1.1 too."""
    return str(yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=not as_ascii))


def dotted(place: Place) -> str:
    """A place as it is written in messages, with nothing in it that a terminal would obey."""
    return ".".join(part if part.isprintable() else ascii(part) for part in map(str, place))


class _Loader(yaml.SafeLoader):
    """The nodes of a text, of a bounded number and depth."""

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


class _Dumper(yaml.SafeDumper):
    """Quotes text that either version of YAML would take for something else, and writes no aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


_Loader.yaml_implicit_resolvers = {}
for _kind, (_pattern, _first) in _SCALARS.items():
    _Loader.add_implicit_resolver(_TAG + _kind, _pattern, _first)
    _Dumper.add_implicit_resolver(_TAG + _kind, _pattern, _first)


class _Walk:
    """Turns nodes into data, and notes lines and faults on the way."""

    def __init__(self) -> None:
        self.lines: dict[Place, int] = {}
        self.faults: list[Fault] = []
        self.seen: set[int] = set()

    def value(self, node: yaml.Node, place: Place) -> Any:
        line = node.start_mark.line + 1
        self.lines.setdefault(place, line)
        if not isinstance(node, yaml.ScalarNode):
            if id(node) in self.seen:
                self.faults.append(Fault(place, "no aliases here: write the value out", self.lines[place]))
                return None
            self.seen.add(id(node))
        kind = node.tag.removeprefix(_TAG)
        match node:
            case yaml.MappingNode() if kind == "map":
                return self.mapping(node, place)
            case yaml.SequenceNode() if kind == "seq":
                return [self.value(item, (*place, i)) for i, item in enumerate(node.value)]
            case yaml.ScalarNode():
                self.check_text(node, place)
                if kind == "int" and len(node.value) > MOST_DIGITS:
                    self.faults.append(Fault(place, f"a whole number of more than {MOST_DIGITS} digits", line))
                    return None
                if kind == "str" or (kind in _SCALARS and _SCALARS[kind][0].match(node.value)):
                    return _scalar(kind, node.value)
        tag = ascii(node.tag.replace(_TAG, "!!"))
        self.faults.append(Fault(place, f"the tag {tag} is unknown, or the value is none of its kind", line))
        return None

    def check_text(self, node: yaml.Node, place: Place) -> None:
        if (wrong := _NEVER_TEXT.search(node.value)) is not None:
            text = f"character U+{ord(wrong.group()):04X} is not allowed in text"
            self.faults.append(Fault(place, text, node.start_mark.line + 1))

    def mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.faults.append(Fault(place, "a key must be one word or text", line))
                continue
            self.check_text(key_node, place)
            key = key_node.value  # as written, so that a variant may be called 2017 or null
            if key in data:
                first = self.lines[(*place, key)]
                self.faults.append(Fault((*place, key), f"duplicate key {key!r} (first at line {first})", line))
                continue
            self.lines[(*place, key)] = line
            data[key] = self.value(value_node, (*place, key))
        return data


def _scalar(kind: str, text: str) -> Any:
    match kind:
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
        case "float":
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text
