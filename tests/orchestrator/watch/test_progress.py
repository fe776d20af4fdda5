"""What a sweep says while it runs."""

from __future__ import annotations

import dataclasses
import io
import logging
import re
import threading
from pathlib import Path

import pytest
from rich.console import Console

from lm.record import Evaluation, Record, write_curve
from lm.spec import Cache, Finetune
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial, stage_epochs
from orchestrator.watch.progress import Clock, Listeners, Progress
from orchestrator.words import in_words
from tests.support import factories
from tests.support.tracking import point, record, trial


def pipe() -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=False, width=60), out


def terminal(height: int = 50) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=True, color_system=None, width=120, height=height), out


def lines(out: io.StringIO) -> list[str]:
    """Without the time of day that every line starts with."""
    said = out.getvalue().splitlines()
    assert all(re.match(r"\d\d:\d\d:\d\d ", line) for line in said)
    return [line[9:] for line in said]


class Wall:
    """A clock that only the test moves."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_plain_lines_at_start_while_it_runs_and_at_the_end() -> None:
    console, out = pipe()
    one, two = trial("without [weight]-drop"), trial("full", 2)
    with Progress([one, two], console=console, line_seconds=3600) as progress:
        progress.started(one)
        for epoch in (1, 2, 3):
            progress.evaluated(one, point(epoch))
        progress.settled(one, record(one))
        progress.started(two)
        progress.settled(two, record(two, "failed", "Traceback\n  ...\nCorpusError: no such folder"))
    first, *said = lines(out)
    assert first == "0 done, 2 waiting; time left: unknown"
    assert said[0] == "without [weight]-drop, seed 1: started"
    where = "without [weight]-drop, seed 1: train, epoch 1/3, validation perplexity 735.10, 700 tokens/s"
    assert said[1].startswith(f"{where}; time left: about ")
    ended = "without [weight]-drop, seed 1: complete, perplexity 90.00 validation (its best epoch: 2), 80.00 test"
    assert said[2].startswith(f"{ended}; 1 done, 1 waiting; time left: about")
    assert said[3:] == [
        "full, seed 2: started",
        "full, seed 2: failed: CorpusError: no such folder; 1 done, 1 failed",
        "1 done, 1 failed",
    ]


def test_every_trial_has_its_own_turn_to_speak() -> None:
    console, out = pipe()
    one, two = trial("one"), trial("two")
    progress = Progress([one, two], console=console, line_seconds=0.0)
    progress.evaluated(one, point(1))
    progress.evaluated(one, point(2))
    slow = Progress([one, two], console=console, line_seconds=3600)
    for epoch in (1, 2, 3):
        slow.evaluated(one, point(epoch))
        slow.evaluated(two, point(epoch))
    assert [line.split(",")[0] for line in lines(out)] == ["one", "one", "one", "two"]


def test_a_terminal_shows_what_runs_and_how_the_latest_ended() -> None:
    console, out = terminal()
    names = [trial(f"variant {number}") for number in range(30)]
    with Progress(names, console=console) as progress:
        for one in names[:24]:
            progress.started(one)
        progress.evaluated(names[3], point(2, valid_nats_per_token=1e4))
        progress.evaluated(names[9], point(2, valid_nats_per_token=4.0, tokens_per_second=12345.6))
        for one in names[:3]:
            progress.settled(one, record(one))
        progress.settled(names[8], record(names[8], "diverged", "the loss is nan"))
        progress.settled(names[4], None)
    last = out.getvalue()
    assert "variant 9, seed 1: train, epoch 2/3, validation perplexity 54.60, 12,346 tokens/s" in last
    assert "variant 3, seed 1: train, epoch 2/3, validation perplexity ∞, 700 tokens/s" in last
    assert "diverged: the loss is nan" in last and "stopped, can be resumed" in last
    assert "and 3 more running" in last
    assert "3 done, 19 running, 7 waiting, 1 diverged; time left: about" in last
    assert "variant 29" not in last
    assert re.search(r"\n4/30: 3 done, 19 running, .*\n━{8} *\n", last.replace("\r", ""))


def test_the_bar_is_empty_while_a_search_has_asked_for_no_trial() -> None:
    console, out = terminal()
    with Progress([], console=console):
        pass
    assert "━" not in out.getvalue() and "0/0: 0 done" in out.getvalue()


def test_nothing_is_drawn_more_often_than_the_eye_needs() -> None:
    console, out = terminal()
    many = [trial(f"variant {number}") for number in range(3000)]
    with Progress(many, console=console) as progress:
        for one in many:
            progress.started(one)
            progress.evaluated(one, point(1))
            progress.settled(one, record(one))
    assert len(out.getvalue()) < 100_000
    assert progress.counts()["done"] == 3000


def test_readers_are_counted_with_the_trial_they_are_read_from() -> None:
    source, waiting = trial("full", finetune=2), trial("other")
    reader = trial("without fine-tuning", reads_from=source.key)
    progress = Progress([source, reader, waiting], console=pipe()[0], done=[waiting.key])
    assert progress.counts() == {"done": 1, "running": 0, "waiting": 2, "stopped early": 0, "diverged": 0, "failed": 0}
    progress.started(source)
    assert progress.counts() == {"done": 1, "running": 1, "waiting": 1, "stopped early": 0, "diverged": 0, "failed": 0}
    progress.settled(source, record(source))
    assert progress.counts() == {"done": 3, "running": 0, "waiting": 0, "stopped early": 0, "diverged": 0, "failed": 0}
    assert progress.summary() == "3 done"


def test_the_time_left_is_unknown_until_an_epoch_has_ended() -> None:
    one = trial("one")
    progress = Progress([one], console=pipe()[0])
    progress.started(one)
    assert progress.summary() == "0 done, 1 running; time left: unknown"
    progress.evaluated(one, point(1))
    assert "about" in progress.summary()


def test_the_time_left_is_the_epochs_left_over_the_trials_at_once() -> None:
    wall = Wall()
    trials = [trial(f"variant {number}", epochs=10) for number in range(4)]
    done, reader = trial("done", epochs=500), trial("reader", epochs=700, reads_from=trials[0].key)
    clock = Clock([*trials, done, reader], [done.key], wall=wall)
    for one in trials[:2]:
        clock.started(one)
    assert clock.seconds_left() is None
    wall.seconds = 6.0
    for one in trials[:2]:
        clock.evaluated(one, point(1))
    assert clock.seconds_left() == pytest.approx(6.0 * (9 + 9 + 10 + 10) / 2)
    for one in trials[:3]:
        clock.settled(one, resumable=False)
    assert clock.seconds_left() == pytest.approx(60.0), "one trial cannot run twice as fast"
    clock.settled(trials[3], resumable=True)
    assert clock.seconds_left() == pytest.approx(60.0)
    clock.settled(trials[3], resumable=False)
    assert clock.seconds_left() == 0.0


def test_a_stage_that_ends_early_shortens_what_is_left() -> None:
    one = trial("one", epochs=100, finetune=20)
    clock = Clock([one])
    assert clock.epochs_left(one) == 120
    clock.evaluated(one, point(40))
    assert clock.epochs_left(one) == 80
    clock.evaluated(one, point(41, "finetune-1"))
    assert clock.epochs_left(one) == 19
    resumed = Clock([one])
    resumed.evaluated(one, point(110, "finetune-1"))
    assert resumed.epochs_left(one) == 10


def test_shared_stages_are_not_trained_again() -> None:
    full = trial("full", finetune=5)
    twice = full.spec.model_copy(update={"finetune": Finetune(epochs=5, repeats=2)})
    with_cache = full.spec.model_copy(update={"cache": Cache(window=5, weight=0.1, flatness=1.0)})
    longer = dataclasses.replace(full, key="longer", spec=twice, starts_from=full.key)
    cached = dataclasses.replace(full, key="cached", spec=with_cache, starts_from=full.key)
    clock = Clock([full, cached, longer])
    assert stage_epochs(cached.spec) == {"train": 3, "finetune-1": 5, "cache": 0}
    assert [clock.epochs_left(one) for one in (full, cached, longer)] == [8, 0, 5]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (89, "89 s"), (600, "10 min"), (5399, "1 h 30 min"), (12000, "3 h 20 min"), (187200, "2 d 4 h")],
)
def test_times_are_said_as_one_reads_them(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


def test_many_threads_may_tell_it() -> None:
    console, _ = terminal()
    trials = [trial(f"variant {number}", seed) for number in range(8) for seed in range(40)]
    errors: list[BaseException] = []

    def tell(mine: list[Trial]) -> None:
        try:
            for one in mine:
                progress.started(one)
                progress.evaluated(one, point(1))
                progress.summary()
                progress.settled(one, record(one))
        except BaseException as error:
            errors.append(error)

    with Progress(trials, console=console) as progress:
        threads = [threading.Thread(target=tell, args=(trials[start::8],)) for start in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []
    assert progress.counts() == {
        "done": len(trials),
        "running": 0,
        "waiting": 0,
        "stopped early": 0,
        "diverged": 0,
        "failed": 0,
    }


class Told:
    """A listener that notes what it hears, or fails at it."""

    def __init__(self, *, fails: bool = False) -> None:
        self.heard: list[str] = []
        self.fails = fails

    def started(self, trial: Trial) -> None:
        self._hear("started")

    def evaluated(self, trial: Trial, evaluation: Evaluation) -> None:
        self._hear(f"epoch {evaluation.epoch}")

    def settled(self, trial: Trial, record: Record | None) -> None:
        self._hear("stopped" if record is None else record.status)

    def _hear(self, what: str) -> None:
        self.heard.append(what)
        if self.fails:
            raise OSError("disk full")


def test_a_listener_that_fails_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    broken, sound = Told(fails=True), Told()
    both = Listeners(broken, sound)
    one = trial("one")
    both.started(one)
    both.evaluated(one, point(1))
    both.settled(one, None)
    both.settled(one, record(one))
    assert sound.heard == broken.heard == ["started", "epoch 1", "stopped", "complete"]
    warnings = [entry.getMessage() for entry in caplog.records if entry.levelno >= logging.WARNING]
    assert warnings == ["Told: OSError: disk full"]
    assert any(entry.exc_info for entry in caplog.records)


def test_a_reader_that_has_gone_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr("sys.stderr", Gone())
    with Progress([trial()]) as progress:
        progress.say("nobody hears this")
        progress.started(trial())


def test_trials_that_a_search_proposes_are_counted_as_they_come() -> None:
    console, out = pipe()
    one, two = trial("one"), trial("two")
    with Progress([], console=console) as progress:
        progress.started(one)
        assert (progress.counts()["running"], progress.counts()["waiting"]) == (1, 0)
        progress.evaluated(one, point(1))
        progress.settled(dataclasses.replace(one, stopped_early=True), None)
        progress.started(two)
        progress.settled(two, record(two))
        counts = progress.counts()
    assert counts == {"done": 1, "running": 0, "waiting": 0, "stopped early": 1, "diverged": 0, "failed": 0}
    assert any("one, seed 1: stopped early; 0 done, 1 stopped early" in line for line in lines(out))


def test_what_searches_may_still_ask_for_waits_and_takes_time() -> None:
    console, out = pipe()
    base, tried = trial("full"), dataclasses.replace(trial("full", 9), number=0, opens_test=False)
    with Progress([], console=console, line_seconds=0.0) as progress:
        progress.expect([dataclasses.replace(tried, key=f"search {n}") for n in range(3)] + [base])
        assert progress.counts()["waiting"] == 4
        progress.started(tried)
        assert (progress.counts()["waiting"], progress.counts()["running"]) == (3, 1)
        progress.settled(tried, record(tried))
        progress.started(base)
        assert progress.counts()["waiting"] == 2, "two trials of the search"
        progress.expect([])
        assert progress.counts()["waiting"] == 0
    assert "0 done, 4 waiting; time left: unknown" not in lines(out)[-1]


def test_a_trial_of_a_search_that_was_interrupted_waits_once() -> None:
    console, _ = pipe()
    tried = dataclasses.replace(trial("full", 9), number=0, opens_test=False)
    may_come = [dataclasses.replace(tried, key=f"search {n}") for n in range(3)]
    with Progress([], console=console) as progress:
        progress.expect(may_come)
        for _ in range(2):  # as after its worker died
            progress.started(tried)
            assert (progress.counts()["waiting"], progress.counts()["running"]) == (2, 1)
            progress.settled(tried, None)
            assert (progress.counts()["waiting"], progress.counts()["running"]) == (3, 0)
        progress.expect(may_come[1:], [tried])
        assert progress.counts()["waiting"] == 3
    with Progress([], console=console) as progress:  # the next command
        progress.expect(may_come[1:], [tried])
        progress.started(tried)
        assert (progress.counts()["waiting"], progress.counts()["running"]) == (2, 1)


def test_the_trials_of_a_further_look_wait_and_take_time() -> None:
    console, out = pipe()
    one, two, three = trial("full", 1), trial("full", 2), trial("full", 3)
    with Progress([one], console=console, line_seconds=0.0) as progress:
        progress.started(one)
        progress.evaluated(one, point(1))
        progress.settled(one, record(one))
        progress.expect([], [two, three, dataclasses.replace(three, key="read", reads_from=three.key)])
        assert progress.counts() == dict.fromkeys(progress.counts(), 0) | {"done": 1, "waiting": 3}
        progress.started(three)
        progress.settled(three, record(three))
        assert progress.counts() == dict.fromkeys(progress.counts(), 0) | {"done": 3, "waiting": 1}
        progress.started(two)
        progress.settled(two, None)
        progress.expect([], [two])
        assert progress.counts()["waiting"] == 1
        progress.started(two)
        unscored = tuple(stage.without_test() for stage in record(two).stages)
        progress.settled(two, record(two).model_copy(update={"stages": unscored}))
        assert progress.counts()["waiting"] == 1, "it was interrupted while it was scored on test"
        progress.started(two)
        progress.settled(two, record(two))
    assert lines(out)[-1] == "4 done"


def test_the_time_left_counts_what_is_to_come() -> None:
    wall = Wall()
    clock = Clock([], wall=wall)
    one = trial("full")
    clock.to_come = [one, dataclasses.replace(one, key="another")]
    clock.started(one)
    wall.seconds = 10.0
    clock.evaluated(one, point(1))
    epochs = sum(stage_epochs(one.spec).values())
    assert clock.seconds_left() == pytest.approx(10.0 * (2 * epochs - 1))


def test_a_low_terminal_shows_the_counts_and_a_dumb_one_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [trial("full", seed) for seed in range(12)]
    console, out = terminal(height=8)
    with Progress(many, console=console) as progress:
        for each in many:
            progress.started(each)
    assert "and 9 more running" in out.getvalue() and "12 running; time left: unknown" in out.getvalue()
    monkeypatch.setenv("TERM", "dumb")
    console, out = terminal()
    with Progress(many, console=console) as progress:
        progress.started(many[0])
    assert "full, seed 0: started" in lines(out)


def test_colours_that_a_build_server_asks_for_draw_no_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Progress([trial("full")]) as progress:
        progress.started(trial("full"))
    assert "full, seed 1: started" in capsys.readouterr().err


def test_the_time_left_falls_while_an_epoch_of_hours_runs_and_never_below_the_epochs_after_it() -> None:
    wall, one = Wall(), trial("one")
    clock = Clock([one], wall=wall)
    clock.started(one)
    assert clock.seconds_left() is None
    wall.seconds = 7200.0
    clock.evaluated(one, point(1))
    assert clock.seconds_left() == 2 * 7200.0
    wall.seconds += 3600.0
    assert clock.seconds_left() == 1.5 * 7200.0
    wall.seconds += 3 * 3600.0
    assert clock.seconds_left() == 7200.0


def test_a_variant_counts_with_its_own_epochs_once_one_of_them_has_ended() -> None:
    wall, fast, slow, other = Wall(), trial("fast"), trial("slow"), trial("slow", 2)
    clock = Clock([fast, slow, other], wall=wall)
    clock.started(fast)
    wall.seconds = 10.0
    clock.evaluated(fast, point(1))
    assert clock.seconds_left() == 10.0 * (2 + 3 + 3)
    clock.settled(fast, resumable=False)
    clock.started(slow)
    wall.seconds = 110.0
    clock.evaluated(slow, point(1))
    assert clock.seconds_left() == 100.0 * (2 + 3)


def test_what_earlier_commands_trained_tells_the_time_left_before_the_first_epoch_ends(tmp_path: Path) -> None:
    """Epochs of the one that goes on that are over count no more; ten seconds each, as its curve says."""
    half, done, new = (factories.make_trial(f"variant {seed}", seed) for seed in (1, 2, 3))
    factories.begin(tmp_path, half, 100.0, epochs=6)
    console, out = pipe()
    with Progress([half, done, new], done=[done.key], console=console, records=Records(tmp_path)) as progress:
        progress.started(half)
        assert progress.summary() == f"1 done, 1 running, 1 waiting; time left: about {in_words(10.0 * (10 + 16))}"
    assert lines(out)[0] == "1 done, 2 waiting; time left: unknown", "how many run at once is not known yet"
    factories.settle(tmp_path / "done", done, 100.0)
    clock = Clock([done, new], [done.key], Records(tmp_path / "done"))
    clock.started(new)
    seconds = clock.seconds_left()
    assert seconds is not None and seconds == pytest.approx(16 * 10.0, rel=0.01)


def test_an_epoch_that_goes_on_from_a_checkpoint_within_it_counts_whole(tmp_path: Path) -> None:
    """Its own seconds of training are kept with the checkpoint; the wall has seen the rest of them alone."""
    wall, one, two = Wall(), trial("one"), trial("two")
    write_curve(tmp_path / one.key, [point(1, seconds=100.0)])
    clock = Clock([one, two], records=Records(tmp_path), wall=wall)
    clock.started(one)
    wall.seconds = 5.0
    clock.evaluated(one, point(2, seconds=200.0))
    assert clock.seconds_left() == 100.0 * (1 + 3)
    wall.seconds = 125.0
    clock.evaluated(one, point(3, seconds=300.0))
    clock.settled(one, resumable=False)
    assert clock.seconds_left() == 110.0 * 3, "with what is not training, where the wall has seen it"


def test_a_trial_of_a_search_is_called_by_what_it_tries_with_the_best_so_far() -> None:
    console, out = pipe()
    one, two = (
        dataclasses.replace(
            trial(f"seven {number}"), variant="full", number=number, change=f"dropout.output 0.{number}"
        )
        for number in (7, 8)
    )
    with Progress([], console=console, best={"full": (91.0, 3), "other": (1.0, 2)}) as progress:
        progress.started(one)
        progress.settled(one, record(one))
        progress.started(two)
        progress.settled(two, record(two))
        progress.settled(trial("full"), record(trial("full")))
    said = "\n".join(lines(out))
    assert "full, trial 7 (dropout.output 0.7): started" in said
    ended = "complete, perplexity 90.00 validation (its best epoch: 2), 80.00 test"
    ended += "; best so far 90.00 validation perplexity, trial 7"
    assert f"full, trial 7 (dropout.output 0.7): {ended}; 1 done" in said
    assert f"full, trial 8 (dropout.output 0.8): {ended}; 2 done" in said
    assert said.count("best so far") == 2
    console, out = terminal()
    with Progress([], console=console) as progress:
        progress.started(one)
    assert "full, trial 7 (dropout.output 0.7)" in out.getvalue()


def test_what_diverged_before_is_not_counted_as_done() -> None:
    one, two = trial("one"), trial("two")
    progress = Progress([one, two], done={one.key, two.key}, diverged={two.key}, console=pipe()[0])
    assert progress.summary() == "1 done, 1 diverged"


def test_what_an_earlier_command_trained_of_what_a_search_finds_is_counted_when_it_is_over() -> None:
    one, two, three = trial("one"), trial("two"), trial("three")
    progress = Progress([], console=pipe()[0])
    progress.expect([dataclasses.replace(one, key="a stand-in")])
    assert progress.summary().startswith("0 done, 1 waiting")
    readers = [dataclasses.replace(one, variant="reads one", reads_from=one.key)]
    progress.expect([], [one, two, three, *readers], {one.key: "done", two.key: "diverged"})
    assert progress.summary().startswith("2 done, 1 waiting, 1 diverged")


def test_diverged_is_not_counted_as_failed() -> None:
    progress = Progress([one := trial("one"), two := trial("two")], console=pipe()[0])
    progress.settled(one, record(one, "diverged", "the loss is nan"))
    progress.settled(two, record(two, "failed", "no memory"))
    assert progress.summary() == "0 done, 1 diverged, 1 failed"
