"""Mixtures of softmaxes whose experts come from any layer.

T time, B batch, J experts of all layers, I of one, H layer size, E size of embedding and experts, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Literal, assert_never

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lm.costs import HeadCost
from lm.dropout import keep_mask
from lm.heads.contract import OutputHead, Outputs, Scorer, TrainingLoss
from lm.heads.cross_entropy import linear_nats, linear_nats_cost
from lm.spec import MixtureHead


class Mixture(OutputHead):
    """P = sum_j pi_j softmax(D k_j + b): MoS (Yang et al. 2018) and DOC (Takase et al. 2018, equations 7 to 11).

    The experts' vectors k_j = tanh(W_j h + b_j) come from their layers, in order; the gate pi = softmax(W h), without
    bias, from the last; h is a dropped output. D is the embedding itself if tied. Where `contexts` are mixed,
    P = softmax(D sum_j pi_j k_j + b), as large but of low rank (the mixture of contexts of Yang et al.).
    """

    def __init__(
        self,
        spec: MixtureHead,
        sizes: Sequence[int],
        vocabulary_size: int,
        tied_weight: nn.Parameter | None,
        init: torch.Generator,
    ) -> None:
        super().__init__()
        self.tied = tied_weight is not None
        self.spec = spec
        width, total = sizes[0], sum(spec.experts)
        layers = enumerate(zip(spec.experts, sizes, strict=True))
        self.experts = nn.ModuleDict(
            {str(layer): _Experts(count, size, width, init) for layer, (count, size) in layers if count}
        )
        self.gate_JH = nn.Parameter(_uniform(total, sizes[-1], init)) if spec.gate == "learned" else None
        if tied_weight is None:
            tied_weight = nn.Parameter(torch.empty(vocabulary_size, width).uniform_(-0.1, 0.1, generator=init))
        self.weight_VE = tied_weight
        self.bias_V = nn.Parameter(torch.zeros(vocabulary_size))
        self.term_names = ("prior_penalty",) if spec.prior_penalty else ()

    def expert_vectors(self, outputs: Outputs, noise: torch.Generator | None = None) -> Tensor:
        """The k_j (T, B, J, E); with `noise`, dropped by one mask for the window, for all experts or for each."""
        vectors_TBJE = torch.cat(
            [experts(outputs.dropped[int(layer)]) for layer, experts in self.experts.items()], dim=2
        )
        if noise is None or self.spec.dropout == 0.0:
            return vectors_TBJE
        _, batch, total, width = vectors_TBJE.shape
        masks = 1 if self.spec.mask == "shared" else total
        return vectors_TBJE * keep_mask((1, batch, masks, width), self.spec.dropout, vectors_TBJE, noise)

    def log_gate(self, outputs: Outputs) -> Tensor:
        """Logarithms of the experts' weights, (T, B, J)."""
        last_TBH = outputs.dropped[-1]
        if self.gate_JH is None:
            total = sum(self.spec.experts)
            return last_TBH.new_full((*last_TBH.shape[:2], total), -math.log(total))
        return F.log_softmax(F.linear(last_TBH, self.gate_JH), dim=-1)

    def log_probabilities(self, outputs: Outputs) -> Tensor:
        """Exact log-probabilities (T, B, V), normalised over the vocabulary; memory does not grow with the experts."""
        vectors_TBJE, log_gate_TBJ = self.expert_vectors(outputs), self.log_gate(outputs)
        if self.spec.mixture == "contexts":
            return self._log_softmax(_mixed(vectors_TBJE, log_gate_TBJ))
        each = (
            self._log_softmax(vector_TBE) + log_weight_TB[..., None]
            for vector_TBE, log_weight_TB in zip(vectors_TBJE.unbind(2), log_gate_TBJ.unbind(2), strict=True)
        )
        return reduce(torch.logaddexp, each)

    def target_nats(self, outputs: Outputs, targets_TB: Tensor) -> Tensor:
        """Exact loss of every target (T, B), natural logarithm."""
        return self._nats(self.expert_vectors(outputs), self.log_gate(outputs), targets_TB)

    def training_loss(self, outputs: Outputs, targets_TB: Tensor, noise: torch.Generator | None) -> TrainingLoss:
        """The exact loss of the experts as dropped by `noise`, and the prior penalty, lambda_beta times beta."""
        log_gate_TBJ = self.log_gate(outputs)
        nats_TB = self._nats(self.expert_vectors(outputs, noise), log_gate_TBJ, targets_TB)
        if not self.spec.prior_penalty:
            return TrainingLoss(nats_TB)
        variation = gate_variation(log_gate_TBJ.exp(), self.spec.prior_penalty_form)
        return TrainingLoss(nats_TB, {"prior_penalty": self.spec.prior_penalty * variation})

    def scorer(self) -> Mixture:
        """The head itself."""
        return self

    def cost(self, tokens: int) -> HeadCost:
        """Experts, gate, and a softmax for each expert; contexts are mixed before a single one."""
        (words, width), total = self.weight_VE.shape, sum(self.spec.experts)
        softmaxes = 1 if self.spec.mixture == "contexts" else total
        small = sum(p.numel() for p in self.experts.parameters() if p.dim() > 1)
        small += 0 if self.gate_JH is None else self.gate_JH.numel()
        small += 0 if softmaxes == total else total * width
        trained, logits_bytes = linear_nats_cost(tokens * softmaxes, width, words, on_gpu=self.weight_VE.is_cuda)
        own = sum(p.numel() for p in self.parameters())
        return HeadCost(
            parameters=own - (self.weight_VE.numel() if self.tied else 0),
            training_flops_per_token=trained / tokens + 6 * small,
            evaluation_flops_per_token=2 * (softmaxes * width * words + small),
            peak_bytes=logits_bytes + 4 * own + 4 * 3 * tokens * total * width,
        )

    def tallies(self, scorer: Scorer, outputs: Outputs, targets_TB: Tensor) -> dict[str, Tensor]:
        """The experts' weights summed over time, (B, J): columns apart, as the code's form of beta needs them."""
        return {"gate_BJ": self.log_gate(outputs).exp().sum(dim=0, dtype=torch.float64)}

    def measures(self, tallies: Mapping[str, Tensor], tokens: int) -> dict[str, float]:
        """How unevenly the gate uses the experts of a text.

        `gate_variation_paper` and `gate_variation_code` are the square roots of beta over the whole text; the latter
        depends on the columns the text is laid out in. `gate_layer_2` is the mean weight of an expert of layer 2 (0 the
        embedding), relative to an even share: above 1 where the gate prefers that layer.
        """
        gate_BJ = tallies["gate_BJ"]
        relative_J = gate_BJ.sum(dim=0) * gate_BJ.shape[1] / tokens
        counts = [count for count in self.spec.experts if count]
        layers = dict(zip(self.experts, torch.split(relative_J, counts), strict=True))
        # Sums over time are all that beta sees, so they may stand for the text as one step of it.
        return {
            "gate_variation_paper": gate_variation(gate_BJ[None], "paper").sqrt().item(),
            "gate_variation_code": gate_variation(gate_BJ[None], "code").sqrt().item(),
            **{f"gate_layer_{layer}": relative_I.mean().item() for layer, relative_I in layers.items()},
        }

    def _nats(self, vectors_TBJE: Tensor, log_gate_TBJ: Tensor, targets_TB: Tensor) -> Tensor:
        if self.spec.mixture == "contexts":
            return self._softmax_nats(_mixed(vectors_TBJE, log_gate_TBJ), targets_TB)
        nats_TBJ = self._softmax_nats(vectors_TBJE, targets_TB[..., None].expand_as(log_gate_TBJ))
        return -torch.logsumexp(log_gate_TBJ - nats_TBJ, dim=-1)

    def _softmax_nats(self, vectors: Tensor, targets: Tensor) -> Tensor:
        """Loss of a target for each vector: (..., E) and (...) to (...)."""
        return linear_nats(vectors.flatten(0, -2), self.weight_VE, self.bias_V, targets.flatten()).view_as(targets)

    def _log_softmax(self, vector_TBE: Tensor) -> Tensor:
        return F.log_softmax(F.linear(vector_TBE, self.weight_VE, self.bias_V), dim=-1)


class _Experts(nn.Module):
    """The experts of one layer: its output (T, B, H) to their vectors (T, B, I, E)."""

    def __init__(self, count: int, size: int, width: int, init: torch.Generator) -> None:
        super().__init__()
        self.count = count
        self.weight_IEH = nn.Parameter(_uniform(count * width, size, init))
        self.bias_IE = nn.Parameter(torch.zeros(count * width))

    def forward(self, output_TBH: Tensor) -> Tensor:
        vectors_TBIE = torch.tanh(F.linear(output_TBH, self.weight_IEH, self.bias_IE))
        return vectors_TBIE.view(*output_TBH.shape[:2], self.count, -1)


def gate_variation(gate_TBJ: Tensor, form: Literal["paper", "code"]) -> Tensor:
    """How unevenly a window uses the experts: beta, a scalar >= 0 (Takase et al. 2018, equations 12 and 13).

    The `paper` squares the coefficient of variation of the experts' weights, summed over the window: at most J - 1. The
    authors' `code`, to whose scale their published lambda belongs, sums over time alone, takes the unbiased variance of
    all B x J sums together and multiplies by J - 1. One expert varies by 0, with zero gradient.
    """
    total = gate_TBJ.shape[2]
    if total == 1:
        return 0.0 * gate_TBJ.sum()  # the code's form would be 0 / 0 for one column
    match form:
        case "paper":
            used_J = gate_TBJ.sum(dim=(0, 1))
            return used_J.var(correction=0) / used_J.mean().square()
        case "code":
            used_BJ = gate_TBJ.sum(dim=0)
            return (total - 1) * used_BJ.var(correction=1) / used_BJ.mean().square()
        case _:
            assert_never(form)


def _mixed(vectors_TBJE: Tensor, log_gate_TBJ: Tensor) -> Tensor:
    """The experts' vectors in one, (T, B, E)."""
    return torch.einsum("tbj,tbje->tbe", log_gate_TBJ.exp(), vectors_TBJE)


def _uniform(count: int, fan_in: int, init: torch.Generator) -> Tensor:
    """Uniform within 1 / sqrt(fan-in), as PyTorch's linear layers begin."""
    bound = 1.0 / math.sqrt(fan_in)
    return torch.empty(count, fan_in).uniform_(-bound, bound, generator=init)
