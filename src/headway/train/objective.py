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


class TokenObjective(nn.Module):
    """Abstract. `loss` is what is minimised; `nll`, of weight 0, is what perplexity is made of."""

    def __init__(self, model: nn.Module, smoothing: float) -> None:
        super().__init__()
        self.model, self.smoothing = model, smoothing

    def hidden(self, batch: Any) -> Tensor:
        """The last layer's vectors under teacher forcing, a row a token."""
        raise NotImplementedError

    def weight(self) -> Tensor:
        """The head's, (V, D)."""
        head: Any = self.model.head
        return head.weight

    def cross_entropy(self, batch: Any) -> tuple[Tensor, Tensor]:
        labels_N = batch.labels_BT.flatten()
        return linear_cross_entropy(self.hidden(batch), self.weight(), labels_N, self.smoothing, PAD)

    def losses(self, batch: Any) -> tuple[Tensor, Tensor]:
        """The sums of `loss` and `nll` over the batch."""
        return self.cross_entropy(batch)

    def forward(self, batch: Any) -> Triples:
        loss, nll = self.losses(batch)
        return {"loss": (loss, batch.tokens, 1.0), "nll": (nll, batch.tokens, 0.0)}


@final
class LanguageObjective(TokenObjective):
    """Each token of a window from those before it."""

    def hidden(self, batch: WindowBatch) -> Tensor:
        model: Any = self.model
        return model.hidden(batch.ids_BT, segments_BT=batch.segments_BT)[0].flatten(0, 1)

    def weight(self) -> Tensor:
        """The rows that only fill the head up are cheaper to keep than to cut off; judged is the true distribution."""
        model: Any = self.model
        return model.output.weight if self.training else model.output.weight[: model.vocabulary]


class TranslationObjective(TokenObjective):
    """Abstract. Each token of the target from those before it and the source."""

    def hidden(self, batch: PairBatch) -> Tensor:
        model: Any = self.model
        state = model.encode(batch.source_BS, batch.source_lengths_B, room=0)
        return model.hidden(batch.target_BT, state)[0].flatten(0, 1)


@final
class CrossEntropyObjective(TranslationObjective):
    """One pass."""


@final
class RDropObjective(TranslationObjective):
    """Two passes as one batch of twice the rows; without dropout, in validation, one pass says it all."""

    def __init__(self, model: nn.Module, smoothing: float, weight: float) -> None:
        super().__init__(model, smoothing)
        self.distance = weight

    def losses(self, batch: PairBatch) -> tuple[Tensor, Tensor]:
        if not self.training:
            return self.cross_entropy(batch)
        twice_2ND = self.hidden(batch.map(lambda tensor: torch.cat([tensor, tensor])))
        labels_N = batch.labels_BT.flatten()
        return paired_cross_entropy(twice_2ND, self.weight(), labels_N, self.smoothing, PAD, self.distance)
