"""The errors of an ECOC head bit by bit, and what correction mends. T time, B columns, C bits, V words."""

from __future__ import annotations

import torch
from torch import Tensor

from lm.analyze.reading import read
from lm.analyzed import CodeErrorsFound
from lm.heads import Outputs
from lm.heads.decoders import decode_owner, nearest_codeword
from lm.heads.ecoc import Ecoc
from lm.kept_model import KeptModel
from lm.spec import CodeErrorsAnalysis


@torch.inference_mode()
def code_errors(settings: CodeErrorsAnalysis, kept: KeptModel) -> CodeErrorsFound:
    """The bit and word errors over all predictions of a text, 2 V C operations each. ValueError for another head."""
    head = kept.model.head
    if not isinstance(head, Ecoc):
        raise ValueError(f"bits are those of a head of kind ecoc, got {type(head).__name__}")
    tally = Tally(head)
    for outputs, targets_TB in read(kept, settings.split):
        tally.add(outputs, targets_TB)
    return tally.found()


class Tally:
    """Sums over the predictions so far, on the head's device."""

    def __init__(self, head: Ecoc) -> None:
        self.head, self.scorer = head, head.scorer()
        self.predictions = 0
        self.wrong_C = torch.zeros(head.codes.bits, dtype=torch.int64, device=head.weight_CH.device)
        self.count_D = torch.zeros(head.codes.bits + 1, dtype=torch.int64, device=head.weight_CH.device)
        self.errors: dict[str, Tensor] = {}

    def add(self, outputs: Outputs, targets_TB: Tensor) -> None:
        """Count the errors of a window."""
        head = self.head
        bits_TBC = head.logits(outputs) > 0
        wrong_TBC = bits_TBC != (head.codes.signs(targets_TB) > 0)
        wrong_TB = wrong_TBC.sum(dim=-1)
        scores_TBV = self.scorer.log_probabilities(outputs)
        words = {
            "corrected": nearest_codeword(head.codes.distances(bits_TBC), scores_TBV),
            "most_probable": scores_TBV.argmax(dim=-1),
        }
        if head.spans is not None:
            words["owner"] = decode_owner(head.spans, bits_TBC)
        self.predictions += targets_TB.numel()
        self.wrong_C += wrong_TBC.sum(dim=(0, 1))
        self.count_D += torch.bincount(wrong_TB.flatten(), minlength=len(self.count_D))
        for name, words_TB in words.items():
            self.errors[name] = (
                self.errors.get(name, torch.zeros_like(self.count_D[0])) + (words_TB != targets_TB).sum()
            )

    def found(self) -> CodeErrorsFound:
        """The rates; the counts end with the most wrong bits that any prediction has."""
        most = int(self.count_D.nonzero().max())
        rates = {name: int(count) / self.predictions for name, count in self.errors.items()}
        return CodeErrorsFound(
            kind="code_errors",
            predictions=self.predictions,
            bits=self.head.codes.bits,
            class_bits=None if self.head.spans is None else self.head.spans.class_bits,
            wrong_by_bit=tuple((self.wrong_C.double() / self.predictions).tolist()),
            wrong_bits=tuple(self.count_D[: most + 1].tolist()),
            uncorrected=1 - int(self.count_D[0]) / self.predictions,
            owner=rates.get("owner"),
            corrected=rates["corrected"],
            most_probable=rates["most_probable"],
        )
