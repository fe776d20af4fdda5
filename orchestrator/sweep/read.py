"""From a sweep file to a `Sweep`, or to what is wrong: with its shape first; if that is right, with its meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lm.data import EOS, FEWEST_ROWS, PUBLISHED, UNKNOWN, CorpusError, find, load, token_counts_of, vocabulary_size_of
from lm.data.lookup import check_words
from lm.names import closest, nearest
from lm.spec import Corpus, Part, TrainSpec, unanswerable, vocabulary_misfits
from lm.validation import Problem, messages, problems_of, shown, unknown_key
from lm.yaml_text import Document, Place, read_document
from orchestrator.sweep.changes import UNCHANGED, Changes
from orchestrator.sweep.override import ABSENT, effective, override, value_at
from orchestrator.sweep.published import published_table
from orchestrator.sweep.scaled import TRAIN_START, ScaledSweep
from orchestrator.sweep.search_problems import search_problems, searched_paths
from orchestrator.sweep.types import PUBLISHED_SCALE, Sweep, SweepError


def read_sweep(path: Path | str, changes: Changes = UNCHANGED, scale: str = "") -> Sweep:
    """Read a sweep file, with `published/` beside it, and check every scale; SweepError has a line for each problem.

    `changes` are made at `scale`.
    """
    path = Path(path)
    try:
        document = changes.applied(read_document(path), scale) if changes.words else read_document(path)
        sweep = Sweep.model_validate(document.data)
    except OSError as error:
        raise SweepError([f"{path}: cannot be read: {error.strerror}{_similar_file(path, error)}"]) from error
    except ValidationError as error:
        raise SweepError(messages(problems_of(error, Sweep), document)) from error
    except ValueError as error:
        raise SweepError([str(error)]) from error
    problems = [*_name_problems(sweep), *_published_problems(sweep, path.parent / "published"), *_group_problems(sweep)]
    problems += _at_every_scale(sweep, _variant_problems)
    problems += _at_every_scale(sweep, _varied_problems)
    problems += _at_every_scale(sweep, _analysis_problems)
    if problems := problems or list(_at_every_scale(sweep, search_problems)):
        raise SweepError(messages(problems, document))
    return sweep


def check_vocabularies(sweep: ScaledSweep, path: Path, changes: Changes = UNCHANGED) -> None:
    """SweepError with each cut or batch that its text is too short for, each head that misfits its vocabulary, or what
    of `generate` is not among the words.

    Of the base each is said once. CorpusError if a text is missing.
    """
    scale, base = sweep.scale.partition("+")[0], sweep.baseline.spec
    document = changes.applied(read_document(path), scale)
    sizes, problems = dict[Corpus, int](), list[Problem]()
    for variant in sweep.variants:
        try:
            if variant.spec.corpus not in sizes:
                sizes[variant.spec.corpus] = vocabulary_size_of(variant.spec.corpus)
        except CorpusError as error:
            if error.field == "name":
                place = _written_place(document, variant.place, scale, "corpus.name")
                raise CorpusError(document.message(place, str(error))) from error
            if variant is sweep.baseline or variant.spec.corpus != base.corpus:
                place = _written_place(document, variant.place, scale, f"corpus.{error.field}")
                problems.append(Problem(place, f"{error}{_said(sweep)}"))
    problems = problems or [
        Problem((*variant.place, "head"), f"{misfit}{_said(sweep)}")
        for variant in sweep.variants
        if variant is sweep.baseline or (variant.spec.head, variant.spec.corpus) != (base.head, base.corpus)
        for misfit in vocabulary_misfits(variant.spec.head, sizes[variant.spec.corpus])
    ]
    if problems := problems or [*_texts_too_short(sweep, document), *_unknown_words(sweep)]:
        raise SweepError(messages(problems, document))


def corpora_to_fetch(sweep: ScaledSweep, path: Path, changes: Changes = UNCHANGED) -> Iterator[str]:
    """A line for each named corpus that is not on this machine, where the file has it; CorpusError for half a one."""
    document = changes.applied(read_document(path), scale := sweep.scale.partition("+")[0])
    for name, variant in {variant.spec.corpus.name: variant for variant in reversed(sweep.variants)}.items():
        if name in PUBLISHED and find(name) is None:
            text = f"not on this machine; `sweep` fetches it, as `python -m lm corpus fetch {name}` does"
            yield document.message(_written_place(document, variant.place, scale, "corpus.name"), f"{name!r} is {text}")


def _texts_too_short(sweep: ScaledSweep, document: Document) -> Iterator[Problem]:
    """Batches and columns that a text is too short for, which training would find out; of the base each once."""
    scale, base = sweep.scale.partition("+")[0], sweep.baseline.spec
    for variant in sweep.variants:
        spec, texts = variant.spec, ("training", "validation", "test")
        for (path, width), text, tokens in zip(_widths(spec), texts, token_counts_of(spec.corpus), strict=True):
            is_own = variant is sweep.baseline or spec.corpus != base.corpus or (path, width) not in _widths(base)
            if is_own and tokens // width < FEWEST_ROWS:
                most = f"the {tokens:,} {text} tokens allow at most {tokens // FEWEST_ROWS:,} columns"
                place = _written_place(document, variant.place, scale, path)
                yield Problem(place, f"{most}, got {width:,}{_said(sweep)}")


def _said(sweep: ScaledSweep) -> str:
    return f" ({sweep.at_scale.strip()})" if sweep.at_scale else ""


def _widths(spec: TrainSpec) -> tuple[tuple[str, int], ...]:
    """The columns that the training, validation and test texts are cut into, each with its path."""
    scoring = spec.scoring
    return (
        ("batch_size", spec.batch_size),
        ("scoring.valid_columns", scoring.valid_columns),
        ("scoring.test_columns", scoring.test_columns),
    )


def _unknown_words(sweep: ScaledSweep) -> Iterator[Problem]:
    """A prompt or banned words that a corpus does not have; one that has still to be fetched is not looked at."""
    how = sweep.generate
    if how is None or not (how.prompt or how.ban):
        return
    for variant in {variant.spec.corpus.name: variant for variant in reversed(sweep.variants)}.values():
        if variant.spec.corpus.name in PUBLISHED and not how.prompt and set(how.ban) <= {EOS, UNKNOWN}:
            continue  # each has both: its text need not be read for that
        try:
            vocabulary = load(variant.spec.corpus, download=False).vocabulary
        except CorpusError:
            continue
        try:
            check_words(how, vocabulary)
        except ValueError as error:
            field, _, text = str(error).partition(": ")
            yield Problem(("generate", field), f"{text}, {variant.spec.corpus.name!r}")


def _written_place(document: Document, variant: Place, scale: str, path: str) -> Place:
    """Where a field of a variant's spec is written; the base's at the scale, if this replaces it."""
    at_scale = ("scales", scale, "base")
    places = [(*above, *keys) for above in (variant, at_scale) for keys in ((path,), tuple(path.split(".")))]

    def is_written(place: Place) -> bool:
        data: Any = document.data
        for key in place:
            data = data.get(key) if isinstance(data, dict) else None
        return data is not None

    ordered = [*places[2:], places[1]] if variant == ("base",) else places[:2]
    return next(filter(is_written, ordered), ordered[-1])


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
                published_table(reference, folder)
            except ValueError as error:
                yield Problem(place if references == (reference,) else (*place, i), str(error))


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
    owners = {sweep.baseline: "the base"}
    for change in sweep.changes(PUBLISHED_SCALE):
        if change.variant in owners:
            yield Problem(change.place, f"the name {change.variant!r} is taken by {owners[change.variant]}")
        owners[change.variant] = f"the removal of {' and '.join(repr(part.variant) for part in change.removed)}"
    for scale_name, scale in sweep.scales.items():
        for section in ("components", "variants"):
            valid = getattr(sweep, section)
            unknown = [name for name in getattr(scale, section) if name not in valid]
            yield from (unknown_key(("scales", scale_name, section, name), valid) for name in unknown)


def _at_every_scale(sweep: Sweep, check: Callable[[Sweep, str], Iterable[Problem]]) -> Iterator[Problem]:
    """What is wrong at any scale, each thing once; the scale is named if the place does not say it."""
    seen: set[Problem] = set()
    for scale_name in sweep.scale_names:
        for problem in check(sweep, scale_name):
            if problem not in seen:
                seen.add(problem)
                named = scale_name == PUBLISHED_SCALE or problem.place[0] == "scales"
                yield Problem(problem.place, problem.text + ("" if named else f" (at scale {scale_name})"))


def _varied_problems(sweep: Sweep, scale_name: str) -> Iterator[Problem]:
    """What varies with the seed and is not there, and a stretch of the training text without a length."""
    base, wrong = override(sweep.base, sweep.scale(scale_name).base)
    specs = [base, *(override(base, change.overrides)[0] for change in sweep.changes(scale_name))]
    for i, path in enumerate(() if wrong else sweep.varies):
        if all(value_at(spec, path) is ABSENT for spec in specs):
            yield Problem(("varies", i), f"neither the base nor a variant has {path!r}")
        if path == TRAIN_START and base.corpus.train_tokens is None:
            yield Problem(("varies", i), f"{path} needs base.corpus.train_tokens, the length of each stretch")


def _analysis_problems(sweep: Sweep, scale_name: str) -> Iterator[Problem]:
    """Analyses that no variant's model can be asked, with what is said of the base; doses that no two variants take."""
    base, wrong = override(sweep.base, sweep.scale(scale_name).base)
    specs = [base, *(override(base, change.overrides)[0] for change in sweep.changes(scale_name))]
    asked = sweep.scale(scale_name).analyses
    place = ("analyses",) if asked is None else ("scales", scale_name, "analyses")
    for i, analysis in enumerate(() if wrong else sweep.analyses if asked is None else asked):
        reasons = [unanswerable(analysis, spec) for spec in specs]
        if None not in reasons:
            yield Problem((*place, i), f"no variant can be asked for {analysis.kind}: {reasons[0]}")
    for i, dose in enumerate(() if wrong else sweep.doses):
        values = {value for spec in specs if isinstance(value := value_at(spec, dose.of), int | float)}
        if len(values) < 2:
            text = "neither the base nor a variant has this number" if not values else "all variants have the same"
            yield Problem(("doses", i, "of"), f"{text}, got {dose.of!r}")
        elif dose.measure != "test_perplexity" and not all("subspace" in spec.epoch_measures for spec in specs):
            yield Problem(("doses", i, "measure"), f"{dose.measure} needs base.epoch_measures: [subspace]")


def _variant_problems(sweep: Sweep, scale_name: str) -> Iterator[Problem]:
    """Changes that do not fit the base, contradict each other, or make the spec of another variant."""
    base, wrong = override(sweep.base, sweep.scale(scale_name).base)
    if wrong:  # what is said of the variants of a wrong base could be wrong, too
        yield from (problem.under("scales", scale_name, "base") for problem in wrong)
        return
    another = "another component that is taken away together with it"
    sound = True
    seen = {effective(base): sweep.baseline}
    searched = searched_paths(sweep, scale_name)
    for change in sweep.changes(scale_name):
        if len(change.removed) > 1 and not sound:  # one of its components is wrong
            continue
        spec, wrong = override(base, change.overrides)
        place_of = {key: part.place for part in change.removed for key in part.overrides}
        problems = [problem.under(*place_of.get(str(problem.place[0]), change.place)) for problem in wrong]
        problems += [
            Problem((*part.place, key), f"writes {shown(value)}, but {another} writes {shown(written)}")
            for part in change.removed
            for key, value in part.overrides.items()
            if (written := change.overrides[key]) != value
        ]
        # What a change of a searched value comes to is known when the search is over.
        pairs = [(f"{key}.", f"{path}.") for key in change.overrides for path in searched]
        is_open = any(key.startswith(path) or path.startswith(key) for key, path in pairs)
        same = None if problems or is_open else seen.setdefault(effective(spec), change.variant)
        if same == sweep.baseline:
            values = {key: value_at(base, key) for key in change.overrides}
            texts = (f"{key} = {shown(v.model_dump() if isinstance(v, Part) else v)}" for key, v in values.items())
            already = f"the base already has {', '.join(texts)}" if values else "it has no overrides"
            problems.append(Problem(change.place, f"changes nothing: {already}"))
        elif same not in (None, change.variant):
            problems.append(Problem(change.place, f"{change.variant!r} is the same spec as {same!r}"))
        yield from problems
        sound = sound and not problems
