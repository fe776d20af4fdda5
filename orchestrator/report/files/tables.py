"""The tables of a report as files: CSV in full digits with losses in nats per token, LaTeX as on the page, Parquet."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from lm.files import write_text
from lm.record import opened
from lm.tables import write_table
from orchestrator.analysis.effects import Interval, perplexity_ratio
from orchestrator.analysis.outcomes import Outcome, Outcomes
from orchestrator.report.markdown import environment, plain
from orchestrator.report.sections.ablation import RECALLED, REFERENCE, AblationRow, ReferenceRow
from orchestrator.report.sections.interactions import InteractionRow
from orchestrator.report.sections.published import RECALLED_MARK, printed, published_percent
from orchestrator.search.events import SearchTrial
from orchestrator.search.ledger import SearchState
from orchestrator.words import MINUS, NOTHING, listed, number

_MATHEMATICS = {"->": r"\to", MINUS: "-", "±": r"\pm", "×": r"\times", "∞": r"\infty"}
_SPECIAL = {
    **{sign: f"\\ensuremath{{{command}}}" for sign, command in _MATHEMATICS.items()},
    **{sign: f"\\{sign}" for sign in "#$%&_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "–": r"\textendash{}",
    "†": r"\textdagger{}",
    "…": r"\ldots{}",
    # Brackets could be taken for the option of a line break before them, and two hyphens for a dash.
    "[": "{[}",
    "]": "{]}",
    "--": "{-}{-}",
    ",,": "{,},",
    "*": "{*}",
}
_TEXT: tuple[str, ...] = ("variant", "change", "verdict", "reason", "key", "status", "state")
_TEXT += ("reads_from", "starts_from", "device", "commit")
_WHOLE = ("parameters", "seeds", "complete", "further_seeds", "seed", "best_epoch", "epochs", "peak_memory_bytes")
_TRUTH = ("adaptive", "reference")
"""Columns of `table.csv` and `trials.csv`; all others are numbers with a fraction."""
_SPECIAL_CHARACTER = re.compile("|".join(map(re.escape, _SPECIAL)))


def write_tables(
    folder: Path,
    outcomes: Outcomes,
    rows: Sequence[AblationRow],
    references: Sequence[ReferenceRow],
    interactions: Sequence[InteractionRow],
    searches: Sequence[SearchState],
    margin: float,
    caption: str,
) -> None:
    """Write the tables that this sweep has into a report's folder; `caption` begins LaTeX's first comment."""
    trials = outcomes.all
    corpora = listed(sorted({outcome.trial.spec.corpus.name for outcome in trials}))
    seeds = ", ".join(map(str, sorted({outcome.trial.seed for outcome in trials})))
    tables = {
        "table.csv": _csv([*map(_variant_line, rows), *map(_reference_line, references)]),
        "trials.csv": _csv(map(_trial_line, trials)),
        "blocks.csv": _csv(line for outcome in trials for line in _block_lines(outcome)),
        "measures.csv": _csv(line for outcome in trials for line in _measure_lines(outcome)),
        "interactions.csv": _csv(map(_interaction_line, interactions)),
        "searches.csv": _csv(_search_lines(searches)),
        "table.tex": _table_tex(rows, references, margin, f"{caption}, corpus {corpora}, seeds {seeds}"),
    }
    for name, text in tables.items():
        if text is not None:
            write_text(folder / name, text)
    if curves := [_curve(outcome) for outcome in trials if outcome.curve]:
        write_table(folder / "curves.parquet", pa.concat_tables(curves, promote_options="default"))


def read_csv(path: Path) -> pa.Table:
    """A table of a report. Its columns have the same types in every report, but for what a search tried.

    Left to pyarrow, a column without a value has no type, one of round numbers is whole, and a key may be a number.
    """
    with path.open(encoding="utf-8", newline="") as file:
        names = next(csv.reader(file), [])
    types = dict.fromkeys(_TEXT, pa.string())
    if path.name != "searches.csv":  # whose columns are named by what is searched
        of_numbers = dict.fromkeys(names, pa.float64()) | dict.fromkeys(_WHOLE, pa.int64())
        types = of_numbers | dict.fromkeys(_TRUTH, pa.bool_()) | types
    return pa.csv.read_csv(path, convert_options=pa.csv.ConvertOptions(column_types=types))


def _block_lines(outcome: Outcome) -> Iterator[dict[str, object]]:
    """A trial's mean losses on the blocks of the test text, from which the noise of the text is computed."""
    if outcome.losses is not None:
        blocks = {str(number): f"{nats:.7f}" for number, nats in enumerate(outcome.losses.blocks, start=1)}
        yield {"variant": outcome.trial.variant, "seed": outcome.trial.seed, **blocks}


def escaped(text: str) -> str:
    """Any text as one line that LaTeX prints as it is; characters without a glyph are left to its fonts."""
    line = " ".join(text.split())
    printable = "".join(character for character in line if character.isprintable())
    return _SPECIAL_CHARACTER.sub(lambda match: _SPECIAL[match.group(0)], printable)


def _csv(lines: Iterable[Mapping[str, object]]) -> str | None:
    """The lines under the names of the first one's fields; None without a line."""
    lines, text = list(lines), io.StringIO()
    if not lines:
        return None
    writer = csv.DictWriter(text, fieldnames=list(lines[0]), lineterminator="\n")
    writer.writeheader()
    # A bare carriage return is not quoted, and pyarrow would take it for the end of a line.
    writer.writerows({k: v.replace("\r", " ") if isinstance(v, str) else v for k, v in line.items()} for line in lines)
    return text.getvalue()


def _variant_line(row: AblationRow) -> dict[str, object]:
    effect = row.effect
    return {
        "variant": row.variant,
        "change": row.change,
        "adaptive": row.adaptive,
        "parameters": row.parameters,
        "seeds": row.seeds,
        "complete": row.complete,
        "valid_perplexity_mean": row.valid and row.valid.mean,
        "valid_perplexity_deviation": row.valid and row.valid.deviation,
        "test_perplexity_mean": row.test and row.test.mean,
        "test_perplexity_deviation": row.test and row.test.deviation,
        "difference_nats_per_token": effect and effect.nats,
        **_ends("difference_nats_per_token", effect.interval if effect else None),
        "standard_error_seeds": effect and effect.seed_error,
        "standard_error_text": effect and effect.text_error,
        "perplexity_ratio": effect and perplexity_ratio(effect.nats),
        "difference_perplexity": row.change_in_perplexity,
        **_ends("difference_perplexity", row.interval_in_perplexity),
        "verdict": effect and effect.verdict,
        "reason": row.reason,
        "further_seeds": effect and effect.further and effect.further.seeds,
        "published_valid_perplexity": row.published_valid and row.published_valid.perplexity,
        "published_test_perplexity": row.published_test and row.published_test.perplexity,
        "published_test_difference": row.published_difference and row.published_difference.perplexity,
        "reference": False,
    }


def _reference_line(row: ReferenceRow) -> dict[str, object]:
    return {
        "variant": row.variant,
        "change": row.change,
        "adaptive": False,
        "parameters": row.parameters,
        "seeds": 0,
        "complete": 0,
        "valid_perplexity_mean": row.valid,
        "test_perplexity_mean": row.test,
        "reason": REFERENCE,
        "reference": True,
    }


def _interaction_line(row: InteractionRow) -> dict[str, object]:
    nats, ends = row.nats, row.effect.interval
    return {
        "contrast": row.estimand.name,
        "kind": row.estimand.kind,
        "aliases": ", ".join(row.estimand.aliases),
        "nats_per_token": nats,
        **_ends("nats_per_token", ends),
        "perplexity_ratio": None if nats is None else perplexity_ratio(nats),
        **_ends("perplexity_ratio", ends and Interval(*map(perplexity_ratio, ends))),
        "verdict": row.verdict,
        "reason": row.reason,
    }


def _ends(name: str, interval: Interval | None) -> dict[str, object]:
    return {f"{name}_low": interval and interval.low, f"{name}_high": interval and interval.high}


def _search_lines(searches: Sequence[SearchState]) -> Iterator[dict[str, object]]:
    """A line a trial of a search, with a column for each value that some search chose, and each further objective.

    Of a population `parent` is the trial from which it went on, None in the first generation. A value whose path is
    the name of another column, as `epochs` may be, is in `searched epochs`.
    """
    of_population = any(search.task.population for search in searches)
    paths = list(dict.fromkeys(path for search in searches for path in search.task.space))
    for search in searches:
        for trial in search.trials:
            line = {
                "variant": search.task.title,
                "trial": trial.number,
                "state": trial.state,
                "epochs": trial.epochs,
                "seconds": trial.seconds,
                "valid_nats_per_token": trial.valid_nats,
                **_objectives(search, trial),
                **({"parent": trial.parent} if of_population else {}),
                "key": trial.key,
            }
            yield line | {f"searched {path}" if path in line else path: trial.values.get(path) for path in paths}


def _objectives(search: SearchState, trial: SearchTrial) -> dict[str, object]:
    values = trial.objectives or [None] * len(search.task.objectives)
    return {name: v for name, v in zip(search.task.objectives, values, strict=True) if name != "validation"}


def _measure_lines(outcome: Outcome) -> Iterator[dict[str, object]]:
    """A line for each of a head's own measures of each stage and split; what validation fitted is one of `valid`."""
    named = {"variant": outcome.trial.variant, "seed": outcome.trial.seed}
    for stage in outcome.record.stages if outcome.record else ():
        for split, measures in (*stage.measures.items(), ("valid", stage.fitted)):
            for name, value in measures.items():
                yield named | {"stage": stage.name, "split": split, "measure": name, "value": value}


def _trial_line(outcome: Outcome) -> dict[str, object]:
    trial, record, final = outcome.trial, outcome.record, outcome.final
    cache = final.cache if final else None
    return {
        "variant": trial.variant,
        "seed": trial.seed,
        "key": trial.key,
        "status": outcome.status,
        "reason": outcome.reason,
        "reads_from": trial.reads_from,
        "starts_from": trial.starts_from,
        **{
            f"{split}_{field}": final and getattr(getattr(final, split), field)
            for split in ("valid", "test")
            for field in ("perplexity", "perplexity_reference", "nats_per_token")
        },
        "valid_perplexity_without_cache": cache and cache.plain_valid.perplexity,
        "test_perplexity_without_cache": cache and opened(cache.plain_test).perplexity,
        "best_epoch": final and final.best_epoch,
        "epochs": len(outcome.curve),
        "seconds": record and record.seconds,
        "tokens_per_second": record and record.tokens_per_second,
        "peak_memory_bytes": record and record.peak_memory_bytes,
        "device": record and record.device,
        "commit": record and record.commit,
    }


def _curve(outcome: Outcome) -> pa.Table:
    table, trial = outcome.curve, outcome.trial
    for place, (name, value) in enumerate((("variant", trial.variant), ("seed", trial.seed), ("key", trial.key))):
        table = table.add_column(place, name, pa.repeat(value, len(table)))
    return table


def _table_tex(rows: Sequence[AblationRow], references: Sequence[ReferenceRow], margin: float, caption: str) -> str:
    """A booktabs tabular; `caption` stands above it as a comment. LaTeX before 2020 needs the package textcomp too."""
    latex = environment("orchestrator.report")
    latex.filters |= {"latex": escaped, "number": _number}
    papers = [paper for row in rows for paper in (row.published_valid, row.published_test) if paper]
    return latex.get_template("table.tex.jinja").render(
        caption=" ".join(caption.split()),
        rows=rows,
        references=references,
        margin=margin,
        reference=REFERENCE,
        recalled=any(paper.certainty == RECALLED for paper in papers),
        plain=plain,
        printed=printed,
        published_percent=published_percent,
        nothing=NOTHING,
    )


def _number(value: object) -> str:
    """A number as the page has it, in mathematics; a comma inside it separates thousands."""
    text = number(value) if isinstance(value, float) else str(value)
    if value is None or text == NOTHING:
        return escaped(NOTHING)
    digits = text.removesuffix(RECALLED_MARK)
    formula = re.sub(r"e\+?(\D?)0*(\d+)", r" \\times 10^{\1\2}", digits)
    formula = re.sub(r"(?<=\d),(?=\d{3})", "{,}", formula)
    for sign, command in _MATHEMATICS.items():
        formula = formula.replace(sign, command)
    return f"${formula}$" + escaped(text[len(digits) :])
