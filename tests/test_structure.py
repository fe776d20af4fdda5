"""The directions that imports may take, and each tool's one door."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
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
    "tensorboardX": "commands/files",
}


LM = [path for path in FILES if path.parts[0] == "lm"]
ORCHESTRATOR = [path for path in FILES if path.parts[0] == "orchestrator"]
TORCH_FREE = {"command_group", "spec", "costs", "record", "data", "files", "tables", "checkout", "measured"}
TORCH_FREE |= {"yaml_text", "analyzed", "by_token", "cpus", "hashes", "kept", "names", "samples", "trial_log"}
TORCH_FREE |= {"validation"}


@cache
def imports(path: Path, *, at_load: bool) -> tuple[str, ...]:
    """Dotted names that a file imports: all of them, or those that importing the file runs."""
    names: list[str] = []
    pending: list[ast.AST] = [ast.parse((ROOT / path).read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            names += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write whole module names"
            names += [f"{node.module}.{name.name}" for name in node.names]
        skipped = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or (
            isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        )
        if not (at_load and skipped):
            pending.extend(ast.iter_child_nodes(node))
    return tuple(names)


def tops(path: Path, *, at_load: bool) -> set[str]:
    return {name.split(".")[0] for name in imports(path, at_load=at_load)}


def inside(path: Path) -> str:
    """Where a file lies in its package."""
    return "/".join(path.parts[1:])


def test_lm_knows_no_orchestrator() -> None:
    unknown = {"orchestrator", "ray", "optuna", "mlflow", "matplotlib"}
    assert [path for path in LM if tops(path, at_load=False) & unknown] == []


def test_yaml_has_one_reader() -> None:
    assert [path for path in FILES if "yaml" in tops(path, at_load=False)] == [Path("lm/yaml_text.py")]


def test_the_spec_needs_pydantic_alone() -> None:
    names = [(path, name) for path in LM if inside(path).startswith("spec/") for name in imports(path, at_load=False)]
    free = sys.stdlib_module_names | {"pydantic"}
    assert names
    assert [pair for pair in names if pair[1].split(".")[0] not in free and not pair[1].startswith("lm.spec.")] == []


def test_each_tool_has_one_door() -> None:
    """Each tool is imported in its door alone; what is slow to import, elsewhere inside functions alone."""
    wrong = []
    for path in ORCHESTRATOR:
        place, taken = inside(path), tops(path, at_load=False)
        wrong += [(place, tool) for tool, door in DOORS.items() if tool in taken and not place.startswith(door)]
        slow = {"torch", "mlflow", "matplotlib", "bokeh"} | ({"ray"} if not place.startswith("execute/ray") else set())
        if not place.startswith(("report/pictures", "report/html")):
            wrong += [(place, tool) for tool in tops(path, at_load=True) & slow]
    assert wrong == []


def test_the_driver_takes_only_torch_free_parts_of_lm() -> None:
    names = [(path, name) for path in ORCHESTRATOR for name in imports(path, at_load=True) if name.startswith("lm.")]
    assert names
    assert [pair for pair in names if pair[1].split(".")[1] not in TORCH_FREE] == []


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
