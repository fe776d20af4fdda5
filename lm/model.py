"""The language model: embedding, recurrent layers, head. T time, B batch, E embedding, H layer size, V vocabulary."""

from __future__ import annotations

from itertools import pairwise
from typing import assert_never

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lm.dropout import embed, keep_mask, locked_dropout
from lm.heads import Outputs, Words, build_head
from lm.highway import HighwayLayer
from lm.recurrent import RecurrentLayer, State
from lm.spec import Dropout, Head, Model, RecurrentHighway
from lm.spec.training import Cell


class LanguageModel(nn.Module):
    """A recurrent word-level language model (Merity et al. 2017). Drops only where `forward` is given noise."""

    def __init__(self, model: Model, head: Head, dropout: Dropout, words: Words, init: torch.Generator) -> None:
        super().__init__()
        self.dropout = dropout
        self.embedding_norm = model.embedding_norm
        self.output_size = model.hidden_sizes[-1]
        embedding_VE = torch.empty(len(words), model.embedding_size).uniform_(-0.1, 0.1, generator=init)
        self.embedding_VE = nn.Parameter(embedding_VE)
        sizes = (model.embedding_size, *model.hidden_sizes)
        self.layers = nn.ModuleList(
            build_layer(model.cell, input_size, size, dropout.weight, init) for input_size, size in pairwise(sizes)
        )
        self.head = build_head(
            head,
            sizes=sizes,
            words=words,
            embedding_VE=self.embedding_VE,
            tied=model.tied,
            init=init,
        )
        if model.init_range is not None:
            with torch.no_grad():
                for parameter in self.parameters():
                    parameter.uniform_(-model.init_range, model.init_range, generator=init)
            for layer in self.layers:
                if isinstance(layer, HighwayLayer):
                    layer.set_transform_bias()
        self.normalise_embedding()

    def set_dropout(self, dropout: Dropout) -> None:
        """Drop with these probabilities from now on."""
        self.dropout = dropout
        for layer in self._layers():
            layer.weight_drop = dropout.weight

    def initial_state(self, batch: int) -> list[State]:
        """Every layer's zero state."""
        return [layer.initial_state(batch) for layer in self._layers()]

    def forward(
        self, tokens_TB: Tensor, state: list[State], noise: torch.Generator | None = None
    ) -> tuple[Outputs, list[State]]:
        """What the embedding and every layer put out, and the undropped state that the next window starts from.

        With `noise` the masks of a training window are drawn from it; without, the model is deterministic.
        """
        return self.run(embed(tokens_TB, self.embedding_VE, self.dropout.embedding, noise), state, noise)

    def run(
        self, embedded_TBE: Tensor, state: list[State], noise: torch.Generator | None
    ) -> tuple[Outputs, list[State]]:
        """As `forward`, from the embedded inputs on."""
        drop = self.dropout
        hidden = locked_dropout(embedded_TBE, drop.input, noise)
        raw: list[Tensor] = [embedded_TBE]
        dropped: list[Tensor] = [hidden]
        carried: list[State] = []
        for layer, layer_state in zip(self._layers(), state, strict=True):
            probability = drop.output if len(raw) == len(self.layers) else drop.between
            masked = probability if drop.shared_mask else drop.state
            mask_BH = None
            if noise is not None and masked > 0.0:
                mask_BH = keep_mask((embedded_TBE.shape[1], layer.size), masked, hidden, noise)
            output_TBH, last = layer(hidden, layer_state, noise, mask_BH)
            if drop.shared_mask and mask_BH is not None:
                hidden = output_TBH * mask_BH
            else:
                hidden = locked_dropout(output_TBH, probability, noise)
            raw.append(output_TBH)
            dropped.append(hidden)
            carried.append(last)
        return Outputs(tuple(raw), tuple(dropped)), carried

    @torch.no_grad()
    def normalise_embedding(self) -> None:
        """Scale every word's vector, or every dimension of the embedding, to length 1 where the spec asks for it."""
        match self.embedding_norm:
            case "free":
                pass
            case "word":
                F.normalize(self.embedding_VE, dim=1, out=self.embedding_VE)
            case "dimension":
                F.normalize(self.embedding_VE, dim=0, out=self.embedding_VE)
            case _:
                assert_never(self.embedding_norm)

    def weights(self) -> dict[str, Tensor]:
        """Every parameter by name, a tied one once, detached but sharing memory."""
        return {name: parameter.detach() for name, parameter in self.named_parameters()}

    def load_weights(self, weights: dict[str, Tensor]) -> None:
        """Copy values in; ValueError where names or shapes are not this model's."""
        own = self.weights()
        if own.keys() != weights.keys():
            raise ValueError(f"weights of another model: {sorted(own.keys() ^ weights.keys())}")
        for name, value in own.items():
            if value.shape != weights[name].shape:
                raise ValueError(f"{name}: shape {tuple(weights[name].shape)}, this model has {tuple(value.shape)}")
            value.copy_(weights[name])

    def _layers(self) -> list[RecurrentLayer | HighwayLayer]:
        return [layer for layer in self.layers if isinstance(layer, RecurrentLayer | HighwayLayer)]


def build_layer(
    cell: Cell, input_size: int, size: int, weight_drop: float, init: torch.Generator
) -> RecurrentLayer | HighwayLayer:
    """The layer that a cell names."""
    if isinstance(cell, RecurrentHighway):
        return HighwayLayer(input_size, size, cell.depth, cell.transform_bias, weight_drop, init)
    return RecurrentLayer(cell, input_size, size, weight_drop, init)
