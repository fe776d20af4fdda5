"""The only reader of YAML: sweep files, specs and published numbers follow the same rules, with line numbers.

Scalars follow YAML 1.2's core schema: `1e-3` is a number, `012` is 12, `0x1F` is 31; `no`, `1_000` and `12:30` are
text, unlike in YAML 1.1. Keys stay text. Aliases of lists and mappings are refused, because a small file could grow
without bound by them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
_SCALARS: dict[str, tuple[re.Pattern[str], Callable[[str], Any]]] = {
    "null": (re.compile(r"^(?:~|null|Null|NULL|)$"), lambda text: None),
    "bool": (re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), lambda text: text.lower() == "true"),
    "int": (
        re.compile(r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$"),
        lambda text: int(text, 0) if text[:2] in ("0o", "0x") else int(text),
    ),
    "float": (
        re.compile(rf"^(?:{_NUMBER}|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"),
        lambda text: float(text.lower().replace(".inf", "inf").replace(".nan", "nan")),
    ),
}
"""How each kind of scalar but text is written, and what it means."""

_HINTS = {
    "a tab": ", because YAML indents with spaces",
    "mapping values are not allowed": " (text with ': ' and no quotes, a line indented too far, no blank after a ':'?)",
    "<block mapping start>": " (a line indented too far?)",
    "expected ':'": " (no blank after a ':'?)",
}
"""What mostly is the reason, by a part of the message."""

Place = tuple[str | int, ...]
"""Keys and list positions from the top of the file."""


@dataclass(frozen=True)
class Document:
    """A YAML text as plain data, and the line (from 1) of every place in it, by the place's dotted form.

    `options` are those of a command line that write a place in the text's stead.
    """

    name: str
    data: Any
    lines: Mapping[str, int]
    options: Mapping[str, str] = field(default_factory=dict)

    def line(self, place: Place) -> int:
        """The line of a place, or of the closest one above it that the file has."""
        at = dotted(place)
        while at and at not in self.lines:
            at = at.rpartition(".")[0]
        return self.lines.get(at, 1)

    def first(self, *places: Place) -> Place:
        """The first of these places that the file has, or else the last."""
        return next((place for place in places if dotted(place) in self.lines), places[-1])

    def message(self, place: Place, text: str) -> str:
        """What is wrong at a place, as one line: file, line, key, text; or the option, the rest of the key, text."""
        at = dotted(place)
        for start, option in self.options.items():
            if at == start or at.startswith(f"{start}."):
                return ": ".join(filter(None, (option, at[len(start) + 1 :], text)))
        return ": ".join(filter(None, (f"{self.name}:{self.line(place)}", at, text)))


def read_document(path: Path) -> Document:
    """A YAML file. ValueError as `read_yaml`, and beyond 1 MiB or if it is not UTF-8; OSError as the system says."""
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"{path}: larger than {MOST_BYTES // 2**20} MiB")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}:{line}: not UTF-8 text ({error.reason})") from None
    return read_yaml(text, str(path))


def read_yaml_file(path: Path) -> Any:
    """The data of a YAML file; raises what `read_document` does."""
    return read_document(path).data


def read_yaml(text: str, name: str = "text") -> Document:
    """Parse one YAML document. ValueError is one line with the first broken rule: name, line, key, rule."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        return Document(name, None if node is None else loader.value(node, ()), loader.lines)
    except _RefusedError as error:
        line, place, rule = error.args
    except ReaderError as error:
        line, place = text.count("\n", 0, error.position) + 1, ()
        rule = f"not YAML: character U+{error.character:04X} is not allowed"
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if re.search("end of stream|expected ':'", error.problem or ""):  # what began and never ended is the mistake
            mark = error.context_mark or mark
        line, place = 1 if mark is None else mark.line + 1, ()
        problem = "" if error.problem is None else error.problem.replace("character '\\t'", "a tab")
        rule = f"not YAML: {' '.join(part for part in (error.context, problem) if part)}"
        rule += next((hint for part, hint in _HINTS.items() if part in problem), "")
        if "flow" in (error.context or "") and error.context_mark and error.context_mark.line + 1 < line:
            rule += f" (the bracket of line {error.context_mark.line + 1} is not closed?)"
    raise ValueError(Document(name, None, {dotted(place): line}).message(place, rule))


def write_yaml(data: Any, *, as_ascii: bool = True) -> str:
    """YAML that `read_yaml` reads as the same data, and a reader of YAML 1.1 too."""
    return str(yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=not as_ascii))


def dotted(place: Place) -> str:
    """A place as it is written in messages, with nothing in it that a terminal would obey."""
    return ".".join(part if part.isprintable() else ascii(part) for part in map(str, place))


class _RefusedError(Exception):
    """A rule of this reader that the text breaks: line, place, rule."""


class _Loader(yaml.SafeLoader):
    """Reads nodes of a bounded number and depth into plain data, and notes their lines."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.nodes = self.depth = 0
        self.lines: dict[str, int] = {}
        self.seen: set[int] = set()

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

    def value(self, node: yaml.Node, place: Place) -> Any:
        """The data of a node; _RefusedError for an alias, a tag or a text that is not allowed, or a duplicate key."""
        line = node.start_mark.line + 1
        self.lines.setdefault(dotted(place), line)
        kind = node.tag.removeprefix(_TAG)
        if isinstance(node, yaml.ScalarNode):
            text = _checked_text(node, place)
            if kind == "str":
                return text
            if kind in _SCALARS and _SCALARS[kind][0].match(text):
                if kind == "int" and len(text) > MOST_DIGITS:
                    raise _RefusedError(line, place, f"a whole number of more than {MOST_DIGITS} digits")
                return _SCALARS[kind][1](text)
        elif id(node) in self.seen:
            raise _RefusedError(self.lines[dotted(place)], place, "aliases are not allowed: write the value out")
        self.seen.add(id(node))
        if isinstance(node, yaml.MappingNode) and kind == "map":
            return self.mapping(node, place)
        if isinstance(node, yaml.SequenceNode) and kind == "seq":
            return [self.value(item, (*place, i)) for i, item in enumerate(node.value)]
        tag = ascii(node.tag.replace(_TAG, "!!"))
        raise _RefusedError(line, place, f"the tag {tag} is unknown, or the value is not of its kind")

    def mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        """The data of a mapping; its keys stay as written, so that a variant may be called 2017 or null."""
        data: dict[str, Any] = {}
        before = ""
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise _RefusedError(line, place, "a key must be one word or text")
            key = _checked_text(key_node, place)
            inside = (*place, key)
            if key in data:
                raise _RefusedError(line, inside, f"duplicate key {key!r} (first at line {self.lines[dotted(inside)]})")
            self.lines[dotted(inside)] = line
            data[key] = self.value(value_node, inside)
            if node.flow_style and key.isdigit() and data[key] is None and type(data.get(before)) is int:
                number = f"{data[before]}.{key}"
                raise _RefusedError(line, (*place, before), f"a comma ends the value: if a number is meant, {number}")
            before = key
        return data


class _Dumper(yaml.SafeDumper):
    """Quotes text that either version of YAML would take for something else, and writes no aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


_Loader.yaml_implicit_resolvers = {}
for _kind, (_pattern, _) in _SCALARS.items():
    _Loader.add_implicit_resolver(_TAG + _kind, _pattern, None)
    _Dumper.add_implicit_resolver(_TAG + _kind, _pattern, None)


def _checked_text(node: yaml.ScalarNode, place: Place) -> str:
    if (wrong := _NEVER_TEXT.search(node.value)) is not None:
        raise _RefusedError(
            node.start_mark.line + 1, place, f"character U+{ord(wrong.group()):04X} is not allowed in text"
        )
    return str(node.value)
