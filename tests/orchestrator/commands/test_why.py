from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from lm.record import Evaluation, read_curve, read_record, write_curve, write_record
from orchestrator.execute import reproduce as reproducing
from tests.support.factories import FULL, make_curve
from tests.support.places import command, folder_of, settle, settle_spec, start, trials


def change_record(folder: Path, **changes: object) -> None:
    record = read_record(folder)
    assert record is not None
    write_record(folder, record.model_copy(update=changes))


def test_why_shows_the_reason_the_traceback_and_the_curves_end(place: Path) -> None:
    full = trials()["full"]
    folder = settle(full)
    change_record(folder, status="failed", reason="RuntimeError: no luck (x.py:1)")
    (folder / "log.txt").unlink()
    code, out, _ = command("why", full.key[:8])
    assert code == 0
    assert out.startswith(f"{full.key} failed: RuntimeError: no luck (x.py:1)\nno traceback was kept (failure.txt)\n")
    (folder / "failure.txt").write_text("Traceback:\n" + "".join(f"  line {n}\n" for n in range(50)))
    out = command("why", full.key, "--lines", "2")[1]
    assert [line.split(":")[0] for line in out.splitlines()] == [
        f"{full.key} failed", "  line 48", "  line 49", "train epoch 2", "finetune-1 epoch 3",
    ]  # fmt: skip


def test_why_shows_the_logs_end_once(place: Path) -> None:
    full = trials()["full"]
    folder = settle(full)
    change_record(folder, status="failed", reason="RuntimeError: no luck (x.py:1)")
    (folder / "failure.txt").write_text("Traceback\n")
    begins = "2026-01-02T03:04:05Z INFO begins: process 1\n"
    failed = "2026-01-02T03:04:06Z ERROR failed: RuntimeError\nTraceback\n"
    (folder / "log.txt").write_text(begins + failed + begins + "one\ncuda: odd\n" + failed)
    out = command("why", full.key, "--lines", "2")[1].splitlines()
    assert out[1:5] == ["Traceback", "the end of log.txt before it failed:", "one", "cuda: odd"]
    (folder / "log.txt").write_text(begins + failed + begins + "killed\n")  # its worker died, and left no traceback
    out = command("why", full.key, "--lines", "2")[1].splitlines()
    assert out[2:5] == ["the end of log.txt before it failed:", begins.strip(), "killed"]
    change_record(folder, status="complete")
    assert "log.txt" not in command("why", full.key)[1]


def test_why_of_a_complete_trial_has_nothing_to_explain(place: Path) -> None:
    full = trials()["full"]
    settle(full)
    (folder_of(full.spec) / "failure.txt").write_text("of an attempt before")
    code, out, _ = command("why", full.key)
    assert code == 0
    assert [line.split(":")[0] for line in out.splitlines()] == [
        f"{full.key} is complete", "train epoch 1", "train epoch 2", "finetune-1 epoch 3",
    ]  # fmt: skip
    assert out.splitlines()[0].endswith(": there is nothing to explain")


def test_why_of_a_trial_that_runs_or_diverged(place: Path) -> None:
    full = trials()["full"]
    wild = full.spec.model_copy(
        update={
            "optimizer": full.spec.optimizer.model_copy(
                update={"learning_rate": 1e6, "weight_decay": 1.0, "clip": None}
            )
        }
    )
    out = command("why", settle_spec(wild, folder_of(wild)).name)[1]
    assert " diverged: not finite in train, epoch 1, step " in out
    assert "no epoch was finished" in out
    running = start(full.spec, place / "runs" / full.key)
    assert f"{full.key} has no record: it was stopped or still runs" in command("why", full.key)[1]
    del running


def test_an_unknown_trial_is_refused(place: Path) -> None:
    assert command("why", "abc") == (2, "", "no trial 'abc' in runs, which holds none\n")


def test_a_trial_is_reproduced_bit_for_bit_in_part_and_whole(place: Path) -> None:
    full, cached = trials()["full"], trials()["neural cache"]
    settle(full)
    settle(cached)  # which took its first stages over
    before = {path: path.stat().st_mtime_ns for path in place.glob("runs/*/*")}
    code, out, err = command("reproduce", full.key[:8], "--epochs", "1")
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "PASS: 1 epoch the same bit for bit"
    assert command("reproduce", cached.key)[1].splitlines()[-1] == (
        "PASS: 3 epochs and the scores of 3 stages the same bit for bit"
    )
    assert {path: path.stat().st_mtime_ns for path in place.glob("runs/*/*")} == before


def test_more_epochs_than_the_record_has_are_refused(place: Path) -> None:
    full = trials()["full"]
    settle(full)
    code, out, err = command("reproduce", full.key, "--epochs", "100")
    assert (code, out) == (2, "")
    assert err == f"--epochs: the record of {full.key} has 3 epochs, got 100\n"
    assert command("reproduce", full.key, "--epochs", "3")[1].splitlines()[-1] == (
        "PASS: 3 epochs and the scores of 2 stages the same bit for bit"
    )


def test_a_repetition_that_ends_early_is_a_failure(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = trials()["full"]
    first = read_curve(settle(full))[0]
    monkeypatch.setattr("lm.train.train", lambda *_, **__: (point for point in [first]))
    code, out, _ = command("reproduce", full.key, "--epochs", "2")
    assert code == 1
    assert out.splitlines()[-1] == "FAIL (bit for bit): the repetition ends after epoch 1, the record goes on"


def altered(point: Evaluation, **changes: object) -> Evaluation:
    return dataclasses.replace(point, **changes)  # type: ignore[arg-type]


def test_one_bit_or_one_epoch_otherwise_is_a_failure(place: Path) -> None:
    full = trials()["full"]
    folder = settle(full)
    curve = read_curve(folder)
    nats = curve[1].valid_nats_per_token
    record = read_record(folder)
    assert record is not None
    write_curve(folder, [curve[0], altered(curve[1], valid_nats_per_token=nats * (1 + 2**-52)), curve[2]])
    write_record(folder, record)
    code, out, _ = command("reproduce", full.key)
    assert code == 1
    assert out.splitlines()[-1].startswith(
        f"FAIL (bit for bit): epoch 2, train: valid_nats_per_token is {nats!r}, was "
    )
    write_curve(folder, [altered(curve[0], seconds=1e9, tokens_per_second=1.0), *curve[1:]])
    write_record(folder, record)
    assert command("reproduce", full.key)[0] == 0, "times are no numbers of the trial's"
    write_curve(folder, curve[:2])
    write_record(folder, record)
    code, out, _ = command("reproduce", full.key)
    assert (code, out.splitlines()[-1]) == (
        1,
        "FAIL (bit for bit): the record ends after epoch 2, the repetition goes on",
    )
    write_curve(folder, curve)
    last = record.stages[-1]
    score = last.test.model_copy(update={"nats_per_token": last.test.nats_per_token + 1e-9})
    change_record(folder, stages=(*record.stages[:-1], last.model_copy(update={"test": score})))
    assert "FAIL (bit for bit): stage finetune-1: test loss is " in command("reproduce", full.key)[1]


def test_what_decides_bits_and_is_otherwise_is_told(place: Path) -> None:
    folder = settle(trials()["full"])
    change_record(folder, versions={"torch": "1.0", "python": "3.11"}, commit="0" * 12, device="cpu (abacus)")
    code, _, err = command("reproduce", folder.name, "--epochs", "1")
    assert code == 0
    for said in (": torch is ", ", was 1.0\n", "device is cpu (", "was cpu (abacus)", "commit is ", "numpy is "):
        assert said in err


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"status": "failed", "reason": "no luck"}, "failed: no luck; there is nothing to compare with"),
        ({"numerics_version": 0}, "is of numerics version 0, this code is of "),
        ({"device": "Abacus 9000"}, "device cuda: torch sees no GPU here"),
    ],
)
def test_what_cannot_be_reproduced_here_is_told(place: Path, changes: dict[str, object], said: str) -> None:
    import torch

    if "device" in changes and torch.cuda.is_available():
        pytest.skip("needs a machine without a GPU")
    folder = settle(trials()["full"])
    change_record(folder, **changes)
    code, out, err = command("reproduce", folder.name)
    assert (code, out) == (2, "")
    assert said in err


def test_another_text_is_told(place: Path) -> None:
    folder = settle(trials()["full"])
    with (place / "corpus" / "train.txt").open("a") as text:
        text.write("one more\n")
    code, _, err = command("reproduce", folder.name)
    assert code == 2
    assert err.startswith("corpus corpus is ")


def test_a_gpu_is_held_to_a_tolerance_and_not_to_the_rules_that_the_last_bits_decide() -> None:
    point = make_curve(FULL, 60.0)[0]
    tolerance = reproducing.GPU_TOLERANCE
    near = altered(point, valid_nats_per_token=point.valid_nats_per_token * (1 + tolerance / 2), best=False)
    far = altered(point, valid_nats_per_token=point.valid_nats_per_token * (1 + 2 * tolerance))
    assert reproducing.epoch_difference(point, near, tolerance) is None
    assert "valid_nats_per_token" in (reproducing.epoch_difference(point, far, tolerance) or "")
    assert "valid_nats_per_token" in (reproducing.epoch_difference(point, near, 0.0) or "")
