"""What a run shows of a trial that ended, or was trained, more than once."""

from __future__ import annotations

from orchestrator.trials.records import Records
from orchestrator.watch.mlflow.store import Run, connect, tracking_uri


def test_a_run_keeps_the_time_at_which_it_ended(records: Records) -> None:
    """`sweep_numbers` sorts by it."""
    client = connect(tracking_uri())
    run = Run(client, client.create_run("0"))
    run.set_status("FINISHED", 1000)
    run.set_status("FINISHED")
    assert (run.ended, client.get_run(run.id).info.end_time) == (1000, 1000)
    run.set_status("RUNNING")
    assert run.ended is None
    run.set_status("KILLED")
    assert run.ended is not None and run.ended == client.get_run(run.id).info.end_time
