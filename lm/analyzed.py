"""What analyses found in trained weights, and where it is kept; free of torch, so that reports can read it.

runs/<key>/analyses/<kind>.json   a list: of each stage and settings that this kind was asked with, what was found
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from lm.files import in_a_line, read_regular, write_text
from lm.kept import kept, say_once
from lm.record import Record, weights_path
from lm.spec import Analysis, Part

_LONGEST_SECONDS = 24 * 3600.0
"""Longer than any analysis takes."""


class SingularValues(Part):
    """Those of a matrix: how many count as not zero, by several thresholds, and some of them.

    `rank` counts those above largest x larger side x 2^-52, the rounding of float64; `above` those above a share of the
    largest; `effective` is exp of the entropy of their shares of the sum. `spectrum` has places, from 1, and shares of
    the largest.
    """

    largest: float
    rank: int
    above: dict[str, int]
    effective: float
    spectrum: tuple[tuple[int, float], ...]


class RankFound(Part):
    """Of the matrix of log-probabilities, (positions, words), as it is and with each row less its mean.

    `bound` is the most that this head can reach, of the centred matrix; None if only the number of words bounds it.
    """

    kind: Literal["rank"]
    positions: int
    words: int
    bound: int | None
    plain: SingularValues
    centred: SingularValues

    def numbers(self) -> dict[str, float]:
        """What tables show, by name."""
        bound = {} if self.bound is None else {"bound of this head": self.bound}
        above = {f"above {share} of the largest": count for share, count in self.centred.above.items()}
        return {
            **bound,
            "rows": self.positions,
            "words": self.words,
            "rank": self.centred.rank,
            **above,
            "effective rank": self.centred.effective,
            "rank, not centred": self.plain.rank,
        }


class SubspaceFound(Part):
    """How far the output matrix's column space lies from the embedding's; `random` is what independent ones have."""

    kind: Literal["subspace"]
    distance: float
    random: float
    mean_cosine: float

    def numbers(self) -> dict[str, float]:
        """What tables show, by name."""
        return {
            "distance of kept weights": self.distance,
            "of random subspaces": self.random,
            "mean cosine of word vectors": self.mean_cosine,
        }


class ContextFound(Part):
    """A context, the word that follows it in the text at `position`, and the most probable ones, likeliest first."""

    context: str
    position: int
    next: str
    words: tuple[tuple[str, float], ...]


class NextWordsFound(Part):
    """Next words in contexts, and over all predictions of a text what some of its words get.

    `probability` has the mean probability of a frequent word where it is not what follows; `neighbours` the mean
    probability of the ten words that are nearest to the one that follows, without it, by cosine in the model's own
    embedding; `neighbours_by_text` by the co-occurrences of the corpus's whole training text, the same for every model,
    over the `counted_by_text` predictions whose word that text has.
    """

    kind: Literal["next_words"]
    predictions: int
    contexts: tuple[ContextFound, ...]
    left_out: tuple[str, ...]
    probability: dict[str, float]
    neighbours: float
    counted_by_text: int
    neighbours_by_text: float

    def numbers(self) -> dict[str, float]:
        """What tables show, by name."""
        words = {f"probability of {word}": value for word, value in self.probability.items()}
        return words | {
            "of the next word's neighbours": self.neighbours,
            "of its neighbours by the text": self.neighbours_by_text,
        }


class CodeErrorsFound(Part):
    """The bits of a code over all predictions of a text; a bit is 1 where its logit is above 0.

    `wrong_by_bit` is each bit's error rate, the first `class_bits` those of the word's span; `wrong_bits` counts the
    predictions with 0, 1, 2, ... wrong bits. The word errors: `uncorrected` where any bit is wrong, `owner` where the
    class bits lie in another word's span (None without spans), `corrected` where the nearest codeword is another
    word's, `most_probable` where the most probable word by the head's own distribution is another.
    """

    kind: Literal["code_errors"]
    predictions: int
    bits: int
    class_bits: int | None
    wrong_by_bit: tuple[float, ...]
    wrong_bits: tuple[int, ...]
    uncorrected: float
    owner: float | None
    corrected: float
    most_probable: float

    def numbers(self) -> dict[str, float]:
        """What tables show, by name."""
        mean = sum(count * wrong for wrong, count in enumerate(self.wrong_bits)) / self.predictions
        owner = {} if self.owner is None else {"word error by span": self.owner}
        return {
            "wrong bits": mean,
            "of": self.bits,
            "word error uncorrected": self.uncorrected,
            **owner,
            "corrected": self.corrected,
            "by probability": self.most_probable,
        }


Found = Annotated[RankFound | SubspaceFound | NextWordsFound | CodeErrorsFound, Field(discriminator="kind")]


class KeptAnalysis(Part):
    """An entry of the file. `weights` is the SHA-256 of the weights that were asked, None if their record has none."""

    stage: str
    weights: str | None
    settings: Analysis
    found: Found


_KEPT: TypeAdapter[list[KeptAnalysis]] = TypeAdapter(list[KeptAnalysis])


def analysis_path(folder: Path, kind: str) -> Path:
    """Where a trial's folder keeps what analyses of a kind found."""
    return folder / "analyses" / f"{kind}.json"


def trained_stage(record: Record) -> str:
    """The last stage that left weights of its own; `train` if none did.

    Of the record, not of the spec: fine-tuning until there is no gain may end before its last pass.
    """
    return next((name for name in reversed(record.best_epochs) if name != "cache"), "train")


def read_analysis(folder: Path, settings: Analysis, stage: str, hashes: dict[str, str]) -> Found | None:
    """What was found in the weights of this stage, whose hashes the record has; None if nothing fits, or is damaged."""
    weights = _weights_hash(folder, stage, hashes)
    for entry in _read(analysis_path(folder, settings.kind)):
        if (entry.stage, entry.weights, entry.settings) == (stage, weights, settings):
            return entry.found
    return None


def analysis(folder: Path, settings: Analysis, stage: str, hashes: dict[str, str], find: Callable[[], Found]) -> Found:
    """What is kept of this question, or else `find`, which is then kept; one process asks, others wait for it."""

    def write(path: Path, found: Found) -> None:
        entry = KeptAnalysis(stage=stage, weights=_weights_hash(folder, stage, hashes), settings=settings, found=found)
        others = [old for old in _read(path) if (old.stage, old.settings) != (stage, settings)]
        write_text(path, _KEPT.dump_json([*others, entry], indent=1).decode() + "\n")

    return kept(
        analysis_path(folder, settings.kind),
        "results of analyses",
        read=lambda _: read_analysis(folder, settings, stage, hashes),
        make=find,
        write=write,
        wait_seconds=_LONGEST_SECONDS,
    )


def _weights_hash(folder: Path, stage: str, hashes: dict[str, str]) -> str | None:
    return hashes.get(str(weights_path(folder, stage).relative_to(folder)))


def _read(path: Path) -> list[KeptAnalysis]:
    try:
        return _KEPT.validate_json(read_regular(path))
    except FileNotFoundError:
        return []
    except OSError as error:
        say_once(f"{in_a_line(error)}; it is asked again")
    except ValidationError:
        say_once(f"{path}: not what an analysis of this version keeps; it is asked again")
    return []
