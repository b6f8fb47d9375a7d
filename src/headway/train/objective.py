"""Objectives: a module that owns the model and turns a batch into named (sum, count, weight) triples.

Compiling and, later, several processes wrap the objective, so that nothing inside a model knows of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from headway.data.batches import PairBatch
from headway.data.windows import WindowBatch
from headway.text.tokenizer import PAD
from headway.train.loss import linear_cross_entropy, paired_cross_entropy

Triples = dict[str, tuple[Tensor, int, float]]


@dataclass(frozen=True)
class CrossEntropy:
    """Label-smoothed cross-entropy per target token."""

    name: ClassVar[str] = "cross-entropy"
    smoothing: float = 0.1

    def build(self, model: nn.Module) -> TranslationObjective:
        return CrossEntropyObjective(model, self.smoothing)


@dataclass(frozen=True)
class RDrop:
    """Cross-entropy of two passes with different dropout, and α times the distance between their answers:
    ½(KL(p‖q) + KL(q‖p)) (Liang et al. 2021). For small data: it takes twice the work a step."""

    name: ClassVar[str] = "r-drop"
    smoothing: float = 0.1
    weight: float = 1.0

    def build(self, model: nn.Module) -> TranslationObjective:
        return RDropObjective(model, self.smoothing, self.weight)


@dataclass(frozen=True)
class NextToken:
    """Cross-entropy per token of a text, each foretold from those before it."""

    name: ClassVar[str] = "next-token"
    smoothing: float = 0.0

    def build(self, model: nn.Module) -> LanguageObjective:
        return LanguageObjective(model, self.smoothing)


Objective = CrossEntropy | RDrop | NextToken


class TranslationObjective(nn.Module):
    """Abstract. `loss` is what is minimised; `nll`, of weight 0, is what perplexity is made of."""

    def __init__(self, model: nn.Module, smoothing: float) -> None:
        super().__init__()
        self.model, self.smoothing = model, smoothing

    def hidden(self, batch: PairBatch) -> Tensor:
        """The decoder's vectors under teacher forcing, a row a token."""
        model: Any = self.model
        state = model.encode(batch.source_BS, batch.source_lengths_B, room=0)
        return model.hidden(batch.target_BT, state)[0].flatten(0, 1)

    def losses(self, batch: PairBatch, weight_VD: Tensor) -> tuple[Tensor, Tensor]:
        """The sums of `loss` and `nll` over the batch; `weight_VD` is the head's."""
        raise NotImplementedError

    def cross_entropy(self, batch: PairBatch, weight_VD: Tensor) -> tuple[Tensor, Tensor]:
        return linear_cross_entropy(self.hidden(batch), weight_VD, batch.labels_BT.flatten(), self.smoothing, PAD)

    def forward(self, batch: PairBatch) -> Triples:
        head: Any = self.model.head
        loss, nll = self.losses(batch, head.weight)
        return {"loss": (loss, batch.tokens, 1.0), "nll": (nll, batch.tokens, 0.0)}


@final
class CrossEntropyObjective(TranslationObjective):
    """One pass."""

    def losses(self, batch: PairBatch, weight_VD: Tensor) -> tuple[Tensor, Tensor]:
        return self.cross_entropy(batch, weight_VD)


@final
class LanguageObjective(nn.Module):
    """`loss` is what is minimised; `nll`, of weight 0, is what perplexity is made of."""

    def __init__(self, model: nn.Module, smoothing: float) -> None:
        super().__init__()
        self.model, self.smoothing = model, smoothing

    def forward(self, batch: WindowBatch) -> Triples:
        model: Any = self.model
        hidden_BTD, _ = model.hidden(batch.ids_BT, segments_BT=batch.segments_BT)
        # The rows that only fill the head up are cheaper to keep than to cut off; judged is the true distribution.
        weight_VD = model.output.weight if self.training else model.output.weight[: model.vocabulary]
        labels_N = batch.labels_BT.flatten()
        loss, nll = linear_cross_entropy(hidden_BTD.flatten(0, 1), weight_VD, labels_N, self.smoothing, PAD)
        return {"loss": (loss, batch.tokens, 1.0), "nll": (nll, batch.tokens, 0.0)}


@final
class RDropObjective(TranslationObjective):
    """Two passes as one batch of twice the rows; without dropout, in validation, one pass says it all."""

    def __init__(self, model: nn.Module, smoothing: float, weight: float) -> None:
        super().__init__(model, smoothing)
        self.weight = weight

    def losses(self, batch: PairBatch, weight_VD: Tensor) -> tuple[Tensor, Tensor]:
        if not self.training:
            return self.cross_entropy(batch, weight_VD)
        twice_2ND = self.hidden(batch.map(lambda tensor: torch.cat([tensor, tensor])))
        labels_N = batch.labels_BT.flatten()
        return paired_cross_entropy(twice_2ND, weight_VD, labels_N, self.smoothing, PAD, self.weight)
