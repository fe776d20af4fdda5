"""The report of a sweep: one Markdown page and the files beside it, a pure function of plan and records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import shorten

from lm.files import write_text
from lm.yaml_text import write_yaml
from orchestrator.analysis.comparison import compare_variants, equal_variants
from orchestrator.analysis.outcomes import Outcome, flat, read_outcomes
from orchestrator.analysis.statistics import MARGIN, Comparison
from orchestrator.report.files.place import PAGE, IfFuller, place_for, remove_contained, staged
from orchestrator.report.files.summary import summary, verdicts, write_summary
from orchestrator.report.files.tables import write_tables
from orchestrator.report.html import hovered_curves, write_html
from orchestrator.report.markdown import plain, template
from orchestrator.report.pictures import Draw, Pictures, draw_with_matplotlib
from orchestrator.report.sections import answer, method_notes, tables
from orchestrator.report.sections.cost import cost_section
from orchestrator.report.sections.differences import picture_section
from orchestrator.report.sections.heads import head_section
from orchestrator.report.sections.interaction_tables import interaction_table
from orchestrator.report.sections.interactions import interaction_section
from orchestrator.report.sections.provenance import provenance
from orchestrator.report.sections.published import printed, printed_difference, published_line, published_section
from orchestrator.report.sections.reference_rows import REFERENCE, ReferenceRow, perplexity_cell, reference_rows
from orchestrator.report.sections.search import hardly_chosen, search_section, trials_of_tuning
from orchestrator.report.sections.tables import AblationRow, CacheRow, Published, Spread, StageRow
from orchestrator.report.sections.untrained import untrained_section
from orchestrator.search.ledger import SearchState
from orchestrator.sweep.designs import Ablation
from orchestrator.trials.records import Records
from orchestrator.trials.spec_words import overrides
from orchestrator.trials.trial import Trial
from orchestrator.words import NOTHING, Markdown, counted, difference, escape, fenced, listed, spread

_LONGEST_REASON = 300
Cells = dict[str, object]


@dataclass(frozen=True)
class Report:
    """A report as written: its page, its answer as plain text, and its verdicts by variant.

    `beside` says why it lies beside the place that it was meant for, None if it lies there; `is_whole` is False where
    a picture could not be drawn. `changes` has the change in perplexity of each variant with an interval, in words.
    """

    page: Path
    answer: str
    verdicts: dict[str, str]
    beside: str | None = None
    is_whole: bool = True
    changes: dict[str, str] = field(default_factory=dict)


def write_report(
    *,
    name: str,
    question: str,
    scale: str,
    published_scale: bool,
    baseline: str,
    ablation: Ablation,
    trials: Sequence[Trial],
    records: Records,
    published: Mapping[str, Published],
    published_note: str,
    folder: Path | str,
    command: str,
    looks: Sequence[int] = (0,),
    margin: float = MARGIN,
    searches: Sequence[SearchState] = (),
    if_fuller: IfFuller = "replace",
    draw: Draw = draw_with_matplotlib,
) -> Report:
    """Write `report.md` and what belongs beside it into `folder`: pictures, HTML, CSV, LaTeX, curves, summary.

    All files take their place together at the end; a report beside it whose trials it has is removed. FullerPageError
    if `if_fuller` is "refuse" and an earlier report has trials that this one would lack. WriteError if something
    cannot be written.

    The same plan and records give the same bytes. `published_scale`: the published numbers were made at this scale;
    elsewhere the page warns. `looks`: at so many seeds it was decided who gets more. ValueError without a baseline.
    """
    folder = Path(folder)
    outcomes = read_outcomes(trials, records)
    if baseline not in outcomes:
        raise ValueError(f"a report compares with the variant {baseline!r}, got {sorted(outcomes)}")
    comparison = compare_variants(outcomes, baseline, len(looks), margin)
    rows = tables.ablation_table(outcomes, comparison, published, baseline)
    interactions = interaction_table(outcomes, ablation, baseline, len(looks))
    references = reference_rows(outcomes, baseline)
    line = published_line(published, baseline) if published_scale else None
    tuning = trials_of_tuning(searches, list(outcomes)), hardly_chosen(searches)
    told = answer.answer(rows, comparison, scale, baseline, *tuning, interactions.rows)
    caption = f"{name}, scale {scale}, differences with {answer.level_in_words(comparison)} intervals"
    verdict_words = verdicts(rows, baseline, margin)
    short = summary(name, question, scale, baseline, margin, plain(told), verdict_words, outcomes, searches)
    place, why_beside = place_for(folder, short, outcomes, if_fuller)
    with staged(place) as staging:
        pictures = Pictures(staging, draw)
        cells: Cells = {
            "name": name,
            "question": question,
            "scale": scale,
            "baseline": baseline,
            "answer": told,
            "equal_variants": [
                Markdown(listed([escape(n) for n in names])) for names in equal_variants(outcomes, baseline)
            ],
            "published_scale": published_scale,
            "provenance": provenance(outcomes, scale, searches, records),
            "command": fenced(command, "sh"),
            "curves": any(outcome.curve for outcome in flat(outcomes)),
            "margin": f"{100 * margin:.3g}%",
            **picture_section(outcomes, rows, comparison, baseline, pictures, line),
            **head_section(outcomes, baseline, pictures),
            **published_section(rows, baseline, published_note, published_scale),
            **_sentences(outcomes, comparison, baseline, looks, bool(searches)),
            **_tables(outcomes, rows, references, baseline, margin),
            **untrained_section(outcomes),
            **interaction_section(interactions, ablation),
            **search_section(searches),
            **cost_section(outcomes, baseline),
            **_specs(outcomes, baseline),
            "picture": pictures.on_page,
        }
        write_tables(staging, outcomes, rows, references, interactions.rows, searches, baseline, margin, caption)
        text = template("page.md.jinja").render(cells | pictures.sentences)
        write_html(staging, text, hovered_curves(outcomes, baseline))
        write_text(staging / PAGE, text)
        write_summary(staging, short)
    remove_contained(folder, place, short, outcomes)
    return Report(place / PAGE, short.answer, short.verdicts, why_beside, not pictures.lost, answer.changes(rows))


def _sentences(
    outcomes: Mapping[str, tuple[Outcome, ...]],
    comparison: Comparison | None,
    baseline: str,
    looks: Sequence[int],
    searched: bool,
) -> Cells:
    return {
        "standing": method_notes.standing(outcomes),
        "noise": method_notes.noise_sentence(outcomes, comparison, baseline, searched),
        "averaging": method_notes.averaging_sentence(outcomes),
        "level": answer.level_in_words(comparison),
        "simultaneous": comparison is not None and comparison.intervals > 1,
        "looks": method_notes.looks_sentence(looks),
        "divergence": method_notes.divergence_sentence(outcomes),
        "convention": method_notes.convention_sentence(outcomes),
    }


def _tables(
    outcomes: Mapping[str, tuple[Outcome, ...]],
    rows: Sequence[AblationRow],
    references: Sequence[ReferenceRow],
    baseline: str,
    margin: float,
) -> Cells:
    trials = [_trial_cells(outcome) for outcome in flat(outcomes)]
    return {
        "rows": [*(_row_cells(row, baseline, margin) for row in rows), *map(_reference_cells, references)],
        "references": [row.name for row in references],
        "baseline_trained": not any(row.variant == baseline and row.reason for row in rows),
        "differences": any(row.effect for row in rows),
        "intervals": any(row.interval_in_perplexity for row in rows),
        "any_published": any(row.published_valid or row.published_test for row in rows),
        "any_published_difference": any(row.published_difference for row in rows),
        "stage_rows": [_stage_cells(row) for row in tables.stage_table(outcomes)],
        "cache_rows": [_cache_cells(row) for row in tables.cache_table(outcomes)],
        "trials": trials,
        "incomplete": [trial for trial in trials if trial["status"] != "complete"],
    }


def _row_cells(row: AblationRow, baseline: str, margin: float) -> Cells:
    shown = NOTHING
    if row.change_in_perplexity is not None:
        shown = difference(row.change_in_perplexity, row.interval_in_perplexity)
    return {
        "variant": row.variant,
        "change": row.change,
        "parameters": f"{row.parameters:,}",
        "valid": _spread(row.valid),
        "test": _spread(row.test),
        "seeds": f"{row.complete}" if row.complete == row.seeds else f"{row.complete} of {row.seeds}",
        "difference": Markdown(shown),
        "verdict": answer.verdict_cell(row, baseline, margin),
        "published": f"{printed(row.published_valid)} / {printed(row.published_test)}",
        "published_difference": printed_difference(row.published_difference),
    }


def _reference_cells(row: ReferenceRow) -> Cells:
    return {
        "variant": row.name,
        "change": row.change,
        "parameters": f"{row.parameters:,}",
        "valid": perplexity_cell(row.valid),
        "test": perplexity_cell(row.test),
        "seeds": NOTHING,
        "difference": NOTHING,
        "verdict": REFERENCE,
        "published": NOTHING,
        "published_difference": NOTHING,
    }


def _stage_cells(row: StageRow) -> Cells:
    return {
        "variant": row.variant,
        "stage": row.stage,
        "epochs": _each(row.epochs),
        "best_epoch": _each(row.best_epoch),
        "valid": _spread(row.valid),
        "test": _spread(row.test),
        "seeds": row.test.n,
    }


def _cache_cells(row: CacheRow) -> Cells:
    settings = dict.fromkeys(f"{window}, {weight:g}, {flatness:g}" for window, weight, flatness in row.settings)
    return {
        "variant": row.variant,
        "settings": "; ".join(settings),
        "plain_valid": _spread(row.plain_valid),
        "valid": _spread(row.valid),
        "plain_test": _spread(row.plain_test),
        "test": _spread(row.test),
    }


def _trial_cells(outcome: Outcome) -> Cells:
    trial = outcome.trial
    return {
        "variant": trial.variant,
        "seed": trial.seed,
        "status": outcome.status,
        "reason": shorten(outcome.reason or "", _LONGEST_REASON, placeholder=" … (whole in trials.csv)"),
        "key": trial.key,
        "reads_from": trial.reads_from or NOTHING,
        "starts_from": trial.starts_from or NOTHING,
    }


def _specs(outcomes: Mapping[str, tuple[Outcome, ...]], baseline: str) -> Cells:
    base = outcomes[baseline][0].trial.spec
    whole = base.model_dump(mode="json", exclude={"seed"})
    changes = {
        variant: overrides(base, group[0].trial.spec.model_copy(update={"seed": base.seed}))
        for variant, group in outcomes.items()
        if variant != baseline
    }
    return {
        "base_spec": _yaml(whole),
        "variant_specs": _yaml(changes) if changes else None,
        "valid_columns": counted(base.scoring.valid_columns, "column"),
        "test_columns": counted(base.scoring.test_columns, "column"),
    }


def _yaml(data: Mapping[str, object]) -> Markdown:
    return fenced(write_yaml(data, as_ascii=False), "yaml")


def _spread(value: Spread | None) -> str:
    return NOTHING if value is None else spread(value.mean, value.deviation)


def _each(values: tuple[int, ...]) -> str:
    return str(values[0]) if len(set(values)) == 1 else ", ".join(map(str, values))
