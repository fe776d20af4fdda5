"""What `status` says of a search that runs."""

from __future__ import annotations

import math

from orchestrator.agenda.standing import search_standing
from orchestrator.search.events import Asked, Ended, Evaluated, SearchTrial, apply
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
