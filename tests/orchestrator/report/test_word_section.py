"""Words gained and lost, on the page."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lm.data import fingerprint_of, load
from lm.record import token_nats_path
from lm.spec import Corpus
from lm.tables import write_table
from orchestrator.report.pictures.differences import WordBar
from orchestrator.sweep.published import Measure
from orchestrator.trials.trial import Trial
from tests.support.factories import CACHE, CORPUS, make_trial, settle
from tests.support.pages import NoArtist, write
from tests.support.tiny import write_corpus

NONE: dict[str, np.ndarray] = {}


class Text:
    """A corpus of 24 words, and trials whose losses are those of its text, a variant's by word and seed on top."""

    def __init__(self, place: Path) -> None:
        self.runs = place / "runs"
        self.corpus = Corpus(name=str(write_corpus(place / "corpus", (1200, 300, 900))))
        self.loaded = load(self.corpus)
        self.facts = CORPUS.model_copy(update={"name": self.corpus.name, "fingerprint": fingerprint_of(self.corpus)})
        self.token = self.loaded.test[1:]
        self.base = 3.0 + 0.5 * np.random.default_rng(0).normal(size=self.token.size)

    def settle(self, variant: str, seed: int, by_word: dict[str, float], *, everywhere: float = 0.0) -> Trial:
        more = {"epochs": 12} if variant == "full" else {"batch_size": 21}
        trial = make_trial(variant, seed, corpus=self.corpus, finetune=None, **more)
        nats = self.base + everywhere + 0.001 * seed
        for word, each in by_word.items():
            nats = nats + each * (self.token == self.loaded.vocabulary.index(word))
        settle(self.runs, trial, math.exp(nats.mean()), corpus=self.facts)
        self._write(trial, "train", "test", nats)
        return trial

    def cached(self, saved: dict[str, float], *, older: bool = False) -> Trial:
        trial = make_trial("cached", 1, corpus=self.corpus, finetune=None, cache=CACHE)
        settle(self.runs, trial, 20.0, corpus=self.facts)
        nats = self.base.copy()
        for word, each in saved.items():
            nats[self.token == self.loaded.vocabulary.index(word)] -= each
        self._write(trial, "cache", "test", nats)
        used = np.arange(self.token.size) >= 500
        further = {"nats_without_cache": self.base.astype(np.float32), "cache_used": used.astype(np.uint8)}
        self._write(trial, "cache", "valid", np.where(used, nats, self.base), {} if older else further)
        return trial

    def _write(
        self, trial: Trial, stage: str, split: str, nats: np.ndarray, further: dict[str, np.ndarray] = NONE
    ) -> None:
        columns = {"position": np.arange(1, nats.size + 1, dtype=np.int32), "token": self.token}
        counts = np.bincount(self.loaded.train, minlength=24)[self.token]
        table = pa.table(columns | {"training_count": counts, "nats": nats.astype(np.float32)} | further)
        write_table(token_nats_path(self.runs / trial.key, stage, split), table)  # type: ignore[arg-type]


@pytest.fixture
def text(tmp_path: Path) -> Text:
    return Text(tmp_path)


def section(page: str) -> str:
    return page.partition("<summary>Words gained and lost</summary>\n")[2].partition("</details>")[0]


def test_the_first_decided_variant_has_its_words_on_the_page(tmp_path: Path, text: Text) -> None:
    trials = [text.settle("full", seed, {}) for seed in (1, 2, 3)]
    own = {"w1": -0.5, "w5": 0.25}
    trials += [text.settle("worse", seed, {**own, "w7": 0.3 + (seed - 2)}, everywhere=0.2) for seed in (1, 2, 3)]
    artist = NoArtist()
    found = section(write(tmp_path, trials, artist=artist))
    words = {word: int((text.token == text.loaded.vocabulary.index(word)).sum()) for word in ("w1", "w5")}
    assert "worse over full, on test: −" in found
    assert f"| w1 | {words['w1']} | +{0.3 * words['w1']:.2f} (3 of 3) |" in found
    assert f" {words['w5']} | −{0.45 * words['w5']:.2f} (3 of 3) |" in found
    (panels,) = artist.asked["words.svg"]
    assert list(panels) == ["worse, over full"]
    bars = panels["worse, over full"]
    assert bars[0] == WordBar(f"w1 ({words['w1']})", pytest.approx(0.3 * words["w1"], rel=1e-4), True)
    assert all(bar.nats < 0 for bar in bars[1:]) and bars[-1].nats == min(bar.nats for bar in bars)
    assert [bar.certain for bar in bars if bar.text.startswith("w7 ")] == [False]


def test_a_cache_has_its_words_and_the_published_ones_beside_them(tmp_path: Path, text: Text) -> None:
    trials = [*(text.settle("full", seed, {}) for seed in (1, 2)), text.cached({"w1": 0.5, "w2": -0.25})]
    known = {"paper": "p", "table": "3", "certainty": "seed", "metric": "delta_loss_sum_nats"}
    printed = [
        Measure(**known, dataset=text.corpus.name, value=7.5, word="w1", count=40),  # type: ignore[arg-type]
        Measure(**known, dataset=text.corpus.name, value=-2.0, word="nowhere", count=3),  # type: ignore[arg-type]
        Measure(**known, dataset="wikitext-2", value=-9.0, word="w2", count=3),  # type: ignore[arg-type]
    ]
    found = section(write(tmp_path, trials, published_measures=printed))
    used = text.token[500:]
    times = {word: int((used == text.loaded.vocabulary.index(word)).sum()) for word in ("w1", "w2")}
    assert "cached over the same pass without its cache, on validation, where the cache is used" in found
    saved = {"w1": 0.5 * times["w1"], "w2": 0.25 * times["w2"]}
    gained, lost = f"| w1 | {times['w1']} | +{saved['w1']:.2f}", f"| w2 | {times['w2']} | −{saved['w2']:.2f}"
    assert f"{gained} (1 of 1) |\n" in found and f"{lost} (1 of 1) |\n" in found
    assert f"| w1 | 40 | {times['w1']} | +7.50 | +{saved['w1']:.2f} |" in found
    assert "| nowhere | 3 | – | −2.00 | – |" in found and "−9.00" not in found


def test_a_cache_that_saves_nothing_has_no_words_and_no_picture(tmp_path: Path, text: Text) -> None:
    trials = [*(text.settle("full", seed, {}) for seed in (1, 2)), text.cached({})]
    artist = NoArtist()
    found = section(write(tmp_path, trials, artist=artist))
    assert "0.0 nats saved in all. No word is more or less probable." in found
    assert "words.svg" not in found and "words.svg" not in artist.asked


def test_a_cache_from_before_losses_without_it_were_kept_has_no_words(tmp_path: Path, text: Text) -> None:
    trials = [*(text.settle("full", seed, {}) for seed in (1, 2)), text.cached({"w1": 0.5}, older=True)]
    assert "Words gained" not in write(tmp_path, trials)


def test_without_the_corpus_the_page_says_that_words_have_no_names(tmp_path: Path, text: Text) -> None:
    trials = [*(text.settle("full", seed, {}) for seed in (1, 2)), text.cached({"w1": 0.5})]
    (Path(text.corpus.name) / "train.txt").unlink()
    page = write(tmp_path, trials)
    assert "Words gained and lost are not listed, because the corpus" in page and not section(page)
