"""What `status` says of a search that runs."""

from __future__ import annotations

import math
from pathlib import Path

from orchestrator.agenda.standing import search_standing, search_standings
from orchestrator.search.events import Asked, Ended, Evaluated, SearchTrial, apply
from orchestrator.search.ledger import SearchState
from orchestrator.trials.locks import holding_searches
from tests.support import searching


def test_a_trial_that_runs_is_called_by_what_it_tries() -> None:
    task, trials = searching.task(), list[SearchTrial]()
    nats = math.log(80.0)
    for number, units in enumerate((8, 16, 24)):
        apply(Asked(asked=number, values={"model.hidden_size": units}, key=f"key{number}"), trials)
    apply(Ended(ended=0, state="complete", nats=nats, objectives=(nats,), epochs=3, seconds=1.0, reason=None), trials)
    apply(Evaluated(evaluated=2, epoch=1, nats=math.log(90.0), seconds=1.0, goes_on=True), trials)
    assert search_standing(searching.state(task, trials)).in_words().splitlines() == [
        "search for full: 3 of 12 trials: 1 complete, 2 running; best 80.00 validation perplexity, "
        "with model.hidden_size 8",
        "  running: trial 1 (model.hidden_size 16), 0 epochs",
        "  running: trial 2 (model.hidden_size 24), 1 epoch, 90.00 validation perplexity",
    ]


def test_what_an_interrupt_left_is_to_resume_until_a_command_runs_the_search(tmp_path: Path) -> None:
    task, trials = searching.task(), list[SearchTrial]()
    apply(Asked(asked=0, values={"model.hidden_size": 8}, key="key0"), trials)
    search = SearchState(task, tmp_path / "ledger.jsonl", trials)
    words = "search for full: 1 of 12 trials: 1 {0}\n  {0}: trial 0 (model.hidden_size 8), 0 epochs"
    assert search_standings([search])[0].in_words() == words.format("to resume")
    with holding_searches([search.ledger]):
        assert search_standings([search])[0].in_words() == words.format("running")
