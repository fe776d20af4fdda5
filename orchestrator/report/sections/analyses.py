"""What the page says of trained weights: a section for each analysis, with a picture and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import assert_never

from lm.analyzed import CodeErrorsFound, Found, NextWordsFound, RankFound, trained_stage
from lm.record import weights_path
from lm.spec import (
    Analysis,
    CodeErrorsAnalysis,
    NextWordsAnalysis,
    RankAnalysis,
    SubspaceAnalysis,
    unanswerable,
)
from orchestrator.analysis.outcomes import Outcomes
from orchestrator.report.markdown import names
from orchestrator.report.pictures import Pictures
from orchestrator.report.pictures.lines import Line, LinePanel, Lines, lines_figure
from orchestrator.sweep.published import Measure
from orchestrator.trials.records import Records
from orchestrator.words import NOTHING, Markdown, counted, escape, significant, spread

Answers = Mapping[str, Sequence[Found]]
"""By variant, what each complete seed's weights say."""


PRINTED_METRICS = {"rank": "rank", "subspace": "subspace_distance"}
"""What published numbers call the first number of an analysis."""


@dataclass(frozen=True)
class AnalysisRow:
    """A variant's numbers, means over the seeds that were asked."""

    variant: str
    cells: list[str]
    answered: int
    seeds: int


@dataclass(frozen=True)
class AnalysisSection:
    """A section; `file` is its picture, None without one, `missing` which trials were not asked and why, if any.

    `contexts` are of next words: a context with what follows, a variant, its first seed's most probable words.
    """

    title: str
    introduction: Markdown
    file: str | None
    alt: Markdown
    caption: Markdown
    columns: Sequence[str]
    rows: Sequence[AnalysisRow]
    missing: Markdown
    contexts: Sequence[tuple[str, str, str]]


def analysis_sections(
    outcomes: Outcomes,
    records: Records,
    analyses: Sequence[Analysis],
    measures: Sequence[Measure],
    pictures: Pictures,
) -> list[AnalysisSection]:
    """A section for each analysis that the sweep file asks for, in its order; draws their pictures."""
    sections = []
    for asked in analyses:
        metric = PRINTED_METRICS.get(asked.kind)
        printed = {measure.variant: measure.value for measure in measures if measure.metric == metric}
        sections.append(_section(asked, outcomes, records, printed, pictures))
    return sections


def _section(
    asked: Analysis,
    outcomes: Outcomes,
    records: Records,
    printed: Mapping[str | None, float],
    pictures: Pictures,
) -> AnalysisSection:
    answers: dict[str, list[Found]] = {}
    gone, unasked = list[str](), list[str]()
    for outcome in outcomes.all:
        trial = outcome.trial
        if outcome.final is None or outcome.record is None or unanswerable(asked, trial.spec) is not None:
            continue
        if (found := records.analysis(trial, asked)) is not None:
            answers.setdefault(trial.variant, []).append(found)
        else:
            folder = records.folder(records.holder(trial))
            (unasked if weights_path(folder, trained_stage(outcome.record)).exists() else gone).append(trial.title)
    columns = list(dict.fromkeys(name for found in answers.values() for one in found for name in one.numbers()))
    rows = [
        AnalysisRow(variant, [_cell(found, name) for name in columns], len(found), len(outcomes[variant]))
        for variant, found in answers.items()
    ]
    if printed.keys() & answers.keys():
        columns.append("published")
        for row in rows:
            row.cells.append(_number(printed.get(row.variant)))
    title, introduction = _words(asked)
    lines = _picture(asked, answers, outcomes.baseline) if answers else None
    if lines is not None:
        pictures.draw(lines.FILE, lines_figure, lines.panels, lines.baseline)
    return AnalysisSection(
        title=title,
        introduction=Markdown(introduction),
        file=None if lines is None else lines.FILE,
        alt=Markdown(f"{title} of {names(answers)}"),
        caption=Markdown("" if lines is None else lines.caption),
        columns=columns,
        rows=rows,
        missing=_missing(asked.kind, gone, unasked),
        contexts=_contexts(answers),
    )


def _missing(kind: str, gone: Sequence[str], unasked: Sequence[str]) -> Markdown:
    """Which complete trials have no answer: nothing can be said of weights that are gone."""
    sentences = []
    for titles, why in (
        (gone, "whose weights are gone and were not asked before"),
        (unasked, f"whose weights were not asked yet: `sweep` does, or `python -m lm analyze {kind} RUN`"),
    ):
        if titles:
            shown = escape("; ".join(titles[:3])) + ("; …" if len(titles) > 3 else "")
            sentences.append(f"Without {counted(len(titles), 'trial')} ({shown}), {why}.")
    return Markdown(" ".join(sentences))


def _cell(found: Sequence[Found], name: str) -> str:
    """A number's mean over the seeds that have it, with their deviation unless all agree."""
    values = [numbers[name] for one in found if name in (numbers := one.numbers())]
    if not values:
        return NOTHING
    if len(set(values)) > 1:
        return spread(fmean(values), stdev(values))
    return _number(values[0])


def _number(value: float | None) -> str:
    """A count whole, another number with four digits."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if value == int(value) else significant(value)


def _words(asked: Analysis) -> tuple[str, str]:
    """A section's title, and what its numbers are."""
    match asked:
        case RankAnalysis():
            return "Rank of the log-probabilities", (
                f"Of the matrix with a row for each of the first predictions of {_text(asked.split)} (at most "
                f"{asked.positions:,}) and a column a word, the head computed in float64, each row less its mean: how "
                "many singular values are not zero. `rank` counts what float64 can tell from zero, the others what "
                "exceeds a share of the largest: full rank by the first alone may be rounding. One softmax cannot pass "
                "its bound; a mixture can (Takase et al. 2018, Table 5)."
            )
        case NextWordsAnalysis():
            return "Next words", (
                f"Of every prediction of {_text(asked.split)}: the mean probability of some frequent words where they "
                "do not follow, and of the ten words most like the one that follows, by the model's own embedding and "
                "by the co-occurrences of the training text (Inan et al. 2016, Table 4: an embedding that is reused "
                "should bring less of the first and more of the second)."
            )
        case CodeErrorsAnalysis():
            return "Errors of the codes", (
                f"Of every prediction of {_text(asked.split)}: how many bits are wrong, and how often the word. "
                "Uncorrected, one wrong bit is a wrong word; corrected, the nearest codeword is taken; by probability, "
                "the word that all logits make most probable. A span, of codes that have them, is read off the class "
                "bits alone."
            )
        case SubspaceAnalysis():
            return "Distance of the output matrix from the embedding", (
                "Between the spaces that their columns span: 0 the same space, 1 orthogonal (Inan et al. 2016, "
                "appendix B); of the weights that validation chose."
            )
        case _:
            assert_never(asked)


def _text(split: str) -> str:
    return "the test text" if split == "test" else "the validation text"


def _picture(asked: Analysis, answers: Answers, baseline: str) -> Lines | None:
    match asked:
        case RankAnalysis():
            return _spectra(answers, baseline)
        case CodeErrorsAnalysis():
            return _bits(answers, baseline)
        case NextWordsAnalysis():
            return _frequent(answers, baseline)
        case SubspaceAnalysis():
            return None
        case _:
            assert_never(asked)


def _spectra(answers: Answers, baseline: str) -> Lines:
    lines = []
    for variant, found in answers.items():
        spectra = [dict(one.centred.spectrum) for one in found if isinstance(one, RankFound)]
        places = [place for place in spectra[0] if all(place in spectrum for spectrum in spectra)]
        lines.append(Line.over_seeds(variant, places, [[spectrum[place] for place in places] for spectrum in spectra]))
    panel = LinePanel("", "place", "singular value, share of the largest", lines, log_x=True, log_y=True, low=1e-16)
    caption = "Singular values of the centred matrix, largest first: the mean, lowest and highest of the seeds."
    return Lines("rank.svg", [panel], baseline, caption)


def _frequent(answers: Answers, baseline: str) -> Lines | None:
    """What each frequent word gets where it does not follow; None if the vocabulary has none of them."""
    lines, words = [], list[str]()
    for variant, found in answers.items():
        seeds = [one.probability for one in found if isinstance(one, NextWordsFound)]
        words = list(seeds[0])
        lines.append(Line.over_seeds(variant, range(len(words)), [[seed[word] for word in words] for seed in seeds]))
    panel = LinePanel("", "word", "mean probability where it does not follow", lines, low=0.0, ticks=words)
    caption = "A point is the mean of the seeds, the bar reaches from the lowest to the highest."
    return Lines("next_words.svg", [panel], baseline, caption) if words else None


def _bits(answers: Answers, baseline: str) -> Lines:
    """Error rate by bit, and how many bits fail at a time."""
    rates, counts = [], []
    for variant, found in answers.items():
        seeds = [one for one in found if isinstance(one, CodeErrorsFound)]
        places = range(1, seeds[0].bits + 1)
        rates.append(Line.over_seeds(variant, places, [seed.wrong_by_bit for seed in seeds]))
        most = max(len(seed.wrong_bits) for seed in seeds)
        shares = [[*(count / seed.predictions for count in seed.wrong_bits), *[0.0] * most] for seed in seeds]
        counts.append(Line.over_seeds(variant, range(most), [share[:most] for share in shares]))
    panels = [
        LinePanel("Error rate by bit", "bit, class bits first", "share of predictions", rates, low=0.0),
        LinePanel("Wrong bits at a time", "wrong bits", "share of predictions", counts, low=0.0),
    ]
    return Lines("code_errors.svg", panels, baseline, "The mean of the seeds, and their range.")


def _contexts(answers: Answers) -> list[tuple[str, str, str]]:
    """Every context under every variant, side by side."""
    rows: dict[int, list[tuple[str, str, str]]] = {}
    for variant, (first, *_) in answers.items():
        for each in first.contexts if isinstance(first, NextWordsFound) else ():
            words = ", ".join(f"{word} {significant(probability, 2)}" for word, probability in each.words)
            rows.setdefault(each.position, []).append((f"… {each.context} → {each.next}", variant, words))
    return [row for group in rows.values() for row in group]
