"""What the page says of searches: budgets, edges, what was left as it is, the front."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agenda.expand import expand, search_tasks
from orchestrator.analysis.comparison import Guess
from orchestrator.report.files.tables import read_csv
from orchestrator.report.pictures.search import SearchAxis
from orchestrator.report.sections.search import hardly_chosen, search_table, trials_of_tuning
from orchestrator.report.sections.search_pictures import front_clause, names_of, rung_table
from orchestrator.search.events import SearchTrial
from orchestrator.search.ledger import SearchState
from orchestrator.search.task import SearchTask
from orchestrator.trials.records import Records
from tests.orchestrator.search.test_population import Trainer, population
from tests.support.factories import make_trial, settle
from tests.support.found import SEARCH, TUNE, at_paper, find, within
from tests.support.pages import NoArtist, answer, render, write

TUNED = ("optimizer.learning_rate", "dropout.weight", "penalties.activation")


def found(number: int, perplexity: float | None, rate: float = 1.0, **how: object) -> SearchTrial:
    state = "stopped" if perplexity is None else "complete"
    nats = None if perplexity is None else math.log(perplexity)
    objectives = None if nats is None else (nats,)
    values = {"optimizer.learning_rate": rate}
    made = {"state": state, "epochs": 4, "seconds": 30.0, "valid_nats": nats, "objectives": objectives, "reason": None}
    return SearchTrial(number=number, key=f"{number:016x}", **{"values": values} | made | how)  # type: ignore[arg-type]


def page(tmp_path: Path, *searches: SearchState, **how: Any) -> str:
    trials = [make_trial("full", seed) for seed in (1, 2)]
    for trial in trials:
        settle(tmp_path / "runs", trial, 100.0)
    return write(tmp_path, trials, searches=searches, **how)


@pytest.fixture
def task(tmp_path: Path) -> SearchTask:
    return search_tasks(at_paper(tmp_path, SEARCH))[0]


def test_a_search_tells_its_budget_its_best_and_that_it_is_not_over(tmp_path: Path, task: SearchTask) -> None:
    running = found(3, None, state="running", epochs=1)
    trials = (found(0, 120.0, 5.0), found(1, None), found(2, 110.0, 7.0))
    text = page(tmp_path, SearchState(task, tmp_path / "none", (*trials, running)))
    assert "| best found | 4 | 2 complete, 1 stopped early, 1 under way | 13 | 2.0 min | 110.00 |" in text
    assert "**The search is not over yet.**" in text and ", training seed 0, 2 trials; " in text
    assert "| Search time | 2.0 min for 4 trials, beside the trial time |" in text
    lines = (tmp_path / "report/searches.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "variant,trial,state,epochs,seconds,valid_nats_per_token,key,optimizer.learning_rate"
    assert lines[2] == f"best found,1,stopped,4,30.0,,{1:016x},1.0" and len(lines) == 5
    best = text[text.index("The best by validation") :]
    assert best.index("| 2 | 110.00 |") < best.index("| 0 | 120.00 |")
    assert "The importance of the values is not shown: 2 complete trials, fewer than the 20" in text
    assert "\n\nAll trials, in full digits: [searches.csv](searches.csv).\n\n" in text
    assert all(len(set(rows)) == 1 for rows in render(text).tables)


@pytest.mark.parametrize(("rate", "is_edge"), [(9.95, True), (0.1, True), (5.0, False), (0.2, False)])
def test_a_best_value_at_the_edge_of_its_range_is_named(
    tmp_path: Path, task: SearchTask, rate: float, is_edge: bool
) -> None:
    text = page(tmp_path, SearchState(task, tmp_path / "none", (found(0, 110.0, rate),)))
    assert ("**At the edge of its range**: best found (`optimizer.learning_rate`)" in text) == is_edge
    assert ("In the search the best value lies at the edge of what was searched" in text) == is_edge


@pytest.mark.parametrize(("among", "best", "is_edge"), [
    ("[1.0, 3.0, 10.0]", "10.0", True),
    ("[3.0, 10.0, 1.0]", "1.0", True),
    ("[10.0, 1.0, 3.0]", "3.0", False),
    ("[1.0, 10.0]", "10.0", False),
    ("{slow: 1.0, usual: 3.0, fast: 10.0}", "fast", True),
])  # fmt: skip
def test_the_best_of_listed_numbers_is_at_an_edge_if_none_is_beyond(
    tmp_path: Path, among: str, best: str, is_edge: bool
) -> None:
    """Of two numbers each would be at an edge."""
    task = search_tasks(
        at_paper(
            tmp_path, SEARCH.replace("{kind: log_uniform, low: 0.1, high: 10.0}", f"{{kind: choice, among: {among}}}")
        )
    )[0]
    text = page(
        tmp_path, SearchState(task, tmp_path / "none", (found(0, 110.0, values={"optimizer.learning_rate": best}),))
    )
    assert ("**At the edge of its range**: best found (`optimizer.learning_rate`)" in text) == is_edge


def test_an_end_beyond_which_there_is_no_value_is_no_edge(tmp_path: Path) -> None:
    ranges = {"dropout.output: {kind: uniform, low: 0.0, high: 0.5}": (0.0, False)}
    ranges |= {"dropout.output: {kind: uniform, low: 0.1, high: 0.5}": (0.1, True)}
    ranges |= {"model.layers: {kind: integer, low: 2, high: 3}": (3, False)}
    ranges |= {"model.layers: {kind: integer, low: 2, high: 4}": (4, True)}
    for k, (searched, (best, is_edge)) in enumerate(ranges.items()):
        path = searched.partition(":")[0]
        text = SEARCH.replace("optimizer.learning_rate: {kind: log_uniform, low: 0.1, high: 10.0}", searched)
        place = tmp_path / str(k)
        place.mkdir()
        task = search_tasks(at_paper(place, text))[0]
        said = page(place, SearchState(task, place / "none", (found(0, 110.0, values={path: best}),)))
        assert (f"**At the edge of its range**: best found (`{path}`)" in said) == is_edge, searched


def test_a_search_without_a_complete_trial_found_nothing(tmp_path: Path, task: SearchTask) -> None:
    diverged = [found(number, None, state="diverged") for number in range(2)]
    text = page(tmp_path, SearchState(task, tmp_path / "none", tuple(diverged)))
    assert "**The search found nothing**: no trial was complete, so the table has the base alone." in text
    assert "what one search found" not in text and "Not tuned" not in text


def test_a_scheduler_that_stopped_nothing_is_not_said_to_have(tmp_path: Path) -> None:
    text = SEARCH.replace("  trials: 2\n", "  trials: 2\n  scheduler: {kind: median}\n")
    task = search_tasks(at_paper(tmp_path, text))[0]
    for last, said in (("complete", "stopped no trial."), ("stopped", "stopped trials early, in the search alone.")):
        trials = found(0, 110.0), found(1, 120.0 if last == "complete" else None)
        place = tmp_path / last
        place.mkdir()
        assert said in page(place, SearchState(task, tmp_path / "none", trials))


def test_a_front_shows_every_objective(tmp_path: Path) -> None:
    text = SEARCH.replace("  trials: 2\n", "  trials: 2\n  objectives: [validation, parameters]\n  scheduler: null\n")
    task = search_tasks(at_paper(tmp_path, text))[0]
    trials = (
        found(0, 120.0, objectives=(math.log(120.0), 2000.0)),
        found(1, 110.0, objectives=(math.log(110.0), 1e6)),
        found(2, 115.0, objectives=(math.log(115.0), 1e6)),
    )
    artist = NoArtist()
    text = page(tmp_path, SearchState(task, tmp_path / "none", trials), artist=artist)
    front = text[text.index("The Pareto front") : text.index("The importance")]
    assert "| Trial | Validation perplexity | Parameters | Epochs | Training time | Values | Key |" in front
    assert "| 1 | 110.00 | 1,000,000 | 4 | 30.0 s | optimizer.learning_rate 1.0 |" in front
    assert "| 0 | 120.00 | 2,000 | 4 | 30.0 s | optimizer.learning_rate 1.0 |" in front
    assert "115.00" not in front
    lines = (tmp_path / "report/searches.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0].split(",")[5:8] == ["valid_nats_per_token", "parameters", "key"]
    assert [line.split(",")[6] for line in lines[1:]] == ["2000.0", "1000000.0", "1000000.0"]
    points, *labels = artist.asked["front.svg"]
    assert [(p.number, p.x, round(p.y), p.name is None) for p in points] == [
        (0, 2000.0, 120, False),
        (1, 1e6, 110, False),
        (2, 1e6, 115, True),
    ]
    assert labels == ["parameters", "validation perplexity"]
    assert answer(text).startswith(
        "At laptop scale, 2 of the search’s 3 complete trials are on its Pareto front: "
        "“optimizer.learning_rate 1.0” (110.00 validation perplexity, 1,000,000 parameters) and "
    )
    assert all(len(set(rows)) == 1 for rows in render(text).tables)


def test_importance_is_shown_of_a_long_search(tmp_path: Path, task: SearchTask) -> None:
    rates = [0.1 * 1.2**i for i in range(24)]
    trials = tuple(found(i, 100.0 + abs(math.log(rate)), rate) for i, rate in enumerate(rates))
    assert "| `optimizer.learning_rate` | 1.00 ± 0.00 |" in page(tmp_path, SearchState(task, tmp_path / "none", trials))


def test_values_that_not_every_trial_had_are_said_to_have_no_share_of_importance(tmp_path: Path) -> None:
    task = search_tasks(at_paper(tmp_path, CHOICES))[0]
    trials = [
        found(
            n, 100.0 + n, values={"layer": "thin", "batch_size": "48"[n % 2], "optimizer.learning_rate": 5.0 + n / 10}
        )
        for n in range(20)
    ]
    wide = {"layer": "wide", "batch_size": "8", "optimizer.learning_rate": 0.5}
    text = page(tmp_path, SearchState(task, tmp_path / "none", (*trials, found(20, 130.0, values=wide))))
    assert "Without a share, since not every trial had it, or in the same range: `optimizer.learning_rate`.\n" in text


@pytest.mark.parametrize(
    ("budget", "told"),
    [
        ("training_hours: 1", ", 1 h of training; "),
        ("trials: 100\n  training_hours: 0.5", ", at most 100 trials or 0.5 h of training; "),
    ],
)
def test_a_search_that_hours_end_says_so(tmp_path: Path, budget: str, told: str) -> None:
    (task,) = search_tasks(at_paper(tmp_path, SEARCH.replace("trials: 2", budget)))
    assert told in page(tmp_path, SearchState(task, tmp_path / "none", (found(0, 120.0, 5.0),)))


def test_tuning_tells_every_variants_budget_and_what_is_not_tuned_for_it(tmp_path: Path) -> None:
    sweep = at_paper(tmp_path, TUNE)
    records = Records(tmp_path / "runs")
    for task in search_tasks(sweep):
        find(records, task, (within(task), 4.0), (within(task, 0.7), None))
    searches = expand(sweep, records).searches
    text = page(tmp_path, *searches)
    assert "## Tuning" in text
    assert "2 trials for each variant" in text
    assert answer(text).startswith("At laptop scale, after 2 trials of tuning each, ")
    assert "Only one tuning trial of 4 variants came to its end." in answer(text)
    hardly = (
        "**Chosen from one trial**: the values of full, no weight-dropping, no AR and Adam. Only one trial was complete"
    )
    assert hardly in text
    row = next(line for line in text.splitlines() if line.startswith("| no weight-dropping | 2 |"))
    assert row.endswith("| dropout.weight |")
    assert [row["Trials"] for row in search_table(searches)] == [2] * 4
    assert "| `optimizer.learning_rate`, of Adam | 0.0001 to 0.01, on a log scale |" in text
    assert "Not tuned" not in text


def test_a_searched_path_that_is_the_name_of_a_column_has_another(tmp_path: Path) -> None:
    sweep = at_paper(
        tmp_path,
        SEARCH.replace(
            "optimizer.learning_rate: {kind: log_uniform, low: 0.1, high: 10.0}",
            "epochs: {kind: integer, low: 2, high: 4}",
        ),
    )
    (task,) = search_tasks(sweep)
    trials = (found(0, 120.0, values={"epochs": 2}), found(1, 110.0, values={"epochs": 4}))
    page(tmp_path, SearchState(task, tmp_path / "runs/.searches/a.jsonl", trials))
    columns = read_csv(tmp_path / "report/searches.csv").to_pydict()
    assert columns["epochs"] == [4, 4] and columns["searched epochs"] == [2, 4]


def test_a_search_for_each_seed_is_told_with_all_its_sampler_seeds_and_trials(tmp_path: Path) -> None:
    sweep = at_paper(tmp_path, TUNE.replace("tune:\n", "tune:\n  repeats: 2\n"))
    records = Records(tmp_path / "runs")
    for task in search_tasks(sweep):
        find(records, task, (within(task), 4.0), (within(task, 0.7), 4.1))
    text = page(tmp_path, *expand(sweep, records).searches)
    assert "sampler seeds 0 to 1, one for each seed of the table, training seed" in text
    assert "2 trials for each variant and each of these seeds" in text
    assert answer(text).startswith("At laptop scale, after 4 trials of tuning each, ")


def test_how_much_each_variant_was_tuned_and_whose_values_are_hardly_chosen(tmp_path: Path) -> None:
    sweep = at_paper(tmp_path, TUNE)
    records = Records(tmp_path / "runs")
    for task in search_tasks(sweep):
        second = None if task.variant == "Adam" else 4.1
        find(records, task, (within(task), 4.0), (within(task, 0.7), second))
    searches = expand(sweep, records).searches
    assert "**Chosen from one trial**: the values of Adam. Only" in page(tmp_path, *searches)
    assert trials_of_tuning(searches, ["full", "Adam"]) == [2, 2]
    under_way = replace(searches[0], trials=searches[0].trials[:1])
    text = page(tmp_path, under_way)
    nothing_to_tune = replace(searches[-1], task=replace(searches[-1].task, fixed=tuple(TUNED)))
    assert nothing_to_tune.task.variant == "Adam" and hardly_chosen([nothing_to_tune]) == []
    assert trials_of_tuning([searches[0], nothing_to_tune], ["full", "Adam"]) == [2]
    assert "of tuning each" not in text and "Chosen from one trial" not in text
    assert trials_of_tuning(searches[:1], ["b"]) == []


def test_a_variant_that_could_not_be_tuned_is_named_and_not_compared(tmp_path: Path) -> None:
    sweep = at_paper(tmp_path, TUNE)
    records = Records(tmp_path / "runs")
    for task in search_tasks(sweep):
        nats = None if task.variant == "no AR" else 4.0
        find(records, task, (within(task), nats), (within(task, 0.7), None))
    now = expand(sweep, records)
    assert {trial.variant for trial in now.trials} == {"full", "no weight-dropping", "Adam"}
    assert "**Not tuned, because no trial was complete**: no AR." in page(tmp_path, *now.searches)


CHOICES = SEARCH.replace(
    "  space:\n",
    "  min_trials_per_option: {layer: 1}\n  space:\n"
    "    layer: {kind: change, among: {thin: {}, wide: {model.hidden_size: 9, model.embedding_size: 9}}}\n"
    "    batch_size: {kind: choice, among: [4, 8]}\n",
).replace(
    "    optimizer.learning_rate: {kind: log_uniform, low: 0.1, high: 10.0}\n",
    "    optimizer.learning_rate:\n"
    "      - {kind: log_uniform, low: 0.1, high: 1.0, when: {layer: wide}}\n"
    "      - {kind: uniform, low: 2.0, high: 10.0, when: {layer: thin}}\n",
)


def test_the_page_says_which_option_was_hardly_tried(tmp_path: Path) -> None:
    task = search_tasks(at_paper(tmp_path, CHOICES))[0]
    thin, wide = {"layer": "thin", "batch_size": "4"}, {"layer": "wide", "batch_size": "8"}
    trials = [
        *(found(n, 120.0 - n, values=thin | {"optimizer.learning_rate": 5.0}) for n in range(3)),
        found(3, None, values=thin | {"optimizer.learning_rate": 3.0}),
        found(4, None, values=thin | {"optimizer.learning_rate": 3.0}, state="failed"),
        found(5, 130.0, values=wide | {"optimizer.learning_rate": 0.995}),
    ]
    text = page(tmp_path, SearchState(task, tmp_path / "none", tuple(trials)))
    assert "| `layer` | thin | 5 | 3 | 1 | 1 | 118.00 |" in text
    assert "| `layer` | wide | 1 | 1 | 0 | 0 | 130.00 |" in text
    assert "**Hardly tried**: wide of `layer` (1 of 1 complete) and 8 of `batch_size` (1 of 1 complete)." in text
    assert "| `optimizer.learning_rate` | 0.1 to 1, on a log scale; where layer is wide |" in text
    assert "| `optimizer.learning_rate` | 2 to 10; where layer is thin |" in text
    assert "At the edge" not in text
    assert all(len(set(rows)) == 1 for rows in render(text).tables)
    lowest = replace(trials[5], valid_nats=math.log(90.0))
    assert "**At the edge of its range**: best found (`optimizer.learning_rate`)" in page(
        tmp_path, SearchState(task, tmp_path / "none", (*trials[:5], lowest))
    )
    running = page(tmp_path, SearchState(task, tmp_path / "none", (trials[0],)))
    assert "Hardly tried" not in running, "it is not over"
    again = replace(trials[5], number=6)
    many = [replace(again, number=n, key=str(n), valid_nats=math.log(110.0 + n)) for n in (7, 8)]
    assert "Hardly tried" in page(tmp_path, SearchState(task, tmp_path / "none", (*trials, again, many[0])))
    assert "Hardly tried" not in page(tmp_path, SearchState(task, tmp_path / "none", (*trials, *many)))


def test_fewer_complete_trials_than_the_file_asks_for_are_named(tmp_path: Path) -> None:
    task = search_tasks(
        at_paper(tmp_path, CHOICES.replace("{layer: 1}", "{layer: 4}").replace("trials: 2", "trials: 8"))
    )[0]
    searched = [
        found(n, 120.0, values={"layer": layer, "batch_size": "4", "optimizer.learning_rate": rate})
        for n, (layer, rate) in enumerate([("thin", 5.0)] * 3 + [("wide", 0.5)] * 5)
    ]
    text = page(tmp_path, SearchState(task, tmp_path / "none", tuple(searched)))
    assert "**Hardly tried**: thin of `layer` (3 of 3 complete) and 8 of `batch_size` (0 of 0 complete)." in text


def test_a_population_has_a_section_of_its_own(tmp_path: Path) -> None:
    one = population()
    (trials,) = Trainer(tmp_path / "shelf").search(one)
    text = page(tmp_path, SearchState(one, tmp_path / "none", tuple(trials)))
    assert "\n\nAll trials, in full digits: [searches.csv](searches.csv).\n\n" in text
    assert "of earlier generations" in text


def test_a_page_shows_the_search_and_where_trials_were_stopped(tmp_path: Path, task: SearchTask) -> None:
    trials = (
        found(0, 120.0, 5.0, curve=((1, 5.0), (4, math.log(120.0)))),
        found(1, None, 2.0, epochs=2, valid_nats=math.log(160.0), curve=((2, math.log(160.0)),)),
        found(2, None, 3.0, epochs=2, valid_nats=math.log(150.0)),
        found(3, None, 4.0, state="diverged", epochs=1),
    )
    artist = NoArtist()
    search = SearchState(task, tmp_path / "none", trials)
    text = page(tmp_path, search, artist=artist)
    points = artist.asked["search.svg"][0]
    assert [(p.number, round(p.perplexity), p.complete) for p in points] == [
        (0, 120, True),
        (1, 160, False),
        (2, 150, False),
    ]
    assert artist.asked["slices.svg"] == (points, [SearchAxis("optimizer.learning_rate", "log", [], (0.1, 10.0))])
    assert artist.asked["rungs.svg"] == (points, [2])
    assert [row["Which"] for row in rung_table([search])] == ["1 and 2"]
    assert "| 2 | 3 | 2 | 150.00 | 1 and 2 |" in text, "the diverged trial did not come so far"
    for file in ("search.svg", "slices.svg", "rungs.svg"):
        assert f"]({file})" in text


def test_trials_stopped_in_tuning_are_named_with_their_variant(tmp_path: Path) -> None:
    first, second, *_ = search_tasks(at_paper(tmp_path, TUNE))
    trials = (found(0, 120.0), found(1, None, epochs=2), found(2, None, epochs=3))
    searches = [SearchState(task, tmp_path / "none", trials) for task in (first, second)]
    assert [row["Which"] for row in rung_table(searches)] == [
        f"1 of {first.title}; 1 of {second.title}",
        f"2 of {first.title}; 2 of {second.title}",
    ]


def test_a_trial_on_a_front_is_called_by_what_it_chose(tmp_path: Path) -> None:
    task = search_tasks(at_paper(tmp_path, CHOICES))[0]
    thin = {"layer": "thin", "batch_size": "4", "optimizer.learning_rate": 5.0}
    trials = [replace(found(n, 90.0), values=values) for n, values in enumerate((thin, thin | {"batch_size": "8"}))]
    assert names_of(task, trials) == ["thin, batch_size 4", "thin, batch_size 8"]
    faster = replace(found(2, 90.0), values=thin | {"optimizer.learning_rate": 7.0})
    names = names_of(task, [*trials, faster])
    assert len(set(names)) == 3 and names[1] == "thin, batch_size 8", "by all values if another chose the same"


def test_what_is_drawn_twice_is_trained_once(tmp_path: Path, task: SearchTask) -> None:
    trials = [replace(found(n, 90.0 + n), key=f"{n % 3:016x}") for n in range(4)]
    (row,) = search_table([SearchState(task, tmp_path / "none", tuple(trials))])
    assert row["Trials"] == 4 and row["How they ended"] == "4 complete (1 with the values of another)"
    assert row["Epochs trained"] == str(sum(trial.epochs for trial in trials[:3]))
    further = replace(trials[3], epochs=trials[0].epochs + 1)
    furthest = SearchState(task, tmp_path / "none", (*trials[:3], further)).distinct
    assert furthest == [trials[1], trials[2], further], "what came furthest is kept"
    failed = replace(trials[0], state="failed")
    assert SearchState(task, tmp_path / "none", (failed, trials[3])).distinct == [trials[3]]


def test_the_answer_names_the_ends_of_a_long_front_and_nothing_without_one(tmp_path: Path, task: SearchTask) -> None:
    assert front_clause([SearchState(task, tmp_path / "none", (found(0, 120.0),))]) == ""
    text = SEARCH.replace("  trials: 2\n", "  trials: 2\n  objectives: [validation, seconds]\n  scheduler: null\n")
    two = search_tasks(at_paper(tmp_path, text))[0]
    assert front_clause([SearchState(two, tmp_path / "none", (found(0, None),))]) == ""
    trials = tuple(found(n, 100.0 - n, 1.0 + n, objectives=(math.log(100.0 - n), 60.0 + n)) for n in range(9))
    clause = front_clause([SearchState(two, tmp_path / "none", trials)])
    assert "9 of the search’s 9 complete trials are on its Pareto front: from “" in clause and " to “" in clause
    assert "(92.00 validation perplexity, 68 seconds of training) to" in clause


def test_a_model_that_is_on_the_front_for_its_size_alone_is_named_as_worse_than_guessing(tmp_path: Path) -> None:
    text = SEARCH.replace("  trials: 2\n", "  trials: 2\n  objectives: [validation, parameters]\n  scheduler: null\n")
    task = search_tasks(at_paper(tmp_path, text))[0]
    trials = tuple(
        found(n, value, objectives=(math.log(value), size)) for n, value, size in [(0, 90, 99.0), (1, 345, 9.0)]
    )
    clause = front_clause([SearchState(task, tmp_path / "none", trials)], Guess("unigram", math.log(199.26), 199.26))
    assert clause.count("worse than") == 1
    assert "345.00 validation perplexity, 9 parameters; worse than the unigram model, 199.26, which reads" in clause


def test_heads_by_codebook_stand_in_a_grid_where_both_are_searched(tmp_path: Path) -> None:
    head = "{kind: ecoc, codebook: {kind: random, bits: 20}, loss: {kind: normalized}}"
    space = (
        f"  space:\n    layer: {{kind: change, among: {{plain: {{}}, codes: {{model.tied: false, head: {head}}}}}}}\n"
        "    head.codebook:\n      kind: choice\n      when: {layer: codes}\n"
        "      among: {short: {kind: random, bits: 20}, long: {kind: hybrid, bits: 20},"
        " no: {kind: unigram, bits: 20}}\n"
    )
    task = search_tasks(at_paper(tmp_path, SEARCH.replace("  space:\n", space)))[0]
    rate = {"optimizer.learning_rate": 1.0}
    values: list[dict[str, object]] = [
        {"layer": "plain"},
        {"layer": "plain"},
        {"layer": "codes", "head.codebook": "short"},
        {"layer": "codes", "head.codebook": "long"},
    ]
    trials = [
        found(n, p, values=v | rate) for n, (v, p) in enumerate(zip(values, (90.0, 95.0, 130.0, None), strict=True))
    ]
    artist = NoArtist()
    text = page(tmp_path, SearchState(task, tmp_path / "none", tuple(trials)), artist=artist)
    assert "| `layer` | none | short | long |\n" in text
    assert "| plain | 90.00 (2 trials) | – | – |\n| codes | – | 130.00 (1 trial) | – (1 trial) |\n" in text
    (points,) = artist.asked["search.svg"]
    assert [point.group for point in points] == ["softmax", "softmax", "ecoc"]
    assert "colours are kinds of output layer" in text
    assert all(len(set(rows)) == 1 for rows in render(text).tables)
