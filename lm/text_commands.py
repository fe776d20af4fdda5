"""`python -m lm generate` and `rerank`: text from a trained model, and texts that it judges."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lm.command_group import Device, RunFolder, StageName, Threads, checked, grant_threads, refuse, settled_record
from lm.data import EOS
from lm.samples import as_text
from lm.spec import Generate
from lm.spec.text import Ranking

if TYPE_CHECKING:
    from lm.generate import Passage
    from lm.kept_model import KeptModel

_WIDTH = 100
"""Of a beam, if none is said."""
_ALSO = "another trial, whose probabilities are averaged with RUN's word by word; may be given again"


def generate(
    run: RunFolder,
    stage: StageName = None,
    prompt: Annotated[list[str] | None, typer.Option(help="words to go on from; may be given again")] = None,
    words: Annotated[int, typer.Option(help="of a sample, <eos> included")] = 60,
    samples: Annotated[int, typer.Option(help="of each prompt; of a beam, how many of its best")] = 1,
    temperature: Annotated[float | None, typer.Option(help="1 if not said; 0: always the most probable word")] = None,
    top_k: Annotated[int | None, typer.Option(help="only the k most probable words")] = None,
    top_p: Annotated[float | None, typer.Option(help="only the fewest words with this probability together")] = None,
    seed: Annotated[int | None, typer.Option(help="of the draws; 1 if not said")] = None,
    ban: Annotated[list[str] | None, typer.Option(help="a word that is never written; may be given again")] = None,
    sentence: Annotated[bool, typer.Option("--sentence", help="end at the first <eos>")] = False,
    beam: Annotated[bool, typer.Option("--beam", help="search for the most probable text; nothing is drawn")] = False,
    width: Annotated[int | None, typer.Option(min=1, max=100_000, help="hypotheses of a beam; 100 if not said")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="a line of JSON a text, with log-probabilities")] = False,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Write text with the weights kept in RUN: drawn word by word, or found by beam search."""
    granted = grant_threads(threads)
    record = settled_record(run)
    drawing = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    given = {name: value for name, value in drawing.items() if value is not None}
    if beam and given:
        refuse(f"--{min(given).replace('_', '-')}: a beam draws nothing; leave it out, or leave out --beam")
    if beam and samples > (width or _WIDTH):
        refuse(f"--samples: a beam has as many texts as its width, {width or _WIDTH}, got {samples}")
    if temperature == 0 and (samples > 1 or len(given) > 1):
        without = min(given.keys() - {"temperature"}, default="samples").replace("_", "-")
        refuse(f"--{without}: at temperature 0 nothing is drawn, and all samples are the same; leave it out")
    if width is not None and not beam:
        refuse("--width: is of a beam; add --beam")
    how = checked(Generate, {"words": words, "samples": samples, "ban": tuple(ban or ()), **given})
    from lm.beam import beam_search
    from lm.generate import generate as draw
    from lm.kept_model import open_model

    try:
        kept = open_model(record, run, stage=stage, device=device, threads=granted)
        vocabulary = kept.corpus.vocabulary
        if beam:
            found = [
                beam_search(
                    kept.model,
                    vocabulary,
                    words=how.words,
                    width=width or _WIDTH,
                    prompt=text,
                    ban=how.ban,
                    sentence=sentence,
                )
                for text in prompt or [""]
            ]
            passages = [passage for hypotheses in found for passage in hypotheses[: how.samples]]
        else:
            passages = draw(kept.model, vocabulary, how, prompt, sentence=sentence)
    except ValueError as error:
        refuse(str(error))
    for number, passage in enumerate(passages):
        _print_passage(passage, number, as_json)


def rerank(
    run: RunFolder,
    file: Annotated[Path, typer.Argument(metavar="CANDIDATES.jsonl", exists=True, dir_okay=False)],
    score: Annotated[Ranking, typer.Option(help="what a candidate is ranked by")] = "total",
    weight: Annotated[float | None, typer.Option(help="of the candidate's own score; 1 if not said")] = None,
    also: Annotated[list[Path] | None, typer.Option(exists=True, file_okay=False, help=_ALSO)] = None,
    stage: StageName = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Rank candidates again by their log-probability under the weights kept in RUN; a line of JSON for each input.

    A line of CANDIDATES.jsonl is {"candidates": [{"text": "...", "score": -1.5}, ...]}, with an "id" if wished, and for
    trees the true one as "gold": then the labelled F1 is printed at the end, on stderr.
    """
    granted = grant_threads(threads)
    folders = [run, *(also or ())]
    records = [settled_record(folder) for folder in folders]
    if weight is not None and score != "interpolated":
        refuse("--weight: is of the candidate's own score; add --score interpolated")
    if weight is not None and not math.isfinite(weight):
        refuse(f"--weight: should be a finite number, got {weight}")
    from lm.kept_model import open_model
    from lm.rerank import Candidates, check_candidates, read_candidates, tree_scores
    from lm.rerank import rerank as ranked

    def printed(kept: list[KeptModel]) -> Iterator[tuple[Candidates, int]]:
        """Print each result; those with a true tree."""
        words, models = kept[0].corpus.vocabulary, [each.model for each in kept]
        of_score = 1.0 if weight is None else weight
        check_candidates(file, words, score, of_score)
        for result in ranked(models, words, read_candidates(file), score, of_score):
            print(json.dumps(result.as_data(), ensure_ascii=False), flush=True)
            if result.of.gold is not None:
                yield result.of, result.best

    try:
        kept = [
            open_model(record, folder, stage=stage, device=device, threads=granted)
            for record, folder in zip(records, folders, strict=True)
        ]
        for folder, each in zip(folders, kept, strict=True):
            if each.corpus.vocabulary != kept[0].corpus.vocabulary:
                refuse(f"--also {folder}: its corpus has other words than that of {run}")
        trees, scores = tree_scores(printed(kept))
    except ValueError as error:
        refuse(str(error))
    if trees:
        said = ", ".join(f"{f1:.4f} of {name}" for name, f1 in scores.items())
        print(f"labelled F1 over {trees:,} trees: {said}", file=sys.stderr)


def _print_passage(passage: Passage, number: int, as_json: bool) -> None:
    """A line of JSON; or the text, the prompt before it and an empty line between two."""
    if not as_json:
        print(("\n" if number else "") + as_text(passage.words, EOS, passage.prompt).strip("\n"))
        return
    shown = {
        "prompt": passage.prompt,
        "text": passage.text,
        "log_probability": sum(passage.log_probabilities),
        "words": passage.words,
        "log_probabilities": passage.log_probabilities,
    }
    print(json.dumps(shown, ensure_ascii=False))
