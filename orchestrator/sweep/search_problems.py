"""What is wrong with `search` and `tune`: paths and ends that fit no spec, starts that are not searched, and more."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from lm.names import nearest
from lm.spec import TrainSpec
from lm.validation import Problem, problems_of, shown, unknown_key
from lm.yaml_text import Place
from orchestrator.sweep.designs import planned_seeds
from orchestrator.sweep.draws import (
    LEFT_OUT,
    Options,
    Places,
    as_drawn,
    changes_of,
    combinations,
    draw_all,
    ends_of,
    lacking,
    paths_of,
    start_values,
)
from orchestrator.sweep.override import ABSENT, changed_paths, override, value_at
from orchestrator.sweep.scaled import BEST_FOUND, BY_HAND, Variant
from orchestrator.sweep.searches import PopulationBased, Search, Searching, Tune
from orchestrator.sweep.space import Change, Dimension, OneOf, Range, dimensions_of, fits
from orchestrator.sweep.types import Sweep

_NEVER = {
    "seed": "the seed is never searched over: replicates are listed under 'seeds'",
    "corpus": "the corpus is never searched over: losses on different texts do not compare",
    "scoring": "how a model is scored is never searched over",
    "cache": "an adaptive model is not compared with others, so its cache is not searched over",
}
_BUDGET = ("epochs", "legs", "early_stop", "finetune", "finetune.epochs", "finetune.repeats", "finetune.repeats.most")
_CHANGING = ("optimizer.", "dropout.", "penalties.")
_MOST_COMBINATIONS = 1000
_KINDS: dict[str, type[Searching]] = {"search": Search, "tune": Tune}


def search_problems(sweep: Sweep, scale_name: str, variants: Sequence[Variant]) -> Iterator[Problem]:
    """All that is wrong with `search` and `tune` at a scale, and with names, in a sweep that is right otherwise."""
    scale, above = sweep.scale(scale_name), ("scales", scale_name)
    words, at_scale = ([word for word in _KINDS if getattr(part, word)] for part in (sweep, scale))
    if len(words or at_scale) > 1:
        rule = "a sweep either searches (for the base) or tunes (every variant), not both"
        yield Problem(("tune",) if words else (*above, "tune"), rule)
        return
    for word in at_scale if words else ():
        if word not in words:
            yield Problem((*above, word), f"the sweep has no {word!r} to replace values of")
    for word in words or at_scale:
        replaced = getattr(scale, word)
        try:
            problems = list(_problems(sweep, scale_name, variants))
        except ValidationError as error:
            problems = problems_of(error, _KINDS[word])
        for problem in problems:
            key, inside = next(iter(problem.place), None), problem.place[1:]
            is_replaced = key in replaced and (key != "space" or not inside or inside[0] in replaced["space"])
            yield problem.under(*(above if is_replaced or not words else ()), word)
    taken, by = BEST_FOUND, "what the search finds"
    if (words or at_scale) == ["search"] and len(variants) > 1:
        taken, by = BY_HAND, "the base as it was before the search"
    for variant in variants:  # also where nothing is searched, because a page would take it for what was found
        if variant.name == taken:
            place = ("baseline",) if variant is variants[0] else variant.place
            yield Problem(place, f"the name {taken!r} is taken by {by}")


def searched_paths(sweep: Sweep, scale_name: str) -> set[str] | None:
    """The dotted paths whose values in the base a search decides; None if what is searched is wrong."""
    try:
        searching = sweep.searching(scale_name)
    except ValidationError:  # `search_problems` says what it is
        return None
    space = searching.space if isinstance(searching, Search) else {}
    return {path for key, place in space.items() for path in paths_of(key, place)}


def _problems(sweep: Sweep, scale_name: str, variants: Sequence[Variant]) -> Iterator[Problem]:
    seeds, searching = sweep.scale(scale_name).seeds or sweep.seeds, sweep.searching(scale_name)
    assert searching is not None
    base, is_tuned = variants[0].spec, isinstance(searching, Tune)
    is_population = isinstance(searching.scheduler, PopulationBased)
    if searching.training_seed in planned_seeds(seeds):
        text = f"should not be among 'seeds', on which the result is judged, got {searching.training_seed}"
        yield Problem(("training_seed",), text)
    if isinstance(searching, Search) and "validation" not in searching.objectives:
        yield Problem(("objectives",), "should hold validation, by which the best values are chosen")
    budget = "tuning gives every trial the same budget: epochs are not tuned" if is_tuned else None
    if sweep.equal_budget and not is_tuned and len(variants) > 1:
        budget = "equal_budget must know the epochs of the base before they are searched: set it to false, or do not "
        budget += "search them"
    specs = {variant.name: variant.spec for variant in variants}
    spaces: list[tuple[Place, Mapping[str, Any], TrainSpec | None]] = [(("space",), searching.space, base)]
    if isinstance(searching, Tune):
        spaces += [(("variants", name), space, specs.get(name)) for name, space in searching.variants.items()]
        if searching.repeats not in (1, len(seeds) if isinstance(seeds, tuple) else 1):
            text = f"should be 1, or as many as 'seeds' lists, each of which gets a search; got {searching.repeats}"
            yield Problem(("repeats",), text)
    for place, space, spec in spaces:
        if spec is None:
            yield unknown_key(place, specs)
            continue
        merged = {**searching.space, **space}
        for key in space:
            problems = _dimension_problems(merged, key, spec, budget, is_population)
            yield from (problem.under(*place, key) for problem in problems)
        yield from (problem.under(*place) for problem in _replaced(merged, space))
    if isinstance(searching, Tune):
        yield from _half_changed(searching, variants)
    wrong_starts = list(_start_problems(searching, base))
    yield from wrong_starts or _least_trials(searching, base, searching.space)
    of_variants = searching.variants if isinstance(searching, Tune) and not wrong_starts else {}
    for variant in variants:
        if own := of_variants.get(variant.name):
            space = {k: v for k, v in searching.space.items() if not changed_paths(base, variant.spec, paths_of(k, v))}
            yield from _least_trials(searching, variant.spec, space | own, f" of {variant.name!r}")
    if is_population and base.legs:
        yield Problem(("scheduler",), "a population makes legs: the base must have none")
    if is_population and not is_tuned and len(variants) > 1:
        rule = "a population finds a schedule, which has no components to take away: use another scheduler"
        yield Problem(("scheduler",), f"{rule}, or put components and variants in a file of their own")


def _half_changed(tune: Tune, variants: Sequence[Variant]) -> Iterator[Problem]:
    """Variants that set some of what a named change sets: it could be neither tuned nor left as the variant has it."""
    base = variants[0].spec
    for key, place in tune.space.items():
        paths = paths_of(key, place)
        for variant in variants:
            changed = changed_paths(base, variant.spec, paths)
            if changed and changed != paths and key not in tune.variants.get(variant.name, {}):
                rule = f"variant {variant.name!r} sets {', '.join(sorted(changed))}, but not all that this change sets"
                yield Problem(("space", key), f"{rule}: give it a space of its own under 'variants'")


def _dimension_problems(
    space: Places, key: str, base: TrainSpec, budget: str | None, is_population: bool
) -> Iterator[Problem]:
    """What is wrong at one place of the space when it gets both ends of each range, or each option.

    `budget` is why epochs cannot be searched, None if they can.
    """
    place = space[key]
    if is_population and not all(p.startswith(_CHANGING) and p != "dropout.shared_mask" for p in paths_of(key, place)):
        yield Problem((), "a population changes values in mid-training: only those of optimizer, dropout and penalties")
        return
    for number, dimension in enumerate(dimensions_of(place)):
        paths = paths_of(key, dimension)
        rules = {_NEVER[part] for path in paths if (part := path.partition(".")[0]) in _NEVER}
        if budget is not None and not paths.isdisjoint(_BUDGET):
            rules.add(budget)
        problems = [Problem((), rule) for rule in rules] or _point_problems(space, key, dimension, base)
        yield from (problem.under(*((number,) if isinstance(place, tuple) else ())) for problem in problems)


def _point_problems(space: Places, key: str, dimension: Dimension, base: TrainSpec) -> Iterator[Problem]:
    spec, later = base, [*itertools.dropwhile(lambda other: other != key, space)]
    for path, value in dimension.when.items():
        if (fitting := _spec_where(space, key, path, value, spec)) is None:
            rule = f"never holds: nothing before {key!r} gives {path!r} the value {shown(value)}"
            yield Problem(("when", path), rule)
            return
        if decides := next((other for other in later if _writes(space[other], other, {path})), None):
            yield Problem(("when", path), f"is drawn later: {decides!r} must come before {key!r}")
            return
        spec = fitting
    for place, point in ends_of(dimension).items():
        _, problems = override(spec, changes_of(key, dimension, point))
        if problems and problems[0].place == (key,) and value_at(spec, key) is ABSENT:
            yield Problem((), problems[0].text)
            return
        depth = 0 if isinstance(dimension, Change) else 1
        yield from (Problem((*place, *problem.place[depth:]), problem.text) for problem in problems)


def _writes(place: Dimension | Sequence[Range], key: str, paths: Collection[str]) -> bool:
    """Whether a place of a space writes one of these paths, or a part that holds it."""
    return any(f"{path}.".startswith(f"{written}.") for written in paths_of(key, place) for path in paths)


def _replaced(space: Places, own: Container[str]) -> Iterator[Problem]:
    """Of each two places, one of them in `own`, the first whose value is lost because the second replaces it."""
    for one, other in itertools.combinations(space, 2):
        if not (one in own or other in own) or not _writes(space[other], other, paths_of(one, space[one])):
            continue
        pairs = itertools.product(dimensions_of(space[one]), dimensions_of(space[other]))
        if all(any(a.when[path] != b.when[path] for path in a.when.keys() & b.when.keys()) for a, b in pairs):
            continue
        if one in own:
            yield Problem((one,), f"{other!r} comes later and replaces it: put it first")
        else:
            yield Problem((other,), f"replaces what {one!r} of the space, which comes first, has drawn")


def _spec_where(space: Places, key: str, path: str, value: object, spec: TrainSpec) -> TrainSpec | None:
    """A spec in which a condition, perhaps on an option, holds: this one, or with a point of an earlier dimension."""
    if value_at(spec, path) == value:
        return spec
    for other in itertools.takewhile(lambda other: other != key, space):
        for dimension in dimensions_of(space[other]):
            for point in ends_of(dimension).values():
                changed, problems = override(spec, changes_of(other, dimension, point))
                if not problems and ((other, point) == (path, value) or value_at(changed, path) == value):
                    return changed
    return None


def _start_problems(searching: Searching, base: TrainSpec) -> Iterator[Problem]:
    """Values of a start that are not searched, or lie outside of the range that holds for this start."""
    space = searching.space
    for number, start in enumerate(searching.start):
        dimensions = {key: list(dimensions_of(space[key])) for key in start if key in space}

        def draw(key: str, dimension: Dimension, _: TrainSpec, start: dict[str, Any] = start) -> Any:
            return as_drawn(dimension, start[key]) if key in start else LEFT_OUT

        if all(any(_fits(d, value) for d in dimensions.get(key, ())) for key, value in start.items()):
            holding = draw_all(base, space, draw).dimensions
            dimensions |= {key: [dimension] for key, dimension in holding.items()}
            for key in start:
                of = {key, *(path for dimension in dimensions_of(space[key]) for path in dimension.when)}
                deciding = (o for o in space if o not in start and (o in of or _writes(space[o], o, of)))
                open_choice = next(deciding, None) if searching.start_rest == "sampled" else None
                if key not in holding:
                    yield Problem(("start", number, key), "is not searched with the other values of this start")
                elif open_choice:
                    rule = f"may not be searched: give the start a value of {open_choice!r} too"
                    yield Problem(("start", number, key), rule)
        for key, value in start.items():
            if key not in space:
                yield unknown_key((key,), space).under("start", number)
            elif not any(_fits(dimension, value) for dimension in dimensions[key]):
                rules = " or ".join(map(_rule, dimensions_of(space[key])))
                near = nearest(value, first.options) if isinstance(first := dimensions[key][0], OneOf) else ""
                yield Problem(("start", number, key), f"should be {rules}, got {shown(value)}{near}")


def _fits(dimension: Dimension, value: Any) -> bool:
    """Whether a dimension can give a value as a sweep file writes it."""
    return fits(dimension, as_drawn(dimension, value) if isinstance(dimension, OneOf) else value)


def _rule(dimension: Dimension) -> str:
    """What a dimension can give, in words."""
    if isinstance(dimension, OneOf):
        return f"one of {', '.join(dimension.options)}"
    kind = "a whole number" if dimension.kind == "integer" else "a number"
    conditions = " and ".join(f"{path} is {shown(value)}" for path, value in dimension.when.items())
    return f"{kind} from {dimension.low:g} to {dimension.high:g}{conditions and f' if {conditions}'}"


def _least_trials(searching: Searching, base: TrainSpec, space: Places, of: str = "") -> Iterator[Problem]:
    """What is wrong with the least numbers of trials: no choice, an option that nothing leads to, too few trials.

    `of` says which variant's, if it has a space of its own.
    """
    least, place = searching.min_trials_per_option, "min_trials_per_option"
    choices = {key: dimension for key, dimension in space.items() if isinstance(dimension, OneOf)}
    least = {key: number for key, number in least.items() if key in choices or not of}
    if unknown := [key for key in least if key not in choices]:
        rule = "should name a choice or change of the space"
        yield from (Problem((place, key), f"{rule}, got {key!r}{nearest(key, choices)}") for key in unknown)
        return
    if (size := math.prod(len(choices[key].options) for key in least)) > _MOST_COMBINATIONS:
        yield Problem((place,), f"should name choices of at most {_MOST_COMBINATIONS} combinations, got {size}")
        return
    combined = combinations(base, space, least)
    for key, option in ((name, option) for name in least for option in choices[name].options):
        if not any(options.get(key) == option for options in combined):
            text = f"no trial has the option {option!r} if all else is as in the base"
            yield Problem((place, key), f"{text}: name the choice that leads to it, too")
    rest_of_base = searching.start_rest == "base"
    tried: list[Options] = [start_values(base, space, s, rest_of_base=rest_of_base) for s in searching.start]
    while options := lacking(combined, least, tried):
        tried.append(options)
    of_population = isinstance(searching.scheduler, PopulationBased) and searching.scheduler.population
    most = of_population or searching.trials
    if most is not None and most < len(tried):
        what = f"the starts and the least number of trials of every option{of}" if least else "the starts"
        trials = ("scheduler", "population") if of_population else ("trials",)
        yield Problem(trials, f"should be at least {len(tried)}, for {what}, got {most}")
