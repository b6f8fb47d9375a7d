"""Objectives: a module that owns the model and turns a batch into named (sum, count, weight) triples.

Compiling and, later, several processes wrap the objective, so that nothing inside a model knows of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from headway.data.batches import PairBatch
from headway.text.tokenizer import PAD
from headway.train.loss import linear_cross_entropy, paired_cross_entropy

Triples = dict[str, tuple[Tensor, int, float]]


@dataclass(frozen=True)
class CrossEntropy:
    """Label-smoothed cross-entropy per target token."""

    name: ClassVar[str] = "cross-entropy"
    smoothing: float = 0.1


@dataclass(frozen=True)
class RDrop:
    """Cross-entropy of two passes with different dropout, and α times the distance between their answers:
    ½(KL(p‖q) + KL(q‖p)) (Liang et al. 2021). For small data: it takes twice the work a step."""

    name: ClassVar[str] = "r-drop"
    smoothing: float = 0.1
    weight: float = 5.0


class TranslationObjective(nn.Module):
    """`loss` is what is minimised; `nll`, of weight 0, is what perplexity is made of."""

    def __init__(self, model: nn.Module, config: CrossEntropy | RDrop) -> None:
        super().__init__()
        self.model, self.config = model, config

    def hidden(self, batch: PairBatch) -> Tensor:
        """The decoder's vectors under teacher forcing, a row a token."""
        model: Any = self.model
        state = model.encode(batch.source_BS, batch.source_lengths_B)
        return model.hidden(batch.target_BT, state)[0].flatten(0, 1)

    def forward(self, batch: PairBatch) -> Triples:
        head: Any = self.model.head
        labels_N, smoothing = batch.labels_BT.flatten(), self.config.smoothing
        if isinstance(self.config, RDrop) and self.training:
            twice_2ND = self.hidden(batch.map(lambda tensor: torch.cat([tensor, tensor])))
            loss, nll = paired_cross_entropy(twice_2ND, head.weight, labels_N, smoothing, PAD, self.config.weight)
        else:
            loss, nll = linear_cross_entropy(self.hidden(batch), head.weight, labels_N, smoothing, PAD)
        return {"loss": (loss, batch.tokens, 1.0), "nll": (nll, batch.tokens, 0.0)}
