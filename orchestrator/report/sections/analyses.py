"""What the page says of trained weights: a section for each analysis, and the text that they write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import fmean, stdev

from lm.analyzed import CodeErrorsFound, Found, NextWordsFound, RankFound
from lm.data.text import EOS
from lm.samples import as_text, distinct
from lm.spec import Analysis, Generate, unanswerable
from orchestrator.analysis.outcomes import Outcomes
from orchestrator.report.markdown import Row, Rows
from orchestrator.report.pictures import Pictures
from orchestrator.report.pictures.lines import Line, LinePanel, lines_figure
from orchestrator.report.sections.published import RANK, printed_measures
from orchestrator.sweep.published import Measure
from orchestrator.trials.records import Records
from orchestrator.trials.samples import first_trials, writer
from orchestrator.words import significant, spread

Answers = Mapping[str, Sequence[Found]]
"""By variant, what each complete seed's weights say."""


@dataclass(frozen=True)
class AnalysisSection:
    """A section; its rows are means over the seeds that were asked, `missing` are complete trials that were not.

    `contexts` are of next words: a context with what follows, a variant, the most probable words of its first seed that
    was asked; `left_out` are the sweep file's contexts that the text lacks.
    """

    asked: Analysis
    drawn: bool
    variants: Sequence[str]
    rows: Rows
    missing: Sequence[str]
    contexts: Rows
    left_out: Sequence[str]


def analysis_sections(
    outcomes: Outcomes,
    records: Records,
    analyses: Sequence[Analysis],
    measures: Sequence[Measure],
    pictures: Pictures,
) -> list[AnalysisSection]:
    """A section for each analysis that the sweep file asks for and a complete trial can have; draws their pictures."""
    sections = []
    for asked in analyses:
        # A published distance is of the last epoch: the picture of a number's effect has it.
        printed = printed_measures(outcomes, measures, RANK) if asked.kind == "rank" else {}
        answers: dict[str, list[Found]] = {}
        missing = []
        for outcome in outcomes.all:
            if outcome.final and unanswerable(asked, outcome.trial.spec) is None:
                if (found := records.analysis(outcome.trial, asked)) is not None:
                    answers.setdefault(outcome.trial.variant, []).append(found)
                else:
                    missing.append(outcome.trial.title)
        if not answers and not missing:
            continue
        panels = _PICTURES[asked.kind](answers) if answers and asked.kind in _PICTURES else []
        if panels:
            pictures.draw(f"{asked.kind}.svg", lines_figure, panels, outcomes.baseline)
        section = AnalysisSection(
            asked=asked,
            drawn=bool(panels),
            variants=list(answers),
            rows=list(_rows(answers, printed, outcomes)),
            missing=missing,
            contexts=_contexts(answers),
            left_out=[
                *dict.fromkeys(c for found in answers.values() for one in _next_words(found) for c in one.left_out)
            ],
        )
        sections.append(section)
    return sections


def _rows(answers: Answers, printed: Mapping[str, str], outcomes: Outcomes) -> Iterator[Row]:
    """A variant's numbers, means over the seeds that have them with their deviation unless all agree."""
    columns = dict.fromkeys(name for found in answers.values() for each in found for name in each.numbers())
    for variant, found in answers.items():
        row: dict[str, object] = {"Variant": variant}
        for name in columns:
            values = [numbers[name] for each in found if name in (numbers := each.numbers())]
            row[name] = (
                spread(fmean(values), stdev(values)) if len(set(values)) > 1 else _number(values[0]) if values else None
            )
        if printed.keys() & answers.keys():
            row["published"] = printed.get(variant)
        of = len(outcomes[variant])
        yield row | {"Seeds": of if len(found) == of else f"{len(found)} of {of}"}


def _number(value: float) -> str:
    """A count whole, another number with four digits."""
    return f"{value:,.0f}" if value == int(value) else significant(value)


def _spectra(answers: Answers) -> list[LinePanel]:
    lines = []
    for variant, found in answers.items():
        spectra = [dict(one.centred.spectrum) for one in found if isinstance(one, RankFound)]
        places = [place for place in spectra[0] if all(place in spectrum for spectrum in spectra)]
        lines.append(Line.over_seeds(variant, places, [[spectrum[place] for spectrum in spectra] for place in places]))
    return [LinePanel("", "place", "singular value, share of the largest", lines, log_x=True, log_y=True, low=1e-16)]


def _frequent(answers: Answers) -> list[LinePanel]:
    """What each frequent word gets where it does not follow; nothing if the vocabulary has none of them."""
    asked = {variant: [one.probability for one in _next_words(found)] for variant, found in answers.items()}
    words = [*dict.fromkeys(word for seeds in asked.values() for word in seeds[0])]  # a text may lack some of them
    lines = []
    for variant, seeds in asked.items():
        places = [place for place, word in enumerate(words) if word in seeds[0]]
        lines.append(Line.over_seeds(variant, places, [[seed[words[place]] for seed in seeds] for place in places]))
    panel = LinePanel("", "word", "mean probability where it does not follow", lines, low=0.0, ticks=words)
    return [panel] if words else []


def _bits(answers: Answers) -> list[LinePanel]:
    """Error rate by bit, and how many bits fail at a time."""
    rates, counts = [], []
    for variant, found in answers.items():
        seeds = [one for one in found if isinstance(one, CodeErrorsFound)]
        # A search of its own may have given each seed a code of another length.
        by_place = zip_longest(*(seed.wrong_by_bit for seed in seeds))
        by_bit = [[rate for rate in each if rate is not None] for each in by_place]
        rates.append(Line.over_seeds(variant, range(1, len(by_bit) + 1), by_bit))
        shares = [[count / seed.predictions for count in seed.wrong_bits] for seed in seeds]
        by_count = [*zip_longest(*shares, fillvalue=0.0)]
        counts.append(Line.over_seeds(variant, range(len(by_count)), by_count))
    return [
        LinePanel("Error rate by bit", "bit, class bits first", "share of predictions", rates, low=0.0),
        LinePanel("Wrong bits at a time", "wrong bits", "share of predictions", counts, low=0.0),
    ]


_PICTURES: Mapping[str, Callable[[Answers], list[LinePanel]]] = {
    "rank": _spectra,
    "next_words": _frequent,
    "code_errors": _bits,
}
"""By kind, its picture."""


def _next_words(found: Sequence[Found]) -> list[NextWordsFound]:
    return [one for one in found if isinstance(one, NextWordsFound)]


def _contexts(answers: Answers) -> Rows:
    """Every context under every variant, side by side."""
    rows: dict[int, Rows] = {}
    for variant, (first, *_) in answers.items():
        for each in first.contexts if isinstance(first, NextWordsFound) else ():
            words = ", ".join(f"{word} {significant(probability, 2)}" for word, probability in each.words)
            row = {"Context": f"… {each.context} → {each.next}", "Variant": variant, "Next words": words}
            rows.setdefault(each.position, []).append(row)
    return [row for group in rows.values() for row in group]


_NOT_YET = "has no text yet: the next run of the sweep writes it"


@dataclass(frozen=True)
class TextSection:
    """The shares of distinct words; by variant its first seed's first sample, or why there is none."""

    rows: Rows
    samples: dict[str, str]
    missing: dict[str, str]


def text_section(outcomes: Outcomes, records: Records, how: Generate | None) -> TextSection | None:
    """What the page says of texts, none of it of a neural cache; None if the sweep asks for none. Nothing is drawn."""
    if how is None:
        return None
    section = TextSection([], {}, {})
    for trial in first_trials(outcome.trial for outcome in outcomes.all):
        by = writer(trial, records)
        if by is not None and (samples := by.samples(how)) is not None:
            words, pairs = (f"{distinct(samples.texts, length):.3f}" for length in (1, 2))
            section.rows.append({"Variant": trial.variant, "Distinct words": words, "Distinct pairs": pairs})
            name = f"{trial.variant}, seed {trial.seed}, stage {by.stage}"
            section.samples[name] = as_text(samples.texts[0], EOS, how.prompt).lstrip()
        else:
            why = "is not complete" if by is None else _NOT_YET if by.has_weights else "has no weights here"
            section.missing[trial.variant] = f"seed {trial.seed} {why}"
    return section
