"""What a sweep will cost: measured once a distinct model, summed by formula."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from lm.data import load
from lm.feedback import probability
from lm.measured import Measured
from lm.record import write_curve
from lm.spec import (
    Adam,
    BlendedAugmentedLoss,
    Dlms,
    Dropout,
    Finetune,
    MixtureHead,
    RecurrentHighway,
    Scoring,
    SoftmaxHead,
    TrainSpec,
)
from orchestrator.agenda.expand import SweepState, expand
from orchestrator.analysis.comparison import detectable, smallest_detectable
from orchestrator.analysis.looks import Looks
from orchestrator.analysis.noise import text_variance
from orchestrator.analysis.outcomes import read_outcomes
from orchestrator.commands.plan import print_estimate
from orchestrator.execute.estimate import Job, at_most, estimate, makespan, most_trials, packing_of
from orchestrator.execute.measuring import Measuring, measured_spec
from orchestrator.sweep import Resources, ScaledSweep, Sweep
from orchestrator.trials.plan import plan
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial, epochs_after
from tests.support.factories import CORPUS, FULL, make_curve, make_trial, settle, write_tokens
from tests.support.found import SEARCH, at_paper
from tests.support.tiny import tiny_spec, write_corpus

MEASURED = Measured(
    train_tokens_per_second=1000.0,
    valid_tokens_per_second=2000.0,
    test_tokens_per_second=500.0,
    peak_memory_bytes=2**30,
    start_seconds=3.0,
    weights_bytes=4_000_000,
    device="cpu",
    threads=1,
    steps=8,
)


def changed(spec: TrainSpec = FULL, /, **parts: object) -> TrainSpec:
    return spec.model_copy(update=parts)


@pytest.mark.parametrize(
    "other",
    [
        changed(seed=9),
        changed(epochs=3, finetune=None),
        changed(dropout=Dropout(embedding=0.3, input=0.1, between=0.1, output=0.1, weight=0.1)),
        changed(optimizer=FULL.optimizer.model_copy(update={"learning_rate": 3.0, "clip": 0.1})),
        changed(scoring=Scoring(raw_iterate=True)),
        changed(corpus=FULL.corpus.model_copy(update={"train_start": 500})),
    ],
    ids=["seed", "epochs", "dropout values", "rates", "raw iterate", "stretch of the text"],
)
def test_what_changes_no_step_is_measured_once(other: TrainSpec) -> None:
    assert measured_spec(other) == measured_spec(FULL)


def augmented(share: float, temperature: float = 10.0) -> TrainSpec:
    loss = BlendedAugmentedLoss(kind="blended", share=share, temperature=temperature)
    return changed(head=SoftmaxHead(kind="softmax", augmented=loss))


def mixed(**parts: object) -> TrainSpec:
    return changed(feedback=Dlms.model_validate({"kind": "dlms"} | parts))


def mixture(dropout: float, prior_penalty: float) -> TrainSpec:
    head = MixtureHead(kind="mixture", experts=(0, 0, 2), dropout=dropout, prior_penalty=prior_penalty)
    return changed(head=head)


def highway(depth: int, transform_bias: float = -2.0) -> TrainSpec:
    cell = RecurrentHighway(kind="rhn", depth=depth, transform_bias=transform_bias)
    return changed(model=FULL.model.model_copy(update={"cell": cell}))


@pytest.mark.parametrize(
    ("one", "another"),
    [
        (augmented(0.1), augmented(0.9, temperature=2.0)),
        (mixture(0.1, 0.01), mixture(0.6, 0.1)),
        (mixed(schedule={"kind": "linear"}), mixed(most=0.5, last_temperature=10.0)),
        (highway(3), highway(3, transform_bias=-4.0)),
    ],
    ids=["augmented loss", "mixture", "feedback", "transform bias"],
)
def test_coefficients_are_measured_once(one: TrainSpec, another: TrainSpec) -> None:
    assert measured_spec(one) == measured_spec(another)


@pytest.mark.parametrize(
    ("one", "another"),
    [
        (augmented(0.0), augmented(0.1)),
        (mixture(0.0, 0.1), mixture(0.1, 0.1)),
        (mixture(0.1, 0.0), mixture(0.1, 0.1)),
        (FULL, mixed()),
        (mixed(passes=2), mixed()),
        (highway(3), highway(4)),
    ],
    ids=["augmented loss", "dropout", "penalty", "feedback", "passes", "depth"],
)
def test_whether_there_is_a_term_is_measured(one: TrainSpec, another: TrainSpec) -> None:
    assert measured_spec(one) != measured_spec(another)


@pytest.mark.parametrize(
    "other",
    [
        changed(dropout=FULL.dropout.model_copy(update={"weight": 0.0})),
        changed(batch_size=40),
        changed(small_batch=5),
        changed(
            optimizer=Adam(kind="adam", learning_rate=1e-3, clip=0.25), finetune=Finetune(epochs=1, learning_rate=1.0)
        ),
        changed(model=FULL.model.model_copy(update={"hidden_size": 300})),
    ],
    ids=["no mask", "batch", "parts", "adam", "size"],
)
def test_what_changes_a_step_is_measured_by_itself(other: TrainSpec) -> None:
    assert measured_spec(other) != measured_spec(FULL)


def test_a_mixing_that_begins_at_0_is_measured_as_it_is_later() -> None:
    feedback = measured_spec(mixed()).feedback
    assert feedback is not None and probability(feedback, 0.0) == 0.5


def test_a_trials_time_is_its_epochs_and_the_ends_of_its_stages() -> None:
    epoch, valid, test = 100_000 / 1000, 10_000 / 2000, 12_000 / 500
    job = Job(make_trial(), MEASURED, CORPUS, epochs=10, stages=2)
    assert job.seconds == 3.0 + 10 * (epoch + valid) + 2 * (valid + test)
    twice = replace(job, trial=make_trial(scoring=Scoring(raw_iterate=True)))
    assert twice.seconds == 3.0 + 10 * (epoch + 2 * valid) + 2 * (valid + test)


class Stub(Measuring):
    """Has measured everything before."""

    def of(self, spec: TrainSpec) -> Measured:
        return MEASURED

    def has(self, spec: TrainSpec) -> bool:
        return True


def test_epochs_on_disk_and_the_stages_of_another_trial_are_not_counted(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus")
    base = tiny_spec(tmp_path / "corpus", epochs=4)
    sweep = Sweep(name="toy", question="?", base=base, seeds=(1,)).at("paper")
    [trial], facts, runs = plan(sweep), load(base.corpus).facts, tmp_path / "runs"
    tuned = changed(base, finetune=Finetune(epochs=3, learning_rate=1.0))
    longer = replace(trial, spec=tuned, key="longer", starts_from=trial.key)
    write_curve(runs / trial.key, make_curve(base, 100.0, epochs=1))

    def seconds(*trials: Trial) -> float:
        left = at_most(sweep, SweepState((), list(trials)), Records(runs), Stub("cpu", 1), at_once=1)
        assert left.trials == len(trials) and left.core_hours is not None
        assert left.seconds == pytest.approx(3600 * left.core_hours), "one at once, with a core each"
        return left.seconds

    first = Job(trial, MEASURED, facts, epochs=3, stages=1).seconds
    assert seconds(trial) == pytest.approx(first)
    assert seconds(trial, longer) == pytest.approx(first + Job(longer, MEASURED, facts, epochs=3, stages=1).seconds)
    assert seconds(longer) == pytest.approx(Job(longer, MEASURED, facts, epochs=7, stages=2).seconds)
    write_curve(runs / longer.key, make_curve(tuned, 100.0, epochs=5))  # four of them are those that it took over
    assert seconds(trial, longer) == pytest.approx(first + Job(longer, MEASURED, facts, epochs=2, stages=1).seconds)


def test_a_stage_that_ended_early_has_no_epochs_left() -> None:
    stages = {"train": 12, "finetune-1": 4}
    curve = make_curve(FULL, 100.0, epochs=6)
    assert epochs_after(stages, []) == 16
    assert epochs_after(stages, [replace(point, stage="train") for point in curve]) == 10
    ended = [replace(point, stage="train" if point.epoch < 6 else "finetune-1") for point in curve]
    assert epochs_after(stages, ended) == 3
    assert epochs_after({"finetune-1": 4}, [replace(point, stage="train") for point in curve]) == 4
    assert epochs_after({}, curve) == 0


def test_a_search_that_hours_alone_bound_takes_them(tmp_path: Path) -> None:
    sweep = at_paper(tmp_path, SEARCH.replace("trials: 2", "training_hours: 10"))
    state = expand(sweep, Records(tmp_path / "runs"))
    left = at_most(sweep, state, Records(tmp_path / "runs"), Stub("cpu", 1), at_once=1)
    table = at_most(sweep, replace(state, searches=[]), Records(tmp_path / "runs"), Stub("cpu", 1), at_once=1)
    assert left.core_hours is not None and table.core_hours is not None
    assert left.core_hours > 10 and left.core_hours - table.core_hours < 11


def test_trials_that_share_a_cpu_slow_each_other_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.execute.estimate.cpu_count", lambda: 2)
    write_corpus(tmp_path / "corpus")
    base = tiny_spec(tmp_path / "corpus", epochs=4)

    def seconds(cpus: float) -> float | None:
        sweep = Sweep(name="toy", question="?", base=base, seeds=tuple(range(8)), resources=Resources(cpus=cpus))
        at, records = sweep.at("paper"), Records(tmp_path / "runs")
        return at_most(at, SweepState((), plan(at)), records, Stub("cpu", 1)).seconds

    assert seconds(0.25) == pytest.approx(seconds(1.0))


def test_bytes_on_disk() -> None:
    job = Job(make_trial(), MEASURED, CORPUS, epochs=16, stages=2)
    assert job.disk_bytes == 2 * 4_000_000 + 2 * 22_000 * 6 + 16 * 120 + 30_000
    assert job.checkpoint_bytes == 2 * 3 * 4_000_000
    adam = make_trial(optimizer=Adam(kind="adam", learning_rate=1e-3), finetune=None)
    assert replace(job, trial=adam).checkpoint_bytes == 2 * 4 * 4_000_000


@pytest.mark.parametrize(("memory", "fit"), [(8.0, 4), (5.7, 3), (5.6, 2), (2.6, 1), (2.5, 0), (0.5, 0)])
def test_the_memory_of_a_machine_is_shared_after_the_drivers_share(
    monkeypatch: pytest.MonkeyPatch, memory: float, fit: int
) -> None:
    """1.0 GiB for the driver, and 1.15 times the largest peak for each trial."""
    module = "orchestrator.execute.estimate"
    monkeypatch.setattr(f"{module}.memory_bytes", lambda: int(memory * 2**30))
    monkeypatch.setattr(f"{module}.cpu_count", lambda: 3)
    sweep = Sweep(name="toy", question="?", base=FULL, seeds=(1,)).at("paper")
    small, large = (MEASURED.model_copy(update={"peak_memory_bytes": int(size * 2**30)}) for size in (0.2, 1.35))
    packing = packing_of(sweep, [small, large])
    assert (packing.by_cpus, packing.by_memory, packing.by_gpus) == (3, fit, None)


def test_the_longest_start_first() -> None:
    assert makespan([1.0, 2.0, 3.0], 2) == 3.0
    assert makespan([5.0, 1.0], 1) == 6.0


def toy(folder: Path) -> ScaledSweep:
    base = tiny_spec(folder / "corpus", epochs=1)
    return Sweep(
        name="toy",
        question="?",
        base=base,
        variants={"no weight drop": {"dropout.weight": 0.0}, "slow": {"optimizer.learning_rate": 1.0}},
        seeds=(1, 2),
    ).at("paper")


def test_measured_in_a_process_of_its_own_kept_and_printed(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_corpus(tmp_path / "corpus")
    monkeypatch.setenv("LM_CACHE", str(tmp_path / "lm"))
    assert Measuring("cpu", 1).folder == tmp_path / "lm" / "measured"
    sweep, records, kept = toy(tmp_path), Records(tmp_path / "runs"), tmp_path / "measured"
    trials = plan(sweep)
    lines: list[str] = []
    state, measuring = SweepState((), trials), Measuring("cpu", 1, steps=2, folder=kept)
    found = estimate(sweep, state, records, measuring, at_once=1, say=lines.append)
    assert len(list(kept.iterdir())) == len(lines) == 2  # the slow variant takes the base's steps
    assert lines[0].startswith(f"measuring model 1 of 2, {trials[0].variant}")
    assert [cost.trials for cost in found.variants] == [2, 2, 2]
    assert all(cost.tokens_per_second > 0 and cost.peak_memory_bytes > 10 * 2**20 for cost in found.variants)
    assert found.seconds == pytest.approx(sum(cost.seconds for cost in found.variants))
    assert found.core_hours == pytest.approx(found.seconds / 3600)
    assert found.states == {"new": 6} and found.detectable is None

    before = {path: path.stat().st_mtime_ns for path in kept.iterdir()}
    measuring = Measuring("cpu", 1, steps=2, folder=kept)
    estimate(sweep, SweepState((), trials), records, measuring, say=lines.append)
    assert len(lines) == 2, "what was measured before is not measured again"
    assert {path: path.stat().st_mtime_ns for path in kept.iterdir()} == before

    for path in before:
        path.write_text('{"threads": 1}')  # as another version of the project might
    assert not any(Measuring("cpu", 1, steps=2, folder=kept).has(trial.spec) for trial in trials)
    assert measuring.of(trials[0].spec).threads == 1

    (tmp_path / "a file").touch()
    unkept = Measuring("cpu", 1, steps=2, folder=tmp_path / "a file" / "measured")
    assert unkept.of(trials[0].spec).threads == 1
    assert "measurements are not kept in" in caplog.text

    print_estimate(found)
    assert json.loads(json.dumps(asdict(found)))["states"] == dict(found.states)  # as plan --json prints it
    said = capsys.readouterr().out
    assert "trials: 6 new, 0 done or read, 0 to resume" in said and "unknown until two finished seeds" in said


def test_the_spread_of_finished_seeds_says_what_can_be_shown(tmp_path: Path) -> None:
    sweep = Sweep(name="toy", question="?", base=FULL, variants={"short": {"epochs": 3}}, seeds=(1, 2, 3)).at("paper")
    trials = [
        make_trial(variant.name, seed, epochs=variant.spec.epochs) for variant in sweep.variants for seed in sweep.seeds
    ]
    for trial, perplexity in zip(trials, (100.0, 101.0, 99.0, 110.0, 111.0, 109.0), strict=True):
        settle(tmp_path, trial, perplexity)
    found = estimate(
        sweep, SweepState((), trials), Records(tmp_path), Measuring("cpu", 1, folder=tmp_path / "measured")
    )
    assert found.states == {"done": 6} and found.packing is None and found.seconds == 0.0
    assert found.detectable is not None
    assert found.detectable.deviation_nats == pytest.approx(0.0096, abs=0.0003)
    assert 2.0 < found.detectable.perplexity < 5.0

    assert found.detectable.text_error_nats is None

    state = SweepState((), trials, Looks((2, 3)))
    stricter = estimate(sweep, state, Records(tmp_path), Measuring("cpu", 1, folder=tmp_path / "measured"))
    assert stricter.detectable is not None
    assert (stricter.detectable.nats, math.log1p(stricter.detectable.margin)) == pytest.approx(
        smallest_detectable(found.detectable.deviation_nats, 0.0, (3, 3), 1, 1 - state.looks.error(3))
    )

    for trial in trials:
        write_tokens(tmp_path, trial, harder=0.3 * (trial.variant == "short"))
    told = estimate(sweep, SweepState((), trials), Records(tmp_path), Measuring("cpu", 1, folder=tmp_path / "measured"))
    assert told.detectable is not None and told.detectable.text_error_nats is not None
    groups = read_outcomes(trials, Records(tmp_path), sweep.baseline.name).values()
    base, short = (np.mean([one.losses.blocks for one in group if one.losses], axis=0) for group in groups)
    assert told.detectable.text_error_nats == pytest.approx(math.sqrt(text_variance(short - base)))
    assert told.detectable.nats > found.detectable.nats


def test_before_the_baseline_has_losses_the_other_variants_tell_what_can_be_shown(tmp_path: Path) -> None:
    sweep = Sweep(name="toy", question="?", base=FULL, variants={"short": {"epochs": 3}}, seeds=(1, 2, 3)).at("paper")
    trials = [make_trial(v.name, seed, epochs=v.spec.epochs) for v in sweep.variants for seed in sweep.seeds]
    records = Records(tmp_path)
    for trial in trials[3:]:
        settle(tmp_path, trial, 110.0 + trial.seed)
        write_tokens(tmp_path, trial)
    early = detectable(read_outcomes(trials, records, sweep.baseline.name))
    for trial in trials[:3]:
        settle(tmp_path, trial, 100.0 + trial.seed)
    without = detectable(read_outcomes(trials, records, sweep.baseline.name))
    assert early is not None and without is not None
    assert early.text_error_nats is None and without.text_error_nats is None


def test_a_member_of_a_population_costs_its_generation_and_what_it_finds_all_epochs(tmp_path: Path) -> None:
    population = "scheduler: {kind: population, population: 4, interval_epochs: 1}"
    sweep = at_paper(tmp_path, SEARCH.replace("trials: 2", population))
    epochs: dict[str, list[int]] = {}
    for trial in most_trials(sweep, expand(sweep, Records(tmp_path))):
        epochs.setdefault(trial.variant, []).append(trial.spec.epochs)
    whole = sweep.baseline.spec.epochs
    assert epochs == {"full": [whole] * 2, "search for best found": [1] * 4 * whole, "best found": [whole] * 2}
