"""What is wrong with what a sweep file searches: paths and ends that fit no spec, seeds that it must not see."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from lm.spec import TrainSpec
from orchestrator.nearest import nearest
from orchestrator.sweep.override import has, override, value_at
from orchestrator.sweep.problems import Path, Problem, from_pydantic, shown, unknown_key
from orchestrator.sweep.searches import Change, Choice, PopulationBased, Search, Searched, Searching, Tune
from orchestrator.sweep.seeds import UntilDecided
from orchestrator.sweep.types import PUBLISHED_SCALE, Sweep

_NEVER = {
    "seed": "the seed is never searched over: replicates are listed under 'seeds'",
    "corpus": "the corpus is never searched over: losses on different texts do not compare",
    "scoring": "how a model is scored is never searched over",
    "cache": "an adaptive model is not compared with others, so its cache is not searched over",
}
_BUDGET = ("epochs", "legs", "early_stop", "finetune", "finetune.epochs", "finetune.repeats")
_CHANGING = ("optimizer", "dropout", "penalties")


def search_problems(sweep: Sweep) -> Iterator[Problem]:
    """All that is wrong with `search` and `tune`, at every scale, each thing once."""
    if sweep.search is not None and sweep.tune is not None:
        yield Problem(("tune",), "a sweep either searches (for the base) or tunes (every variant), not both")
        return
    if sweep.search is not None and (sweep.components or sweep.variants):
        yield Problem(("search",), "a search is for the base alone; to search for every variant alike, write 'tune'")
    word = "search" if sweep.search is not None else "tune"
    said: set[Problem] = set()
    for scale_name in sweep.scale_names:
        scale = sweep.scale(scale_name)
        for key in ("search", "tune"):
            if getattr(scale, key) and (key != word or sweep.searching(PUBLISHED_SCALE) is None):
                yield Problem(("scales", scale_name, key), f"the sweep has no {key!r} to replace values of")
        own: dict[str, Any] = getattr(scale, word)
        for problem in _at_scale(sweep, scale_name, word):
            there: Path = ("scales", scale_name) if _is_own(own, problem.path[1:]) else ()
            if problem not in said:
                said.add(problem)
                where = f" (at scale {scale_name})" if scale_name != PUBLISHED_SCALE and not there else ""
                yield Problem((*there, *problem.path), problem.text + where)


def _is_own(own: Mapping[str, Any], path: Path) -> bool:
    """Whether a scale gives what stands at a path of the search itself."""
    if path[:1] == ("space",) and len(path) > 1 and isinstance(own.get("space"), dict):
        return path[1] in own["space"]
    return bool(path) and path[0] in own


def _at_scale(sweep: Sweep, scale_name: str, word: str) -> Iterator[Problem]:
    try:
        searching = sweep.searching(scale_name)
    except ValidationError as error:
        yield from (problem.under(word) for problem in from_pydantic(error, Search if word == "search" else Tune))
        return
    if searching is None:
        return
    seeds = sweep.scale(scale_name).seeds or sweep.seeds
    shown_seeds = range(1, seeds.max + 1) if isinstance(seeds, UntilDecided) else seeds
    if searching.training_seed in shown_seeds:
        text = f"should be none of 'seeds', on which what was found is judged, got {searching.training_seed}"
        yield Problem((word, "training_seed"), text)
    base, wrong = override(sweep.base, sweep.scale(scale_name).base)
    if not wrong:  # what is wrong with the base is told of the base
        for key in searching.space:
            yield from (problem.under(word, "space", key) for problem in _dimension(searching, key, base))
        if isinstance(searching, Tune):
            yield from (problem.under(word, "variants") for problem in _own_ranges(sweep, scale_name, searching, base))
        yield from (problem.under(word) for problem in _starts(searching))
        if base.legs and isinstance(searching.scheduler, PopulationBased):
            yield Problem((word, "scheduler"), "a population makes legs of its own: the base must have none")


def _own_ranges(sweep: Sweep, scale_name: str, tune: Tune, base: TrainSpec) -> Iterator[Problem]:
    """What is wrong with the ranges that single variants have instead of the space's."""
    specs = {sweep.baseline: base}
    for change in sweep.changes(scale_name):
        specs[change.variant], _ = override(base, change.overrides)
    for name, own in tune.variants.items():
        if name not in specs:
            yield unknown_key((name,), specs)
            continue
        merged = tune.model_copy(update={"space": tune.space | own})
        for key in own:
            yield from (problem.under(name, key) for problem in _dimension(merged, key, specs[name]))


def _dimension(searching: Searching, key: str, base: TrainSpec) -> Iterator[Problem]:
    """What is wrong with one searched value, found by giving it its ends, or each of its options."""
    dimension = searching.space[key]
    if isinstance(searching.scheduler, PopulationBased):
        part, _, name = key.partition(".")
        if part not in _CHANGING or not name or key == "dropout.shared_mask":
            text = f"a population changes values in mid-training, where only those of {', '.join(_CHANGING)} can change"
            yield Problem((), text)
            return
    for path in {path for changes in _examples(key, dimension).values() for path in changes}:
        if (top := path.partition(".")[0]) in _NEVER:
            yield Problem((), _NEVER[top])
            return
        if isinstance(searching, Tune) and path in _BUDGET:
            yield Problem((), "tuning gives every trial the same budget: epochs are not tuned")
            return
    spec = base
    for path, value in dimension.when.items():
        found = _where(searching, key, path, value, spec)
        if found is None:
            yield Problem(
                ("when", path), f"never holds: nothing before {key!r} gives {path!r} the value {shown(value)}"
            )
            return
        spec = found
    for place, changes in _examples(key, dimension).items():
        _, wrong = override(spec, changes)
        if wrong and wrong[0].path == (key,) and not has(spec, key):
            yield Problem((), wrong[0].text)
            return
        depth = 0 if isinstance(dimension, Change) else 1
        yield from (Problem((*place, *problem.path[depth:]), problem.text) for problem in wrong)


def _examples(key: str, dimension: Searched) -> dict[Path, dict[str, Any]]:
    """What a searched value can change at its ends, or with each option, by the place in the file."""
    match dimension:
        case Change():
            return {("among", name): changes for name, changes in dimension.among.items()}
        case Choice(among=dict() as among):
            return {("among", name): {key: value} for name, value in among.items()}
        case Choice():
            return {("among", i): {key: value} for i, value in enumerate(dimension.among)}
        case _:
            return {("low",): {key: dimension.low}, ("high",): {key: dimension.high}}


def _where(searching: Searching, key: str, path: str, value: object, spec: TrainSpec) -> TrainSpec | None:
    """A spec at whose path the value stands: this one, or with an option of a choice that comes before the key."""
    if _holds(spec, path, value):
        return spec
    before = itertools.takewhile(lambda other: other != key, searching.space)
    for other in before:
        for changes in _examples(other, searching.space[other]).values():
            changed, wrong = override(spec, changes)
            if not wrong and _holds(changed, path, value):
                return changed
    return None


def _holds(spec: TrainSpec, path: str, value: object) -> bool:
    return has(spec, path) and value_at(spec, path) == value


def _starts(searching: Searching) -> Iterator[Problem]:
    for i, start in enumerate(searching.start):
        for key, value in start.items():
            if key not in searching.space:
                yield unknown_key(("start", i, key), searching.space)
            elif (text := _outside(searching, key, value)) is not None:
                yield Problem(("start", i, key), text)


def _outside(searching: Searching, key: str, value: Any) -> str | None:
    """Why a value is none of those that are searched; of a choice its name stands for it."""
    dimension = searching.space[key]
    if isinstance(dimension, Choice | Change):
        names: Mapping[str, Any] = dimension.options
        name = "null" if value is None else str(value)
        return (
            None if name in names else f"should be one of {', '.join(names)}, got {shown(value)}{nearest(name, names)}"
        )
    if isinstance(value, bool) or not isinstance(value, int | float) or not dimension.low <= value <= dimension.high:
        return f"should be a number from {dimension.low:g} to {dimension.high:g}, got {shown(value)}"
    if dimension.kind == "integer" and value != int(value):
        return f"should be a whole number, got {shown(value)}"
    return None
