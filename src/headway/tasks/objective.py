"""Objectives: a module that owns the model and turns a batch into named sums with their weights.

Compiling and several processes wrap the objective from outside, so that nothing inside a model depends on them.

B rows, T length, D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.batch import IGNORED, TokenBatch
from headway.data.streams import StreamBatch
from headway.evaluate.labels import Judge
from headway.models.protocols import Terms
from headway.nn.loss import linear_cross_entropy, paired_cross_entropy


class Objective(nn.Module):
    """Abstract. `loss` is what is minimised; `nll`, of weight 0, is what perplexity is made of."""

    def __init__(self, model: nn.Module, config: Any = None) -> None:
        super().__init__()
        self.model: Any = model
        self.config = config

    @property
    def capturable(self) -> bool:
        """Whether it runs the same kernels for every batch of a shape, and asks the device for nothing."""
        return True

    @property
    def small_kernels(self) -> bool:
        """Whether the time goes into kernels that are one already, so that there is little to compile."""
        return False

    def forward(self, batch: Any) -> Terms:
        raise NotImplementedError

    def step(self, masters: Any) -> Any:
        """A training step of the objective's own, called with a batch and a number of parts; None: the usual one."""
        return None

    def carried(self) -> dict[str, Tensor]:
        """What a step takes over from the one before, beside the weights: it is saved with the run."""
        return {}

    def resume(self, carried: dict[str, Tensor]) -> None:
        """Take over what `carried` gave."""

    def follow(self, loss: float) -> str:
        """Called with the loss of each validation; says what it changes from here on, nothing where it does not."""
        return ""


class TokenObjective(Objective):
    """Each token from those before it and, where the batch has inputs, from those."""

    @property
    def small_kernels(self) -> bool:
        return bool(self.model.small_kernels)

    def hidden(self, batch: TokenBatch) -> Tensor:
        """The last layer's vectors under teacher forcing, a row a token."""
        ids_BT = batch.ids_BT
        state = self.model.start(batch.inputs, len(ids_BT), ids_BT.device, room=0)
        return self.model.read(ids_BT, state, batch.segments_BT)[0].flatten(0, 1)

    def weight(self) -> Tensor:
        """The head's, (V', D). In training the rows that only fill it up are cheaper to keep than to cut off."""
        weight: Tensor = self.model.output_weight
        return weight if self.training else weight[: self.model.vocabulary]

    def terms(self, hidden_ND: Tensor, batch: TokenBatch) -> Terms:
        labels_N, smoothing = batch.labels_BT.flatten(), self.config.smoothing
        loss, nll = linear_cross_entropy(hidden_ND, self.weight(), labels_N, smoothing, IGNORED)
        return {"loss": (loss, 1.0), "nll": (nll, 0.0)}

    def forward(self, batch: TokenBatch) -> Terms:
        return self.terms(self.hidden(batch), batch)


@final
class LogitsObjective(TokenObjective):
    """From the logits that the head gives, for heads that are more than one product."""

    def forward(self, batch: TokenBatch) -> Terms:
        ids_BT = batch.ids_BT
        state = self.model.start(batch.inputs, len(ids_BT), ids_BT.device, room=0)
        logits_NV = self.model.logits(ids_BT, state, batch.segments_BT)[0].flatten(0, 1)
        wide = torch.promote_types(logits_NV.dtype, torch.float32)
        given = logits_NV.to(wide), batch.labels_BT.flatten()
        how: dict[str, Any] = {"ignore_index": IGNORED, "reduction": "sum"}
        loss = F.cross_entropy(*given, label_smoothing=self.config.smoothing, **how)
        nll = F.cross_entropy(*given, **how).detach() if self.config.smoothing else loss.detach()
        return {"loss": (loss, 1.0), "nll": (nll, 0.0)}


@final
class RDropObjective(TokenObjective):
    """Two passes as one batch of twice the rows; in validation, without dropout, one pass."""

    def forward(self, batch: TokenBatch) -> Terms:
        if not self.training:
            return super().forward(batch)
        twice_2ND, labels_N = self.hidden(TokenBatch.join([batch, batch])), batch.labels_BT.flatten()
        smoothing, distance = self.config.smoothing, self.config.weight
        loss, nll = paired_cross_entropy(twice_2ND, self.weight(), labels_N, smoothing, IGNORED, distance)
        return {"loss": (loss, 1.0), "nll": (nll, 0.0)}


@final
class CarriedObjective(TokenObjective):
    """A window continues where the last one ended. The carried state stays at its address, so that captured steps read
    and change it there; it belongs to the run, not to the model, and is saved with the run."""

    @property
    def small_kernels(self) -> bool:
        return True

    def __init__(self, model: nn.Module, config: Any) -> None:
        super().__init__(model, config)
        self.places: list[Tensor] = []  # the state of all rows after the last step

    def carried(self) -> dict[str, Tensor]:
        return {f"part{number:03}": place for number, place in enumerate(self.places)}

    def resume(self, carried: dict[str, Tensor]) -> None:
        device = next(self.model.parameters()).device
        self.places = [carried[name].to(device, copy=True) for name in sorted(carried)]

    def forward(self, batch: StreamBatch) -> Terms:  # type: ignore[override]
        hidden_BTD, state = self.model.read(batch.ids_BT, self._begin(batch))
        if self.training:
            self._keep(batch, state)
        found = self.terms(hidden_BTD.flatten(0, 1), batch)
        h_BTD = hidden_BTD.to(torch.promote_types(hidden_BTD.dtype, torch.float32))
        for name, term in (("activation", h_BTD), ("change", h_BTD.diff(dim=1))):
            if weight := getattr(self.config, name):
                found[name] = (term.square().mean(-1).sum(), weight)
        return found

    def _begin(self, batch: StreamBatch) -> Any:
        """The state that these rows continue from; at an epoch's start the model's first, which may be learned."""
        first = self.model.start(None, len(batch.ids_BT), batch.ids_BT.device)
        assert batch.fresh is not None
        pairs = zip(first.parts(), self._rows(batch, first.parts()), strict=True)
        return first.of([torch.where(batch.fresh, new_BH, old_BH) for new_BH, old_BH in pairs])

    @torch.no_grad()
    def _keep(self, batch: StreamBatch, state: Any) -> None:
        # A batch that is skipped, since it is not finite, must not spoil those after it.
        for place_BH, new_BH in zip(self._rows(batch, state.parts()), state.parts(), strict=True):
            place_BH.copy_(torch.where(new_BH.isfinite(), new_BH, 0.0))

    def _rows(self, batch: StreamBatch, like: list[Tensor]) -> list[Tensor]:
        """The tensors of these rows; more rows are added when they are first needed."""
        start, end = batch.first_row, batch.first_row + len(batch.ids_BT)
        if not self.places:
            self.places = [part_BH.new_zeros(0, part_BH.shape[1]) for part_BH in like]
        if (missing := end - len(self.places[0])) > 0:
            self.places = [torch.cat([place, place.new_zeros(missing, place.shape[1])]) for place in self.places]
        return [place[start:end] for place in self.places]


class HeadObjective(Objective):
    """The loss terms of an encoder's head."""

    @property
    def capturable(self) -> bool:
        return bool(self.model.head.capturable)

    def forward(self, batch: Any) -> Terms:
        terms: Terms = self.model.head.losses(self.model.encode(batch.inputs), batch, self.config.smoothing)
        return terms


@final
class LabelsRDropObjective(HeadObjective):
    """Two passes as one batch of twice the rows; in validation, without dropout, one pass."""

    def forward(self, batch: Any) -> Terms:
        if not self.training:
            return super().forward(batch)
        head = self.model.head
        pair_2BL = head(self.model.encode(type(batch.inputs).join([batch.inputs] * 2))).unflatten(0, (2, -1))
        (one, two), smoothing = pair_2BL, self.config.smoothing
        loss, nll = (
            (head.terms(one, batch, smoothing)[name][0] + head.terms(two, batch, smoothing)[name][0]) / 2
            for name in ("loss", "nll")
        )
        log_2BL = pair_2BL.to(torch.promote_types(pair_2BL.dtype, torch.float32)).log_softmax(-1)
        apart_B = ((log_2BL[0].exp() - log_2BL[1].exp()) * (log_2BL[0] - log_2BL[1])).sum(-1)  # KL(p‖q) + KL(q‖p)
        there_B = (batch.labels_B != IGNORED).to(apart_B.dtype)
        apart = (apart_B * (there_B if batch.weights_B is None else there_B * batch.weights_B)).sum() / 2
        return {"loss": (loss + self.config.weight * apart, 1.0), "nll": (nll, 0.0)}


@final
class LinearStartObjective(HeadObjective):
    """The encoder is linear until a validation's loss is no lower than the lowest before it."""

    def __init__(self, model: nn.Module, config: Any) -> None:
        super().__init__(model, config)
        self.lowest = torch.tensor(torch.inf, dtype=torch.float64)
        self.model.encoder.linear.fill_(True)

    def forward(self, batch: Any) -> Terms:
        terms = super().forward(batch)
        loss, weight = terms["loss"]
        share = torch.where(self.model.encoder.linear, self.config.share, 1.0)
        return terms | {"loss": (loss.detach() + share * (loss - loss.detach()), weight)}

    def carried(self) -> dict[str, Tensor]:
        return {"lowest": self.lowest}

    def resume(self, carried: dict[str, Tensor]) -> None:
        self.lowest = carried["lowest"].cpu().clone()

    @torch.no_grad()
    def follow(self, loss: float) -> str:
        linear = self.model.encoder.linear
        if bool(linear) and loss >= float(self.lowest):
            linear.fill_(False)
            return "the validation loss has stopped falling: from now on the hops have their softmax"
        self.lowest = self.lowest.clamp(max=loss)
        return ""


class Config:
    """What every objective's config has.

    learns: how the weights are found, as a family declares it. one_pass: in one pass over the data, without steps.
    carries: over contiguous streams, the state passed from step to step. one_label: of heads that give one label,
    nothing else. objective: the module that it configures.
    """

    name: ClassVar[str]
    objective: ClassVar[type[Objective]]
    learns: ClassVar[str] = "gradients"
    one_pass: ClassVar[bool] = False
    carries: ClassVar[bool] = False
    one_label: ClassVar[bool] = False

    def build(self, model: nn.Module) -> Objective:
        return self.objective(model, self)

    def cost_in_words(self, run: Any) -> str | None:
        """A description of the cost, where a few steps of random values cannot measure it."""
        return None


@dataclass(frozen=True)
class CrossEntropy(Config):
    """Label-smoothed cross-entropy per target token."""

    name: ClassVar[str] = "cross-entropy"
    objective: ClassVar[type[Objective]] = TokenObjective
    smoothing: float = 0.1


@dataclass(frozen=True)
class HeadCrossEntropy(CrossEntropy):
    """Cross-entropy of what the head gives, for one that is more than a product: that copies."""

    name: ClassVar[str] = "head-cross-entropy"
    objective: ClassVar[type[Objective]] = LogitsObjective


@dataclass(frozen=True)
class NextToken(CrossEntropy):
    """Cross-entropy per token of a text, each predicted from the ones before it."""

    name: ClassVar[str] = "next-token"
    smoothing: float = 0.0


@dataclass(frozen=True)
class RDrop(CrossEntropy):
    """Cross-entropy of two passes with different dropout, and α times the distance between their answers:
    ½(KL(p‖q) + KL(q‖p)) (Liang et al. 2021). For small data: it takes twice the work a step."""

    name: ClassVar[str] = "r-drop"
    objective: ClassVar[type[Objective]] = RDropObjective
    weight: float = 1.0


@dataclass(frozen=True)
class Carried(NextToken):
    """`NextToken` over contiguous streams: the state after a step is the next step's first, and no gradient goes back
    through it (truncated back-propagation through time: Mikolov et al. 2010).

    activation, change: weights of mean h² and mean (h_t − h_{t−1})² of the last layer's output after its dropout (AR
    and TAR: Merity et al. 2018, who take the second before it; a locked mask multiplies that by 1/(1 − p) on average).
    """

    name: ClassVar[str] = "carried"
    objective: ClassVar[type[Objective]] = CarriedObjective
    carries: ClassVar[bool] = True
    activation: float = 0.0
    change: float = 0.0


@dataclass(frozen=True)
class Labels(Config):
    """The loss of an encoder's head. `judge`: the figure by which the best weights are chosen."""

    name: ClassVar[str] = "labels"
    objective: ClassVar[type[Objective]] = HeadObjective
    smoothing: float = 0.0
    judge: Judge = "accuracy"


@dataclass(frozen=True)
class LabelsRDrop(Labels):
    """`Labels` of two passes with different dropout, and α times the distance between their answers, as in `RDrop`."""

    name: ClassVar[str] = "labels-r-drop"
    one_label: ClassVar[bool] = True
    objective: ClassVar[type[Objective]] = LabelsRDropObjective
    weight: float = 1.0


@dataclass(frozen=True)
class HeadLoss(Config):
    """The loss terms of an encoder's head, as the head weighs them."""

    name: ClassVar[str] = "head-loss"
    objective: ClassVar[type[Objective]] = HeadObjective
    smoothing: float = 0.0


@dataclass(frozen=True)
class LinearStart(Labels):
    """`Labels` of a memory network that starts without the softmax of its hops, and gets it when the validation loss
    stops falling (Sukhbaatar et al. 2015, 4.2). `share`: what the gradient is multiplied by until then; with SGD that
    is a lower rate."""

    name: ClassVar[str] = "linear-start"
    objective: ClassVar[type[Objective]] = LinearStartObjective
    share: float = 0.5


@dataclass(frozen=True)
class Counting(Config):
    """The frequencies of n-grams, counted in one pass."""

    name: ClassVar[str] = "counting"
    learns: ClassVar[str] = "counting"
    one_pass: ClassVar[bool] = True

    def cost_in_words(self, run: Any) -> str:
        return "learned in one pass over the text: seconds for a million words"
