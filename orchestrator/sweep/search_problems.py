"""What is wrong with what a sweep file searches: paths and ends that fit no spec, seeds that it must not see."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from lm.spec import TrainSpec
from orchestrator.errors import nearest
from orchestrator.sweep.options import combinations, trials_needed
from orchestrator.sweep.override import has, override, value_at
from orchestrator.sweep.problems import Path, Problem, from_pydantic, shown, unknown_key
from orchestrator.sweep.searches import PopulationBased, Search, Searching, Tune
from orchestrator.sweep.seeds import UntilDecided
from orchestrator.sweep.space import Change, Choice, Dimension, Integer, dimensions_of, fits
from orchestrator.sweep.types import PUBLISHED_SCALE, Sweep
from orchestrator.sweep.walk import LEFT_OUT, as_drawn, changes_of, start_values, walk

_NEVER = {
    "seed": "the seed is never searched over: replicates are listed under 'seeds'",
    "corpus": "the corpus is never searched over: losses on different texts do not compare",
    "scoring": "how a model is scored is never searched over",
    "cache": "an adaptive model is not compared with others, so its cache is not searched over",
}
_BUDGET = ("epochs", "legs", "early_stop", "finetune", "finetune.epochs", "finetune.repeats")
_MOST_COMBINATIONS = 1000
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
        wrong_starts = list(_starts(searching, base))
        yield from (problem.under(word) for problem in wrong_starts or _least_trials(searching, base))
        if base.legs and isinstance(searching.scheduler, PopulationBased):
            yield Problem((word, "scheduler"), "a population makes legs of its own: the base must have none")


def _own_ranges(sweep: Sweep, scale_name: str, tune: Tune, base: TrainSpec) -> Iterator[Problem]:
    """What is wrong with the ranges that single variants have instead of the space's."""
    specs = {sweep.baseline: base}
    for change in sweep.changes(scale_name):
        if change.compared:
            specs[change.variant], _ = override(base, change.overrides)
    for name, own in tune.variants.items():
        if name not in specs:
            yield unknown_key((name,), specs)
            continue
        merged = tune.model_copy(update={"space": tune.space | own})
        for key in own:
            yield from (problem.under(name, key) for problem in _dimension(merged, key, specs[name]))


def _dimension(searching: Searching, key: str, base: TrainSpec) -> Iterator[Problem]:
    """What is wrong with what is searched at one place, found by giving it its ends, or each of its options."""
    place = searching.space[key]
    if isinstance(searching.scheduler, PopulationBased):
        part, _, name = key.partition(".")
        if part not in _CHANGING or not name or key == "dropout.shared_mask":
            text = f"a population changes values in mid-training, where only those of {', '.join(_CHANGING)} can change"
            yield Problem((), text)
            return
    for path in {path for one in dimensions_of(place) for changes in _examples(key, one).values() for path in changes}:
        if (top := path.partition(".")[0]) in _NEVER:
            yield Problem((), _NEVER[top])
            return
        if isinstance(searching, Tune) and path in _BUDGET:
            yield Problem((), "tuning gives every trial the same budget: epochs are not tuned")
            return
    for number, dimension in enumerate(dimensions_of(place)):
        at = (number,) if isinstance(place, tuple) else ()
        yield from (problem.under(*at) for problem in _one_dimension(searching, key, dimension, base))


def _one_dimension(searching: Searching, key: str, dimension: Dimension, base: TrainSpec) -> Iterator[Problem]:
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


def _examples(key: str, dimension: Dimension) -> dict[Path, dict[str, Any]]:
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
    """A spec at whose path the value stands: this one, or with an option of a choice that comes before the key.

    Where the path is that of a choice, the value may be the name of one of its options.
    """
    before = list(itertools.takewhile(lambda other: other != key, searching.space))
    choice = searching.space.get(path)
    if isinstance(choice, Choice | Change) and path in before and isinstance(value, str) and value in choice.options:
        changed, wrong = override(spec, changes_of(path, choice, value))
        return None if wrong else changed
    if _holds(spec, path, value):
        return spec
    for other in before:
        examples = (_examples(other, one) for one in dimensions_of(searching.space[other]))
        for changes in itertools.chain.from_iterable(example.values() for example in examples):
            changed, wrong = override(spec, changes)
            if not wrong and _holds(changed, path, value):
                return changed
    return None


def _holds(spec: TrainSpec, path: str, value: object) -> bool:
    return has(spec, path) and value_at(spec, path) == value


def _starts(searching: Searching, base: TrainSpec) -> Iterator[Problem]:
    for i, start in enumerate(searching.start):
        problems = []
        for key, value in start.items():
            if key not in searching.space:
                problems.append(unknown_key((key,), searching.space))
            elif (text := _outside(searching, key, value)) is not None:
                problems.append(Problem((key,), text))
        yield from (problem.under("start", i) for problem in problems or _of_another_range(searching, start, base))


def _of_another_range(searching: Searching, start: Mapping[str, Any], base: TrainSpec) -> Iterator[Problem]:
    """Values that lie in a range of their path, but not in the one that holds for this start."""

    def draw(key: str, dimension: Dimension, _: TrainSpec) -> Any:
        return as_drawn(dimension, start[key]) if key in start else LEFT_OUT

    for key, dimension in walk(base, searching.space, draw).drawn.items():
        if not fits(dimension, as_drawn(dimension, start[key])):
            where = " and ".join(f"{path} is {shown(value)}" for path, value in dimension.when.items())
            yield Problem((key,), f"{_rule([dimension])} where {where}, got {shown(start[key])}")


def _outside(searching: Searching, key: str, value: Any) -> str | None:
    """Why a value is none of those that are searched; of a choice its name stands for it."""
    dimensions = dimensions_of(searching.space[key])
    choice = dimensions[0]
    if isinstance(choice, Choice | Change):
        names: Mapping[str, Any] = choice.options
        name = "null" if value is None else str(value)
        return (
            None if name in names else f"should be one of {', '.join(names)}, got {shown(value)}{nearest(name, names)}"
        )
    if any(fits(dimension, value) for dimension in dimensions):
        return None
    whole = [dimension for dimension in dimensions if isinstance(dimension, Integer)]
    if isinstance(value, float) and any(dimension.low <= value <= dimension.high for dimension in whole):
        return f"should be a whole number, got {shown(value)}"
    return f"{_rule(dimensions)}, got {shown(value)}"


def _rule(dimensions: Sequence[Dimension]) -> str:
    ranges = [f"from {one.low:g} to {one.high:g}" for one in dimensions if not isinstance(one, Choice | Change)]
    return f"should be a number {' or '.join(ranges)}"


def _least_trials(searching: Searching, base: TrainSpec) -> Iterator[Problem]:
    """What is wrong with the least numbers of trials: no choice, an option that nothing leads to, too few trials."""
    least, space = searching.min_trials_per_option, searching.space
    choices = {key: place for key, place in space.items() if isinstance(place, Choice | Change)}
    place = "min_trials_per_option"
    if wrong := [key for key in least if key not in choices]:
        yield from (
            Problem((place, key), f"should name a choice or change of the space, got {key!r}{nearest(key, choices)}")
            for key in wrong
        )
        return
    size = math.prod(len(choices[key].options) for key in least)
    if size > _MOST_COMBINATIONS:
        yield Problem((place,), f"should name choices of at most {_MOST_COMBINATIONS} combinations, got {size}")
        return
    combined = combinations(base, space, least)
    for key in least:
        for option in choices[key].options:
            if not any(options.get(key) == option for options in combined):
                text = f"no trial has the option {option!r} while all else is as the base has it: name the choice that"
                yield Problem((place, key), f"{text} leads to it, too")
    rest_of_base = searching.start_rest == "base"
    starts = [start_values(base, space, start, rest_of_base=rest_of_base) for start in searching.start]
    needed = trials_needed(combined, least, starts) if least else 0
    if searching.trials is not None and searching.trials < needed:
        text = f"should be at least {needed}, for the starts and the least number of trials of every option"
        yield Problem(("trials",), f"{text}, got {searching.trials}")
