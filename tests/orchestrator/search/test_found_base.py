"""A search and a design in one file: what the search finds is the base, off which the components are taken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from orchestrator.__main__ import app
from orchestrator.agenda.expand import Remaining, expand, search_tasks, what_is_left
from orchestrator.agenda.standing import sweep_standing
from orchestrator.api import to_train
from orchestrator.commands.plan import print_plan
from orchestrator.execute.estimate import most_trials
from orchestrator.report.markdown import template
from orchestrator.report.pictures import Pictures
from orchestrator.report.sections.search import search_section
from orchestrator.sweep.scaled import BY_HAND, select
from orchestrator.trials.plan import Facts
from orchestrator.trials.records import Records
from tests.orchestrator.search.test_search_end_to_end import SEARCH, SWEEP, place  # noqa: F401 (a fixture)
from tests.support.factories import settle
from tests.support.found import BASE, at_paper, find
from tests.support.pages import write
from tests.support.sweep_texts import errors_of

pytestmark = pytest.mark.usefixtures("without_pictures")

DESIGN = f"""{BASE}
components:
  weight-dropping: {{off: {{dropout.weight: 0.0}}}}
  AR: {{off: {{penalties: null}}}}
  clip: {{off: {{optimizer.clip: 0.5}}}}
design: pairs
variants:
  large batches: {{batch_size: 40}}
search:
  trials: 2
  space:
    optimizer.learning_rate: {{kind: log_uniform, low: 0.1, high: 10.0}}
    dropout.weight: {{kind: uniform, low: 0.0, high: 0.6}}
seeds: [1, 2]
"""
RATE, WEIGHT = "optimizer.learning_rate", "dropout.weight"


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path / "runs")


def test_components_are_taken_off_what_was_found(tmp_path: Path, records: Records) -> None:
    sweep = at_paper(tmp_path, DESIGN)
    (task,) = search_tasks(sweep)
    find(records, task, ({RATE: 5.0, WEIGHT: 0.2}, 3.8), ({RATE: 7.0, WEIGHT: 0.3}, 3.9))
    state = expand(sweep, records)
    specs = {trial.variant: trial.spec for trial in state.trials}
    found = specs["full"]
    assert (found.optimizer.learning_rate, found.dropout.weight) == (5.0, 0.2)
    assert {name for name in specs if " + " in name} == {
        "no weight-dropping + no AR",
        "no weight-dropping + no clip",
        "no AR + no clip",
    }
    by_hand = specs.pop(BY_HAND)
    assert by_hand.model_copy(update={"seed": 1}) == sweep.baseline.spec.model_copy(update={"seed": 1})
    for name, spec in specs.items():
        assert spec.optimizer.learning_rate == 5.0, name
        assert spec.dropout.weight == (0.0 if "weight-dropping" in name else 0.2), name
        assert (spec.penalties is None) == ("AR" in name), name
    assert {trial.seed for trial in state.trials} == {1, 2} and all(trial.opens_test for trial in state.trials)
    changes = {trial.variant: trial.change for trial in state.trials}
    assert changes["full"] == "the base itself, as the search found it"
    assert changes["no weight-dropping"] == "dropout.weight 0.2 -> 0.0"


def test_the_search_is_the_one_of_the_file_without_components(tmp_path: Path) -> None:
    alone = DESIGN[: DESIGN.index("components:")] + DESIGN[DESIGN.index("search:") :]
    (task,), (other,) = search_tasks(at_paper(tmp_path, DESIGN)), search_tasks(at_paper(tmp_path, alone))
    fingerprint = Facts().fingerprint(task.base.corpus)
    assert task.key(fingerprint) == other.key(fingerprint)
    assert other.variants == ("best found",) and task.variants[0] == "full" and BY_HAND not in task.variants


def test_nothing_of_the_table_is_final_before_the_search_is_over(tmp_path: Path, records: Records) -> None:
    sweep = at_paper(tmp_path, DESIGN)
    state = expand(sweep, records)
    assert state.waiting and state.table == []
    assert what_is_left(sweep, state, records) == Remaining(2, 18, 18)
    most = most_trials(sweep, state)
    assert len(most) == 20 and len({trial.key for trial in most}) == 20, "by hand is not what will be found"
    assert not any(trial.reads_from for trial in most)


def test_no_more_trials_are_expected_than_the_total_that_the_file_allows(tmp_path: Path, records: Records) -> None:
    sweep = at_paper(tmp_path, DESIGN.replace("seeds: [1, 2]", "seeds: {min: 2, max: 3, until: decided, total: 20}"))
    most = most_trials(sweep, state := expand(sweep, records))
    assert sum(trial.opens_test for trial in most) == 20
    assert what_is_left(sweep, state, records) == Remaining(2, 19, 20)


def test_nothing_found_is_nothing_ablated(tmp_path: Path, records: Records) -> None:
    sweep = at_paper(tmp_path, DESIGN)
    (task,) = search_tasks(sweep)
    find(records, task, ({RATE: 5.0, WEIGHT: 0.2}, None), ({RATE: 7.0, WEIGHT: 0.3}, None))
    state = expand(sweep, records)
    assert {trial.variant for trial in state.trials} == {"full"}
    section = search_section(state.searches, Pictures(tmp_path))
    assert section is not None and section.untuned == ["full"] and section.changed == []


HEADS = DESIGN.replace(
    "    dropout.weight: {kind: uniform",
    "    head: {kind: choice, among: {softmax: {kind: softmax}, mixture: {kind: mixture, experts: [0, 2]}}}\n"
    "    dropout.weight: {kind: uniform",
).replace("base:\n", "base:\n  head: {kind: mixture, experts: [0, 2], dropout: 0.1}\n")
HEADS = HEADS.replace("clip: {off: {optimizer.clip: 0.5}}", "head dropout: {off: {head.dropout: 0.0}}")


def test_what_the_search_did_not_keep_is_not_taken_off(
    tmp_path: Path, records: Records, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = at_paper(tmp_path, HEADS)
    (task,) = search_tasks(sweep)
    values = {RATE: 5.0, "head": "softmax", WEIGHT: 0.2}
    find(records, task, (values, 3.8), (values | {"head": "mixture"}, 3.9))
    state = expand(sweep, records)
    names = {trial.variant for trial in state.trials}
    assert "no AR" in names and not any("head dropout" in name for name in names)
    print_plan(sweep, state, records)
    shown = capsys.readouterr().out
    assert "nothing for it to change: no head dropout (head.dropout: unknown key 'dropout'" in shown
    assert f"the baseline is in all {len(names) - 1} comparisons" in shown
    pictures = Pictures(tmp_path)
    section = search_section(state.searches, pictures)
    assert section is not None and "no head dropout" not in section.changed
    assert section.misfits["no head dropout"].startswith("head.dropout: unknown key 'dropout'")
    page = template("sections/search.md.jinja").render(search=section, picture=pictures.on_page)
    reason = "**Left out, because what the search found has nothing for them to change**: "
    assert f"{reason}no head dropout (head.dropout: unknown" in page
    for trial in state.trials:
        settle(records.root, trial, 60.0 + trial.seed + len(trial.variant))
    text = write(tmp_path, list(state.trials), searches=state.searches, ablation=sweep.ablation)
    contrasts = text[text.index("## Interactions") :].partition("\n## ")[0]
    assert "weight-dropping × AR" in contrasts and "head dropout" not in contrasts
    assert "still to come" not in text, "because it never comes"


def test_what_the_search_has_taken_away_already_is_read_from_the_base(
    tmp_path: Path, records: Records, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = at_paper(tmp_path, DESIGN)
    (task,) = search_tasks(sweep)
    find(records, task, ({RATE: 5.0, WEIGHT: 0.0}, 3.8), ({RATE: 7.0, WEIGHT: 0.3}, 3.9))
    state = expand(sweep, records)
    trials = {trial.variant: trial for trial in state.trials}
    assert trials["no weight-dropping"].change == "nothing: what was found has it already"
    assert trials["no weight-dropping"].reads_from == trials["full"].key
    print_plan(sweep, state, records)
    shown = capsys.readouterr().out
    assert "read from full" in shown and "12 new, 6 read" in shown
    standing = {(t.variant, t.seed): t.state_in_words for t in sweep_standing(sweep, state, records).trials}
    assert (standing["full", 1], standing["no weight-dropping", 1]) == ("new", "read from full")


def test_what_is_searched_may_be_off_in_the_base_as_written(tmp_path: Path, records: Records) -> None:
    sweep = at_paper(tmp_path, DESIGN.replace("dropout: {weight: 0.5}", "dropout: {weight: 0.0}"))
    (task,) = search_tasks(sweep)
    find(records, task, ({RATE: 5.0, WEIGHT: 0.2}, 3.8), ({RATE: 7.0, WEIGHT: 0.3}, 3.9))
    changes = {trial.variant: trial.change for trial in expand(sweep, records).trials}
    assert changes["no weight-dropping"] == "dropout.weight 0.2 -> 0.0"
    fixed = DESIGN.replace("penalties: {activation: 2.0}", "penalties: null")
    assert errors_of(tmp_path, fixed)[0].endswith("changes nothing: the base already has penalties = null")


def test_some_variants_alone_keep_the_base_that_is_found(tmp_path: Path, records: Records) -> None:
    sweep = select(at_paper(tmp_path, DESIGN), ["no AR"])
    assert [variant.name for variant in sweep.variants] == ["full", "no AR"]
    trials, (search,) = to_train(sweep, records)
    assert trials == [] and search.task.variants == ("full", "no AR")
    find(records, search.task, ({RATE: 5.0, WEIGHT: 0.2}, 3.8), ({RATE: 7.0, WEIGHT: 0.3}, 3.9))
    assert {trial.spec.optimizer.learning_rate for trial, _ in to_train(sweep, records)[0]} == {5.0}
    assert {trial.variant for trial in expand(select(sweep, ["full"]), records).trials} == {"full"}


def test_a_control_of_equal_budget_is_built_on_what_was_found(tmp_path: Path, records: Records) -> None:
    text = DESIGN.replace("design: pairs", "equal_budget: true").replace("batch_size: 40", "epochs: 1")
    sweep = at_paper(tmp_path, text)
    (task,) = search_tasks(sweep)
    find(records, task, ({RATE: 5.0, WEIGHT: 0.2}, 3.8), ({RATE: 7.0, WEIGHT: 0.3}, 3.9))
    spec = {trial.variant: trial.spec for trial in expand(sweep, records).trials}["large batches (as many epochs)"]
    assert spec.most_epochs == sweep.baseline.spec.most_epochs and spec.optimizer.learning_rate == 5.0


@pytest.mark.parametrize("executor", ["inline", pytest.param("ray", marks=pytest.mark.slow)])
def test_a_search_and_the_ablation_of_what_it_found(place: Path, executor: str) -> None:  # noqa: F811
    rest = "components: {clip: {off: {optimizer.clip: null}}}\n" + SEARCH.replace("trials: 6", "trials: 3")
    (place / "both.yaml").write_text(SWEEP.replace("epochs: 4", "epochs: 2").replace("[1]", "[1, 2, 3]") + rest)
    arguments = ["both.yaml", "--scale", "paper"]
    before = CliRunner().invoke(app, ["plan", *arguments])
    assert before.exit_code == 0, before.output
    words = "to train: up to 3 search trials, then 9 for the table of results, with the values that the searches find"
    assert words in before.stdout.splitlines()
    assert "search for full: 0 of 3 trials" in before.stdout.splitlines()
    ran = CliRunner().invoke(app, ["sweep", *arguments, "--executor", executor])
    assert ran.exit_code == 0, ran.output
    assert ("starting Ray" in ran.output) == (executor == "ray")
    folder = place / "reports" / "tiny" / "paper"
    text = (folder / "report.md").read_text()
    assert "| full | the base itself, as the search found it |" in text
    assert (
        "The base was found by this search: full is trained with the best values, and no clip is a change of it" in text
    )
    assert "9 of 9 planned trials complete." in text
    summary = json.loads((folder / "summary.json").read_text())
    assert set(summary["searches"]) == {"full", "no clip"}
    data = json.loads(CliRunner().invoke(app, ["plan", *arguments, "--json"]).output)
    specs = {trial["variant"]: trial for trial in data["trials"]}
    assert set(specs) == {"full", "no clip", BY_HAND} and data["counts"] == {"done": 9}
    assert summary["base"]["optimizer"]["learning_rate"] != 1.0
    after = CliRunner().invoke(app, ["plan", *arguments])
    assert after.output.splitlines()[-1] == "nothing is left to train"
