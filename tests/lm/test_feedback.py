"""Training inputs mixed with the model's own predictions. T time, B batch, V words, C bits, G classes, N draws.

The oracles are closed forms, enumeration, finite differences, and the exact sequential run.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from scipy.stats import chisquare
from torch import Tensor
from torch.nn import functional as F

from lm.codebooks import Codebook
from lm.epochs import train_step
from lm.feedback import Fed, Mixer, forward_with_feedback, gumbel, probability, sampled, temperature
from lm.heads import Outputs, Words
from lm.heads.decoders import decode_hamming, decode_owner
from lm.heads.ecoc import Ecoc
from lm.heads.two_level import TwoLevel
from lm.model import LanguageModel
from lm.record import read_curve
from lm.spec import Dropout, Feedback, Head, Model, TrainSpec
from tests.lm.heads.handmade import full_code, rank_code
from tests.support.lm_trials import EVERY_STEP, assert_same, killed, run, settled
from tests.support.stages import begin, window
from tests.support.tiny import seeded, tiny_spec

T, B, V = 7, 3, 23
RANKED = rank_code(V, 12)
SOFTMAX = {"kind": "softmax"}
TREE = {"kind": "hierarchical", "tree": {"kind": "two_level", "words_per_class": 5, "assign": "unigram"}}
CODES = {"kind": "ecoc", "codebook": {"kind": "unigram", "bits": 12}}
ALWAYS = {"kind": "constant", "probability": 1.0}
HALF = {"kind": "constant", "probability": 0.5}

EACH: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "argmax": ({"kind": "scheduled_sampling"}, SOFTMAX),
    "sample": ({"kind": "scheduled_sampling", "pick": "sample"}, SOFTMAX),
    "argmax of codes": ({"kind": "scheduled_sampling"}, CODES),
    "argmax of a tree": ({"kind": "scheduled_sampling"}, TREE),
    "soft": ({"kind": "soft_scheduled_sampling", "top_words": 5}, SOFTMAX),
    "soft of codes": ({"kind": "soft_scheduled_sampling"}, CODES),
    "clms": ({"kind": "clms"}, CODES),
    "clms, hamming": ({"kind": "clms", "decoder": "hamming"}, CODES),
    "clms of a tree": ({"kind": "clms"}, TREE),
    "lsms": ({"kind": "lsms"}, CODES),
    "lsms, hamming": ({"kind": "lsms", "decoder": "hamming", "flips": 3}, CODES),
    "dlms": ({"kind": "dlms", "top_words": 6}, CODES),
    "dlms, straight through": ({"kind": "dlms", "straight_through": True}, CODES),
    "dlms of a tree": ({"kind": "dlms"}, TREE),
    "dlms of words": ({"kind": "dlms"}, SOFTMAX),
}
each = pytest.mark.parametrize("name", EACH)


def mixing(parts: dict[str, Any], /, **more: Any) -> Feedback:
    feedback: Feedback = TypeAdapter(Feedback).validate_python({"schedule": HALF} | parts | more)
    return feedback


def model_of(head: dict[str, Any], book: Codebook = RANKED, dropout: Dropout | None = None) -> LanguageModel:
    """In double precision, its weights large enough that predictions differ and bits are sure."""
    spec: Head = TypeAdapter(Head).validate_python(head)
    layers = Model(layers=2, embedding_size=6, hidden_size=8, tied=False)
    counts_V = np.arange(book.packed.shape[0], 0, -1, dtype=np.int64)
    init = torch.Generator().manual_seed(3)
    model = LanguageModel(layers, spec, dropout or Dropout(), Words(counts_V, book), init).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4.0)
    return model


def text(words: int = V, steps: int = T) -> Tensor:
    return torch.randint(words, (steps, B), generator=seeded(5))


def mixed(
    model: LanguageModel, feedback: Feedback, input_TB: Tensor, *, progress: float = 0.5, seed: int = 7
) -> tuple[Tensor, float]:
    """The last layer's outputs and the share of changed inputs."""
    noise, state = seeded(seed), model.initial_state(input_TB.shape[1])
    outputs, _, changed = forward_with_feedback(model, feedback, progress, input_TB, state, noise)
    return outputs.dropped[-1], changed.item()


def mixer(model: LanguageModel, feedback: Feedback, text_SB: Tensor, progress: float = 0.5) -> Mixer:
    return Mixer(model, feedback, progress, model.embedding_VE, text_SB, seeded(7))


def outputs_of(model: LanguageModel, input_TB: Tensor) -> Outputs:
    return model(input_TB, model.initial_state(input_TB.shape[1]))[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({"kind": "sigmoid"}, [0, 0.160, 0.462, 0.764, 0.924]),
        ({"kind": "sigmoid", "tau_max": 10.0}, [0, 0.007, 0.5, 0.993, 1.0]),
        ({"kind": "sigmoid", "tau_max": 1e-30}, [0, 0.125, 0.25, 0.375, 0.5]),
        ({"kind": "linear"}, [0, 0.25, 0.5, 0.75, 1]),
        ({"kind": "exponential"}, [0, 1 - 0.75 * math.exp(-0.25), 1 - 0.5 * math.exp(-0.5), 0.882, 1]),
        ({"kind": "constant", "probability": 0.731}, [0.731] * 5),
    ],
    ids=["sigmoid", "sigmoid 10", "sigmoid 1e-30", "linear", "exponential", "constant"],
)
def test_schedules_have_the_tabulated_values(schedule: dict[str, Any], expected: list[float]) -> None:
    feedback = mixing({"kind": "scheduled_sampling"}, schedule=schedule)
    assert [probability(feedback, k / 4) for k in range(5)] == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("kind", ["sigmoid", "linear", "exponential", "inverse_sigmoid"])
def test_schedules_rise_from_0_and_keep_to_the_most(kind: str) -> None:
    feedback = mixing({"kind": "scheduled_sampling"}, schedule={"kind": kind}, most=0.6)
    values = [probability(feedback, k / 50) for k in range(51)]
    assert values[0] == 0 and values[-1] == 0.6 and values == sorted(values)
    uncapped = mixing({"kind": "scheduled_sampling"}, schedule={"kind": kind})
    assert probability(uncapped, 1.0) == pytest.approx(0.924 if kind == "sigmoid" else 1.0, abs=1e-3)


def test_an_inverse_sigmoid_is_that_of_bengio_shifted_to_its_ends() -> None:
    feedback = mixing({"kind": "scheduled_sampling"}, schedule={"kind": "inverse_sigmoid", "offset": 50.0})
    teacher = [50 / (50 + math.exp(10 * x)) for x in (0.0, 0.4, 1.0)]
    assert probability(feedback, 0.4) == pytest.approx((teacher[0] - teacher[1]) / (teacher[0] - teacher[2]))


def test_the_temperature_runs_between_its_ends() -> None:
    dlms = mixing({"kind": "dlms", "first_temperature": 2.5, "last_temperature": 0.5})
    assert [temperature(dlms, x) for x in (0.0, 0.5, 1.0)] == pytest.approx([2.5, 1.5, 0.5])  # type: ignore[arg-type]


@each
def test_a_probability_of_0_is_teacher_forcing_bit_for_bit(name: str) -> None:
    parts, head = EACH[name]
    model = model_of(head, dropout=Dropout(embedding=0.2, input=0.3, weight=0.3))
    never = mixing(parts, schedule={"kind": "sigmoid"})
    noise, plain = seeded(7), seeded(7)
    fed, _, changed = forward_with_feedback(model, never, 0.0, text(), model.initial_state(B), noise)
    forced, _ = model(text(), model.initial_state(B), plain)
    assert torch.equal(fed.dropped[-1], forced.dropped[-1]) and changed == 0.0
    assert torch.equal(noise.get_state(), plain.get_state())


@each
@pytest.mark.parametrize("passes", [1, "sequential"])
def test_where_no_draw_falls_the_text_is_read(name: str, passes: int | str) -> None:
    parts, head = EACH[name]
    model = model_of(head)
    hardly = mixing(parts, schedule={"kind": "constant", "probability": 1e-9}, passes=passes)
    fed, share = mixed(model, hardly, text())
    torch.testing.assert_close(fed, outputs_of(model, text()).dropped[-1])
    assert share == 0.0


@each
@pytest.mark.parametrize("p", [0.3, 1.0])
def test_enough_passes_are_the_sequential_run(name: str, p: float) -> None:
    """With the same masks in each pass; of discrete predictions at most T - 1 passes mend all, of means too."""
    parts, head = EACH[name]
    model = model_of(head, dropout=Dropout(embedding=0.2, input=0.3, between=0.2, output=0.2, weight=0.3))
    schedule = {"kind": "constant", "probability": p}
    exact, share = mixed(model, mixing(parts, schedule=schedule, passes="sequential"), text())
    passes, same = mixed(model, mixing(parts, schedule=schedule, passes=T - 1), text())
    torch.testing.assert_close(passes, exact, rtol=1e-9, atol=1e-11)
    assert share == same > 0.0


@pytest.mark.parametrize("passes", [1, 2, 3])
def test_passes_are_exact_up_to_the_next_changed_input(passes: int) -> None:
    """Each pass makes one more changed input of a column exact; as many as its changed inputs make all exact."""
    model, parts = model_of(SOFTMAX), {"kind": "scheduled_sampling", "pick": "sample"}
    with torch.no_grad():
        for parameter in model.parameters():  # so large that what is read changes what is predicted
            parameter.mul_(3.0)
    exact, _ = mixed(model, mixing(parts, passes="sequential"), text(steps=30))
    few, _ = mixed(model, mixing(parts, passes=passes), text(steps=30))
    changed_SB = mixer(model, mixing(parts), text(steps=30)[1:]).fed_SB.cumsum(dim=0)
    end_B = (changed_SB > passes).int().argmax(dim=0) + 1  # of inputs, whose first is the text's
    for column, end in enumerate(end_B.tolist()):
        torch.testing.assert_close(few[:end, column], exact[:end, column])
    assert not torch.allclose(few, exact)
    most = int(changed_SB[-1].max())
    assert passes < most < 29
    torch.testing.assert_close(mixed(model, mixing(parts, passes=most), text(steps=30))[0], exact)


@each
def test_no_input_knows_what_the_text_says_later(name: str) -> None:
    """The input at t is made from predictions before t and the text's word at t alone."""
    parts, head = EACH[name]
    model, other = model_of(head), text()
    other[4:] = (other[4:] + 1) % V
    for passes in (1, 2, "sequential"):
        feedback = mixing(parts, passes=passes, schedule={"kind": "constant", "probability": 0.7})
        one, another = mixed(model, feedback, text())[0], mixed(model, feedback, other)[0]
        torch.testing.assert_close(one[:4], another[:4])
        assert not torch.allclose(one[4:], another[4:])


@pytest.mark.parametrize("head", [SOFTMAX, TREE, CODES, {"kind": "adaptive", "cutoffs": [5, 12], "divisor": 2.0}])
def test_at_probability_1_the_model_reads_itself(head: dict[str, Any]) -> None:
    """Step by step by hand: the first word is the text's, every other the most probable one before it."""
    model = model_of(head)
    word_1B, state = text()[:1], model.initial_state(B)
    outputs_TBH = []
    for _ in range(T):
        outputs, state = model(word_1B, state)
        outputs_TBH.append(outputs.dropped[-1])
        scores_1BV = model.head.scorer().log_probabilities(outputs) if head is not CODES else coded(model, outputs)
        word_1B = scores_1BV.argmax(dim=-1)
    always = mixing({"kind": "scheduled_sampling"}, schedule=ALWAYS, passes="sequential")
    torch.testing.assert_close(mixed(model, always, text())[0], torch.cat(outputs_TBH))


def coded(model: LanguageModel, outputs: Outputs) -> Tensor:
    """Scores C z of the words."""
    assert isinstance(model.head, Ecoc)
    return model.head.logits(outputs) @ (model.head.codes.signs(torch.arange(V)) > 0).double().t()


def test_scheduled_sampling_draws_from_the_distribution() -> None:
    scores_NV = torch.tensor([2.0, 0.0, 1.0, -1.0], dtype=torch.float64).expand(20_000, 4)
    uniform_N = torch.rand(20_000, generator=seeded(0), dtype=torch.float64)
    expected = scores_NV[0].softmax(dim=-1) * 20_000
    drawn = {
        "by uniform": sampled(scores_NV, uniform_N),
        "by Gumbel noise": (scores_NV + gumbel(torch.rand(20_000, 4, generator=seeded(1), dtype=torch.float64))).argmax(
            dim=-1
        ),
    }
    for words_N in drawn.values():
        assert chisquare(torch.bincount(words_N, minlength=4).numpy(), expected.numpy()).pvalue > 0.001


def soft_weights(fed: Fed, words: int = V) -> Tensor:
    """As weights of all words (S, B, V)."""
    assert fed.weights is not None
    if fed.words is None:
        return fed.weights
    return torch.zeros(*fed.words.shape[:2], words, dtype=fed.weights.dtype).scatter_add(-1, fed.words, fed.weights)


def predicted(model: LanguageModel, feedback: Feedback, progress: float = 0.5) -> tuple[Fed, Outputs, Tensor]:
    """What is fed after the text, the outputs it is made of, and the uniform numbers."""
    made = mixer(model, feedback, text(), progress)
    outputs = outputs_of(model, text())
    return made.predicted(outputs, text(), made.uniform_SBX), outputs, made.uniform_SBX


def test_bits_have_no_temperature_in_what_is_fed() -> None:
    """A fixed one is for scoring: it changed the training of each loss but that of a distribution over words."""
    soft = mixing({"kind": "soft_scheduled_sampling", "top_words": V})
    warm = {"probability": {"kind": "codewords", "temperature": 30.0}}
    for loss, same in (("bce", True), ("normalized", False)):
        fed, heated = (predicted(model_of(CODES | {"loss": {"kind": loss}} | more), soft)[0] for more in ({}, warm))
        assert torch.equal(soft_weights(fed), soft_weights(heated)) == same


def test_a_soft_argmax_lies_between_the_argmax_and_the_mean() -> None:
    model = model_of(SOFTMAX)
    fed, outputs, _ = predicted(model, mixing({"kind": "soft_scheduled_sampling", "top_words": V}))
    torch.testing.assert_close(soft_weights(fed), model.head.word_scores(outputs).softmax(dim=-1))
    sharp, _, _ = predicted(model, mixing({"kind": "soft_scheduled_sampling", "sharpness": 1e5}))
    best = F.one_hot(model.head.word_scores(outputs).argmax(dim=-1), V).double()
    torch.testing.assert_close(soft_weights(sharp), best)
    flat, _, _ = predicted(model, mixing({"kind": "soft_scheduled_sampling", "sharpness": 1e-9, "top_words": V}))
    torch.testing.assert_close(soft_weights(flat), torch.full_like(best, 1 / V))


@pytest.mark.parametrize("decoder", ["owner", "hamming"])
def test_clms_with_every_bit_mixed_decodes_the_prediction(decoder: str) -> None:
    model = model_of(CODES)
    assert isinstance(model.head, Ecoc) and model.head.spans is not None
    fed, outputs, _ = predicted(model, mixing({"kind": "clms", "decoder": decoder}, schedule=ALWAYS))
    logits = model.head.logits(outputs)
    by_hand = (
        decode_owner(model.head.spans, logits > 0)
        if decoder == "owner"
        else decode_hamming(model.head.codes, logits > 0, logits)
    )
    assert fed.words is not None and fed.weights is None
    assert torch.equal(fed.words, by_hand)


@pytest.mark.parametrize("decoder", ["owner", "hamming"])
def test_clms_mixes_bit_by_bit(decoder: str) -> None:
    """Against a loop over bits; where no bit is mixed the text's word comes back."""
    model = model_of(CODES)
    assert isinstance(model.head, Ecoc)
    fed, outputs, uniform = predicted(model, mixing({"kind": "clms", "decoder": decoder}))
    logits, own = model.head.logits(outputs), model.head.codes.signs(text()) > 0
    bits = torch.empty_like(own)
    for place in np.ndindex(*own.shape):
        bits[place] = logits[place] > 0 if uniform[place] < 0.5 else own[place]
    assert fed.words is not None
    assert torch.equal(fed.words, model.head.decode(bits, logits, "owner" if decoder == "owner" else "hamming"))
    unmixed, _, _ = predicted(model, mixing({"kind": "clms"}, schedule={"kind": "constant", "probability": 1e-9}))
    assert unmixed.words is not None and torch.equal(unmixed.words, text())


def test_class_bits_are_mixed_later_the_more_they_mean() -> None:
    """With an offset of 1 the first class bit begins only at the end, the last has the schedule's own probability."""
    model = model_of(CODES)
    assert isinstance(model.head, Ecoc) and model.head.spans is not None
    feedback = mixing({"kind": "clms", "bit_offset": 1.0}, schedule={"kind": "linear"})
    made = mixer(model, feedback, text().expand(T, B), progress=0.6)
    with torch.no_grad():
        model.head.bias_C.copy_(1e6 * model.head.bias_C.new_ones(()))  # every predicted bit is 1
    outputs = outputs_of(model, text())
    k = model.head.spans.class_bits
    chance = [max(0.0, 0.6 - 1.0 * (1 - i / (k - 1))) for i in range(k)]
    own = model.head.codes.signs(text()) > 0
    bits = own.clone()
    for i in range(own.shape[-1]):
        p = chance[i] if i < k else 0.6
        bits[..., i] |= made.uniform_SBX[..., i] < p
    words = made.predicted(outputs, text(), made.uniform_SBX).words
    assert words is not None and torch.equal(words, decode_owner(model.head.spans, bits))
    assert chance[0] == 0.0 and chance[-1] == pytest.approx(0.6)


def test_lsms_weighs_the_predicted_codes_neighbours_by_their_probability() -> None:
    model = model_of(CODES)
    assert isinstance(model.head, Ecoc) and model.head.spans is not None
    fed, outputs, _ = predicted(model, mixing({"kind": "lsms", "flips": 4}))  # two of them at p = 1/2
    logits, k = model.head.logits(outputs), model.head.spans.class_bits
    assert fed.words is not None and fed.weights is not None and fed.words.shape[-1] == 3
    for place in np.ndindex(T, B):
        z = logits[place]
        doubtful = sorted(range(k), key=lambda i, z=z: abs(z[i].item()))[:2]  # type: ignore[misc]
        codes = [z > 0]
        for bit in doubtful:
            codes.append(codes[0].clone())
            codes[-1][bit] ^= True
        log_q = torch.stack([F.logsigmoid(torch.where(code, z, -z)).sum() for code in codes])
        torch.testing.assert_close(fed.weights[place], log_q.softmax(dim=-1))
        assert fed.words[place].tolist() == [int(decode_owner(model.head.spans, code)) for code in codes]


def test_lsms_surely_is_the_predicted_code_alone() -> None:
    model = model_of(CODES)
    sharp, _, _ = predicted(model, mixing({"kind": "lsms", "sharpness": 1e5}))
    all_bits, _, _ = predicted(model, mixing({"kind": "clms"}, schedule=ALWAYS))
    assert all_bits.words is not None
    torch.testing.assert_close(soft_weights(sharp), F.one_hot(all_bits.words, V).double())


def test_dlms_is_the_product_of_its_relaxed_bits() -> None:
    """b = sigmoid((z + logistic noise) / tau) as the probability of each bit, normalised over the codewords."""
    model = model_of(CODES)
    assert isinstance(model.head, Ecoc)
    feedback = mixing({"kind": "dlms", "top_words": V, "by_bits": False, "last_temperature": 1.7})
    fed, outputs, uniform = predicted(model, feedback, progress=1.0)
    b = torch.sigmoid((model.head.logits(outputs) + uniform.log() - (1 - uniform).log()) / 1.7)
    ones_VC = model.head.codes.signs(torch.arange(V)) > 0
    product = torch.where(ones_VC, b[..., None, :], 1 - b[..., None, :]).log().sum(dim=-1).softmax(dim=-1)
    torch.testing.assert_close(soft_weights(fed), product, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("tau", [1e-3, 0.1, 1.0, 2.5])
def test_the_likeliest_word_of_dlms_is_a_sample_of_the_bits_at_any_temperature(tau: float) -> None:
    """Every code is a word: the share of each is the product of its bits' probabilities. Near 0 all weight is on it."""
    book = full_code(3)
    model = model_of(CODES, book)
    assert isinstance(model.head, Ecoc)
    with torch.no_grad():
        model.head.weight_CH.zero_()
        model.head.bias_C.copy_(torch.tensor([1.0, -0.5, 0.3]))
    feedback = mixing({"kind": "dlms", "first_temperature": tau, "last_temperature": tau})
    input_TB = text(8, steps=4000)
    made = mixer(model, feedback, input_TB)
    weights = soft_weights(made.predicted(outputs_of(model, input_TB), input_TB, made.uniform_SBX), 8).detach()
    count_V = weights.argmax(dim=-1).flatten().bincount(minlength=8)
    q_V = torch.sigmoid(model.head.codes.signs(torch.arange(8)) * model.head.bias_C).prod(dim=-1).detach()
    assert chisquare(count_V.numpy(), (q_V * count_V.sum()).numpy()).pvalue > 0.001
    hard = mixer(model, feedback.model_copy(update={"straight_through": True}), input_TB)
    drawn = soft_weights(hard.predicted(outputs_of(model, input_TB), input_TB, hard.uniform_SBX), 8).round()
    assert torch.equal(drawn.argmax(dim=-1), weights.argmax(dim=-1)) and (drawn.sum(dim=-1) == 1).all()
    sure = (weights.amax(dim=-1) > 0.99).double().mean().item()
    assert sure > 0.99 if tau == 1e-3 else sure < 0.95


def test_by_bits_divides_by_the_square_root_of_their_surplus() -> None:
    model = model_of(CODES)
    tau = math.sqrt(12 / 5)  # 12 bits, of which 5 name 23 words
    scaled, _, _ = predicted(model, mixing({"kind": "dlms", "first_temperature": 1.0, "last_temperature": 1.0}))
    plain = {"kind": "dlms", "by_bits": False, "first_temperature": tau, "last_temperature": tau}
    unscaled, _, _ = predicted(model, mixing(plain))
    torch.testing.assert_close(soft_weights(scaled), soft_weights(unscaled))


def test_the_texts_own_word_is_among_the_candidates_once() -> None:
    fed, _, _ = predicted(model_of(CODES), mixing({"kind": "dlms", "top_words": 2}))
    assert fed.words is not None and fed.weights is not None
    own = fed.words == text()[..., None]
    assert own.any(dim=-1).all()
    assert ((own & (fed.weights > 0)).sum(dim=-1) == 1).all()


def test_clms_of_a_tree_chooses_class_then_word() -> None:
    """Against a loop; in a class that is not the text's the word is the best of that class."""
    model = model_of(TREE)
    assert isinstance(model.head, TwoLevel)
    fed, outputs, uniform = predicted(model, mixing({"kind": "clms"}))
    log_p = model.head.log_probabilities(outputs)
    class_TBG, _ = model.head.log_parts(outputs)
    assert fed.words is not None
    for place in np.ndindex(T, B):
        own = int(text()[place])
        chosen = int(class_TBG[place].argmax()) if uniform[place][0] < 0.5 else int(model.head.class_V[own])
        members = [word for word in range(V) if model.head.class_V[word] == chosen]
        best = max(members, key=lambda word, place=place: log_p[place][word].item())  # type: ignore[misc]
        keeps = chosen == int(model.head.class_V[own]) and uniform[place][1] >= 0.5
        assert int(fed.words[place]) == (own if keeps else best)
    greedy, _, _ = predicted(model, mixing({"kind": "clms"}, schedule=ALWAYS))
    assert greedy.words is not None
    assert torch.equal(model.head.class_V[greedy.words], class_TBG.argmax(dim=-1))


def test_dlms_of_a_tree_is_the_class_means_around_the_texts_class() -> None:
    """The formula with mean vectors of the other classes, by their words' counts."""
    model = model_of(TREE)
    assert isinstance(model.head, TwoLevel)
    fed, outputs, uniform = predicted(model, mixing({"kind": "dlms", "last_temperature": 0.8}), progress=1.0)
    class_TBG, leaf_TBV = model.head.log_parts(outputs)
    noise = -(-uniform.log()).log()
    classes = class_TBG.shape[-1]
    top = ((class_TBG + noise[..., :classes]) / 0.8).softmax(dim=-1)
    counts_V = torch.arange(V, 0, -1, dtype=torch.float64)
    vectors_VE, expected = model.embedding_VE, torch.zeros(T, B, 6, dtype=torch.float64)
    for place in np.ndindex(T, B):
        own = int(model.head.class_V[text()[place]])
        for g in range(classes):
            members = (model.head.class_V == g).nonzero()[:, 0]
            if g == own:
                weights = ((leaf_TBV[place][members] + noise[place][classes + members]) / 0.8).softmax(dim=-1)
            else:
                weights = counts_V[members] / counts_V[members].sum()
            expected[place] = expected[place] + top[place][g] * (weights @ vectors_VE[members])
    torch.testing.assert_close(fed.embedded(vectors_VE), expected, rtol=1e-6, atol=1e-7)


def test_straight_through_a_tree_follows_the_drawn_path() -> None:
    """All weight on the drawn class: on its drawn word if it is the text's, else by its words' counts."""
    model = model_of(TREE)
    assert isinstance(model.head, TwoLevel)
    soft, outputs, uniform = predicted(model, mixing({"kind": "dlms", "last_temperature": 1.0}), progress=1.0)
    hard, _, _ = predicted(model, mixing({"kind": "dlms", "last_temperature": 1.0, "straight_through": True}), 1.0)
    class_TBG, _ = model.head.log_parts(outputs)
    drawn = (class_TBG + gumbel(uniform[..., : class_TBG.shape[-1]])).argmax(dim=-1)
    weights, plain = soft_weights(hard), soft_weights(soft)
    for place in np.ndindex(T, B):
        members = model.head.class_V == drawn[place]
        assert weights[place][members].sum().item() == pytest.approx(1.0, abs=1e-6)
        if model.head.class_V[text()[place]] == drawn[place]:
            assert int(weights[place].argmax()) == int((plain[place] * members).argmax())
            assert weights[place].max().item() == pytest.approx(1.0)
        else:
            torch.testing.assert_close(weights[place][members], model.head.share_V[members].double())


SOFT = [name for name, (parts, _) in EACH.items() if parts["kind"] in ("soft_scheduled_sampling", "lsms", "dlms")]


@pytest.mark.parametrize("name", [name for name in SOFT if "straight" not in name])
def test_the_gradient_goes_through_what_is_fed(name: str) -> None:
    """Against a finite difference with the same draws; with `gradient: stop` it is another."""
    parts, head = EACH[name]
    model = model_of(head)
    weights = next(p for key, p in model.named_parameters() if key.startswith("head.") and p.dim() == 2)
    direction = torch.randn(weights.shape, generator=seeded(9), dtype=torch.float64)

    def loss(feedback: Feedback) -> Tensor:
        return mixed_loss(model, feedback)

    flowing = mixing(parts, schedule=ALWAYS)
    (gradient,) = torch.autograd.grad(loss(flowing), weights)
    (stopped,) = torch.autograd.grad(loss(mixing(parts, schedule=ALWAYS, gradient="stop")), weights, allow_unused=True)
    step = 1e-6
    with torch.no_grad():
        weights += step * direction
        above = loss(flowing)
        weights -= 2 * step * direction
        below = loss(flowing)
        weights += step * direction
    assert ((above - below) / (2 * step)).item() == pytest.approx((gradient * direction).sum().item(), rel=1e-4)
    assert stopped is None or not torch.allclose(stopped, gradient)


def mixed_loss(model: LanguageModel, feedback: Feedback) -> Tensor:
    """Of the outputs alone, so that the head's weights matter only by what is fed back."""
    return mixed(model, feedback, text())[0].square().sum()


@pytest.mark.parametrize("name", [name for name in EACH if name not in SOFT])
def test_no_gradient_goes_through_words_but_their_vectors_are_trained(name: str) -> None:
    parts, head = EACH[name]
    model = model_of(head)
    one_word = torch.zeros(T, B, dtype=torch.long)
    mixed(model, mixing(parts, schedule=ALWAYS), one_word)[0].sum().backward()  # type: ignore[no-untyped-call]
    assert all(weight.grad is None for key, weight in model.named_parameters() if key.startswith("head."))
    assert model.embedding_VE.grad is not None
    assert model.embedding_VE.grad[1:].any()


MISFITS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"kind": "clms"}, SOFTMAX, "feedback clms mixes the bits of codes or the classes of a two-level tree"),
    ({"kind": "clms"}, {"kind": "hierarchical", "tree": {"kind": "huffman"}}, "got hierarchical"),
    ({"kind": "lsms"}, TREE, "feedback lsms mixes the bits of codes: head.kind must be ecoc, got hierarchical"),
    ({"kind": "clms", "decoder": "hamming"}, TREE, "are of codes, a tree has none: leave them out"),
    ({"kind": "clms", "bit_offset": 0.5, "schedule": HALF}, CODES, "feedback.bit_offset shifts a schedule that rises"),
    ({"kind": "dlms", "by_bits": False}, SOFTMAX, "feedback.by_bits is of codes, got a head of kind softmax"),
    (
        {"kind": "clms", "decoder": "owner"},
        {"kind": "ecoc", "codebook": {"kind": "random", "bits": 12}},
        "feedback.decoder owner needs a codebook with spans, random has none: take hamming",
    ),
    (
        {"kind": "clms", "bit_offset": 0.5},
        {"kind": "ecoc", "codebook": {"kind": "random", "bits": 12}},
        "feedback.bit_offset is of class bits, a codebook of kind random has none",
    ),
]


@pytest.mark.parametrize(("feedback", "head", "message"), MISFITS, ids=lambda value: str(value)[:20])
def test_a_mixing_that_does_not_fit_the_head_is_refused(
    feedback: dict[str, Any], head: dict[str, Any], message: str
) -> None:
    model = {"layers": 2, "embedding_size": 6, "hidden_size": 10, "tied": False}
    with pytest.raises(ValidationError, match=message.replace(".", r"\.")):
        tiny_spec("x", model=model, head=head, feedback=feedback)


def trial(corpus_folder: Path, name: str, **changes: Any) -> TrainSpec:
    parts, head = EACH[name]
    untied = {"layers": 2, "embedding_size": 6, "hidden_size": 10, "tied": False}
    plain = {"optimizer": {"kind": "sgd", "learning_rate": 1.0, "clip": 0.5}, "model": untied, "head": head}
    return tiny_spec(corpus_folder, **plain, feedback=parts, **changes)


@pytest.mark.parametrize("name", ["sample", "clms", "dlms", "dlms of a tree"])
def test_a_killed_trial_goes_on_to_the_same_end(corpus_folder: Path, tmp_path: Path, name: str) -> None:
    spec = trial(corpus_folder, name)
    run(spec, tmp_path / "undisturbed")
    killed(spec, tmp_path / "killed", "lm.epochs.train_step", 50, checkpoint_seconds=EVERY_STEP)
    run(spec, tmp_path / "killed")
    assert_same(tmp_path / "killed", tmp_path / "undisturbed")


def test_the_curve_has_the_share_of_changed_inputs(corpus_folder: Path, tmp_path: Path) -> None:
    """None in the first epoch, more later; each has the schedule's probability at most."""
    run(trial(corpus_folder, "argmax"), tmp_path / "fed")
    shares = [dict(point.terms)["changed_inputs"] for point in read_curve(tmp_path / "fed")]
    assert shares[0] == 0.0 < shares[1] < shares[2] < 0.924


def test_the_first_epoch_is_that_of_teacher_forcing(corpus_folder: Path, tmp_path: Path) -> None:
    spec = trial(corpus_folder, "dlms", epochs=1)
    run(spec, tmp_path / "fed")
    run(spec.model_copy(update={"feedback": None}), tmp_path / "forced")
    fed, forced = (settled(tmp_path / folder) for folder in ("fed", "forced"))
    assert fed.key != forced.key
    assert (fed.stages[0].valid, fed.stages[0].test) == (forced.stages[0].valid, forced.stages[0].test)


HEADS: list[dict[str, Any]] = [
    SOFTMAX,
    TREE,
    {"kind": "hierarchical", "tree": {"kind": "huffman"}},
    {"kind": "mixture", "experts": [0, 1, 2]},
    {"kind": "sampled", "loss": {"kind": "nce", "samples": 0.3}},
    {"kind": "differentiated", "sizes": [5, 3, 2]},
    {"kind": "adaptive", "cutoffs": [5, 12], "divisor": 2.0},
]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["scheduled_sampling", "soft_scheduled_sampling", "dlms"])
@pytest.mark.parametrize("head", HEADS, ids=lambda head: head["kind"])
def test_every_head_can_be_fed_back(corpus_folder: Path, head: dict[str, Any], kind: str, precision: str) -> None:
    """In parts of the batch; the loss and every gradient are finite, and inputs have changed."""
    untied = {"layers": 2, "embedding_size": 6, "hidden_size": 10, "tied": False}
    parts = {"model": untied, "head": head, "feedback": {"kind": kind, "schedule": HALF}}
    stage = begin(tiny_spec(corpus_folder, **parts, small_batch=3, precision=precision))
    train_step(stage, *window(stage.spec), 0.1)
    assert stage.failure[0] < 0 and stage.sums.isfinite().all()
    assert 0 < stage.sums[-1] < 1


def test_a_file_without_feedback_has_the_key_it_had(corpus_folder: Path) -> None:
    assert "feedback" not in tiny_spec(corpus_folder).model_dump(exclude_defaults=True)
