"""Objectives: a module that owns the model and turns a batch into named (sum, count, weight) triples.

Compiling and, later, several processes wrap the objective, so that nothing inside a model knows of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from headway.data.batches import PairBatch
from headway.text.tokenizer import PAD
from headway.train.loss import linear_cross_entropy

Triples = dict[str, tuple[Tensor, int, float]]


@dataclass(frozen=True)
class CrossEntropy:
    """Label-smoothed cross-entropy per target token."""

    name: ClassVar[str] = "cross-entropy"
    smoothing: float = 0.1


class TranslationObjective(nn.Module):
    """`loss` is what is minimised; `nll`, of weight 0, is what perplexity is made of."""

    def __init__(self, model: nn.Module, config: CrossEntropy) -> None:
        super().__init__()
        self.model, self.smoothing = model, config.smoothing

    def forward(self, batch: PairBatch) -> Triples:
        model: Any = self.model
        state = model.encode(batch.source_BS, batch.source_lengths_B)
        hidden_BTD, _ = model.hidden(batch.target_BT, state)
        loss, nll = linear_cross_entropy(
            hidden_BTD.flatten(0, 1), model.head.weight, batch.labels_BT.flatten(), self.smoothing, PAD
        )
        return {"loss": (loss, batch.tokens, 1.0), "nll": (nll, batch.tokens, 0.0)}
