"""The directions that imports may take, and each tool's one door."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted(path.relative_to(ROOT) for package in ("lm", "orchestrator") for path in (ROOT / package).rglob("*.py"))
# The rooms of orchestrator/, in order: each imports only from earlier groups, and from itself.
ROOMS = (
    ("errors", "words"),
    ("sweep",),
    ("trials",),
    ("search", "analysis"),
    ("agenda", "watch"),
    ("report",),
    ("execute",),
    ("api",),
    ("commands",),
    ("__init__", "__main__"),
)
FLOORS = {room: floor for floor, group in enumerate(ROOMS) for room in group}
DOORS = {
    "ray": "execute/ray",
    "matplotlib": "report/pictures",
    "mlflow": "watch/mlflow",
    "optuna": "search/optuna",
    "bokeh": "report/html",
    "tensorboardX": "commands/export",
}


def imports(path: Path, *, at_load: bool) -> Iterator[str]:
    """Top names that a file imports: all of them, or those that importing the file runs."""
    pending: list[ast.AST] = [ast.parse((ROOT / path).read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write whole module names"
            yield from (f"{node.module}.{name.name}" for name in node.names)
        skipped = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or (
            isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        )
        if not (at_load and skipped):
            pending.extend(ast.iter_child_nodes(node))


def tops(path: Path, *, at_load: bool) -> set[str]:
    return {name.split(".")[0] for name in imports(path, at_load=at_load)}


@pytest.mark.parametrize("path", [path for path in FILES if path.parts[0] == "lm"], ids=str)
def test_lm_knows_no_orchestrator(path: Path) -> None:
    assert not tops(path, at_load=False) & {"orchestrator", "ray", "optuna", "mlflow", "matplotlib"}


@pytest.mark.parametrize("path", FILES, ids=str)
def test_yaml_has_one_reader(path: Path) -> None:
    if path != Path("lm/yaml_text.py"):
        assert "yaml" not in tops(path, at_load=False), "YAML is read and written in lm.yaml_text alone"


@pytest.mark.parametrize("path", [path for path in FILES if path.parts[:2] == ("lm", "spec")], ids=str)
def test_the_spec_needs_pydantic_alone(path: Path) -> None:
    names = list(imports(path, at_load=False))
    assert {name.split(".")[0] for name in names} - sys.stdlib_module_names <= {"pydantic", "lm"}
    assert all(name.startswith("lm.spec.") for name in names if name.startswith("lm."))


@pytest.mark.parametrize("path", [path for path in FILES if path.parts[0] == "orchestrator"], ids=str)
def test_each_tool_has_one_door(path: Path) -> None:
    inside = "/".join(path.parts[1:])
    for tool, door in DOORS.items():
        if not inside.startswith(door):
            assert tool not in tops(path, at_load=False), f"{tool} is spoken to in orchestrator/{door} alone"
    heavy = {"torch", "mlflow", "matplotlib", "bokeh"} | ({"ray"} if not inside.startswith("execute/ray") else set())
    assert inside.startswith(("report/pictures", "report/html")) or not tops(path, at_load=True) & heavy


@pytest.mark.parametrize("path", [path for path in FILES if path.parts[0] == "orchestrator"], ids=str)
def test_the_driver_takes_only_torch_free_parts_of_lm(path: Path) -> None:
    free = {"command_group", "spec", "costs", "record", "data", "files", "tables", "checkout", "measured", "yaml_text"}
    free |= {"analyzed", "by_token", "cpus", "hashes", "kept", "names", "samples", "trial_log", "validation"}
    taken = {name.split(".")[1] for name in imports(path, at_load=True) if name.startswith("lm.")}
    assert taken <= free


def room(module: str) -> str:
    """The first name below `orchestrator`; of the package itself, `__init__`."""
    return [*module.split("."), "__init__"][1]


def internal_imports() -> dict[str, set[str]]:
    """The modules of `orchestrator` that each one imports, wherever in it the import stands."""
    names = {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in FILES}
    return {
        module: {
            name if name in names else name.rpartition(".")[0]
            for name in imports(path, at_load=False)
            if name.startswith("orchestrator.")
        }
        for module, path in names.items()
        if module.split(".")[0] == "orchestrator"
    }


def test_no_import_runs_against_the_order_of_the_rooms() -> None:
    taken = internal_imports()
    assert {room(module) for module in taken} == FLOORS.keys()
    wrong = [
        f"{module} imports {other}"
        for module, others in taken.items()
        for other in others
        if room(other) != room(module) and FLOORS[room(other)] >= FLOORS[room(module)]
    ]
    assert not wrong


def test_no_two_files_import_each_other_in_a_circle() -> None:
    pending = internal_imports()
    while free := {module for module, others in pending.items() if not (others - {module}) & pending.keys()}:
        pending = {module: others for module, others in pending.items() if module not in free}
    assert not pending, "these are in a circle, or import one that is"


NO_LONGER = r"\b(anew|so many|told|whoever|what was got|theirs|ours)\b"
"""Words that made sentences hard to read: say again, this many, said or printed, who, expected and got, whose it is."""
HOW_TO_READ = ROOT / "orchestrator" / "report" / "how_to_read.md"
NAMELESS = r"^\s*(?:for )?(found|told|own|ours|theirs|here|one|lost) (?:=|in) "
"""Names of variables that say nothing: a variable is called what it holds."""


@pytest.mark.parametrize("pattern", [NO_LONGER, NAMELESS], ids=["words", "names"])
def test_words_that_do_not_come_back(pattern: str) -> None:
    paths = [ROOT / path for path in FILES if path.parts[0] == "orchestrator"]
    if pattern == NO_LONGER:
        paths += [*(ROOT / "lm").rglob("*.py"), *(ROOT / "orchestrator").rglob("*.jinja"), ROOT / "README.md"]
        paths += [*(ROOT / "docs").glob("*.md"), *(ROOT / "sweeps").glob("*.yaml"), HOW_TO_READ]
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if re.search(pattern, line, re.IGNORECASE)
    ]
    assert wrong == []
