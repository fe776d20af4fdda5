"""From a sweep file to a `Sweep`, or to everything that is wrong with it at once."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from lm.data import vocabulary_size_of
from lm.spec import Part, TrainSpec, vocabulary_misfits
from lm.yaml_text import Document, dotted, read_text, read_yaml
from orchestrator.errors import closest
from orchestrator.sweep.joint import group_problems, overlaps, within
from orchestrator.sweep.override import effective, override, value_at
from orchestrator.sweep.problems import Path, Problem, SweepError, from_pydantic, shown, unknown_key
from orchestrator.sweep.published import check_reference
from orchestrator.sweep.search_problems import search_problems
from orchestrator.sweep.types import PUBLISHED_SCALE, Change, ScaledSweep, Sweep

# Takes the place of what a wrong file lacks, so that the rest of it can be checked as well.
_STAND_IN: dict[str, Any] = {
    "name": "unnamed",
    "question": "?",
    "base": {"corpus": {"name": "ptb"}, "optimizer": {"kind": "sgd", "learning_rate": 1.0}, "epochs": 1},
    "seeds": [1],
}


def read_sweep(path: FilePath | str) -> Sweep:
    """Read a sweep file and check every variant at every scale; SweepError holds all that is wrong, a line each.

    `published` refers to the folder `published` beside the file.
    """
    path = FilePath(path)
    try:
        text = read_text(path)
    except OSError as error:
        raise SweepError([f"{path}: cannot be read: {error.strerror}{_meant(path, error)}"]) from error
    except ValueError as error:
        raise SweepError([f"{path}: {error}"]) from error
    document = read_yaml(text)
    problems = [Problem(*fault) for fault in document.faults]
    sweep: Sweep | None = None
    if document.lines:
        sweep, wrong = check(document.data, path.parent / "published")
        problems += wrong
    if problems or sweep is None:
        lines = _placed(problems, document, path)
        raise SweepError(lines or [f"{path}:1: empty: a sweep file needs name, question, base and seeds"])
    return sweep


def _meant(path: FilePath, error: OSError) -> str:
    """A hint at the sweep file that has almost this name, beside the one asked for or in `sweeps/`."""
    if not isinstance(error, FileNotFoundError):
        return ""
    folders = (FilePath("sweeps"), path.parent)  # the same name in both is the one beside what was asked for
    files = {found.stem: found for folder in folders for found in folder.glob("*.yaml")}
    near = closest(path.stem, files)
    return "" if near is None else f" (did you mean {str(files[near])!r}?)"


def check_vocabularies(sweep: ScaledSweep, path: FilePath) -> None:
    """SweepError for every variant whose head does not fit its corpus's vocabulary, at its line of the file.

    A head that is the base's is told at the base alone. CorpusError for a text that is not there.
    """
    sizes = {corpus: vocabulary_size_of(corpus) for corpus in {variant.spec.corpus for variant in sweep.variants}}
    base = sweep.baseline.spec
    problems = [
        Problem((*variant.place, "head"), f"{misfit} (at scale {sweep.scale})")
        for variant in sweep.variants
        if variant is sweep.baseline or (variant.spec.head, variant.spec.corpus) != (base.head, base.corpus)
        for misfit in vocabulary_misfits(variant.spec.head, sizes[variant.spec.corpus])
    ]
    if problems:
        raise SweepError(_placed(problems, read_yaml(read_text(path)), path))


def _placed(problems: Iterable[Problem], document: Document, path: FilePath) -> list[str]:
    """A line a problem, each once, in the file's order: file, line, key, text."""
    placed = [(problem.line or document.line(problem.path), problem) for problem in problems]
    placed.sort(key=lambda pair: pair[0])
    return list(dict.fromkeys(": ".join(filter(None, (f"{path}:{n}", dotted(p.path), p.text))) for n, p in placed))


def check(data: Any, published: FilePath) -> tuple[Sweep | None, list[Problem]]:
    """A sweep from plain data, and all that is wrong with it."""
    if not isinstance(data, dict):
        return None, [] if data is None else [Problem((), "a sweep file is a mapping: name, question, base, ...")]
    problems: list[Problem] = []
    kept = copy.deepcopy(data)
    if isinstance(kept.get("base"), dict) and "seed" in kept["base"]:
        problems.append(Problem(("base", "seed"), "no seed in the base: replicates are listed under 'seeds'"))
        del kept["base"]["seed"]
    sweep, broken, wrong = _read_through(kept)
    problems += wrong
    if sweep is not None:
        problems += _published_problems(sweep, published)
        problems += group_problems(sweep)
        problems += _name_problems(sweep)
        problems += _expansion_problems(sweep, broken)
        if not problems:
            problems += search_problems(sweep)
    return sweep, problems


def _read_through(kept: dict[str, Any]) -> tuple[Sweep | None, set[str], list[Problem]]:
    """The sweep without what is wrong in it, so that the rest can be checked, and the paths of the base so mended."""
    problems: list[Problem] = []
    broken: set[str] = set()
    while True:
        try:
            return Sweep.model_validate(kept), broken, problems
        except ValidationError as error:
            wrong = from_pydantic(error, Sweep)
        problems = problems or wrong  # later rounds may only complain of the mending
        before = copy.deepcopy(kept)
        broken |= _mend(kept, wrong)
        if kept == before:  # a rule over the whole base is broken, and no one place of it can be mended
            if kept["base"] == _STAND_IN["base"]:
                return None, broken, problems
            kept["base"] = copy.deepcopy(_STAND_IN["base"])
            broken |= set(TrainSpec.model_fields)


def _mend(kept: dict[str, Any], wrong: Iterable[Problem]) -> set[str]:
    """Take what is wrong out of the data and fill in what is missing; the dotted paths of the base so touched."""
    broken = set()
    for problem in wrong:
        path = tuple(itertools.takewhile(lambda part: isinstance(part, str), problem.path))
        if path[:1] == ("base",) and isinstance(kept["base"], dict):
            path = path[:-1] if path[-1] == "kind" else path  # a part of unknown kind cannot be read at all
            if len(path) > 1:
                broken.add(dotted(path[1:]))
                _drop(kept, path)
        elif path:
            depth = {"components": 2, "groups": 2, "variants": 2, "scales": 4}.get(str(path[0]), 1)
            _drop(kept, path[:depth])
    if "base" not in kept:
        broken |= set(TrainSpec.model_fields)
    for key, value in _STAND_IN.items():
        kept.setdefault(key, copy.deepcopy(value))
    for key, value in _STAND_IN["base"].items():
        if key not in kept["base"]:
            broken.add(key)
            kept["base"][key] = copy.deepcopy(value)
    return broken


def _drop(data: Any, path: Path) -> None:
    for part in path[:-1]:
        data = data.get(part) if isinstance(data, dict) else None
    if isinstance(data, dict):
        data.pop(path[-1], None)


def _published_problems(sweep: Sweep, folder: FilePath) -> Iterator[Problem]:
    tables: list[tuple[Path, tuple[str, ...]]] = [(("published",), sweep.published)]
    for name, scale in sweep.scales.items():
        if not isinstance(scale.published, bool):
            tables.append((("scales", name, "published"), scale.published))
    for place, references in tables:
        for i, reference in enumerate(references):
            try:
                check_reference(reference, folder)
            except ValueError as error:
                yield Problem((*place, i) if len(references) > 1 else place, str(error))


def _name_problems(sweep: Sweep) -> Iterator[Problem]:
    taken: dict[str, str] = {}
    for change in sweep.changes(PUBLISHED_SCALE):
        if change.is_joint and change.variant in taken:
            yield Problem(change.place, f"the joint removal {change.variant!r} is also {taken[change.variant]}")
        elif change.is_component and change.compared:
            together = "components taken away together"
            taken[change.variant] = together if change.is_joint else f"component {change.place[-2]!r} taken away"
    if sweep.baseline in taken:
        yield Problem(("baseline",), f"the name {sweep.baseline!r} is taken: it is {taken[sweep.baseline]}")
    taken[sweep.baseline] = "the base itself"
    for name in sweep.variants:
        if name in taken:
            yield Problem(("variants", name), f"the name {name!r} is taken: it is {taken[name]}")
    for scale_name, scale in sweep.scales.items():
        for section, own, valid in (
            ("components", scale.components, sweep.components),
            ("variants", scale.variants, sweep.variants),
        ):
            for name in own:
                if name not in valid:
                    yield unknown_key(("scales", scale_name, section, name), valid)


def _expansion_problems(sweep: Sweep, broken: Set[str]) -> Iterator[Problem]:
    """What is wrong with any variant at any scale, each thing once; `broken` are the mended paths of the base."""
    said: set[Problem] = set()
    for scale_name in sweep.scale_names:
        base, wrong = override(sweep.base, _judgeable(sweep.scale(scale_name).base, broken))
        yield from (problem.under("scales", scale_name, "base") for problem in wrong)
        doubtful = broken | {str(problem.path[0]) for problem in wrong}
        for problem in _variant_problems(sweep, scale_name, base, doubtful):
            if problem not in said:
                said.add(problem)
                elsewhere = scale_name != PUBLISHED_SCALE and problem.path[:1] != ("scales",)
                where = f" (at scale {scale_name})" if elsewhere else ""
                yield Problem(problem.path, problem.text + where)


def _variant_problems(sweep: Sweep, scale_name: str, base: TrainSpec, doubtful: Set[str]) -> Iterator[Problem]:
    seen = {effective(base): sweep.baseline}
    contradictions = list(overlaps(sweep, scale_name))
    yield from contradictions
    sound = not contradictions
    for change in sweep.changes(scale_name):
        if change.is_joint and not sound:  # what is wrong with it is told of one of its parts
            continue
        spec, wrong = override(base, _judgeable(change.overrides, doubtful))
        yield from (problem.under(*change.place) for problem in wrong)
        sound = sound and not wrong
        if wrong or any(within(key, path) or within(path, key) for key in change.overrides for path in doubtful):
            continue
        # Of a wrong base nobody knows what it is meant to be, and so not what is the same as it.
        same = None if doubtful and change.overrides else seen.get(effective(spec))
        sound = sound and same is None
        if same == sweep.baseline:
            yield Problem(change.place, _nothing(change, base))
        elif same is not None:
            yield Problem(change.place, f"{change.variant!r} is the same spec as {same!r}")
        elif change.compared:
            seen[effective(spec)] = change.variant


def _nothing(change: Change, base: TrainSpec) -> str:
    if not change.overrides:
        return "changes nothing: it has no overrides"
    values = {key: value_at(base, key) for key in change.overrides}
    had = (f"{key} = {shown(v.model_dump() if isinstance(v, Part) else v)}" for key, v in values.items())
    return f"changes nothing: the base already has {', '.join(had)}"


def _judgeable(overrides: Mapping[str, Any], mended: Set[str]) -> dict[str, Any]:
    """The overrides that do not reach into what had to be mended: of those nothing can be said yet."""
    return {key: v for key, v in overrides.items() if not any(key != path and within(key, path) for path in mended)}
