"""A page with complete trials that the new one would lack stays, and the new one is refused or lies beside it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agenda.expand import search_tasks
from orchestrator.report.files.folder import FullerPageError, IfFuller
from orchestrator.search.ledger import SearchState, SearchTrial
from orchestrator.trials.trial import Trial
from tests.support.factories import make_trial, settle
from tests.support.found import TUNE, at_paper
from tests.support.pages import write


def sweep(variants: str = "full b", seeds: int = 2, **update: Any) -> list[Trial]:
    names = variants.split()
    return [
        make_trial(name, seed, **{"batch_size": 20 + k} | update)
        for k, name in enumerate(names)
        for seed in range(1, seeds + 1)
    ]


def report(
    tmp_path: Path, trials: list[Trial], if_fuller: IfFuller = "refuse", complete: int | None = None, **how: Any
) -> dict[str, bytes]:
    """Write `reports/x/mini` of these trials, of which so many are complete, all by default; its files."""
    for trial in trials[:complete]:
        settle(tmp_path / "runs", trial, 60.0)
    folder = tmp_path / "reports/x/mini"
    try:
        write(tmp_path, trials, folder=folder, if_fuller=if_fuller, **how)
    except AssertionError:  # the helper looks for the page in the folder itself
        assert if_fuller == "write beside"
    return files(folder)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def why(tmp_path: Path, trials: list[Trial], complete: int | None = None, **how: Any) -> str:
    """Why the report is refused; nothing is written then."""
    before = files(tmp_path / "reports/x/mini")
    with pytest.raises(FullerPageError) as refused:
        report(tmp_path, trials, complete=complete, **how)
    assert files(tmp_path / "reports/x/mini") == before
    return str(refused.value).replace(f"{tmp_path}/", "")


def test_a_page_is_not_replaced_by_one_without_records(tmp_path: Path) -> None:
    before = report(tmp_path, sweep())
    (tmp_path / "runs").rename(tmp_path / "elsewhere")
    says = (
        "reports/x/mini/report.md stays: 4 of its 4 complete trials would be lost (of full and b), because the file, "
        "the text or the numerics changed since, or they are not complete here; --force replaces it"
    )
    assert why(tmp_path, sweep(), complete=0) == says
    assert report(tmp_path, sweep(), "replace", complete=0) != before
    report(tmp_path, sweep())  # the empty page has nothing to lose


@pytest.mark.parametrize(("more", "row"), [(sweep(seeds=3), b"full,3,"), (sweep("full b c"), b"c,1,")])
def test_a_page_that_has_all_of_the_earlier_replaces_it(tmp_path: Path, more: list[Trial], row: bytes) -> None:
    before = report(tmp_path, sweep())
    assert row not in before["trials.csv"] and row in report(tmp_path, more)["trials.csv"]


def test_the_same_page_again_is_the_same(tmp_path: Path) -> None:
    assert report(tmp_path, sweep()) == report(tmp_path, sweep())


def test_what_differs_is_named(tmp_path: Path) -> None:
    report(tmp_path, sweep("full b c d e"))
    said = why(tmp_path, sweep("full b"))
    assert "stays: 6 of its 10 complete trials would be lost (of c, d and e), because the file" in said
    other = why(tmp_path, sweep("full b c d e", epochs=9))
    assert "stays: 10 of its 10 complete trials would be lost (of full, b, c and 2 more), " in other


def test_another_variant_of_the_same_name_is_another_trial(tmp_path: Path) -> None:
    report(tmp_path, sweep())
    changed = [*sweep("full"), *sweep("b", batch_size=30)]
    said = "complete trials would be lost (of b), "
    assert said in why(tmp_path, changed)


def test_a_variant_under_another_name_is_not_lost(tmp_path: Path) -> None:
    """As when the sweep file calls it otherwise; its trials have the same keys."""
    report(tmp_path, sweep())
    renamed = [replace(trial, variant={"b": "batch"}.get(trial.variant, trial.variant)) for trial in sweep()]
    assert b"batch,2," in report(tmp_path, renamed)["trials.csv"]
    swapped = [replace(trial, variant={"b": "full", "full": "b"}[trial.variant]) for trial in sweep()]
    report(tmp_path, swapped)
    assert "2 of its 4 complete trials would be lost (of full), " in why(tmp_path, sweep("full"))


def test_a_page_that_cannot_be_compared_stays(tmp_path: Path) -> None:
    report(tmp_path, sweep())
    folder = tmp_path / "reports/x/mini"
    (folder / "trials.csv").unlink()
    assert "report.md cannot be compared with this report ([Errno 2] No such file or directory" in why(
        tmp_path, sweep()
    )
    (folder / "summary.json").unlink()
    assert "report.md cannot be compared with this report (it has no summary.json); --force" in why(tmp_path, sweep())
    report(tmp_path, sweep(), "replace")


def test_a_page_without_the_newer_fields_is_compared_by_its_trials(tmp_path: Path) -> None:
    report(tmp_path, sweep())
    path = tmp_path / "reports/x/mini/summary.json"
    old = path.read_text(encoding="utf-8").partition(',\n  "base"')[0]
    path.write_text(old + "\n}\n", encoding="utf-8")
    said = why(tmp_path, sweep(epochs=9))
    assert "4 of its 4 complete trials would be lost (of full and b), " in said
    report(tmp_path, sweep(seeds=3))


def test_the_new_page_lies_beside_a_fuller_one_until_it_is_as_full(tmp_path: Path) -> None:
    before = report(tmp_path, sweep(seeds=3))
    x = tmp_path / "reports/x"
    (tmp_path / "runs").rename(tmp_path / "elsewhere")
    for complete in (0, 2, 4):  # one of the same place, written again
        assert report(tmp_path, sweep(seeds=3), "write beside", complete=complete) == before
        assert {path.name for path in x.iterdir()} == {"mini", "mini+2"}
    assert report(tmp_path, sweep(epochs=9), "write beside") == before
    assert {path.name for path in x.iterdir()} == {"mini", "mini+2", "mini+3"}
    (x / "mini+3" / "notes.txt").write_text("mine")
    (x / "mini+2").rename(x / "mini+seeds=1-2")  # as `--seeds 1-2` writes it
    assert report(tmp_path, sweep(seeds=3), "write beside", complete=4) == before
    report(tmp_path, sweep(seeds=3), "write beside")
    assert {path.name for path in x.iterdir()} == {"mini", "mini+3", "mini+seeds=1-2"}, "all of mini+2 is in mini now"


def test_the_best_values_of_a_search_may_change(tmp_path: Path) -> None:
    """The same search chose others since; another search is another question."""
    trials, better = sweep("full"), sweep("full", epochs=9)
    task = search_tasks(at_paper(tmp_path, TUNE))[0]
    assert task.variant == "full"
    values = {"optimizer.learning_rate": 1.0, "dropout.weight": 0.1, "penalties.activation": 1.0}
    found = SearchTrial(0, values, "0" * 16, "complete", 4, 30.0, math.log(60.0), (math.log(60.0),), None)
    searched = SearchState(task, tmp_path / "runs/.searches/0123.jsonl", (found,))
    report(tmp_path, trials, searches=(searched,))
    report(tmp_path, better, searches=(searched,))
    report(tmp_path, trials, searches=(of_seeds := replace(searched, task=replace(task, seed=1)),), if_fuller="replace")
    assert why(tmp_path, better, searches=(of_seeds,)).count("1 of its 2 complete trials") == 1, "seed 2 has no search"
    report(tmp_path, better, searches=(searched,), if_fuller="replace")
    other = replace(searched, ledger=tmp_path / "runs/.searches/4567.jsonl")
    assert "would be lost (of full), " in why(tmp_path, trials, searches=(other,))
    assert "would be lost (of full), " in why(tmp_path, trials)
    report(tmp_path, trials, if_fuller="replace")
    assert "would be lost (of full), " in why(tmp_path, better, searches=(searched,)), "it was not searched"
