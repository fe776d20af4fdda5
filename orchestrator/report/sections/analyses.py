"""What the page says of trained weights: a section for each analysis, with a picture and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import assert_never

from lm.analyzed import Found, RankFound, trained_stage
from lm.record import weights_path
from lm.spec import Analysis, RankAnalysis, SubspaceAnalysis, unanswerable
from orchestrator.analysis.outcomes import Outcomes
from orchestrator.report.markdown import names
from orchestrator.report.pictures import Pictures
from orchestrator.report.pictures.figures import Line, LinePanel, Lines
from orchestrator.trials.records import Records
from orchestrator.words import NOTHING, Markdown, counted, escape, significant, spread

Answers = Mapping[str, Sequence[Found]]
"""By variant, what each complete seed's weights say."""


@dataclass(frozen=True)
class AnalysisRow:
    """A variant's numbers, means over the seeds that were asked."""

    variant: str
    cells: Sequence[str]
    answered: int
    seeds: int


@dataclass(frozen=True)
class AnalysisSection:
    """A section; `file` is its picture, None without one, `missing` which trials were not asked and why, if any."""

    title: str
    introduction: Markdown
    file: str | None
    alt: Markdown
    caption: Markdown
    columns: Sequence[str]
    rows: Sequence[AnalysisRow]
    missing: Markdown


def analysis_sections(
    outcomes: Outcomes, records: Records, analyses: Sequence[Analysis], pictures: Pictures
) -> list[AnalysisSection]:
    """A section for each analysis that the sweep file asks for, in its order; draws their pictures."""
    return [_section(asked, outcomes, records, pictures) for asked in analyses]


def _section(asked: Analysis, outcomes: Outcomes, records: Records, pictures: Pictures) -> AnalysisSection:
    answers: dict[str, list[Found]] = {}
    gone, unasked = list[str](), list[str]()
    for outcome in outcomes.all:
        trial = outcome.trial
        if outcome.final is None or unanswerable(asked, trial.spec) is not None:
            continue
        if (found := records.analysis(trial, asked)) is not None:
            answers.setdefault(trial.variant, []).append(found)
        else:
            folder = records.folder(records.holder(trial))
            (unasked if weights_path(folder, trained_stage(trial.spec)).exists() else gone).append(trial.title)
    columns = list(dict.fromkeys(name for found in answers.values() for one in found for name in one.numbers()))
    rows = [
        AnalysisRow(variant, [_cell(found, name) for name in columns], len(found), len(outcomes[variant]))
        for variant, found in answers.items()
    ]
    title, introduction = _words(asked)
    lines = _picture(asked, answers, outcomes.baseline) if answers else None
    if lines is not None:
        pictures.draw(asked.kind, lines)
    return AnalysisSection(
        title=title,
        introduction=Markdown(introduction),
        file=None if lines is None else lines.FILE,
        alt=Markdown(f"{title} of {names(answers)}"),
        caption=Markdown("" if lines is None else lines.caption),
        columns=columns,
        rows=rows,
        missing=_missing(asked.kind, gone, unasked),
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
    return f"{values[0]:,.0f}" if values[0] == int(values[0]) else significant(values[0])


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
