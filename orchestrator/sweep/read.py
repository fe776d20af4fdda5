"""From a sweep file to a `Sweep`, or to what is wrong: with its shape first; if that is right, with its meaning."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lm.data import EOS, FEWEST_ROWS, PUBLISHED, UNKNOWN, CorpusError, find, load, token_counts_of, vocabulary_size_of
from lm.data.lookup import check_words
from lm.names import closest, nearest
from lm.spec import Part, TrainSpec, unanswerable, vocabulary_misfits
from lm.validation import Problem, messages, problems_of, shown, unknown_key
from lm.yaml_text import Document, Place, read_document
from orchestrator.sweep.changes import UNCHANGED, Changes
from orchestrator.sweep.override import ABSENT, effective, override, value_at
from orchestrator.sweep.published import rows_of_table
from orchestrator.sweep.scaled import SUBSPACE_MEASURES, TRAIN_START, ScaledSweep, Variant, with_as_many_epochs
from orchestrator.sweep.search_problems import search_problems, searched_paths
from orchestrator.sweep.types import PUBLISHED_SCALE, Sweep, SweepError


def read_sweep(path: Path | str, changes: Changes = UNCHANGED, scale: str = "") -> Sweep:
    """Read a sweep file, with `published/` beside it, and check every scale; SweepError has a line for each problem.

    `changes` are made at `scale`.
    """
    path = Path(path)
    try:
        if path.is_fifo():
            raise SweepError([f"{path}: a pipe can be read only once; write the sweep into a file"])
        document = changes.applied(read_document(path), scale) if changes.words else read_document(path)
        sweep = Sweep.model_validate(document.data)
    except OSError as error:
        raise SweepError([f"{path}: cannot be read: {error.strerror}{_similar_file(path, error)}"]) from error
    except ValidationError as error:
        raise SweepError(messages(problems_of(error, Sweep), document)) from error
    except ValueError as error:
        raise SweepError([str(error)]) from error
    problems = [*_name_problems(sweep), *_published_problems(sweep, path.parent / "published"), *_group_problems(sweep)]
    at_scales: dict[Problem, Problem] = {}  # each thing once; the scale is named if the place does not say it
    for name in sweep.scale_names:
        for problem in _problems_at(sweep, name):
            said = name == PUBLISHED_SCALE or problem.place[0] == "scales"
            named = problem if said else Problem(problem.place, f"{problem.text} (at scale {name})")
            at_scales.setdefault(problem, named)
    problems += at_scales.values()
    if problems := problems or [*_total_problems(sweep)]:
        raise SweepError(messages(problems, document))
    return sweep


def check_vocabularies(sweep: ScaledSweep, path: Path) -> None:
    """SweepError with each cut or batch that its text is too short for, each head that misfits its vocabulary, or what
    of `generate` is not among the words.

    What is said of the base is not said again of variants. CorpusError if a text is missing.
    """
    document, misfits = sweep.changes.applied(read_document(path), sweep.scale_in_file), cache(_misfits_of_text)
    problems, of_base = list(_unknown_words(sweep)), list[tuple[str, str]]()
    at_scale = f" ({sweep.at_scale.strip()})" if sweep.at_scale else ""
    for variant in sweep.variants:
        try:
            of_variant = misfits(variant.spec)
        except CorpusError as error:
            place = _written_place(document, sweep, variant, "corpus.name")
            raise CorpusError(document.message(place, str(error))) from error
        for field, text in of_variant:
            if (field, text) not in of_base:
                problems.append(Problem(_written_place(document, sweep, variant, field), text + at_scale))
        if variant is sweep.baseline:
            of_base = of_variant
    for variant in sweep.variants if TRAIN_START in sweep.varies and not problems else ():
        last = max(sweep.seeds_of(variant), key=sweep.seeds.index)
        try:
            token_counts_of(sweep.spec(variant, last).corpus)
        except CorpusError as error:
            place = ("varies", sweep.varies.index(TRAIN_START))
            text = f"each seed of {variant.name!r} has a stretch of its own; that of the last: {error}"
            problems.append(Problem(place, text))
            break
    if problems:
        raise SweepError(messages(problems, document))


def corpora_to_fetch(sweep: ScaledSweep, path: Path) -> Iterator[str]:
    """A line for each named corpus that is not on this machine, where the file has it; CorpusError for half a one."""
    document = sweep.changes.applied(read_document(path), sweep.scale_in_file)
    for name, variant in {variant.spec.corpus.name: variant for variant in reversed(sweep.variants)}.items():
        if name in PUBLISHED and find(name) is None:
            text = f"not on this machine; `sweep` fetches it, as `python -m lm corpus fetch {name}` does"
            yield document.message(_written_place(document, sweep, variant, "corpus.name"), f"{name!r} is {text}")


def _written_place(document: Document, sweep: ScaledSweep, variant: Variant, field: str) -> Place:
    """Where the file has a field of a variant; of the baseline its scale may have it."""
    of_scale = [("scales", sweep.scale_in_file, "base", field)] if variant is sweep.baseline else []
    return document.first(*of_scale, (*variant.place, field))


def _misfits_of_text(spec: TrainSpec) -> list[tuple[str, str]]:
    """What of a spec does not fit its text, each with the path of its field; CorpusError if the text is missing."""
    try:
        counts, words = token_counts_of(spec.corpus), vocabulary_size_of(spec.corpus)
    except CorpusError as error:
        if error.field == "name":
            raise
        return [(f"corpus.{error.field}", str(error))]
    columns = (
        ("batch_size", "training", spec.batch_size),
        ("scoring.valid_columns", "validation", spec.scoring.valid_columns),
        ("scoring.test_columns", "test", spec.scoring.test_columns),
    )
    return [("head", misfit) for misfit in vocabulary_misfits(spec.head, words)] + [
        (path, f"the {count:,} {text} tokens allow at most {most:,} columns, got {width:,}")
        for (path, text, width), count in zip(columns, counts, strict=True)
        if width > (most := count // FEWEST_ROWS)
    ]


def _unknown_words(sweep: ScaledSweep) -> Iterator[Problem]:
    """A prompt or banned words that a corpus does not have; one that has still to be fetched is not looked at."""
    how = sweep.generate
    if how is None or not (how.prompt or how.ban):
        return
    for variant in {variant.spec.corpus.name: variant for variant in reversed(sweep.variants)}.values():
        if variant.spec.corpus.name in PUBLISHED and not how.prompt and set(how.ban) <= {EOS, UNKNOWN}:
            continue  # each has both: its text need not be read for that
        try:
            check_words(how, load(variant.spec.corpus, download=False).vocabulary)
        except CorpusError:
            continue
        except ValueError as error:
            field, _, text = str(error).partition(": ")
            needless = field == "ban" and text.endswith("of the corpus")  # no similar word is known
            why = "; it can never be drawn, so take it out of the list" if needless else ""
            yield Problem(("generate", field), f"{text}, {variant.spec.corpus.name!r}{why}")


def _similar_file(path: Path, error: OSError) -> str:
    """A hint at the sweep file that has almost this name, in the same folder or in `sweeps/`."""
    folders = (Path("sweeps"), path.parent) if isinstance(error, FileNotFoundError) else ()
    files = {file.stem: file for folder in folders for file in folder.glob("*.yaml")}
    near = closest(path.stem, files)
    return "" if near is None else f" (did you mean {str(files[near])!r}?)"


def _published_problems(sweep: Sweep, folder: Path) -> Iterator[Problem]:
    tables: dict[Place, object] = {("published",): sweep.published}
    tables |= {("scales", name, "published"): scale.published for name, scale in sweep.scales.items()}
    for place, references in tables.items():
        for i, reference in enumerate(references if isinstance(references, tuple) else ()):
            try:
                rows_of_table(reference, folder)
            except ValueError as error:
                yield Problem(place if references == (reference,) else (*place, i), str(error))
                if not folder.is_dir():  # each would say the same
                    return


def _group_problems(sweep: Sweep) -> Iterator[Problem]:
    """Groups that have the name of a component, or a member that does not exist or is in a group already."""
    group_of: dict[str, str] = {}
    for group, members in sweep.groups.items():
        if group in sweep.components:
            yield Problem(("groups", group), f"the name {group!r} is taken by a component")
        for i, member in enumerate(members):
            if member not in sweep.components:
                yield Problem(("groups", group, i), f"unknown component {member!r}{nearest(member, sweep.components)}")
            elif member in group_of:
                yield Problem(("groups", group, i), f"component {member!r} is already in group {group_of[member]!r}")
            group_of.setdefault(member, group)


def _name_problems(sweep: Sweep) -> Iterator[Problem]:
    """Variants of the same name, names that a scale has and the sweep does not, and a seed in the base."""
    if "seed" in sweep.base.model_fields_set:
        yield Problem(("base", "seed"), "no seed in the base: replicates are listed under 'seeds'")
    owners = dict.fromkeys(("unigram model", "uniform model"), "a row of references")
    for variant in sweep.variants_at(PUBLISHED_SCALE):
        if variant.name in owners:
            yield Problem(variant.place, f"the name {variant.name!r} is taken by {owners[variant.name]}")
        removed = " and ".join(map(repr, variant.removed))
        owners[variant.name] = f"the removal of {removed}" if removed else "the base"
    for scale_name, scale in sweep.scales.items():
        for section in ("components", "variants"):
            valid = getattr(sweep, section)
            unknown = [name for name in getattr(scale, section) if name not in valid]
            yield from (unknown_key(("scales", scale_name, section, name), valid) for name in unknown)


def _problems_at(sweep: Sweep, scale_name: str) -> Iterator[Problem]:
    """All that is wrong at a scale: of its base, or else of its variants, and then of what is searched."""
    base, *others = variants = list(sweep.variants_at(scale_name))
    problems, searched = list(base.problems), searched_paths(sweep, scale_name)
    # What is said of the variants of a wrong base, or without what is searched of them, could be wrong, too.
    if not problems and searched is not None:
        problems += _variant_problems(sweep, scale_name, base, others, searched)
        problems += _setting_problems(sweep, scale_name, [variant.spec for variant in variants])
    yield from problems or search_problems(sweep, scale_name, variants)


def _setting_problems(sweep: Sweep, scale_name: str, specs: Sequence[TrainSpec]) -> Iterator[Problem]:
    """What varies with the seed and is nowhere; what no model can be asked; doses that no two specs take."""
    for i, path in enumerate(sweep.varies):
        if all(value_at(spec, path) is ABSENT for spec in specs):
            hints = [problem.text for spec in specs for problem in override(spec, {path: 0})[1]]
            closest = max(hints, key=lambda hint: "did you mean" in hint)
            yield Problem(("varies", i), f"neither the base nor a variant has {path!r}; {closest}")
        if path == TRAIN_START and any(spec.corpus.train_tokens is None for spec in specs):
            part = "base." if specs[0].corpus.train_tokens is None else "in every variant "
            yield Problem(("varies", i), f"{path} needs {part}corpus.train_tokens, the length of each stretch")
    asked = sweep.scale(scale_name).analyses
    place = ("analyses",) if asked is None else ("scales", scale_name, "analyses")
    for i, analysis in enumerate(sweep.analyses if asked is None else asked):
        reasons = [unanswerable(analysis, spec) for spec in specs]
        if None not in reasons:
            yield Problem((*place, i), f"no variant can be asked for {analysis.kind}: {reasons[0]}")
    yield from _dose_problems(sweep, specs)


def _total_problems(sweep: Sweep) -> Iterator[Problem]:
    """A `total` of trials that the first round of seeds alone exceeds; of a file that has no other problem."""
    for name in sweep.scale_names:
        scaled, own = sweep.at(name), sweep.scale(name).seeds
        fewest = scaled.looks[-1] + scaled.looks[0] * (len(scaled.variants) - 1 + scaled.adds_best_found)
        if scaled.most_trials is not None and scaled.most_trials < fewest:
            rule = f"the first round alone has {fewest}: `max` of the baseline and `min` of each variant"
            place = ("scales", name, "seeds") if own else ("seeds",)
            yield Problem((*place, "total"), f"{rule}, got {scaled.most_trials}")


def _dose_problems(sweep: Sweep, specs: Sequence[TrainSpec]) -> Iterator[Problem]:
    """Doses that no two specs take, or that have not what their measure needs."""
    for i, dose in enumerate(sweep.doses):
        having = [spec for spec in specs if _is_number(value_at(spec, dose.of))]
        values = {value_at(spec, dose.of) for spec in having}
        if not values:
            unknown = all(value_at(spec, dose.of) is ABSENT for spec in specs)
            hints = override(specs[0], {dose.of: 0})[1] if unknown else []
            text = "neither the base nor a variant has it" if unknown else "is no number"
            yield Problem(("doses", i, "of"), "; ".join([f"{dose.of!r}: {text}", *(hint.text for hint in hints)]))
        elif len(values) == 1:
            yield Problem(("doses", i, "of"), f"all variants have the same, got {dose.of!r}")
        elif dose.measure == "gate_variation" and any(spec.head.kind != "mixture" for spec in having):
            yield Problem(
                ("doses", i, "measure"), f"{dose.measure} needs head.kind: mixture in all that have {dose.of}"
            )
        elif dose.measure in SUBSPACE_MEASURES and not all("subspace" in spec.epoch_measures for spec in having):
            yield Problem(("doses", i, "measure"), f"{dose.measure} needs base.epoch_measures: [subspace]")


def _variant_problems(
    sweep: Sweep, scale_name: str, base: Variant, others: Sequence[Variant], searched: Collection[str]
) -> Iterator[Problem]:
    """Changes that do not fit the base, contradict each other, or make the spec of another variant."""
    another = "another component that is taken away together with it"
    sound, seen = True, {effective(base.spec): base.name}
    controls = [with_as_many_epochs(variant, base.spec) for variant in others if sweep.equal_budget]
    added = {control.name for control in controls if control}
    for variant in others:
        if len(variant.removed) > 1 and not sound:  # one of its components is wrong
            continue
        problems, overrides = list(variant.problems), variant.overrides
        if variant.name in added:
            problems.append(Problem(variant.place, f"the name {variant.name!r} is taken by what equal_budget adds"))
        problems += [
            Problem((*place, key), f"writes {shown(value)}, but {another} writes {shown(overrides[key])}")
            for place, off in (sweep.off(scale_name, name) for name in variant.removed)
            for key, value in off.items()
            if len(variant.removed) > 1 and overrides[key] != value
        ]
        # What a change of a searched value comes to is known when the search is over.
        pairs = [(f"{key}.", f"{path}.") for key in overrides for path in searched]
        is_open = any(key.startswith(path) or path.startswith(key) for key, path in pairs)
        is_unsure = problems or is_open or variant.name == base.name  # `_name_problems` says that the name is taken
        same = None if is_unsure else seen.setdefault(effective(variant.spec), variant.name)
        if same == base.name:
            problems.append(Problem(variant.place, f"changes nothing: {_why_nothing(overrides, base.spec)}"))
        elif same not in (None, variant.name):
            problems.append(Problem(variant.place, f"{variant.name!r} is the same spec as {same!r}"))
        yield from problems
        sound = sound and not problems


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _why_nothing(overrides: Mapping[str, Any], base: TrainSpec) -> str:
    """Why a variant's spec is the base's, or comes to the same."""
    if not overrides:
        return "it has no overrides"
    values = {key: value_at(base, key) for key in overrides}
    of_base = {key: value.model_dump() if isinstance(value, Part) else value for key, value in values.items()}
    other = {key: v for key, v in overrides.items() if v != of_base[key] and not isinstance(v, Mapping | list)}
    if other:
        return f"{_assigned(other)} makes no difference to this base"
    return f"the base already has {_assigned(of_base)}"


def _assigned(values: Mapping[str, object]) -> str:
    return ", ".join(f"{key} = {shown(value)}" for key, value in values.items())
