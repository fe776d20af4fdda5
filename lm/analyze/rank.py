"""The rank of a model's log-probabilities (Yang et al. 2018; Takase et al. 2018, Table 5). U rows, V words.

A softmax of D dimensions has logits of rank D at most, D + 1 with a bias, and its normaliser adds a constant to each
row. To subtract each row's mean removes that again, so that the centred matrix says what the head can express: D, or
D + 1 with a bias. Heads of classes, blocks and bits have bounds of their own (`rank_bound`); a mixture of softmaxes has
none below V - 1.

The rounding of float32 alone has full rank, so the head is computed in float64, and a claim is made at several
thresholds. Nothing is added to probabilities: log(p + 1e-8) has full rank too.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from lm.analyze.reading import read
from lm.analyzed import RankFound, SingularValues
from lm.heads import OutputHead, Outputs
from lm.heads.adaptive import Adaptive
from lm.heads.differentiated import Differentiated
from lm.heads.ecoc import Ecoc
from lm.heads.linear_scorer import LinearScorer
from lm.heads.mixture import Mixture
from lm.heads.two_level import TwoLevel
from lm.kept_model import KeptModel
from lm.spec import RankAnalysis

_SHARES = ("1e-2", "1e-3", "1e-4", "1e-5", "1e-6")
_POINTS = 120
"""Places of the spectrum that are kept, evenly spread over its logarithm."""


def rank(settings: RankAnalysis, kept: KeptModel) -> RankFound:
    """The rank of the log-probabilities of the text's first `settings.positions` predictions."""
    return rank_of(kept.model.head, (outputs for outputs, _ in read(kept, settings.split, settings.positions)))


@torch.inference_mode()
def rank_of(head: OutputHead, windows: Iterable[Outputs]) -> RankFound:
    """Both matrices' singular values; O(U V^2) operations, and some V x V matrices of float64 in memory."""
    head = copy.deepcopy(head).double()
    r_VV, rows = triangle(_log_probabilities(head, windows))
    words = r_VV.shape[1]
    bound = rank_bound(head)
    return RankFound(
        kind="rank",
        positions=rows,
        words=words,
        bound=None if bound is None else min(bound, words - 1),
        plain=summary(torch.linalg.svdvals(r_VV), rows, words),
        # A = Q R has the singular values of R, and A less its rows' means those of R less its own.
        centred=summary(torch.linalg.svdvals(r_VV - r_VV.mean(dim=1, keepdim=True)), rows, words),
    )


def triangle(blocks: Iterable[Tensor]) -> tuple[Tensor, int]:
    """The R of a QR decomposition of the rows of all blocks (·, V), taken V rows at a time; and how many rows."""
    r_VV: Tensor | None = None
    waiting: list[Tensor] = []
    count = rows = 0

    def reduced() -> Tensor:
        r: Tensor = torch.linalg.qr(torch.cat(waiting if r_VV is None else [r_VV, *waiting]), mode="r").R
        return r

    for block_NV in blocks:
        waiting.append(block_NV)
        count, rows = count + len(block_NV), rows + len(block_NV)
        if count >= block_NV.shape[1]:
            r_VV, waiting, count = reduced(), [], 0
    return reduced() if waiting or r_VV is None else r_VV, rows


def summary(values_K: Tensor, rows: int, words: int) -> SingularValues:
    """What is kept of descending singular values of a matrix of that shape."""
    largest = float(values_K[0])
    share_K = values_K / values_K.sum()
    entropy = -torch.special.xlogy(share_K, share_K).sum()
    rounding = max(rows, words) * torch.finfo(torch.float64).eps
    places = torch.unique(torch.logspace(0, torch.log10(torch.tensor(len(values_K))).item(), _POINTS).round().long())
    return SingularValues(
        largest=largest,
        rank=int((values_K > largest * rounding).sum()),
        above={share: int((values_K > largest * float(share)).sum()) for share in _SHARES},
        effective=float(entropy.exp()),
        spectrum=tuple((int(place), float(values_K[place - 1]) / largest) for place in places),
    )


def rank_bound(head: OutputHead) -> int | None:
    """The most that the centred matrix's rank can be, whatever the text; None if only the words bound it.

    Logits that are linear in H numbers have rank H, a bias adds 1. A class whose words have a normaliser of their own
    adds its indicator, which is 1 for each class; all indicators together hold what the row's mean takes away.
    """
    match head:
        case Ecoc() if not head.by_span:  # the bits' own biases go into the bits
            bits, size = head.weight_CH.shape
            return min(size + 1, bits) if head.word_bias_V is None else min(size, bits) + 1
        case Adaptive():
            return head.head_weight_CH.shape[1] + len(head.bounds)
        case TwoLevel():
            return head.class_weight_CH.shape[1] + len(head.sizes)
        case Differentiated():
            return sum(head.sizes) + 1
        case Mixture() if head.spec.mixture == "contexts" or sum(head.spec.experts) == 1:
            return head.weight_VE.shape[1] + 1
    scorer = head.scorer()
    return scorer.weight_VH.shape[1] + (scorer.bias_V is not None) if isinstance(scorer, LinearScorer) else None


def _log_probabilities(head: OutputHead, windows: Iterable[Outputs]) -> Iterator[Tensor]:
    """Rows (T B, V) of the matrix in float64; the recurrent layers' outputs may come from float32."""
    scorer = head.scorer()
    for outputs in windows:
        wide = Outputs(tuple(x.double() for x in outputs.raw), tuple(x.double() for x in outputs.dropped))
        yield scorer.log_probabilities(wide).flatten(0, 1)
