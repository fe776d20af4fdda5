"""Text on the page: drawn once, by the best weights of each variant's first seed, and there without them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from lm.samples import distinct, read_samples
from orchestrator.api import load_sweep
from orchestrator.sweep import SweepError
from orchestrator.trials.plan import plan
from tests.support.places import SWEEP, command, make_place, trials, working_in

pytestmark = pytest.mark.usefixtures("without_pictures")

GENERATE = "generate: {words: 12, samples: 5, temperature: 0.8, prompt: w1 w8, ban: [w3], seed: 2}\n"
LINE = ("sweep", "toy.yaml", "--scale", "paper", "--executor", "inline")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep with two seeds that has run; not to be changed."""
    place = make_place(tmp_path_factory.mktemp("trained"))
    (place / "toy.yaml").write_text(SWEEP.replace("[1]", "[2, 1]") + GENERATE, encoding="utf-8")
    with working_in(place):
        code, _, err = command(*LINE)
    assert code == 0, err
    return place


@pytest.fixture
def place(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, as the working directory."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path


def page(*options: str) -> str:
    """What `report` writes of these records."""
    shutil.rmtree("pages", ignore_errors=True)
    code, _, err = command("report", "toy.yaml", "--scale", "paper", "--reports", "pages", *options)
    assert code == 0, err
    return Path("pages/toy/paper/report.md").read_text(encoding="utf-8")


def text_of(page: str) -> str:
    return page.partition("\n## Text\n")[2].partition("\n## ")[0]


def sweep() -> int:
    """The exit code of another run, in this process."""
    return command(*LINE)[0]


def kept(runs: Path = Path("runs")) -> dict[Path, bytes]:
    return {path.relative_to(runs): path.read_bytes() for path in sorted(runs.glob("*/samples/*.json"))}


def test_the_page_shows_the_first_sample_and_how_varied_all_are(place: Path) -> None:
    """Of the first seed alone; a variant that is read from another's stage has that stage's; a cache writes nothing."""
    section = text_of(Path("reports/toy/paper/report.md").read_text(encoding="utf-8"))
    first = {trial.variant: trial for trial in plan(load_sweep("toy.yaml", "paper")) if trial.seed == 1}
    found = {(path.parts[0], path.name.split(".")[0]): read_samples(Path("runs") / path) for path in kept()}
    expected = {"full": "finetune-1", "no weight-dropping": "finetune-1", "no fine-tuning": "train"}
    assert found.keys() == {(first[name].reads_from or first[name].key, stage) for name, stage in expected.items()}
    assert "neural cache" not in section
    for variant, stage in expected.items():
        samples = found[first[variant].reads_from or first[variant].key, stage]
        assert samples is not None and len(samples.texts) == 5 and {len(text) for text in samples.texts} == {12}
        assert not any("w3" in text for text in samples.texts)
        lines = " ".join(samples.texts[0]).replace(" <eos> ", "\n").replace(" <eos>", "").replace("<eos> ", "\n")
        assert f"{variant}, seed 1, stage {stage}:\n\n```text\nw1 w8 {lines}\n```" in section
        shares = " | ".join(f"{distinct(samples.texts, n):.3f}" for n in (1, 2))
        assert f"| {variant} | {shares} |" in section
    assert "temperature 0.8, seed 2; never w3; after the prompt “w1 w8”. Shown is the first of 5 samples" in section


def test_what_was_drawn_is_not_drawn_again(place: Path) -> None:
    before = {path: (Path("runs") / path).stat().st_mtime_ns for path in kept()}
    assert sweep() == 0
    assert {path: (Path("runs") / path).stat().st_mtime_ns for path in kept()} == before
    gone = next(iter(before))
    content = (Path("runs") / gone).read_bytes()
    (Path("runs") / gone).unlink()
    assert sweep() == 0, "the page that stood is made again, since a text is missing"
    assert kept()[gone] == content, "the same words"


def test_other_settings_leave_keys_as_they_are_and_draw_other_text(place: Path) -> None:
    keys = {name: trial.key for name, trial in trials().items()}
    before = kept()
    text = Path("toy.yaml").read_text(encoding="utf-8")
    Path("toy.yaml").write_text(text.replace("seed: 2", "seed: 3"), encoding="utf-8")
    assert {name: trial.key for name, trial in trials().items()} == keys
    unmade = text_of(page())
    assert "No text by full: seed 1 has no text yet: the next run of the sweep writes it." in unmade
    assert sweep() == 0
    assert len(kept()) == 2 * len(before) and before.items() <= kept().items()
    Path("toy.yaml").write_text(text.replace(GENERATE, ""), encoding="utf-8")
    assert {name: trial.key for name, trial in trials().items()} == keys and "## Text" not in page()


def test_the_page_without_weights_has_the_text_that_was_kept(place: Path) -> None:
    whole = page()
    code, _, err = command("runs", "export", "toy.yaml", "--scale", "paper", "--to", "there")
    assert code == 0 and kept(Path("there")) == kept(), err
    assert page("--runs", "there") == whole
    assert command("runs", "import", "there", "--runs", "elsewhere")[0] == 0
    assert page("--runs", "elsewhere") == whole


def test_text_that_is_drawn_after_an_export_is_added_to_it(place: Path) -> None:
    drawn = kept()
    folders = {path.parent for path in drawn}
    for folder in folders:
        (Path("runs") / folder).rename(folder.parent)
    export = ("runs", "export", "toy.yaml", "--scale", "paper", "--to", "there")
    assert command(*export)[0] == 0 and kept(Path("there")) == {}
    assert "No text by full: seed 1 has no weights here." in text_of(page("--runs", "there"))
    for folder in folders:
        folder.parent.rename(Path("runs") / folder)
    assert command(*export)[0] == 0 and kept(Path("there")) == drawn


@pytest.mark.parametrize("change", ["damaged", "by other weights"])
def test_text_that_is_not_this_trials_is_not_believed(place: Path, change: str) -> None:
    path, content = next(iter(kept().items()))
    other = json.dumps(json.loads(content) | {"weights": "0" * 64, "texts": [["w9"] * 12]})
    (Path("runs") / path).write_text("{" if change == "damaged" else other, encoding="utf-8")
    assert "has no text yet" in text_of(page())
    assert sweep() == 0
    assert kept()[path] == content


def test_a_page_of_trials_that_are_not_complete_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(make_place(tmp_path))
    monkeypatch.setenv("LM_CACHE", str(tmp_path / "cache"))
    Path("toy.yaml").write_text(SWEEP + GENERATE, encoding="utf-8")
    assert "No text by no weight-dropping: seed 1 is not complete." in text_of(page())


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("{prompt: w1 w88}", "20: generate.prompt: 'w88' is not among the 24 words of the corpus (did you mean 'w8'?)"),
        (
            "{ban: [<unk>]}",
            "20: generate.ban: '<unk>' is not among the 24 words of the corpus, 'corpus'; it can never be drawn",
        ),
    ],
)
def test_words_that_the_corpus_lacks_are_told_with_their_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, said: str
) -> None:
    monkeypatch.chdir(make_place(tmp_path))
    monkeypatch.setenv("LM_CACHE", str(tmp_path / "cache"))
    Path("toy.yaml").write_text(f"{SWEEP}generate: {written}\n", encoding="utf-8")
    with pytest.raises(SweepError) as caught:
        load_sweep("toy.yaml", "paper")
    assert caught.value.lines[0].startswith(f"toy.yaml:{said}") and len(caught.value.lines) == 1
