"""The report of a sweep: one Markdown page and the files beside it, a pure function of plan and records."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from lm.files import write_text
from orchestrator.analysis.comparison import (
    compare_variants,
    equal_variants,
    guesses,
    possibly_best,
    reference_corpus,
    untrained,
)
from orchestrator.analysis.effects import Comparison
from orchestrator.analysis.looks import Looks
from orchestrator.analysis.outcomes import Outcomes
from orchestrator.report.files.folder import (
    PAGE,
    IfFuller,
    Report,
    Summary,
    place_for,
    remove_contained,
    staged,
    write_summary,
)
from orchestrator.report.files.tables import write_tables
from orchestrator.report.html import HoverCurves, hover_curves, write_html
from orchestrator.report.markdown import plain, template
from orchestrator.report.pictures import Pictures, save
from orchestrator.report.sections import ablation, answer, tables
from orchestrator.report.sections.analyses import analysis_sections, text_section
from orchestrator.report.sections.differences import picture_section, word_section
from orchestrator.report.sections.doses import dose_clauses, dose_sections
from orchestrator.report.sections.heads import head_section
from orchestrator.report.sections.interactions import InteractionRow, Interactions, interaction_section
from orchestrator.report.sections.method_notes import method_notes
from orchestrator.report.sections.published import measure_table, published_line, published_notes, published_table
from orchestrator.report.sections.search import hardly_chosen, search_section, trials_of_tuning
from orchestrator.report.sections.search_pictures import front_clause
from orchestrator.report.sections.verdicts import in_percent, level_in_words, verdict_in_words
from orchestrator.search.ledger import SearchState
from orchestrator.sweep import ScaledSweep
from orchestrator.sweep.published import Measure, Published
from orchestrator.trials.plan import overrides
from orchestrator.trials.records import Records
from orchestrator.words import Markdown

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReportInput:
    """All that a report is made of.

    `published_note` says whose the published numbers are, `published_measures` are those of other metrics than
    perplexity. `looks`: when comparisons were judged. `command` is the line that makes the sweep again.
    """

    sweep: ScaledSweep
    outcomes: Outcomes
    records: Records
    published: Mapping[str, Published]
    published_note: str
    command: str
    looks: Looks = field(default_factory=Looks)
    searches: Sequence[SearchState] = ()
    published_measures: Sequence[Measure] = ()

    @property
    def error(self) -> float:
        """How often a verdict of this page may be wrong."""
        return self.looks.error(self.outcomes.seeds)

    @property
    def dose_clauses(self) -> list[Markdown]:
        """What the answer says of other measures than perplexity; each has an interval."""
        return dose_clauses(self.outcomes, self.sweep.doses, self.error)


def write_report(
    report: ReportInput, folder: Path | str, *, if_fuller: IfFuller = "replace", draw: Callable[..., None] = save
) -> Report:
    """Write `report.md` and what belongs beside it into `folder`: pictures, HTML, CSV, LaTeX, curves, summary.

    All files take their place together at the end; a report beside it whose trials it has is removed. FullerPageError
    if `if_fuller` is "refuse" and an earlier report has trials that this one would lack. WriteError if something
    cannot be written. The same plan and records give the same bytes.
    """
    folder, outcomes, sweep, error = Path(folder), report.outcomes, report.sweep, report.error
    searching = {name for search in report.searches if not search.ended for name in search.task.variants} - {*outcomes}
    comparison = compare_variants(outcomes, error, sweep.margin, len(searching))
    rows = ablation.ablation_table(outcomes, comparison, report.published, sweep.ablation)
    references = ablation.reference_rows(outcomes)
    never = {name for search in report.searches if search.ended for name in search.task.variants} - {*outcomes}
    interactions = interaction_section(outcomes, sweep.ablation, error, left_out=never)
    best = () if sweep.ablation.factors else possibly_best(outcomes, error, len(searching))
    sentence = _answer(report, rows, comparison, interactions.rows, best)
    short = _summary(report, plain(sentence), rows)
    place, why_beside = place_for(folder, short, outcomes, if_fuller)
    title = f"{sweep.name}, scale {sweep.named_scale}" if sweep.named_scale else sweep.name
    caption = f"{title}, changes of test perplexity"
    if comparison is not None and comparison.noise:
        at_once = " (all at once)" if comparison.family_size > 1 else ""
        caption += f" with {level_in_words(comparison)} intervals{at_once}"
    with staged(place) as staging:
        pictures = Pictures(staging, draw)
        text = _text(report, sentence, comparison, rows, references, interactions, pictures)
        write_tables(staging, outcomes, rows, references, interactions.rows, report.searches, sweep.margin, caption)
        write_html(staging, text, _hover_curves(outcomes))
        write_text(staging / PAGE, text)
        write_summary(staging, short)
    remove_contained(folder, place, short, outcomes)
    changes = _in_percent(rows)
    judges = bool(changes or report.dose_clauses or any(row.effect.interval for row in interactions.rows))
    return Report(place / PAGE, short.answer, short.verdicts, why_beside, not pictures.missing, changes, judges)


def _hover_curves(outcomes: Outcomes) -> HoverCurves | None:
    """The curves of `report.html`, which goes without them if they cannot be made, as the page without a picture."""
    try:
        return hover_curves(outcomes)
    except Exception:
        _log.warning("report.html is written without curves that can be hovered", exc_info=True)
        return None


def _text(
    report: ReportInput,
    sentence: Markdown,
    comparison: Comparison | None,
    rows: Sequence[ablation.AblationRow],
    references: Sequence[ablation.ReferenceRow],
    interactions: Interactions,
    pictures: Pictures,
) -> str:
    """The page's Markdown, its pictures drawn; its answer is the `sentence`."""
    sweep, outcomes, records, measures = report.sweep, report.outcomes, report.records, report.published_measures
    at_papers_scale = sweep.published_scale
    base = outcomes.of_baseline[0].trial.spec
    line = published_line(report.published, outcomes.baseline) if at_papers_scale else None
    searched_once = any(search.task.seed is None and search.ended and search.best for search in report.searches)
    return template("page.md.jinja").render(
        report=report,
        sweep=sweep,
        answer=sentence,
        comparison=comparison,
        level=level_in_words(comparison),
        rows=rows,
        results=ablation.distinct_rows(rows, equal_variants(outcomes)),
        references=references,
        notes=method_notes(outcomes, comparison, rows, sweep.varies, searched=searched_once),
        published=published_table(rows, at_papers_scale),
        published_notes=published_notes(rows, report.published) if at_papers_scale else (),
        measured=list(measure_table(outcomes, measures)),
        caches=list(tables.cache_table(outcomes)),
        stages=list(tables.stage_table(outcomes)),
        ensembles=list(tables.ensemble_table(outcomes, records)),
        interactions=interactions,
        differences=picture_section(outcomes, rows, comparison, pictures, line),
        heads=head_section(outcomes, pictures),
        words=word_section(outcomes, records, rows, measures, pictures),
        search=search_section(report.searches, pictures),
        texts=text_section(outcomes, records, sweep.generate),
        doses=dose_sections(outcomes, sweep.doses, measures, report.published, pictures),
        analyses=analysis_sections(outcomes, records, sweep.analyses, measures, pictures),
        fits=list(tables.fit_table(outcomes)),
        costs=list(tables.cost_table(outcomes)),
        other_budgets=tables.other_budgets(outcomes),
        devices=sorted({record.device for seeds in tables.trained(outcomes).values() for record in seeds}),
        untrained=untrained(outcomes.all),
        found_by_seed=any(search.task.seed is not None for search in report.searches),
        provenance=tables.provenance(outcomes, sweep.named_scale, report.searches, records),
        picture=pictures.on_page,
        base=base,
        base_spec=base.model_dump(mode="json", exclude={"seed"}),
        variant_specs=_changes(outcomes),
    )


def _answer(
    report: ReportInput,
    rows: Sequence[ablation.AblationRow],
    comparison: Comparison | None,
    interactions: Sequence[InteractionRow],
    best: Sequence[str],
) -> Markdown:
    """The answer; the baseline stands beside the paper's number at the paper's own scale alone."""
    sweep, searches, outcomes = report.sweep, report.searches, report.outcomes
    corpus = reference_corpus(outcomes.all)
    guess = None if corpus is None else guesses(corpus, "valid")[0]
    measured = [*filter(None, [front_clause(searches, guess)]), *report.dose_clauses]
    return answer.answer(
        rows,
        comparison,
        sweep.named_scale,
        tuning=trials_of_tuning(searches, list(outcomes)),
        hardly_chosen=hardly_chosen(searches),
        interactions=interactions,
        best=best,
        published=rows[0].published_test if sweep.published_scale else None,
        measured=measured,
        untuned=list(dict.fromkeys(s.task.variant for s in searches if s.ended and s.best is None)),
    )


def _summary(report: ReportInput, answer: str, rows: Sequence[ablation.AblationRow]) -> Summary:
    """What the report says in short: its answer, and the bare verdict on every variant, even if seeds are missing."""
    sweep, trials = report.sweep, report.outcomes.all
    ends = [outcome.record.finished_at for outcome in trials if outcome.record is not None]
    compared = [row for row in rows if not row.is_baseline and not row.adaptive]
    return Summary(
        name=sweep.name,
        question=sweep.question,
        scale=sweep.named_scale,
        baseline=report.outcomes.baseline,
        margin=sweep.margin,
        answer=answer,
        finished_at=max(ends, key=datetime.fromisoformat, default=None),
        complete=sum(outcome.final is not None for outcome in trials),
        planned=len(trials),
        verdicts={
            row.variant: verdict_in_words(row.effect, sweep.margin) if row.effect else "no verdict" for row in compared
        },
        base=report.outcomes.of_baseline[0].trial.spec.model_dump(mode="json", exclude={"seed"}),
        searches={name: s.ledger.stem for s in report.searches for name in (*s.task.built_on, s.task.title)},
    )


def _in_percent(rows: Sequence[ablation.AblationRow]) -> dict[str, str]:
    """The change in test perplexity of each variant that has an interval: `+3.2% [+0.5%, +6.0%]`."""
    effects = {row.variant: row.effect for row in rows if row.effect is not None}
    return {name: in_percent(e.nats, e.interval) for name, e in effects.items() if e.interval is not None}


def _changes(outcomes: Outcomes) -> dict[str, object]:
    """What makes each variant of the baseline, as a sweep file would have it."""
    of_seed = {outcome.trial.seed: outcome.trial.spec for outcome in outcomes.of_baseline}  # what varies with it, too
    first = {name: group[0].trial for name, group in outcomes.items() if name != outcomes.baseline}
    return {name: overrides(of_seed[trial.seed], trial.spec) for name, trial in first.items()}
