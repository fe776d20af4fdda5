from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agenda.expand import expand, search_tasks
from orchestrator.agenda.standing import search_standings, sweep_standing, trial_lines
from orchestrator.commands.status import print_status
from orchestrator.trials.locks import holding
from orchestrator.trials.records import Records
from tests.support.found import SEARCH, TUNE, at_paper, find, within
from tests.support.places import command, settle, start, trials


def test_status_tells_what_runs_what_is_done_and_the_best(place: Path) -> None:
    full, other = trials()["full"], trials()["no weight-dropping"]
    os.utime(settle(full) / "curve.parquet", (4e9, 4e9))  # as a copy of the folder would have it
    running = start(other.spec, place / "runs" / other.key)
    with holding(place / "runs", "toy", "paper", " at scale paper"):
        code, out, _ = command("status", "toy.yaml", "--scale", "paper")
        everything = json.loads(command("status", "toy.yaml", "--scale", "paper", "--json")[1])
        sweeps = command("status")[1]
    assert code == 0
    rows = {line.split("  ")[0]: line.split() for line in out.splitlines()}
    assert any(line.startswith("running by ") for line in out.splitlines())
    assert {"done", "finetune-1", "3/3"} <= set(rows["full"])
    assert {"running", "train", "1/3"} <= set(rows["no weight-dropping"])
    assert "4 trials: 2 done, 1 running, 1 new" in out
    assert "best so far: " in out
    assert [line.split()[:3] for line in sweeps.splitlines()[1:2]] == [["toy", "paper", "running"]]

    assert set(everything) == {"sweep", "scale", "held_by", "is_running", "counts", "best", "trials", "searches"}
    assert set(everything["held_by"]) == {"sweep", "scale", "pid", "host", "user", "since", "until", "command"}
    assert set(everything["trials"][0]) == {
        "variant", "seed", "key", "state", "state_in_words", "stage", "epoch", "epochs", "valid_perplexity",
        "best_valid_perplexity", "last_epoch_at", "finished_at",
    }  # fmt: skip
    assert everything["is_running"]
    by_variant = {trial["variant"]: trial for trial in everything["trials"]}
    assert by_variant["full"]["finished_at"] == by_variant["full"]["last_epoch_at"], "though copied later"
    assert by_variant["no weight-dropping"]["last_epoch_at"]
    assert by_variant["neural cache"]["valid_perplexity"] is None
    scored = [t for t in everything["trials"] if t["best_valid_perplexity"]]
    assert everything["best"] == min(scored, key=lambda t: t["best_valid_perplexity"])

    del running  # the generator is closed, as when its process ends
    out = command("status", "toy.yaml", "--scale", "paper")[1]
    assert "no command runs it now" in out
    assert "4 trials: 2 done, 1 to resume, 1 new" in out
    assert [state["state"] for state in json.loads(command("status", "--json")[1])["sweeps"]] == ["ended"]


def test_status_has_a_line_for_each_trial_of_the_table(place: Path) -> None:
    settle(trials()["full"])
    code, out, _ = command("status", "toy.yaml", "--scale", "paper", "--trials")
    _, heading, *lines = out.splitlines()
    assert code == 0 and heading.split("  ")[0] == "trial" and len(lines) == 4
    (full,) = [line.split() for line in lines if line.split()[-1] == "full"]
    assert full[:2] == ["1", "3/3"] and float(full[2]) > 1 and full[3] == "done"
    data = json.loads(command("status", "toy.yaml", "--scale", "paper", "--trials", "--json")[1])
    assert len(data["lines"]) == len(data["trials"]) == 4
    assert set(data["lines"][0]) == {"name", "number", "seed", "epoch", "epochs", "valid_perplexity", "state"}


def test_a_searchs_trials_are_called_by_what_they_try(tmp_path: Path) -> None:
    sweep, records = at_paper(tmp_path, SEARCH), Records(tmp_path / "runs")
    (task,) = search_tasks(sweep)
    find(records, task, (within(task), math.log(70.0)), (within(task, 0.7), None))
    state = expand(sweep, records)
    first, second, *table = trial_lines(sweep_standing(sweep, state, records), state.searches)
    assert first.name == f"best found: {task.in_words(within(task))}"
    assert (first.number, first.seed, first.epoch, first.state) == (0, task.searching.training_seed, 4, "complete")
    assert first.valid_perplexity == pytest.approx(70.0)
    assert (second.number, second.state, second.valid_perplexity) == (1, "stopped", None)
    assert [(line.name, line.number) for line in table] == [(trial.variant, None) for trial in state.table]


def test_before_any_search_has_ended_there_is_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep, records = at_paper(tmp_path, TUNE), Records(tmp_path / "runs")
    state = expand(sweep, records)
    assert not state.table
    print_status(sweep_standing(sweep, state, records))
    said = [search.in_words() for search in search_standings(state.searches)]
    assert capsys.readouterr().out.splitlines() == ["no command runs it now", *said, "0 trials"]


def test_a_searched_number_of_epochs_is_that_of_the_trial(tmp_path: Path) -> None:
    text = (
        SEARCH.replace("  space:\n", "  space:\n    epochs: {kind: integer, low: 2, high: 6}\n")
        + "equal_budget: false\n"
    )
    sweep, records = at_paper(tmp_path, text), Records(tmp_path / "runs")
    (task,) = search_tasks(sweep)
    find(records, task, ({**within(task), "epochs": 6}, math.log(70.0)))
    state = expand(sweep, records)
    assert trial_lines(sweep_standing(sweep, state, records), state.searches)[0].epochs == 6


def test_trials_of_no_sweep_are_refused(place: Path) -> None:
    code, _, error = command("status", "--trials")
    assert code == 2 and "--trials: goes with FILE" in error


def test_status_of_nothing(place: Path) -> None:
    assert command("status")[1].startswith("no sweep was run with ")
    code, out, _ = command("status", "toy.yaml", "--scale", "mini")
    assert code == 0
    assert "4 trials: 3 new, 1 read" in out
    assert not (place / "runs").exists()
    (place / "runs").mkdir()
    assert command("status")[1].startswith("no sweep was run with ")


def test_status_does_not_take_what_it_cannot_list_for_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = os.scandir

    def denied(path: Path | str) -> Any:
        if Path(path).name == ".sweeps":
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    (place / "runs/.sweeps").mkdir(parents=True)
    monkeypatch.setattr("os.listdir", denied)  # as `iterdir` lists
    monkeypatch.setattr("os.scandir", denied)  # as `glob` does
    assert command("status") == (2, "", f"{place}/runs/.sweeps: Permission denied\n")


def test_plan_as_json_has_its_keys(place: Path) -> None:
    settle(trials()["full"])
    code, out, err = command("plan", "toy.yaml", "--json", "--scale", "paper", "--write-specs", "specs")
    how = "as this sweep would train one: python -m lm train specs/KEY.yaml --threads 1 --device cpu"
    assert (code, err) == (0, f"3 specs written to specs; {how}\n")
    data = json.loads(out)
    assert set(data) == {"sweep", "scale", "question", "counts", "trials", "searches", "left"}
    assert set(data["trials"][0]) == {
        "variant", "change", "seed", "key", "parameters", "reads_from", "starts_from", "state",
    }  # fmt: skip
    assert data["counts"] == {"done": 2, "new": 2}
    assert data["left"] == {"search_trials": 0, "table_trials_fewest": 2, "table_trials_most": 2}
