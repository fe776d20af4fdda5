# ruff: noqa: E501  (one case a line: what is written, what it replaces, the error)
"""Whatever is wrong with a sweep file is told with file, line, key, rule, what was got, and the nearest name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.sweep import SweepError, read_sweep
from tests.support.sweep_texts import CHANGE, GOOD, edited, errors_of, read_text

WRONG = {
    "unknown key of the sweep": ("seeds: [1, 2]", "sedes: 3\nseeds: [1, 2]", "15: sedes: unknown key 'sedes' (did you mean 'seeds'?)"),
    "missing key": ("question: Does it matter?\n", "", "1: missing key 'question'"),
    "name no slug": ("name: toy", "name: to/y", "1: name: should be letters, digits, '-' and '_', with a letter or digit first, got 'to/y'"),
    "design": ("seeds: [1, 2]", "seeds: [1, 2]\ndesign: leave_one_in", "16: design: should be 'leave_one_out', 'add_one_in', 'both', 'pairs', 'factorial', 'half', 'quarter', 'eighth' or 'none', got 'leave_one_in' (did you mean 'leave_one_out'?)"),
    "too few components for a design": ("seeds: [1, 2]", "seeds: [1, 2]\ndesign: quarter", "16: design: design quarter needs 5 to 9 components (a group counts as one), got 2"),
    "components that a group hides from a design": ("seeds: [1, 2]", "seeds: [1, 2]\ngroups: {all: [fine-tuning, weight-dropping]}\ndesign: pairs", "17: design: design pairs needs 2 or more components (a group counts as one), got 1"),
    "unknown member of a group": ("seeds: [1, 2]", "seeds: [1, 2]\ngroups: {g: [fine-tuning, weight-droping]}", "16: groups.g.1: unknown component 'weight-droping' (did you mean 'weight-dropping'?)"),
    "member of two groups": ("seeds: [1, 2]", "seeds: [1, 2]\ngroups:\n  g: [fine-tuning]\n  h: [fine-tuning, weight-dropping]", "18: groups.h.0: component 'fine-tuning' is already in group 'g'"),
    "member twice": ("seeds: [1, 2]", "seeds: [1, 2]\ngroups: {g: [fine-tuning, fine-tuning]}", "16: groups.g.1: component 'fine-tuning' is already in group 'g'"),
    "group called like a component": ("seeds: [1, 2]", "seeds: [1, 2]\ngroups: {fine-tuning: [weight-dropping]}", "16: groups.fine-tuning: the name 'fine-tuning' is taken by a component"),
    "empty group": ("seeds: [1, 2]", "seeds: [1, 2]\ngroups: {g: []}", "16: groups.g: should not be empty, got []"),
    "seed twice": ("seeds: [1, 2]", "seeds: [1, 2, 1]", "15: seeds: should be distinct, got 1 twice"),
    "no seeds": ("seeds: [1, 2]", "seeds: []", "15: seeds: should not be empty, got []"),
    "no boolean": ("embedding_size: 8, hidden_size: 16}", "embedding_size: 8, hidden_size: 16, tied: maybe}", "5: base.model.tied: should be true or false, got 'maybe'"),
    "seed no integer": ("seeds: [1, 2]", "seeds:\n  - 1\n  - two", "17: seeds.1: should be a whole number, got 'two'"),
    "seeds no list": ("seeds: [1, 2]", "seeds: 3", "15: seeds: should be a list such as [1, 2, 3], {min, max, until: decided}, or {baseline: 6, variants: 3}, got 3"),
    "a scale's seeds no list": ("seeds: [7]", "seeds: 7", "23: scales.tiny.seeds: should be a list such as [1, 2, 3], {min, max, until: decided}, or {baseline: 6, variants: 3}, got 7"),
    "seeds without end": ("seeds: [1, 2]", "seeds: {baseline: 1000000000, variants: 3}", "15: seeds.baseline: should be a number from 1 to 1,000, or a list such as [1, 2, 3], got 1000000000"),
    "seeds below one": ("seeds: [1, 2]", "seeds: {baseline: 0, variants: 3}", "15: seeds.baseline: should be a number from 1 to 1,000, or a list such as [1, 2, 3], got 0"),
    "rounds without end": ("seeds: [1, 2]", "seeds: {min: 2, max: 1000000000, until: decided}", "15: seeds.max: should be less than or equal to 1000, got 1000000000"),
    "a count of seeds that is no number": ("seeds: [1, 2]", "seeds: {baseline: true, variants: 3}", "15: seeds.baseline: should be a number from 1 to 1,000, or a list such as [1, 2, 3], got true"),
    "fewer trials than the first round": ("seeds: [1, 2]", "seeds: {max: 5, until: decided, total: 10}", "15: seeds.total: the first round alone has 11: `max` of the baseline and `min` of each variant, got 10"),
    "a switch as a share": ("{weight: 0.5,", "{weight: true,", "6: base.dropout.weight: should be a number, got true"),
    "a switch as CPUs": ("{cpus: 1, gpus: 0.25}", "{cpus: true, gpus: 0.25}", "25: resources.cpus: should be a number, got true"),
    "GPUs below none": ("{cpus: 1, gpus: 0.25}", "{cpus: 1, gpus: -1}", "25: resources.gpus: should be greater than or equal to 0 or 'auto', got -1"),
    "text as a switch": ("layers: 2,", "layers: 2, tied: 'no',", "5: base.model.tied: should be true or false, got 'no'"),
    "a switch as a number": ("layers: 2", "layers: true", "5: base.model.layers: should be a whole number, got true"),
    "a number as text": ("question: Does it matter?", "question: 2017", "2: question: should be text, in quotes if it looks like a number, got 2017"),
    "a path from the top": (CHANGE, "{base.model.layers: 3}", "14: variants.neural cache.base.model.layers: paths begin inside the base: write 'model.layers'"),
    "a field of the base beside it": ("seeds: [1, 2]", "seeds: [1, 2]\nbatch_size: 4", "16: batch_size: unknown key 'batch_size' (it belongs into 'base': indented too little?)"),
    "no list": ("seeds: [1, 2]", "seeds: [1, 2]\ngroups: {g: 3}", "16: groups.g: should be a list, got 3"),
    "negative seed": ("seeds: [7]", "seeds: [-7]", "23: scales.tiny.seeds.0: should be greater than or equal to 0, got -7"),
    "unknown key of a part": ("{weight: 0.5,", "{wieght: 0.5,", "6: base.dropout.wieght: unknown key 'wieght' (did you mean 'weight'?)"),
    "value of a part": ("{weight: 0.5,", "{weight: 1.5,", "6: base.dropout.weight: should be less than 1, got 1.5"),
    "beginning of a key": ("  epochs: 4", "  epo: 4", "8: base.epo: unknown key 'epo' (did you mean 'epochs'?)"),
    "kind": ("kind: nt_asgd", "kind: ntasgd", "7: base.optimizer.kind: unknown kind 'ntasgd' (did you mean 'nt_asgd'?)"),
    "no kind": ("{kind: nt_asgd, ", "{", "7: base.optimizer: missing key 'kind' (one of sgd, sgd_halving, sgd_decay, sgd_plateau, nt_asgd, adam)"),
    "key of another kind": ("clip: 0.25", "momentum: 0.9", "7: base.optimizer.momentum: unknown key 'momentum' (valid here: learning_rate, weight_decay, clip, kind, nonmonotone_interval, trigger)"),
    "enumerated value": ("{layers: 2,", "{cell: lsmt, layers: 2,", "5: base.model.cell: should be 'lstm', 'gru' or 'peephole_lstm', got 'lsmt' (did you mean 'lstm'?)"),
    "a cell without its values": ("{layers: 2,", "{cell: rhn, layers: 2,", "5: base.model.cell: should be a mapping with kind, got 'rhn'"),
    "key of a cell": ("{layers: 2,", "{cell: {kind: rhn, dept: 3}, layers: 2,", "5: base.model.cell.dept: unknown key 'dept' (did you mean 'depth'?)"),
    "two masks of one state": ("{weight: 0.5,", "{shared_mask: true, state: 0.2, weight: 0.5,", "6: base.dropout.state: state = 0.2 and shared_mask would both mask a layer's state: give one of them"),
    "a kind as a word": ("{kind: nt_asgd, learning_rate: 30.0, clip: 0.25}", "adam", "7: base.optimizer: should be a mapping with kind (one of sgd, sgd_halving, sgd_decay, sgd_plateau, nt_asgd, adam), got 'adam'"),
    "a path in the base": ("dropout: {weight: 0.5, input: 0.4}", "dropout.weight: 0.5", "6: base.dropout.weight: unknown key 'dropout.weight' (nested here: 'dropout: {weight: ...}')"),
    "a bracket that stays open": ("{weight: 0.5, input: 0.4}", "{weight: 0.5", "7: not YAML: while parsing a flow mapping expected ',' or '}', but got ':' (the bracket of line 6 is not closed?)"),
    "union of types": ("hidden_size: 16", "hidden_size: big", "5: base.model.hidden_size: should be a whole number or a list, got 'big'"),
    "sizes that do not fit": ("hidden_size: 16", "hidden_size: [16, 9]", "5: base.model: a tied model's last layer must have the embedding's size: 9 is not embedding_size = 8"),
    "hidden sizes that do not fit": ("hidden_size: 16", "hidden_size: [16, 9, 8]", "5: base.model.hidden_size: hidden_size lists 3 sizes for layers = 2"),
    "experts, not one count a layer": (CHANGE, "{head: {kind: mixture, experts: [0, 2]}}", "14: variants.neural cache.head: head.experts lists 2 counts; the embedding and 2 layers need 3"),
    "clusters without units": (CHANGE, "{model.tied: false, head: {kind: adaptive, divisor: 1.0e+6, cutoffs: [" + ", ".join(map(str, range(1, 53))) + "]}}", "14: variants.neural cache.head: head.divisor 1e+06 leaves nothing of the last layer's 16 units for cluster 52"),
    "no experts": (CHANGE, "{head: {kind: mixture, experts: [0, 0, 0]}}", "14: variants.neural cache.head.experts: experts [0, 0, 0] are none: at least one layer needs one"),
    "a tie that cannot be, told at the head": (CHANGE, "{head: {kind: adaptive}, epochs: 3}", "14: variants.neural cache.head: a head of kind adaptive has no matrix to tie: model.tied must be false"),
    "slices that do not fill the layer": (CHANGE, "{model.tied: false, head: {kind: differentiated, sizes: [8, 4, 3]}}", "14: variants.neural cache.head: head.sizes sum to 15, the last layer has 16 units"),
    "shares that do not fill the vocabulary": (CHANGE, "{model.tied: false, head: {kind: differentiated, shares: [0.5, 0.4], sizes: [8, 8]}}", "14: variants.neural cache.head.shares: shares [0.5, 0.4] sum to 0.9, not 1"),
    "a range that undoes a bias": (CHANGE, "{model.tied: false, model.init_range: 0.1, head: {kind: sampled, loss: {kind: nce}}}", "14: variants.neural cache.model.init_range: model.init_range would undo what NCE's bias starts from, the logarithm of the noise"),
    "two ranges for one matrix": (CHANGE, "{model.tied: false, model.init_range: 0.1, head.init_range: 0.01}", "14: variants.neural cache.model.init_range: model.init_range would undo head.init_range: set one of them"),
    "a range of a matrix that is the embedding": (CHANGE, "{head.init_range: 0.01}", "14: variants.neural cache.head.init_range: head.init_range is of an output matrix of its own: model.tied must be false"),
    "spans that a code has not": (CHANGE, "{model.tied: false, head: {kind: ecoc, codebook: {kind: random, bits: 20}, loss: {kind: span_sum}}}", "14: variants.neural cache.head.loss: loss span_sum needs a codebook with spans, random has none"),
    "no part": ("{weight: 0.5, input: 0.4}", "0.5", "6: base.dropout: should be a mapping, got 0.5"),
    "seed in the base": ("  epochs: 4", "  epochs: 4\n  seed: 1", "9: base.seed: no seed in the base: replicates are listed under 'seeds'"),
    "seed in a component": ("{finetune: null}", "{seed: 3}", "11: components.fine-tuning.off.seed: the seed is not part of a change: replicates are listed under 'seeds'"),
    "seed in a scale": ("{epochs: 1,", "{seed: 1,", "18: scales.tiny.base.seed: the seed is not part of a change: replicates are listed under 'seeds'"),
    "unknown path": ("{dropout.weight: 0.0}", "{dropout.wieght: 0.0}", "12: components.weight-dropping.off.dropout.wieght: unknown key 'wieght' (did you mean 'weight'?)"),
    "unknown path, in capitals": ("{dropout.weight: 0.0}", "{DROPOUT.weight: 0.0}", "12: components.weight-dropping.off.DROPOUT.weight: unknown key 'DROPOUT' (did you mean 'dropout'?)"),
    "key of a part without the part": ("{dropout.weight: 0.0}", "{weight: 0.0}", "12: components.weight-dropping.off.weight: unknown key 'weight' (did you mean 'dropout.weight'?)"),
    "unknown top of a path": ("{dropout.weight: 0.0}", "{dropuot.weight: 0.0}", "12: components.weight-dropping.off.dropuot.weight: unknown key 'dropuot' (did you mean 'dropout'?)"),
    "path into null": ("{dropout.weight: 0.0}", "{penalties.activation: 0.0}", "12: components.weight-dropping.off.penalties.activation: 'penalties' is null in the base: give the whole part, penalties: {...}"),
    "path into a value": ("{dropout.weight: 0.0}", "{epochs.last: 1}", "12: components.weight-dropping.off.epochs.last: 'epochs' is a value, not a part: it has no 'last'"),
    "path and its whole": ("{dropout.weight: 0.0}", "{dropout: {}, dropout.weight: 0.0}", "12: components.weight-dropping.off.dropout.weight: 'dropout' is replaced as a whole at the same time: write this value into it"),
    "a part without its kind": ("{dropout.weight: 0.0}", "{optimizer: {learning_rate: 1.0}}", "12: components.weight-dropping.off.optimizer: missing key 'kind' (one of sgd, sgd_halving, sgd_decay, sgd_plateau, nt_asgd, adam); to change one value, write optimizer.learning_rate: ..."),
    "a part of another kind without it": ("{dropout.weight: 0.0}", "{optimizer: {decay: 0.9}}", "12: components.weight-dropping.off.optimizer: missing key 'kind' (one of sgd, sgd_halving, sgd_decay, sgd_plateau, nt_asgd, adam)"),
    "kind alone": ("{dropout.weight: 0.0}", "{optimizer.kind: sgd}", "12: components.weight-dropping.off.optimizer.kind: to change the kind, give the whole part: optimizer: {kind: ..., ...}"),
    "overridden value": ("{dropout.weight: 0.0}", "{dropout.weight: -1}", "12: components.weight-dropping.off.dropout.weight: should be greater than or equal to 0, got -1"),
    "inside a replaced part": ("window: 10,", "windw: 10,", "14: variants.neural cache.cache.windw: unknown key 'windw' (did you mean 'window'?)"),
    "missing inside a replaced part": ("window: 10, ", "", "14: variants.neural cache.cache: missing key 'window'"),
    "no off": ("{off: {finetune: null}}", "{of: {finetune: null}}", "11: components.fine-tuning.of: unknown key 'of' (did you mean 'off'?)"),
    "no off at all": ("{off: {finetune: null}}", "{}", "11: components.fine-tuning: missing key 'off'"),
    "empty off": ("{finetune: null}", "{}", "11: components.fine-tuning.off: should not be empty, got {}"),
    "off equals the base": ("{dropout.weight: 0.0}", "{dropout.weight: 0.5}", "12: components.weight-dropping.off: changes nothing: the base already has dropout.weight = 0.5"),
    "off equals the base at a scale": ("{epochs: 1,", "{finetune: null, epochs: 1,", "11: components.fine-tuning.off: changes nothing: the base already has finetune = null (at scale tiny)"),
    "a scale's off equals the base": ("{dropout.weight: 0.1}", "{dropout.weight: 0.5}", "20: scales.tiny.components.weight-dropping.off: changes nothing: the base already has dropout.weight = 0.5"),
    "off makes no difference": ("{dropout.weight: 0.0}", "{model.hidden_size: 16, penalties: {}}", "12: components.weight-dropping.off: changes nothing: the base already has model.hidden_size = 16, penalties = null"),
    "a short name": ("{layers: 2,", "{cell: gr, layers: 2,", "5: base.model.cell: should be 'lstm', 'gru' or 'peephole_lstm', got 'gr' (did you mean 'gru'?)"),
    "off means the same as the base": ("{dropout.weight: 0.0}", "{model.hidden_size: [16, 8]}", "12: components.weight-dropping.off: changes nothing: the base already has model.hidden_size = 16"),
    "zero penalties are none": ("{dropout.weight: 0.0}", "{penalties: {}}", "12: components.weight-dropping.off: changes nothing: the base already has penalties = null"),
    "variant without change": ("{cache: {window: 10, weight: 0.1, flatness: 1.0}}", "{}", "14: variants.neural cache: changes nothing: it has no overrides"),
    "variants alike": ("  neural cache: {cache: {window: 10", "  other: {finetune: null}\n  neural cache: {cache: {window: 10", "14: variants.other: 'other' is the same spec as 'no fine-tuning'"),
    "variant called full": ("  neural cache: {cache: {window: 10", "  full: {epochs: 9}\n  neural cache: {cache: {window: 10", "14: variants.full: the name 'full' is taken by the base"),
    "variant called like the baseline": ("name: toy", "name: toy\nbaseline: neural cache", "15: variants.neural cache: the name 'neural cache' is taken by the base"),
    "variant called like a reference": ("  neural cache: {cache: {window: 10", "  uniform model: {epochs: 9}\n  neural cache: {cache: {window: 10", "14: variants.uniform model: the name 'uniform model' is taken by a row of references"),
    "baseline called like a removal": ("name: toy", "name: toy\nbaseline: no fine-tuning", "12: components.fine-tuning.off: the name 'no fine-tuning' is taken by the base"),
    "variant called like a removal": ("  neural cache: {cache: {window: 10", "  no fine-tuning: {epochs: 9}\n  neural cache: {cache: {window: 10", "14: variants.no fine-tuning: the name 'no fine-tuning' is taken by the removal of 'fine-tuning'"),
    "blank at a name's end": ("  fine-tuning: {", "  ' fine-tuning': {", "11: components. fine-tuning: should be one line without blanks at its ends, got ' fine-tuning'"),
    "scale's unknown component": ("      weight-dropping: {", "      weight-droping: {", "20: scales.tiny.components.weight-droping: unknown key 'weight-droping' (did you mean 'weight-dropping'?)"),
    "scale's unknown variant": ("      neural cache: {", "      neural cash: {", "22: scales.tiny.variants.neural cash: unknown key 'neural cash' (did you mean 'neural cache'?)"),
    "unknown key that looks like pydantic's mark": ("{weight: 0.5,", "{'[key]': 0.5,", "6: base.dropout.[key]: unknown key '[key]' (valid here: embedding, input, between, output, weight, state, shared_mask)"),
    "scale's unknown key": ("    seeds: [7]", "    seed: [7]", "23: scales.tiny.seed: unknown key 'seed' (did you mean 'seeds'?)"),
    "scale's path": ("dropout.input: 0.1", "dropout.inputs: 0.1", "18: scales.tiny.base.dropout.inputs: unknown key 'inputs' (did you mean 'input'?)"),
    "resources": ("{cpus: 1, gpus: 0.25}", "{cpus: 0, gpus: 0.25}", "25: resources.cpus: should be greater than 0, got 0"),
    "published, no table": ("seeds: [1, 2]", "seeds: [1, 2]\npublished: awd_lstm", "16: published: a published table is written file.tableN, got 'awd_lstm'"),
    "published file": ("seeds: [1, 2]", "seeds: [1, 2]\npublished: adw.table4", "16: published: no file 'adw' in published/ (did you mean 'awd'?)"),
    "published table of a scale": ("seeds: [7]", "seeds: [7]\n    published: [awd.table4, awd.table5]", "24: scales.tiny.published.1: published/awd.yaml has no 'table5' (did you mean 'table4'?)"),
    "published table": ("seeds: [1, 2]", "seeds: [1, 2]\npublished: [awd.table4, awd.tble4]", "16: published.1: published/awd.yaml has no 'tble4' (did you mean 'table4'?)"),
    "published table of several parts": ("seeds: [1, 2]", "seeds: [1, 2]\npublished: awd.table1", "16: published: published/awd.yaml has no 'table1' (did you mean 'table1 large' or 'table1 small'?)"),
    "duplicate key": ("seeds: [1, 2]", "seeds: [1, 2]\nname: other", "16: name: duplicate key 'name' (first at line 1)"),
    "alias": ("seeds: [1, 2]", "seeds: &s [1, 2]\nvariant: *s", "16: variant: aliases are not allowed: write the value out"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_an_error_tells_file_line_key_rule_what_was_got_and_the_nearest(case: str, tmp_path: Path) -> None:
    (tmp_path / "published").mkdir()
    row = "- {paper: awd, table: 'T', dataset: ptb, metric: perplexity, certainty: seed}\n"
    rows = "".join(row.replace("T", table) for table in ("4", "1 small", "1 large"))
    (tmp_path / "published" / "awd.yaml").write_text(rows)
    old, new, line = WRONG[case]
    assert line in errors_of(tmp_path, edited(old, new))


def test_a_number_that_is_none_contradicts_no_other_component(tmp_path: Path) -> None:
    (line,) = errors_of(tmp_path, edited("{dropout.weight: 0.0}", "{dropout.weight: .nan}"))
    assert line.endswith("components.weight-dropping.off.dropout.weight: should be a finite number, got nan")


def test_a_size_that_a_tied_model_does_not_use_makes_no_difference(tmp_path: Path) -> None:
    one_layer = edited("layers: 2, embedding_size: 8, hidden_size: 16", "layers: 1, embedding_size: 8, hidden_size: 8")
    (line,) = errors_of(tmp_path, one_layer.replace("{dropout.weight: 0.0}", "{model.hidden_size: 16}"))
    assert line.endswith("changes nothing: model.hidden_size = 16 makes no difference to this base")


def test_a_misfit_of_scale_and_component_is_told_at_the_component(tmp_path: Path) -> None:
    text = edited("{epochs: 1,", "{model: {layers: 2, embedding_size: 8, hidden_size: [9, 8]}, epochs: 1,")
    text = text.replace("{finetune: null}", "{model.embedding_size: 16}")
    assert errors_of(tmp_path, text) == [
        "11: components.fine-tuning.off.model.embedding_size: a tied model's last layer must have the embedding's "
        "size: 8 is not embedding_size = 16 (at scale tiny)"
    ]


def test_a_wrong_item_of_a_list_is_no_wrong_list_as_well(tmp_path: Path) -> None:
    (line,) = errors_of(tmp_path, edited("hidden_size: 16", "hidden_size: [16, 0]"))
    assert line == "5: base.model.hidden_size.1: should be greater than or equal to 1, got 0"


def test_a_wrong_name_is_told_beside_what_is_wrong_under_it(tmp_path: Path) -> None:
    assert errors_of(tmp_path, edited("  tiny:", "  'a scale!':").replace("    seeds: [7]", "    seed: [7]")) == [
        "17: scales.a scale!: should be letters, digits, '-' and '_', with a letter or digit first, got 'a scale!'",
        "23: scales.a scale!.seed: unknown key 'seed' (did you mean 'seeds'?)",
    ]


def test_a_misspelt_key_is_not_missing_as_well(tmp_path: Path) -> None:
    (line,) = errors_of(tmp_path, edited(CHANGE, "{head: {kind: mixture, expert: [0, 0, 2]}}"))
    assert line == "14: variants.neural cache.head.expert: unknown key 'expert' (did you mean 'experts'?)"
    (line,) = errors_of(tmp_path, edited("question:", "qestion:"))
    assert line == "2: qestion: unknown key 'qestion' (did you mean 'question'?)"


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("{weight: 0.5,", "{wieght: 0.5,", "6: base.dropout.wieght: unknown key 'wieght' (did you mean 'weight'?)"),
        (
            "{epochs: 1,",
            "{epochs: 1, dropout: {wieght: 0.5},",
            "18: scales.tiny.base.dropout.wieght: unknown key 'wieght' (did you mean 'weight'?)",
        ),
        ("base:\n", "bas:\n", "3: bas: unknown key 'bas' (did you mean 'base'?)"),
    ],
    ids=["base", "a scale's base", "the base itself"],
)
def test_a_typo_in_the_base_does_not_make_a_change_look_like_none(
    old: str, new: str, line: str, tmp_path: Path
) -> None:
    text = edited(old, new).replace(", dropout.input: 0.1}", "}")
    assert errors_of(tmp_path, text) == [line]


def test_a_list_with_a_wrong_item_is_not_called_too_short_as_well(tmp_path: Path) -> None:
    assert errors_of(tmp_path, edited("seeds: [1, 2]", "seeds: [-1]")) == [
        "15: seeds.0: should be greater than or equal to 0, got -1"
    ]


def test_each_missing_key_is_an_error_of_its_own(tmp_path: Path) -> None:
    assert errors_of(tmp_path, "name: toy\n") == [f"1: missing key {key!r}" for key in ("question", "base", "seeds")]


def test_text_that_is_no_yaml_is_one_error_at_its_line(tmp_path: Path) -> None:
    (line,) = errors_of(tmp_path, edited("seeds: [1, 2]", "seeds: [1, 2"))
    assert line.startswith("16: not YAML: ")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "1: should be a mapping with name, question, base, seeds, got null"),
        ("# nothing\n", "1: should be a mapping with name, question, base, seeds, got null"),
        ("- a\n", "1: should be a mapping with name, question, base, seeds, got ['a']"),
        ("[" * 5000, "1: not YAML: nested more than 30 levels deep"),
        ("a: 1\nname: \x07\n", "2: not YAML: character U+0007 is not allowed"),
        ("--- {}\n--- {}\n", "2: not YAML: expected a single document in the stream but found another document"),
        ("{? [a, b] : c}", "1: a key must be one word or text"),
    ],
)
def test_files_that_are_no_sweep(text: str, error: str, tmp_path: Path) -> None:
    assert error in errors_of(tmp_path, text)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match=r"none\.yaml: cannot be read: No such file"):
        read_sweep(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"name: x\n\xff\xfe\xff")
    with pytest.raises(SweepError, match=r"bytes\.yaml:2: not UTF-8 text \(invalid start byte\)"):
        read_sweep(tmp_path / "bytes.yaml")


@pytest.mark.parametrize("asked", ["{}/awd_ablatoin.yaml", "{}/awd_ablation", "awd_ablation", "awd_ablation.yml"])
def test_a_misspelt_file_is_told_with_the_nearest(asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("elsewhere" if asked.startswith("{}") else "sweeps")
    folder.mkdir()
    for name in ("adam", "awd_ablation"):
        (folder / f"{name}.yaml").write_text(GOOD)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SweepError) as caught:
        read_sweep(Path(asked.format("elsewhere")))
    meant = folder.relative_to(tmp_path) / "awd_ablation.yaml"
    assert str(caught.value).endswith(f": cannot be read: No such file or directory (did you mean '{meant}'?)")


def test_a_file_like_no_other_is_told_without_a_guess(tmp_path: Path) -> None:
    (tmp_path / "toy.yaml").write_text(GOOD)
    with pytest.raises(SweepError, match=r"No such file or directory$"):
        read_sweep(tmp_path / "xxxxxxxx.yaml")
    with pytest.raises(SweepError, match=r"Is a directory$"):
        read_sweep(tmp_path)


def test_a_published_table_without_its_folder_is_told_with_the_whole_path(tmp_path: Path) -> None:
    (line,) = errors_of(tmp_path, edited("seeds: [1, 2]", "seeds: [1, 2]\npublished: [x.y, z.t]"))
    hint = "(`sweeps copy` brings a shipped sweep's)"
    assert line == f"16: published.0: no file 'x': there is no folder {tmp_path / 'published'} {hint}"


SHAPE = {
    ("name: toy", "name: to/y"): ["1", "name"],
    ("{weight: 0.5,", "{weight: 1.5,"): ["6", "base.dropout.weight"],
    ("clip: 0.25", "clip: -1"): ["7", "base.optimizer.clip"],
    ("    seeds: [7]", "    sedes: [7]"): ["23", "scales.tiny.sedes"],
    ("gpus: 0.25", "gpu: 0.25"): ["25", "resources.gpu"],
}
MEANING = {
    ("{dropout.weight: 0.0}", "{dropout.wieght: 0.0}"): ["12", "components.weight-dropping.off.dropout.wieght"],
    ("{cache: {window: 10, ", "{cache: {window: 0, "): ["14", "variants.neural cache.cache.window"],
    ("{epochs: 1,", "{epochs: none,"): ["18", "scales.tiny.base.epochs"],
    ("      neural cache:", "      neural cash:"): ["22", "scales.tiny.variants.neural cash"],
    ("\nresources:", "\npublished: [x.y]\nresources:"): ["25", "published"],
}


def test_all_that_is_wrong_with_the_shape_comes_at_once_in_the_files_order_and_then_the_meaning(tmp_path: Path) -> None:
    meaning = GOOD
    for old, new in MEANING:
        assert meaning.count(old) == 1
        meaning = meaning.replace(old, new)
    assert [line.split(": ")[:2] for line in errors_of(tmp_path, meaning)] == [*MEANING.values()]
    both = meaning.replace("published: [x.y]\n", "")
    for old, new in SHAPE:
        assert both.count(old) == 1
        both = both.replace(old, new)
    assert [line.split(": ")[:2] for line in errors_of(tmp_path, both)] == [*SHAPE.values()]


def test_a_wrong_base_does_not_make_right_components_look_wrong(tmp_path: Path) -> None:
    text = edited("{weight: 0.5,", "{weight: x,").replace("kind: nt_asgd", "kind: nt")
    text = text.replace("{finetune: null}", "{optimizer.nonmonotone_interval: 9}")
    assert [line.split(": ")[:2] for line in errors_of(tmp_path, text)] == [
        ["6", "base.dropout.weight"],
        ["7", "base.optimizer.kind"],
    ]


def test_a_base_whose_parts_do_not_fit_each_other_does_not_hide_the_rest_of_the_shape(tmp_path: Path) -> None:
    text = edited("kind: nt_asgd, learning_rate: 30.0", "kind: adam, learning_rate: 0.1").replace("gpus:", "gpu:")
    base, *others = errors_of(tmp_path, text)
    assert base.startswith("9: base.finetune: finetune.learning_rate: averaged SGD cannot take over Adam's rate")
    assert [line.split(": ")[1] for line in others] == ["resources.gpu"]


def test_what_needs_components_says_so(tmp_path: Path) -> None:
    text = (
        GOOD[: GOOD.index("components:")]
        + "design: factorial\n"
        + GOOD[GOOD.index("variants:") : GOOD.index("scales:")]
    )
    assert errors_of(tmp_path, text) == [
        "10: design: design factorial needs 1 or more components (a group counts as one), got 0"
    ]


def test_a_key_that_is_indented_too_far_belongs_further_out(tmp_path: Path) -> None:
    text = GOOD[: GOOD.index("components:")] + "  variants: {b: {epochs: 3}}\nseeds: [1, 2]\n"
    said = "10: base.variants: unknown key 'variants' (it belongs further out: indented too far?)"
    assert errors_of(tmp_path, text) == [said]
    inner = errors_of(tmp_path, edited(CHANGE, "{model: {layers: 1, epochs: 3}}"))
    key = "14: variants.neural cache.model.epochs: unknown key 'epochs'"
    assert inner[0] == f"{key} (it belongs further out: indented too far?)"


def test_the_spec_of_a_trial_is_told_once_and_where_it_belongs(tmp_path: Path) -> None:
    spec = "corpus: {name: corpus}\nmodel: {layers: 1, embedding_size: 8, hidden_size: 8}\nepochs: 2\nseed: 1\n"
    said = "1: this is the spec of one trial, which `python -m lm train FILE` trains, and not a sweep"
    assert errors_of(tmp_path, spec) == [said] == errors_of(tmp_path, f"{spec}epoch: 3\n")


def test_a_variant_with_the_bases_name_is_told_once(tmp_path: Path) -> None:
    said = errors_of(
        tmp_path, edited("  neural cache: {cache: {window: 10", "  full: {cache: {window: 10").split("scales:")[0]
    )
    assert said == ["14: variants.full: the name 'full' is taken by the base"]


def test_no_variant_is_called_like_what_a_search_finds(tmp_path: Path) -> None:
    text = edited("  neural cache: {cache: {window: 10", "  best found: {cache: {window: 10").split("scales:")[0]
    assert errors_of(tmp_path, text) == [
        "14: variants.best found: the name 'best found' is taken by what the search finds"
    ]


def test_a_variant_called_like_one_that_equal_budget_adds_is_told(tmp_path: Path) -> None:
    text = edited("  neural cache: {cache: {window: 10", "  no fine-tuning (as many epochs): {cache: {window: 10")
    place = "14: variants.no fine-tuning (as many epochs)"
    said = f"{place}: the name 'no fine-tuning (as many epochs)' is taken by what equal_budget adds"
    assert errors_of(tmp_path, text.split("scales:")[0] + "equal_budget: true\n") == [said]


def test_a_pipe_is_refused_because_a_sweep_file_is_read_more_than_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(SweepError, match="a pipe can be read only once; write the sweep into a file"):
        read_sweep(tmp_path / "pipe.yaml")


def test_a_whole_model_without_its_sizes_is_a_warning(tmp_path: Path) -> None:
    text = edited(CHANGE, "{model: {cell: gru}}").replace(
        "dropout.input: 0.1}", "model: {layers: 1, embedding_size: 8}}"
    )
    sweep = read_text(tmp_path, text.replace("    variants:\n      neural cache:", "    # "))
    rule = "replaces the whole part, so it has the defaults"
    others = "layers 3, embedding_size 400 and hidden_size 1150"
    of_variant = f"model of 'neural cache' {rule} {others}; write model.cell to change nothing else"
    assert sweep.at("paper").warnings == (of_variant,)
    of_base = f"scales.tiny.base.model {rule} hidden_size 1150; write model.layers, model.embedding_size to change nothing else"
    assert sweep.at("tiny").warnings[0] == of_base
    assert not read_text(tmp_path, GOOD).at("paper").warnings
