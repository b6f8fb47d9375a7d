"""Objectives: a module that owns the model and turns a batch into named sums with their weights.

Compiling and, later, several processes wrap the objective, so that nothing inside a model knows of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.batch import IGNORED, TokenBatch
from headway.data.labelled import LabelBatch
from headway.data.streams import StreamBatch
from headway.evaluate.labels import Judge
from headway.train.loss import linear_cross_entropy, paired_cross_entropy

Terms = dict[str, tuple[Tensor, float]]  # the sum of each loss term and its weight; the batch has its count


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


@dataclass(frozen=True)
class Carried:
    """`NextToken` over contiguous streams: the state behind a step is the next step's first, and no gradient goes back
    through it (truncated back-propagation through time: Mikolov et al. 2010).

    activation, change: weights of mean h² and mean (h_t − h_{t−1})² of the last layer's output behind its dropout (AR
    and TAR: Merity et al. 2018, who take the second before it; a locked mask multiplies that by 1/(1 − p) on average).
    """

    name: ClassVar[str] = "carried"
    smoothing: float = 0.0
    activation: float = 0.0
    change: float = 0.0

    def build(self, model: nn.Module) -> CarriedObjective:
        return CarriedObjective(model, self)


@dataclass(frozen=True)
class Labels:
    """Cross-entropy of a text's label. `judge`: the figure by which the best weights are chosen."""

    name: ClassVar[str] = "labels"
    smoothing: float = 0.0
    judge: Judge = "accuracy"

    def build(self, model: nn.Module) -> LabelObjective:
        return LabelObjective(model, self.smoothing)


Objective = CrossEntropy | RDrop | NextToken | Carried | Labels


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
        model: Any = self.model
        return model.output_weight

    def cross_entropy(self, batch: Any) -> tuple[Tensor, Tensor]:
        labels_N = batch.labels_BT.flatten()
        return linear_cross_entropy(self.hidden(batch), self.weight(), labels_N, self.smoothing, IGNORED)

    def losses(self, batch: Any) -> tuple[Tensor, Tensor]:
        """The sums of `loss` and `nll` over the batch."""
        return self.cross_entropy(batch)

    def forward(self, batch: Any) -> Terms:
        loss, nll = self.losses(batch)
        return {"loss": (loss, 1.0), "nll": (nll, 0.0)}


class TextObjective(TokenObjective):
    """Abstract. Each token of a text from those before it."""

    def weight(self) -> Tensor:
        """The rows that only fill the head up are cheaper to keep than to cut off; judged is the true distribution."""
        model: Any = self.model
        return model.output_weight if self.training else model.output_weight[: model.vocabulary]


@final
class LanguageObjective(TextObjective):
    """A window stands for itself."""

    def hidden(self, batch: TokenBatch) -> Tensor:
        model: Any = self.model
        return model.read(batch.ids_BT, segments_RT=batch.segments_BT)[0].flatten(0, 1)


@final
class CarriedObjective(TextObjective):
    """A window goes on where the last has ended. What is carried stays at its address, so that captured steps find and
    change it there; it is the run's, not the model's, and is saved with the run."""

    def __init__(self, model: nn.Module, config: Carried) -> None:
        super().__init__(model, config.smoothing)
        self.weights = {"activation": config.activation, "change": config.change}
        self.places: list[Tensor] = []  # the state of all rows, as the last step has left it

    def carried(self) -> dict[str, Tensor]:
        """All that a step takes over from the one before."""
        return {f"part{number:03}": place for number, place in enumerate(self.places)}

    def go_on(self, carried: dict[str, Tensor]) -> None:
        device = next(self.model.parameters()).device
        self.places = [carried[name].to(device, copy=True) for name in sorted(carried)]

    def forward(self, batch: StreamBatch) -> Terms:
        model: Any = self.model
        hidden_BTD, state = model.read(batch.ids_BT, self._begin(batch))
        if self.training:
            self._keep(batch, state)
        labels_N = batch.labels_BT.flatten()
        loss, nll = linear_cross_entropy(hidden_BTD.flatten(0, 1), self.weight(), labels_N, self.smoothing, IGNORED)
        found: Terms = {"loss": (loss, 1.0), "nll": (nll, 0.0)}
        h_BTD = hidden_BTD.to(torch.promote_types(hidden_BTD.dtype, torch.float32))
        terms = {"activation": h_BTD, "change": h_BTD.diff(dim=1)}
        for name, weight in self.weights.items():
            if weight:
                found[name] = (terms[name].square().mean(-1).sum(), weight)
        return found

    def _begin(self, batch: StreamBatch) -> Any:
        """The state that these rows go on from; at an epoch's start the model's first, which may be learned."""
        model: Any = self.model
        first = model.start(None, len(batch.ids_BT), batch.ids_BT.device)
        assert batch.fresh is not None
        pairs = zip(first.parts(), self._rows(batch, first.parts()), strict=True)
        return first.of([torch.where(batch.fresh, new_BH, old_BH) for new_BH, old_BH in pairs])

    @torch.no_grad()
    def _keep(self, batch: StreamBatch, state: Any) -> None:
        # A batch that is skipped, since it is not finite, must not spoil those after it.
        for place_BH, new_BH in zip(self._rows(batch, state.parts()), state.parts(), strict=True):
            place_BH.copy_(torch.where(new_BH.isfinite(), new_BH, 0.0))

    def _rows(self, batch: StreamBatch, like: list[Tensor]) -> list[Tensor]:
        """The places of these rows; there are as many as were ever asked for."""
        start, end = batch.first_row, batch.first_row + len(batch.ids_BT)
        if not self.places:
            self.places = [part_BH.new_zeros(0, part_BH.shape[1]) for part_BH in like]
        if (missing := end - len(self.places[0])) > 0:
            self.places = [torch.cat([place, place.new_zeros(missing, place.shape[1])]) for place in self.places]
        return [place[start:end] for place in self.places]


@final
class LabelObjective(nn.Module):
    """−log p(label | text), of an encoder with a head for labels."""

    def __init__(self, model: nn.Module, smoothing: float) -> None:
        super().__init__()
        self.model, self.smoothing = model, smoothing

    def forward(self, batch: LabelBatch) -> Terms:
        logits_BL = self.model(batch.inputs.ids_BT, batch.inputs.lengths_B, batch.inputs.types_BT)
        wide_BL = logits_BL.to(torch.promote_types(logits_BL.dtype, torch.float32))
        nll = F.cross_entropy(wide_BL, batch.labels_B, ignore_index=IGNORED, reduction="sum")
        loss = nll
        if self.smoothing:
            loss = F.cross_entropy(
                wide_BL, batch.labels_B, ignore_index=IGNORED, reduction="sum", label_smoothing=self.smoothing
            )  # fmt: skip
        return {"loss": (loss, 1.0), "nll": (nll, 0.0)}


def carried(objective: nn.Module) -> dict[str, Tensor]:
    """What an objective takes over from step to step, beside the weights."""
    return objective.carried() if isinstance(objective, CarriedObjective) else {}


class TranslationObjective(TokenObjective):
    """Abstract. Each token of the target from those before it and the source."""

    def hidden(self, batch: TokenBatch) -> Tensor:
        model: Any = self.model
        state = model.start(batch.inputs, len(batch), batch.ids_BT.device, room=0)
        return model.read(batch.ids_BT, state)[0].flatten(0, 1)


@final
class CrossEntropyObjective(TranslationObjective):
    """One pass."""


@final
class RDropObjective(TranslationObjective):
    """Two passes as one batch of twice the rows; without dropout, in validation, one pass says it all."""

    def __init__(self, model: nn.Module, smoothing: float, weight: float) -> None:
        super().__init__(model, smoothing)
        self.distance = weight

    def losses(self, batch: TokenBatch) -> tuple[Tensor, Tensor]:
        if not self.training:
            return self.cross_entropy(batch)
        twice_2ND = self.hidden(TokenBatch.join([batch, batch]))
        labels_N = batch.labels_BT.flatten()
        return paired_cross_entropy(
            twice_2ND, self.weight(), labels_N, self.smoothing, IGNORED, self.distance
        )  # fmt: skip
