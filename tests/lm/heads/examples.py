"""An example of every kind of head, and what they are all tried on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lm.codebooks import Codebook
from lm.heads import OutputHead, Outputs, Words, build_head
from lm.spec import Head, Model, TrainSpec
from tests.lm.heads.handmade import random_code, rank_code
from tests.support.tiny import seeded

T, B, V = 4, 3, 53
EMBEDDING, HIDDEN, LAST = 16, 10, 16
MODEL = Model(layers=2, embedding_size=EMBEDDING, hidden_size=(HIDDEN, LAST), tied=False)


@dataclass(frozen=True)
class Example:
    """A head as a sweep file would write it, by a name that tests show."""

    name: str
    head: dict[str, Any]
    tied: bool = False
    sampled: bool = False  # the training loss is an estimate that needs noise
    exact: bool = True  # without noise, the training loss is the exact one
    cut: tuple[str, ...] = ()  # parameters whose gradient is cut somewhere by design; the head's own test holds it
    model: dict[str, Any] = field(default_factory=dict)
    codebook: Codebook | None = None

    @property
    def spec(self) -> Head:
        model = MODEL.model_copy(update={"tied": self.tied, **self.model})
        parts = {"corpus": {"name": "x"}, "epochs": 1, "optimizer": {"kind": "sgd", "learning_rate": 1.0}}
        return TrainSpec.model_validate({"model": model.model_dump(), "head": self.head, **parts}).head


def ecoc(loss: str, codebook: Codebook, kind: str = "random", **options: Any) -> Example:
    """An ecoc head on a hand-made code, which is told to be of that kind."""
    code = {"kind": kind, "bits": codebook.bits}
    head = {"kind": "ecoc", "codebook": code, "loss": {"kind": loss, **options}}
    name = "-".join(["ecoc", loss, kind, *map(str, options.values())])
    return Example(name, head, exact=loss == "normalized", codebook=codebook)


def scored(name: str, codebook: Codebook, kind: str = "random", loss: str = "bce", **scoring: Any) -> Example:
    """An ecoc head whose words are scored in a way of their own."""
    code = {"kind": kind, "bits": codebook.bits}
    head = {"kind": "ecoc", "codebook": code, "loss": {"kind": loss}, **scoring}
    return Example(f"ecoc-{name}", head, exact=loss == "normalized", codebook=codebook)


def sampled(name: str, loss: dict[str, Any], *, tied: bool = False) -> Example:
    return Example(name, {"kind": "sampled", "loss": loss}, tied, sampled=True, exact=False)


def _augmented(kind: str, **options: Any) -> dict[str, Any]:
    return {"kind": "softmax", "augmented": {"kind": kind, "temperature": 3.0, **options}}


EXAMPLES = [
    Example("softmax", {"kind": "softmax"}),
    Example("softmax-tied", {"kind": "softmax"}, tied=True),
    Example("softmax-without-bias", {"kind": "softmax", "bias": False}),
    Example("adaptive", {"kind": "adaptive", "cutoffs": [5, 0.4], "divisor": 2.0}),
    Example("classes-random", {"kind": "hierarchical", "tree": {"kind": "two_level", "assign": "random"}}),
    Example(
        "classes-unigram",
        {"kind": "hierarchical", "tree": {"kind": "two_level", "assign": "unigram", "words_per_class": 4}},
    ),
    Example("classes-mass", {"kind": "hierarchical", "tree": {"kind": "two_level", "assign": "mass"}}),
    Example("huffman", {"kind": "hierarchical", "tree": {"kind": "huffman"}}),
    Example("differentiated", {"kind": "differentiated", "shares": [0.15, 0.35, 0.5], "sizes": [8, 5, 3]}),
    Example("mixture-doc", {"kind": "mixture", "experts": [2, 1, 3]}),
    Example("mixture-mos-tied", {"kind": "mixture", "experts": [0, 0, 3]}, tied=True),
    Example("mixture-one-expert", {"kind": "mixture", "experts": [0, 0, 1], "prior_penalty": 0.5}),
    Example("mixture-dropped", {"kind": "mixture", "experts": [0, 2, 3], "dropout": 0.4}),
    Example(
        "mixture-dropped-independently",
        {"kind": "mixture", "experts": [0, 2, 3], "dropout": 0.4, "mask": "independent"},
    ),
    Example("mixture-contexts", {"kind": "mixture", "experts": [1, 0, 3], "mixture": "contexts"}),
    Example("mixture-uniform-gate", {"kind": "mixture", "experts": [0, 2, 2], "gate": "uniform"}),
    Example("mixture-prior-code", {"kind": "mixture", "experts": [1, 2, 2], "prior_penalty": 0.1}),
    Example(
        "mixture-prior-paper",
        {"kind": "mixture", "experts": [1, 2, 2], "prior_penalty": 0.1, "prior_penalty_form": "paper"},
    ),
    ecoc("bce", random_code(V, 21)),
    ecoc("bce", random_code(V, 21), scale="mean"),
    ecoc("bce", random_code(V, 21), scale="sum"),
    ecoc("span_max", rank_code(V, 18), "unigram"),
    ecoc("span_sum", rank_code(V, 18), "unigram"),
    ecoc("ball_drop", random_code(V, 40)),
    ecoc("ball_drop", rank_code(V, 18), "unigram", radius=3),
    ecoc("normalized", random_code(V, 21)),
    ecoc("normalized", rank_code(V, 18), "unigram"),
    scored("temperature", random_code(V, 21), probability={"kind": "codewords", "temperature": 7.0}),
    scored(
        "temperature-normalized",
        random_code(V, 21),
        loss="normalized",
        probability={"kind": "codewords", "temperature": 0.5},
    ),
    scored("fitted-normalized", random_code(V, 21), loss="normalized", probability={"kind": "codewords"}),
    scored("unigram-bias", random_code(V, 21), word_bias="unigram"),
    scored("unigram-bias-normalized", random_code(V, 21), loss="normalized", word_bias="unigram"),
    scored("learned-bias", random_code(V, 21), loss="normalized", word_bias="learned"),
    scored("span", rank_code(V, 18), "unigram", loss="span_sum", probability={"kind": "span"}),
    sampled("sampled-softmax", {"kind": "softmax", "samples": 0.5}),
    sampled("sampled-softmax-tied", {"kind": "softmax", "proposal": "log_uniform", "correct_target": True}, tied=True),
    sampled(
        "sampled-softmax-without-replacement",
        {"kind": "softmax", "samples": 20, "proposal": "uniform", "replacement": False},
    ),
    sampled("nce", {"kind": "nce", "samples": 20}),
    sampled("nce-tied", {"kind": "nce", "log_partition": 3.0}, tied=True),
    Example("softmax-augmented", _augmented("added", bias="exclude"), cut=("embedding_VE",)),
    Example("softmax-augmented-flow", _augmented("added", target_gradient="flow")),
    Example("softmax-blended-tied", _augmented("blended", share=0.3), tied=True, exact=False, cut=("weight_VH",)),
    Example("softmax-blended-flow", _augmented("blended", share=0.3, target_gradient="flow"), exact=False),
]


def words(count: int = V, codebook: Codebook | None = None) -> Words:
    """Counts that fall like a natural text's, in no order of ids, one word never seen."""
    counts_V = np.random.default_rng(5).permutation((1000 / np.arange(1, count + 1)).astype(np.int64))
    counts_V[-1] = 0
    return Words(counts_V, codebook)


def embedding(init: torch.Generator) -> nn.Parameter:
    return nn.Parameter(torch.empty(V, EMBEDDING).uniform_(-0.5, 0.5, generator=init))


def build(
    example: Example,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    scale: float = 1.0,
    embedding_VE: nn.Parameter | None = None,
) -> OutputHead:
    """The example's head, its parameters spread out by `scale`; in float64 unless said otherwise."""
    init = seeded(seed)
    if embedding_VE is None:
        embedding_VE = embedding(init)
    head = build_head(
        example.spec,
        sizes=(EMBEDDING, HIDDEN, LAST),
        words=words(codebook=example.codebook),
        embedding_VE=embedding_VE,
        tied=example.tied,
        init=init,
    )
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(torch.empty(parameter.shape).uniform_(-0.5, 0.5, generator=init)).mul_(scale)
    return head.to(dtype)


def outputs(*, seed: int = 1, batch: int = B, dtype: torch.dtype = torch.float64, scale: float = 1.0) -> Outputs:
    """Made-up outputs of the embedding and two layers; raw and dropped differ."""
    noise = seeded(seed)
    sizes = (EMBEDDING, HIDDEN, LAST)
    raw = tuple(scale * torch.randn(T, batch, size, generator=noise).to(dtype) for size in sizes)
    dropped = tuple(x * (torch.rand(x.shape, generator=noise) < 0.8) / 0.8 for x in raw)
    return Outputs(raw, dropped)


def targets(*, seed: int = 2, batch: int = B) -> Tensor:
    return torch.randint(V, (T, batch), generator=seeded(seed))
