# ruff: noqa: E501  (one case a line: what is written, what it replaces, the error)
from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.sweep import Resources, SweepError, check_vocabularies
from tests.support.sweep_texts import CHANGE, GOOD, edited, errors_of, read_text


def test_a_sweep_is_its_base_and_named_changes(tmp_path: Path) -> None:
    sweep = read_text(tmp_path, GOOD).at("paper")
    assert [v.name for v in sweep.variants] == ["full", "no fine-tuning", "no weight-dropping", "neural cache"]
    assert [bool(v.removed) for v in sweep.variants] == [False, True, True, False]
    full, no_finetuning, no_weight_drop, cache = (v.spec for v in sweep.variants)
    assert sweep.baseline.spec is full
    assert no_finetuning == full.model_copy(update={"finetune": None})
    assert (no_weight_drop.dropout.weight, no_weight_drop.dropout.input) == (0.0, 0.4)
    assert cache.cache is not None
    assert cache.cache.window == 10
    assert (sweep.scale, sweep.seeds, sweep.resources) == ("paper", (1, 2), Resources(cpus=1, gpus=0.25))


def test_a_scale_replaces_values_components_variants_seeds_and_resources(tmp_path: Path) -> None:
    sweep = read_text(tmp_path, GOOD)
    assert sweep.scale_names == ("paper", "tiny")
    tiny = sweep.at("tiny")
    full, _, no_weight_drop, cache = (v.spec for v in tiny.variants)
    assert (full.epochs, full.dropout.input, full.dropout.weight) == (1, 0.1, 0.5)
    assert no_weight_drop.dropout.weight == 0.1
    assert cache.cache is not None
    assert cache.cache.window == 5
    assert (tiny.seeds, tiny.resources) == ((7,), Resources(cpus=2, gpus=0))


def test_the_published_scale_may_differ_from_the_base(tmp_path: Path) -> None:
    text = GOOD.replace("scales:\n", "scales:\n  paper: {base: {epochs: 9}}\n")
    sweep = read_text(tmp_path, text)
    assert sweep.scale_names == ("paper", "tiny")
    assert sweep.at("paper").baseline.spec.epochs == 9


def test_without_a_design_only_the_variants_are_compared(tmp_path: Path) -> None:
    text = edited("variants:\n  neural", "design: none\nvariants:\n  like a component: {dropout.weight: 0.0}\n  neural")
    assert [v.name for v in read_text(tmp_path, text).at("paper").variants] == [
        "full",
        "like a component",
        "neural cache",
    ]


FACTORIAL = edited("\nvariants:\n", "\n  input dropout: {off: {dropout.input: 0.0}}\ndesign: factorial\nvariants:\n")


def test_a_factorial_takes_away_every_subset(tmp_path: Path) -> None:
    sweep = read_text(tmp_path, FACTORIAL).at("paper")
    away = {
        "no fine-tuning": {"finetune"},
        "no weight-dropping": {"weight"},
        "no input dropout": {"input"},
        "no fine-tuning + no weight-dropping": {"finetune", "weight"},
        "no fine-tuning + no input dropout": {"finetune", "input"},
        "no weight-dropping + no input dropout": {"weight", "input"},
        "no fine-tuning + no weight-dropping + no input dropout": {"finetune", "weight", "input"},
    }
    assert [variant.name for variant in sweep.variants] == ["full", *away, "neural cache"]
    for variant in sweep.variants[1:-1]:
        gone = {"finetune"} if variant.spec.finetune is None else set()
        gone |= {name for name in ("weight", "input") if getattr(variant.spec.dropout, name) == 0.0}
        assert gone == away[variant.name]
        assert variant.removed


def test_a_factorial_is_that_of_its_scale(tmp_path: Path) -> None:
    spec = {v.name: v.spec for v in read_text(tmp_path, FACTORIAL).at("tiny").variants}
    assert spec["no fine-tuning + no weight-dropping"].dropout.weight == 0.1


GROUP = "\n  input dropout: {off: {dropout.input: 0.0}}\ngroups: {dropouts: [input dropout, weight-dropping]}\n"


def test_a_group_takes_its_members_place_and_goes_as_one(tmp_path: Path) -> None:
    text = edited("\nvariants:\n", f"{GROUP}design: both\nvariants:\n")
    text = text.replace("  fine-tuning: {off: {finetune: null}}\n", "", 1)
    text = text.replace("\ngroups:", "\n  fine-tuning: {off: {finetune: null}}\ngroups:")
    for scale, weight in (("paper", 0.0), ("tiny", 0.1)):
        sweep = read_text(tmp_path, text).at(scale)
        names = ["full", "no dropouts", "no fine-tuning", "stripped", "neural cache"]
        assert [variant.name for variant in sweep.variants] == names
        assert sweep.ablation.factors == ("dropouts", "fine-tuning")
        spec = {variant.name: variant.spec for variant in sweep.variants}
        assert (spec["no dropouts"].dropout.weight, spec["no dropouts"].dropout.input) == (weight, 0.0)
        assert spec["no dropouts"].finetune is not None
        assert spec["stripped"] == spec["no dropouts"].model_copy(update={"finetune": None})


def test_a_group_of_one_is_another_name_and_its_member_is_checked(tmp_path: Path) -> None:
    text = edited("\nvariants:\n", "\ngroups: {dropped weights: [weight-dropping]}\nvariants:\n")
    names = [variant.name for variant in read_text(tmp_path, text).at("paper").variants]
    assert names == ["full", "no fine-tuning", "no dropped weights", "neural cache"]
    wrong = edited("\nvariants:\n", f"{GROUP}variants:\n").replace("{dropout.input: 0.0}", "{dropout.inptu: 0.0}")
    assert [line.split(" (")[0] for line in errors_of(tmp_path, wrong)] == [
        "13: components.input dropout.off.dropout.inptu: unknown key 'inptu'"
    ]


def test_components_of_a_group_may_write_the_same_value_but_no_other(tmp_path: Path) -> None:
    text = edited("\nvariants:\n", f"{GROUP}variants:\n")
    same = text.replace("{dropout.input: 0.0}", "{dropout.input: 0.0, dropout.weight: 0.0}")
    # At the scale 'tiny' one of them writes another value, so the same text is only right without that.
    assert errors_of(tmp_path, same) == [
        "22: scales.tiny.components.weight-dropping.off.dropout.weight: "
        "writes 0.1, but another component that is taken away together with it writes 0.0"
    ]
    same = same.replace("    components:\n      weight-dropping: {off: {dropout.weight: 0.1}}\n", "")
    assert read_text(tmp_path, same).at("tiny").variants[2].name == "no dropouts"


def test_a_component_that_is_never_taken_away_alone_leaves_its_name_free(tmp_path: Path) -> None:
    text = edited("\nvariants:\n", "\ndesign: add_one_in\nvariants:\n  no fine-tuning: {epochs: 9}\n")
    names = [variant.name for variant in read_text(tmp_path, text).at("paper").variants]
    assert names == ["full", "stripped", "only fine-tuning", "only weight-dropping", "no fine-tuning", "neural cache"]
    taken = text.replace("  no fine-tuning: {epochs: 9}", "  stripped: {epochs: 9}")
    assert errors_of(tmp_path, taken) == [
        "15: variants.stripped: the name 'stripped' is taken by the removal of 'fine-tuning' and 'weight-dropping'"
    ]


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("{dropout.input: 0.0}", "{dropout.weight: 0.1}",
         "12: components.weight-dropping.off.dropout.weight: writes 0.0, but another component that is taken away together with it writes 0.1"),
        ("{dropout.input: 0.0}", "{dropout: {weight: 0.1}}",
         "12: components.weight-dropping.off.dropout.weight: 'dropout' is replaced as a whole at the same time: write this value into it"),
        ("{dropout.weight: 0.0}", "{dropout.weight: 2.0}",
         "12: components.weight-dropping.off.dropout.weight: should be less than 1, got 2.0"),
        ("{dropout.weight: 0.0}", "{dropout.weight: 0.5}",
         "12: components.weight-dropping.off: changes nothing: the base already has dropout.weight = 0.5"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_factorial_is_told_once(tmp_path: Path, old: str, new: str, error: str) -> None:
    text = FACTORIAL.replace("    components:\n      weight-dropping: {off: {dropout.weight: 0.1}}\n", "")
    assert errors_of(tmp_path, text.replace(old, new)) == [error]


def test_the_name_of_a_joint_removal_is_taken(tmp_path: Path) -> None:
    text = FACTORIAL.replace(
        "  neural cache: {cache: {window: 10",
        "  no fine-tuning + no input dropout: {epochs: 9}\n  neural cache: {cache: {window: 10",
    )
    assert errors_of(tmp_path, text) == [
        "16: variants.no fine-tuning + no input dropout: the name 'no fine-tuning + no input dropout' is taken by the removal of 'fine-tuning' and 'input dropout'"
    ]
    text = FACTORIAL.replace(
        "  input dropout:", "  weight-dropping + no fine-tuning: {off: {epochs: 9}}\n  input dropout:"
    )
    text = text.replace(
        "  fine-tuning: {off: {finetune: null}}\n  weight-dropping: {off: {dropout.weight: 0.0}}",
        "  weight-dropping: {off: {dropout.weight: 0.0}}\n  fine-tuning: {off: {finetune: null}}",
    )
    assert errors_of(tmp_path, text)[0].endswith(
        "the name 'no weight-dropping + no fine-tuning' is taken by the removal of 'weight-dropping + no fine-tuning'"
    )


def test_a_scale_may_have_published_tables_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "published").mkdir()
    row = "- {paper: awd, table: 'T', dataset: ptb, metric: perplexity, certainty: seed}\n"
    (tmp_path / "published" / "awd.yaml").write_text(row.replace("T", "1") + row.replace("T", "1 small"))
    text = edited("seeds: [1, 2]", "seeds: [1, 2]\npublished: awd.table1")

    def at(scale: str, published: str) -> tuple[tuple[str, ...], bool]:
        scaled = read_text(tmp_path, text.replace("    seeds: [7]", f"    published: {published}")).at(scale)
        return scaled.published, scaled.published_scale

    assert at("tiny", "false") == (("awd.table1",), False)
    assert at("tiny", "true") == (("awd.table1",), True)
    assert at("tiny", "awd.table1 small") == (("awd.table1 small",), True)
    assert at("paper", "awd.table1 small") == (("awd.table1",), True)


HEADS = {
    "codes too short": (
        "{kind: ecoc, codebook: {kind: hybrid, bits: 13}}",
        "head.codebook.bits 13 cannot name 10,000 words: at least 14 are needed",
    ),
    "cut-offs out of order": (
        "{kind: adaptive, cutoffs: [0.3, 500]}",
        "head.cutoffs must rise strictly between 0 and the 10,000 words, got [3000, 500]",
    ),
    "a cut-off beyond the words": (
        "{kind: adaptive, cutoffs: [10000]}",
        "head.cutoffs must rise strictly between 0 and the 10,000 words, got [10000]",
    ),
    "a class of more than all words": (
        "{kind: hierarchical, tree: {kind: two_level, words_per_class: 10001}}",
        "head.tree.words_per_class 10,001 is more than the 10,000 words",
    ),
    "more samples than words": (
        "{kind: sampled, loss: {kind: softmax, samples: 10001}}",
        "head.loss.samples 10,001 is more than the 10,000 words",
    ),
    "no sample": (
        "{kind: sampled, loss: {kind: nce, samples: 1.0e-5}}",
        "head.loss.samples 1e-05 of 10,000 words are none",
    ),
    "a block without words": (
        "{kind: differentiated, shares: [0.00001, 0.99999], sizes: [8, 8]}",
        "head.shares leave a block without words: blocks end at [0, 10000] of 10,000 words",
    ),
}


@pytest.mark.parametrize("case", HEADS)
def test_a_head_that_does_not_fit_the_vocabulary_is_told_at_its_variant(case: str, tmp_path: Path) -> None:
    head, rule = HEADS[case]
    text = edited(CHANGE, f"{{model.tied: false, head: {head}}}")
    scaled = read_text(tmp_path, text).at("paper")
    with pytest.raises(SweepError) as caught:
        check_vocabularies(scaled, tmp_path / "toy.yaml")
    assert caught.value.lines == (f"{tmp_path / 'toy.yaml'}:14: variants.neural cache.head: {rule} (at scale paper)",)
    check_vocabularies(read_text(tmp_path, text).at("tiny"), tmp_path / "toy.yaml")  # where it has another change


def test_a_head_of_the_base_that_does_not_fit_is_told_once(tmp_path: Path) -> None:
    text = edited("  epochs: 4", "  head: {kind: sampled, loss: {kind: softmax, samples: 10001}}\n  epochs: 4")
    with pytest.raises(SweepError) as caught:
        check_vocabularies(read_text(tmp_path, text).at("paper"), tmp_path / "toy.yaml")
    (line,) = caught.value.lines
    assert line.startswith(
        f"{tmp_path / 'toy.yaml'}:8: base.head: head.loss.samples 10,001 is more than the 10,000 words"
    )


def test_an_unknown_scale_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match=r"unknown scale 'tinny' \(did you mean 'tiny'\?\)"):
        read_text(tmp_path, GOOD).at("tinny")


def test_numbers_and_words_are_those_of_yaml_1_2(tmp_path: Path) -> None:
    text = edited("clip: 0.25", "clip: 1e-3").replace("neural cache:", "no:").replace("does it", "yes")
    sweep = read_text(tmp_path, text)
    assert sweep.base.optimizer.clip == 0.001
    assert "no" in sweep.variants
