from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from lm.data import PUBLISHED, CorpusError, find
from lm.record import CorpusFacts, Record, Score, StageResult, write_record
from lm.spec import NUMERICS_VERSION, BinaryCode, EcocHead, IdentityCode, TrainSpec, code_bits, stage_keys, trial_key
from orchestrator.agenda.expand import expand
from orchestrator.commands.plan import print_plan
from orchestrator.execute import machine
from orchestrator.sweep import check_vocabularies, read_sweep
from orchestrator.trials import plan as plans
from orchestrator.trials.plan import plan, state_in_words, state_of, write_specs
from orchestrator.trials.records import Records
from orchestrator.trials.trial import Trial
from tests.support.sweep_texts import GOOD, SWEEPS, edited, read_text


def planned(folder: Path, text: str, scale: str = "paper") -> list[Trial]:
    return plan(read_text(folder, text).at(scale))


def by_variant(trials: list[Trial], seed: int = 1) -> dict[str, Trial]:
    return {trial.variant: trial for trial in trials if trial.seed == seed}


def sharing(trials: list[Trial], seed: int = 1) -> dict[str, tuple[str | None, str | None]]:
    names: dict[str | None, str | None] = {trial.key: trial.variant for trial in trials}
    found = by_variant(trials, seed)
    return {name: (names.get(trial.reads_from), names.get(trial.starts_from)) for name, trial in found.items()}


def test_every_variant_with_every_seed_the_baseline_first(tmp_path: Path) -> None:
    trials = planned(tmp_path, GOOD)
    order = ["full", "no fine-tuning", "no weight-dropping", "neural cache"]
    assert [(t.seed, t.variant) for t in trials] == [(seed, name) for seed in (1, 2) for name in order]
    assert all(trial.spec.seed == trial.seed for trial in trials)
    assert len({trial.key for trial in trials}) == len(trials)


def test_the_base_is_called_what_the_sweep_calls_it(tmp_path: Path) -> None:
    trials = planned(tmp_path, edited("name: toy", "name: toy\nbaseline: LSTM"))
    assert (trials[0].variant, trials[0].change) == ("LSTM", "the base itself")
    assert "full" not in by_variant(trials)


def test_a_key_is_that_of_spec_and_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "fingerprint_of", lambda corpus: "abc")
    monkeypatch.setattr(plans, "vocabulary_size_of", lambda corpus: 10)
    for trial in planned(tmp_path, GOOD):
        assert trial.key == trial_key(trial.spec, "abc")


def test_fewer_stages_are_read_and_more_stages_start_from_another(tmp_path: Path) -> None:
    assert sharing(planned(tmp_path, GOOD)) == {
        "full": (None, None),
        "no fine-tuning": ("full", None),
        "no weight-dropping": (None, None),
        "neural cache": (None, "full"),
    }


def test_stages_are_shared_among_variants_too(tmp_path: Path) -> None:
    text = edited("{cache: {window: 10, weight: 0.1, flatness: 1.0}}", "{dropout.input: 0.0, finetune.repeats: 3}")
    text = text.replace("seeds: [1, 2]\n", "  once: {dropout.input: 0.0}\n  cached: {dropout.input: 0.0, cache: "
                        "{window: 5, weight: 0.1, flatness: 1.0}}\nseeds: [1, 2]\n")  # fmt: skip
    shared = sharing(planned(tmp_path, text), seed=2)
    assert shared["neural cache"] == (None, None)
    assert shared["once"] == ("neural cache", None)
    assert shared["cached"] == (None, "neural cache")


def test_a_trial_starts_from_the_one_that_shares_most(tmp_path: Path) -> None:
    text = edited("  finetune: {epochs: 2}\n", "")
    text = text.replace("{finetune: null}", "{finetune: {epochs: 2}}")
    text = text.replace("neural cache: {cache", "neural cache: {finetune: {epochs: 2}, cache")
    assert sharing(planned(tmp_path, text)) == {
        "full": (None, None),
        "no fine-tuning": (None, "full"),
        "no weight-dropping": (None, None),
        "neural cache": (None, "no fine-tuning"),
    }


def test_nothing_is_shared_between_seeds(tmp_path: Path) -> None:
    trials = planned(tmp_path, GOOD)
    seeds = {trial.key: trial.seed for trial in trials}
    for trial in trials:
        for other in (trial.reads_from, trial.starts_from):
            assert other is None or seeds[other] == trial.seed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("{dropout.weight: 0.0}", "dropout.weight 0.5 -> 0.0"),
        ("{finetune: null, epochs: 3}", "epochs 4 -> 3; no finetune"),
        ("{dropout: {weight: 0.5}}", "dropout.input 0.4 -> 0.0"),
        ("{penalties: {activation: 2.0}}", "with penalties (activation 2.0)"),
        ("{optimizer: {kind: sgd, learning_rate: 30.0, clip: 0.25}}", "optimizer nt_asgd -> sgd"),
        (
            "{optimizer: {kind: adam, learning_rate: 0.004, beta2: 0.99}, finetune.learning_rate: 30.0}",
            "optimizer nt_asgd -> adam; optimizer.learning_rate 30.0 -> 0.004; optimizer.clip 0.25 -> none; "
            "optimizer.beta2 0.99; finetune.learning_rate none -> 30.0",
        ),
        ("{bptt: {kind: variable, length: 30}}", "bptt fixed -> variable; bptt.length 70 -> 30"),
        ("{model.layers: 3}", "model.layers 2 -> 3; parameters 92K -> 95K"),
        ("{model.hidden_size: [20, 8]}", "model.hidden_size 16 -> [20, 8]"),
        ("{model.tied: false, model.hidden_size: [16, 8]}", "model.hidden_size 16 -> [16, 8]; model.tied True -> "
         "False; parameters 92K -> 172K"),
        ("{head.bias: false}", "head.bias True -> False; parameters 92K -> 82K"),
        (
            "{head: {kind: sampled, loss: {kind: nce, samples: 99}}}",
            "head softmax -> sampled; head.loss nce (samples 99)",
        ),
    ],
)  # fmt: skip
def test_a_change_is_told_in_words_and_with_it_a_change_of_size(tmp_path: Path, change: str, words: str) -> None:
    text = edited("{dropout.weight: 0.0}", "{epochs: 9}")
    text = text.replace("{cache: {window: 10, weight: 0.1, flatness: 1.0}}", change)
    trials = by_variant(planned(tmp_path, text))
    assert trials["neural cache"].change == words
    assert trials["full"].change == "the base itself"


def test_sizes_are_those_of_the_paper() -> None:
    sweep = read_sweep(SWEEPS / "awd_ablation.yaml")
    published = {"": (24_221_600, 43_277_600), "wikitext-2": (33_556_078, 70_070_578)}
    for scale in ("paper", "release", "wikitext-2", "wikitext-2-release"):
        sizes = published["wikitext-2" if "wikitext" in scale else ""]
        trials = by_variant(plan(sweep.at(scale)))
        assert (trials["full"].parameters, trials["no small embedding"].parameters) == sizes
    assert trials["no small embedding"].change == "model.embedding_size 400 -> 1150; parameters 33.6M -> 70.1M"


def test_mixtures_on_wikitext_2_have_the_sizes_of_the_paper() -> None:
    """37M and 35M: exact counts by section 5.2's formula."""
    trials = by_variant(plan(read_sweep(SWEEPS / "doc_reruns.yaml").at("wikitext-2")))
    assert (trials["AWD-LSTM-DOC"].parameters, trials["AWD-LSTM-MoS"].parameters) == (36_639_278, 34_909_528)
    final = by_variant(plan(read_sweep(SWEEPS / "doc_final.yaml").at("wikitext-2")))
    assert final["AWD-LSTM-DOC"].key == trials["AWD-LSTM-DOC"].key
    assert final["AWD-LSTM-DOC (fin)"].key == trials["AWD-LSTM-DOC (fin)"].key


def test_written_specs_are_those_of_the_trials_that_train(tmp_path: Path) -> None:
    trials = planned(tmp_path, GOOD.replace("clip: 0.25", "clip: 0.25, weight_decay: 1.2e-6"))
    write_specs(trials, tmp_path / "specs")
    training = [trial for trial in trials if trial.reads_from is None]
    assert sorted(p.name for p in (tmp_path / "specs").iterdir()) == sorted(f"{trial.key}.yaml" for trial in training)
    for trial in training:
        text = (tmp_path / "specs" / f"{trial.key}.yaml").read_text()
        assert text.startswith(f"# {trial.variant}, seed {trial.seed}: {trial.change}\n")
        assert TrainSpec.model_validate(yaml.safe_load(text)) == trial.spec


SCORE = Score(nats_per_token=1.0, predicted_tokens=9, columns=1, perplexity=2.7, perplexity_reference=2.6)


def settle(runs: Path, trial: Trial, status: str) -> None:
    """Leave a record of a trial, complete or without any stage."""
    fingerprint = "f"
    stages = tuple(
        StageResult(name=name, key=key, epochs=1, best_epoch=1, steps=1, train_seconds=1.0, evaluation_seconds=1.0,
                    tokens_per_second=1.0, averaging_from_epoch=None, stopped_early=False, valid=SCORE, test=SCORE,
                    cache=None)
        for name, key in stage_keys(trial.spec, fingerprint).items()
    )  # fmt: skip
    facts = CorpusFacts(name="ptb", fingerprint=fingerprint, train_tokens=1, valid_tokens=1, test_tokens=1,
                        vocabulary_size=10, vocabulary_rule="all")  # fmt: skip
    record = Record(key=trial.key, status=status, reason=None, divergence=None, spec=trial.spec,  # type: ignore[arg-type]
                    stages=stages if status == "complete" else (), parameters=1, corpus=facts, seconds=1.0,
                    tokens_per_second=1.0, peak_memory_bytes=1, device="cpu", threads=1, versions={}, commit=None,
                    numerics_version=NUMERICS_VERSION, finished_at="2025-01-01T00:00:00+00:00")  # fmt: skip
    write_record(runs / trial.key, record)


def test_a_trial_is_new_under_way_or_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "fingerprint_of", lambda corpus: "f")
    trials = planned(tmp_path, GOOD)
    one, two = by_variant(trials, 1), by_variant(trials, 2)
    runs = tmp_path / "runs"
    settle(runs, one["full"], "complete")
    settle(runs, one["no weight-dropping"], "diverged")
    settle(runs, two["no weight-dropping"], "failed")
    (runs / two["full"].key / "checkpoints").mkdir(parents=True)
    records = Records(runs)
    names = {trial.key: trial.variant for trial in trials}
    words = [state_in_words(trial, state_of(trial, records), names) for trial in trials]
    onwards = "goes on from full"
    assert words == ["done", "done", "diverged", onwards, "to resume", "read from full", "failed", onwards]


@pytest.mark.parametrize("path", sorted(SWEEPS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_sweep_plans_at_every_scale(path: Path) -> None:
    sweep = read_sweep(path)
    assert sweep.name == path.stem
    assert path.read_text().startswith("# yaml-language-server: $schema=schema.json\n")
    assert {"laptop", "mini"} <= set(sweep.scale_names)
    for scale in sweep.scale_names:
        scaled = sweep.at(scale)
        check_vocabularies(scaled, path)
        if scaled.baseline.spec.corpus.name == "wikitext-103" and find("wikitext-103") is None:
            with pytest.raises(CorpusError, match="corpus fetch wikitext-103"):  # no key without the text's hash
                plan(scaled)
            continue
        trials = plan(scaled)
        assert len(trials) == sum(len(scaled.seeds_of(variant)) for variant in scaled.variants)
        if scale in ("laptop", "mini"):
            assert scaled.resources.gpus == 0


# As the papers print them, rounded: 14M (13.3M by our count), 66M, 51M, 22M, 23M, 24M.
SIZES = {
    ("tying", "medium", "VD-LSTM+REAL"): 13_270_400,
    ("tying", "large", "VD-LSTM"): 66_034_000,
    ("tying", "large", "VD-LSTM+REAL"): 51_024_000,
    ("doc_layers", "paper", "i3=15"): 21_500_620,
    ("doc_layers", "paper", "i3=20"): 22_373_120,
    ("doc_layers", "paper", "i3=15 i2=5"): 22_849_120,
    ("doc_reruns", "paper", "AWD-LSTM"): 24_221_600,
    ("heads", "paper", "softmax tied"): 24_221_600,
}


@pytest.mark.parametrize(("name", "scale", "variant"), SIZES)
def test_the_networks_have_their_published_size(name: str, scale: str, variant: str) -> None:
    trials = plan(read_sweep(SWEEPS / f"{name}.yaml").at(scale))
    assert by_variant(trials)[variant].parameters == SIZES[name, scale, variant]


def test_the_interactions_share_the_base_and_every_removal_with_other_sweeps() -> None:
    interactions, regularizers, ablation = (
        {trial.key: trial.variant for trial in plan(read_sweep(SWEEPS / f"{name}.yaml").at(scale)) if trial.seed == 1}
        for name, scale in (("interactions", "paper"), ("regularizers", "paper"), ("awd_ablation", "release"))
    )
    shared = interactions.keys() & (regularizers.keys() | ablation.keys())
    removals = {"weight-dropping", "locked dropout", "embedding dropout", "AR/TAR", "weight decay"}
    # Of the factorial's four, all away leaves the weight decay, which is no factor there.
    others = {"full", "only weight decay"}
    assert {interactions[key] for key in shared} == others | {f"no {name}" for name in removals}
    assert len(interactions) == 12


def test_the_factorial_shares_its_single_removals_with_the_ablation() -> None:
    factorial, ablation = (
        {trial.key: trial.variant for trial in plan(read_sweep(SWEEPS / f"{name}.yaml").at(scale)) if trial.seed == 1}
        for name, scale in (("regularizers", "paper"), ("awd_ablation", "release"))
    )
    shared = {"full", "no weight-dropping", "no embedding dropout", "no AR/TAR"}
    assert {factorial[key] for key in factorial.keys() & ablation.keys()} == shared
    assert len(factorial) == 16


@pytest.mark.parametrize(
    ("one", "other", "scale", "shared"),
    [
        ("ecoc_bits", "ecoc_heads", "mini", 4),
        ("codebooks", "ecoc_bits", "laptop", 3),
    ],
)
def test_sweeps_of_codes_share_their_trials(one: str, other: str, scale: str, shared: int) -> None:
    keys = [
        {t.key for t in plan(read_sweep(SWEEPS / f"{name}.yaml").at(scale)) if t.seed == 1} for name in (one, other)
    ]
    assert len(keys[0] & keys[1]) == shared


def test_no_shipped_name_has_a_comma_that_a_sentence_would_take_for_its_own() -> None:
    for path in SWEEPS.glob("*.yaml"):
        sweep = read_sweep(path)
        assert not [v.name for scale in sweep.scale_names for v in sweep.at(scale).variants if "," in v.name]


def test_every_head_of_the_comparison_changes_nothing_but_the_head() -> None:
    """But at `paper` for the rate of codes trained as a normalised distribution: the softmax's, times 4 / bits."""
    for scale in ("paper", "laptop", "mini"):
        base, tied, *others = read_sweep(SWEEPS / "heads.yaml").at(scale).variants
        assert tied.spec == base.spec.model_copy(update={"model": base.spec.model.model_copy(update={"tied": True})})
        assert tied.spec.model.hidden_sizes == base.spec.model.hidden_sizes
        for other in others:
            head, optimizer = other.spec.head, base.spec.optimizer
            if scale == "paper" and isinstance(head, EcocHead) and head.loss.kind == "normalized":
                rate = optimizer.learning_rate * 4 / code_bits(head.codebook, 10_000)
                optimizer = optimizer.model_copy(update={"learning_rate": pytest.approx(rate)})
            assert other.spec == base.spec.model_copy(update={"head": head, "optimizer": optimizer})


def test_the_codebooks_have_equally_many_bits_where_they_can() -> None:
    for scale in ("paper", "laptop", "mini"):
        variants = read_sweep(SWEEPS / "codebooks.yaml").at(scale).variants
        codes = [variant.spec.head.codebook for variant in variants if isinstance(variant.spec.head, EcocHead)]
        assert [code.kind for code in codes] == [variant.name for variant in variants]
        assert {code.bits for code in codes if not isinstance(code, IdentityCode | BinaryCode)} == {200}
        assert len(codes) == 7


def test_the_halves_of_the_text_meet_in_the_middle() -> None:
    sweep = read_sweep(SWEEPS / "tying_half.yaml")
    first, second = (sweep.at(scale).baseline.spec.corpus for scale in ("paper", "second-half"))
    assert first.train_start == 0
    assert second.train_start == first.train_tokens == second.train_tokens
    assert first.train_tokens is not None
    assert 2 * first.train_tokens == PUBLISHED["wikitext-2"].tokens["train"]


def test_the_ablation_changes_one_thing_at_every_scale() -> None:
    sweep = read_sweep(SWEEPS / "awd_ablation.yaml")
    for scale in sweep.scale_names:
        trials = plan(sweep.at(scale))
        shared = sharing(trials)
        assert len([name for name in shared if not name.endswith("(as many epochs)")]) == 10
        assert shared["no fine-tuning"] == ("full", None)
        assert shared["neural cache"] == (None, "full")
        model = by_variant(trials)["no small embedding"].spec.model
        assert len({model.embedding_size, *model.hidden_sizes}) == 1
        assert by_variant(trials)["no NT-ASGD"].change == "optimizer nt_asgd -> sgd_halving; no finetune"


@pytest.mark.parametrize(("precision", "flags", "warned"), [
    ("bfloat16", "fpu sse2 avx512bw", True),
    ("bfloat16", "fpu sse2 avx512bw avx512_bf16", False),
    ("bfloat16", None, False),
    ("float32", "fpu sse2 avx512bw", False),
])  # fmt: skip
def test_bfloat16_that_this_cpu_is_slower_with_is_said(
    precision: str,
    flags: str | None,
    warned: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing is said where the flags cannot be read, as on a Mac."""
    cpuinfo = tmp_path / "cpuinfo"
    if flags is not None:
        cpuinfo.write_text(f"processor: 0\nflags: {flags}\n", encoding="utf-8")
    monkeypatch.setattr(machine, "CPU_FLAGS", cpuinfo)
    monkeypatch.setattr("lm.precision.can_round", lambda: True)
    sweep = read_text(tmp_path, edited("\nbase:\n", f"\nbase:\n  precision: {precision}\n")).at("paper")
    records = Records(tmp_path / "runs")
    print_plan(sweep, expand(sweep, records), records)
    assert ("this CPU has no instructions for it" in capsys.readouterr().out) is warned


def test_repeats_until_no_gain_share_their_first_passes(tmp_path: Path) -> None:
    text = edited("{cache: {window: 10, weight: 0.1, flatness: 1.0}}", "{finetune.repeats: {most: 4, until: no_gain}}")
    text = text.replace("seeds: [1, 2]\n", "  two: {finetune.repeats: 2}\n  three: {finetune.repeats: "
                        "{most: 3, until: no_gain}}\nseeds: [1, 2]\n")  # fmt: skip
    trials = planned(tmp_path, text)
    shared = sharing(trials)
    assert (shared["neural cache"], shared["three"]) == ((None, "full"), ("neural cache", None))
    assert shared["two"] == (None, "full")  # its second pass is trained whatever the first has gained
    assert by_variant(trials)["neural cache"].change == "with finetune.repeats (most 4, until no_gain)"
