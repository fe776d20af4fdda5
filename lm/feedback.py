"""Training inputs mixed from the text and the model's own predictions, against exposure bias.

S mixed positions, T time, B batch, V vocabulary, E embedding, C bits, G classes, K candidates.

After a step the model has predicted the next input. That input is the text's word or, with a probability that rises
over the epochs, made from the prediction. Targets stay the text's, a window's first input too, and scoring never mixes
(Bengio et al. 2015; O'Neill & Bollegala 2019, latent mixture sampling).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import assert_never

import torch
from torch import Tensor
from torch.nn import functional as F

from lm.dropout import drop_words
from lm.heads import Outputs
from lm.heads.ecoc import Ecoc
from lm.heads.two_level import TwoLevel
from lm.model import LanguageModel
from lm.recurrent import State
from lm.spec import Clms, Dlms, Feedback, Lsms, ScheduledSampling, SoftScheduledSampling, class_bits
from lm.spec.feedback import (
    ConstantSchedule,
    ExponentialSchedule,
    InverseSigmoidSchedule,
    LinearSchedule,
    SigmoidSchedule,
)

_LEAST_UNIFORM = 1e-6


def probability(feedback: Feedback, progress: float) -> float:
    """Of feeding the model's own prediction, p, after this share of the epochs, 0 at the first and 1 at the last."""
    match feedback.schedule:
        case SigmoidSchedule(tau_max=tau_max, slope=slope):
            p = _sigmoid(tau_max) * _rising(slope * tau_max * (2 * progress - 1), slope * tau_max)
        case LinearSchedule():
            p = progress
        case ExponentialSchedule():
            p = 1 - (1 - progress) * math.exp(-progress)
        case InverseSigmoidSchedule(offset=offset):
            teacher, first, last = (offset / (offset + math.exp(10 * x)) for x in (progress, 0.0, 1.0))
            p = (first - teacher) / (first - last)
        case ConstantSchedule(probability=p):
            pass
        case schedule:
            assert_never(schedule)
    return min(p, feedback.most)


def temperature(feedback: Dlms, progress: float) -> float:
    """Of the relaxed samples, tau, after this share of the epochs: a logistic curve between its ends."""
    first, last = feedback.first_temperature, feedback.last_temperature
    return first + (last - first) * _rising(10 * (progress - 0.5), 5.0)


def forward_with_feedback(
    model: LanguageModel,
    feedback: Feedback,
    progress: float,
    input_TB: Tensor,
    state: list[State],
    noise: torch.Generator,
) -> tuple[Outputs, list[State], Tensor]:
    """The model's outputs and last state on mixed inputs, and the share of inputs that are not the text's.

    Every pass, and every step of a sequential run, has the same masks. A probability of 0 draws nothing but those.
    """
    if probability(feedback, progress) == 0.0 or len(input_TB) == 1:
        return *model(input_TB, state, noise), torch.zeros((), device=input_TB.device)
    embedding_VE = drop_words(model.embedding_VE, model.dropout.embedding, noise)
    mixer = Mixer(model, feedback, progress, embedding_VE, input_TB[1:], noise)
    masks = noise.get_state()
    text_TBE = embedded_TBE = F.embedding(input_TB, embedding_VE)
    changed_SB = torch.zeros_like(mixer.text_SB, dtype=torch.bool)
    if feedback.passes == "sequential":
        steps: list[Outputs] = []
        for t in range(len(input_TB)):
            if t:
                embedded_TBE, changed_SB[t - 1 : t] = mixer.mix(steps[-1], slice(t - 1, t))
            noise.set_state(masks)
            outputs, state = model.run(embedded_TBE[:1], state, noise)
            steps.append(outputs)
        raw, dropped = zip(*((step.raw, step.dropped) for step in steps), strict=True)
        joined = [tuple(torch.cat(layer) for layer in zip(*parts, strict=True)) for parts in (raw, dropped)]
        return Outputs(*joined), state, changed_SB.float().mean()
    for _ in range(feedback.passes):
        noise.set_state(masks)
        with torch.set_grad_enabled(mixer.differentiable and torch.is_grad_enabled()):
            outputs, _ = model.run(embedded_TBE, state, noise)
        mixed_SBE, changed_SB = mixer.mix(outputs, slice(0, len(input_TB) - 1))
        embedded_TBE = torch.cat((text_TBE[:1], mixed_SBE))
    noise.set_state(masks)
    return *model.run(embedded_TBE, state, noise), changed_SB.float().mean()


@dataclass(frozen=True)
class Fed:
    """What is fed: words (S, B); the mean of some (S, B, K) by weight; or, without words, weights of all (S, B, V)."""

    words: Tensor | None = None
    weights: Tensor | None = None

    def embedded(self, embedding_VE: Tensor) -> Tensor:
        """Its vectors (S, B, E)."""
        if self.words is None:
            assert self.weights is not None
            return self.weights @ embedding_VE
        vectors = F.embedding(self.words, embedding_VE)
        return vectors if self.weights is None else (self.weights[..., None] * vectors).sum(dim=-2)


class Mixer:
    """The mixing of one window. All that is random is drawn beforehand, so that every pass mixes alike."""

    def __init__(
        self,
        model: LanguageModel,
        feedback: Feedback,
        progress: float,
        embedding_VE: Tensor,
        text_SB: Tensor,
        noise: torch.Generator,
    ) -> None:
        self.head, self.feedback, self.progress = model.head, feedback, progress
        self.embedding_VE, self.text_SB = embedding_VE, text_SB
        self.differentiable = getattr(feedback, "gradient", "stop") == "flow"
        self.p = probability(feedback, progress)
        uniform = embedding_VE.new_empty((*text_SB.shape, 1 + self._uniforms_per_word()))
        uniform.uniform_(_LEAST_UNIFORM, 1 - _LEAST_UNIFORM, generator=noise)
        # CLMS draws for each bit in place of each word.
        self.fed_SB = (uniform[..., 0] < self.p) | isinstance(feedback, Clms)
        self.uniform_SBX = uniform[..., 1:]

    def mix(self, outputs: Outputs, steps: slice) -> tuple[Tensor, Tensor]:
        """The inputs (S, B, E) that follow these steps, and which (S, B) are not the text's."""
        text_SB, fed_SB, uniform_SBX = self.text_SB[steps], self.fed_SB[steps], self.uniform_SBX[steps]
        read = [tuple(layer[: len(text_SB)] for layer in layers) for layers in (outputs.raw, outputs.dropped)]
        with torch.set_grad_enabled(self.differentiable and torch.is_grad_enabled()):
            fed = self.predicted(Outputs(*read), text_SB, uniform_SBX)
        if fed.weights is None and fed.words is not None:
            fed_SB = fed_SB & (fed.words != text_SB)
        text_SBE = F.embedding(text_SB, self.embedding_VE)
        return torch.where(fed_SB[..., None], fed.embedded(self.embedding_VE), text_SBE), fed_SB

    def _uniforms_per_word(self) -> int:
        """How many random numbers a prediction needs."""
        match self.feedback, self.head:
            case ScheduledSampling(pick="sample"), _:
                return 1
            case ((Clms() | Dlms()), Ecoc()):
                return self.head.codes.bits
            case Clms(), _:
                return 2
            case Dlms(), TwoLevel():
                return len(self.head.class_bias_C) + len(self.embedding_VE)
            case Dlms(), _:
                return len(self.embedding_VE)
            case _:
                return 0

    def predicted(self, outputs: Outputs, text_SB: Tensor, uniform_SBX: Tensor) -> Fed:
        """What is fed after these steps where the prediction is, from that many uniform numbers each."""
        match self.feedback, self.head:
            case ScheduledSampling(pick="argmax"), head:
                return Fed(head.word_scores(outputs).argmax(dim=-1))
            case ScheduledSampling(pick="sample"), head:
                return Fed(sampled(head.word_scores(outputs), uniform_SBX[..., 0]))
            case SoftScheduledSampling(sharpness=sharpness, top_words=most), head:
                scores_SBV = head.word_scores(outputs)
                top_SBK, words_SBK = scores_SBV.topk(min(most, scores_SBV.shape[-1]), dim=-1)
                return Fed(words_SBK, (sharpness * top_SBK).softmax(dim=-1))
            case Clms() as feedback, Ecoc() as head:
                return Fed(self._mixed_code(feedback, head, outputs, text_SB, uniform_SBX))
            case Clms(), TwoLevel() as head:
                return Fed(self._mixed_path(head, outputs, text_SB, uniform_SBX))
            case Lsms() as feedback, Ecoc() as head:
                return self._neighbours(feedback, head, outputs)
            case Dlms() as feedback, Ecoc() as head:
                logits_SBC = head.logits(outputs) + uniform_SBX.logit()
                words = len(self.embedding_VE)
                scale = math.sqrt(head.codes.bits / class_bits(words)) if feedback.by_bits else 1.0
                scores_SBV = head.codes.products(logits_SBC) / (temperature(feedback, self.progress) * scale)
                return relaxed(feedback, scores_SBV, text_SB)
            case Dlms() as feedback, TwoLevel() as head:
                return self._relaxed_path(feedback, head, outputs, text_SB, uniform_SBX)
            case Dlms() as feedback, head:
                scores_SBV = head.word_scores(outputs) + gumbel(uniform_SBX)
                return relaxed(feedback, scores_SBV / temperature(feedback, self.progress), text_SB)
            case feedback, head:
                raise TypeError(f"{feedback.kind} cannot mix the predictions of {type(head).__name__}")

    def _mixed_code(self, feedback: Clms, head: Ecoc, outputs: Outputs, text_SB: Tensor, uniform_SBC: Tensor) -> Tensor:
        """The words (S, B) of the text's codes with some bits replaced by the predicted ones."""
        logits_SBC = head.logits(outputs)
        p_C = torch.full_like(logits_SBC[0, 0], self.p)
        if feedback.bit_offset and head.spans is not None:
            last = max(1, head.spans.class_bits - 1)
            for bit in range(head.spans.class_bits):
                p_C[bit] = probability(feedback, max(0.0, self.progress - feedback.bit_offset * (1 - bit / last)))
        bits_SBC = torch.where(uniform_SBC < p_C, logits_SBC > 0, head.codes.signs(text_SB) > 0)
        return head.decode(bits_SBC, logits_SBC, feedback.decoder)

    def _mixed_path(self, head: TwoLevel, outputs: Outputs, text_SB: Tensor, uniform_SB2: Tensor) -> Tensor:
        """The words (S, B) of the text's paths with the class, the word within the class, or both as predicted.

        In another class than the text's, the text's own word means nothing: there the word is the predicted one.
        """
        class_SBG, leaf_SBV = head.log_parts(outputs)
        own_SB = head.class_V[text_SB]
        chosen_SB = torch.where(uniform_SB2[..., 0] < self.p, class_SBG.argmax(dim=-1), own_SB)
        best_SB = leaf_SBV.masked_fill(head.class_V != chosen_SB[..., None], -math.inf).argmax(dim=-1)
        keeps_SB = (chosen_SB == own_SB) & (uniform_SB2[..., 1] >= self.p)
        return torch.where(keeps_SB, text_SB, best_SB)

    def _neighbours(self, feedback: Lsms, head: Ecoc, outputs: Outputs) -> Fed:
        """The predicted code's word and those of its neighbours at one uncertain bit, by the codes' probability."""
        logits_SBC = head.logits(outputs)
        by_owner = feedback.decoder != "hamming" and head.spans is not None
        open_SBC = logits_SBC[..., : head.spans.class_bits] if by_owner and head.spans is not None else logits_SBC
        count = min(math.ceil(feedback.flips * self.p), open_SBC.shape[-1])
        doubt_SBK, place_SBK = (-open_SBC.abs()).topk(count, dim=-1)
        flips = torch.zeros((*place_SBK.shape, head.codes.bits), dtype=torch.bool, device=place_SBK.device)
        flipped = F.pad(flips.scatter(-1, place_SBK[..., None], 1), (0, 0, 1, 0))
        codes = (logits_SBC > 0)[..., None, :] ^ flipped
        words_SBK = head.decode(codes, logits_SBC[..., None, :].expand_as(codes), feedback.decoder)
        return Fed(words_SBK, (feedback.sharpness * F.pad(doubt_SBK, (1, 0))).softmax(dim=-1))

    def _relaxed_path(
        self, feedback: Dlms, head: TwoLevel, outputs: Outputs, text_SB: Tensor, uniform_SBX: Tensor
    ) -> Fed:
        """A relaxed sample of the class and, in the text's class, of the word; other classes by their words' counts."""
        class_SBG, leaf_SBV = head.log_parts(outputs)
        noise = gumbel(uniform_SBX)
        tau = temperature(feedback, self.progress)
        class_SBG = ((class_SBG + noise[..., : class_SBG.shape[-1]]) / tau).softmax(dim=-1)
        own_SBV = head.class_V == head.class_V[text_SB][..., None]
        leaf_SBV = (
            ((leaf_SBV + noise[..., class_SBG.shape[-1] :]) / tau).masked_fill(~own_SBV, -math.inf).softmax(dim=-1)
        )
        if feedback.straight_through:
            class_SBG, leaf_SBV = straight_through(class_SBG), straight_through(leaf_SBV)
        return Fed(weights=class_SBG[..., head.class_V] * torch.where(own_SBV, leaf_SBV, head.share_V))


def relaxed(feedback: Dlms, scores_SBV: Tensor, text_SB: Tensor) -> Fed:
    """The softmax of the highest scores and the text's own word."""
    top_SBK, words_SBK = scores_SBV.topk(min(feedback.top_words, scores_SBV.shape[-1]), dim=-1)
    own_SB1 = text_SB[..., None]
    there_SB1 = (words_SBK == own_SB1).any(dim=-1, keepdim=True)
    own_score_SB1 = scores_SBV.gather(-1, own_SB1).masked_fill(there_SB1, -math.inf)
    weights = torch.cat((top_SBK, own_score_SB1), dim=-1).softmax(dim=-1)
    words = torch.cat((words_SBK, own_SB1), dim=-1)
    return Fed(words, straight_through(weights) if feedback.straight_through else weights)


def straight_through(weights_X: Tensor) -> Tensor:
    """All weight on the largest, with the gradient of the weights as they were."""
    hard = torch.zeros_like(weights_X).scatter(-1, weights_X.argmax(dim=-1, keepdim=True), 1.0)
    return hard + (weights_X - weights_X.detach())


def sampled(scores_SBV: Tensor, uniform_SB: Tensor) -> Tensor:
    """A word (S, B) drawn from the softmax of the scores, by a uniform number each."""
    cumulative_SBV = scores_SBV.softmax(dim=-1).cumsum(dim=-1)
    words_SB1 = torch.searchsorted(cumulative_SBV, uniform_SB[..., None] * cumulative_SBV[..., -1:])
    return words_SB1[..., 0].clamp(max=scores_SBV.shape[-1] - 1)


def gumbel(uniform: Tensor) -> Tensor:
    """Gumbel noise: the argmax of scores with it is a sample of their softmax."""
    return -(-uniform.log()).log()


def _sigmoid(x: float) -> float:
    return (1 + math.tanh(x / 2)) / 2


def _rising(x: float, end: float) -> float:
    """The logistic curve on [-end, end], stretched to run from 0 to 1."""
    height = math.tanh(end / 2)
    return (math.tanh(x / 2) + height) / (2 * height)
